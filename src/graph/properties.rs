//! The properties of a graph.

use wakegraph_hal::setters;

/// Behaviour of a graph while it is built.
///
/// ```
/// use wakegraph::graph::{Graph, GraphProperties};
/// let graph = Graph::<()>::with_properties(GraphProperties::default().no_cycle_check(true));
/// assert!(graph.properties().no_cycle_check);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GraphProperties {
    /// Whether [`make_edge`](super::Graph::make_edge) accepts edges that close a cycle, for finalize to
    /// refuse.
    pub no_cycle_check: bool,
}

setters! {
    GraphProperties {
        /// Sets [`no_cycle_check`](Self#structfield.no_cycle_check), for programs that make very many
        /// edges from newer to older nodes and know that they close no cycle.
        no_cycle_check: bool,
    }
}

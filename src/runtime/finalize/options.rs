//! Choices that a caller makes when a graph is finalized.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use wakegraph_hal::{Error, Priority, setters};

use crate::plan::{ExecutionOrder, PartitionPolicy};

/// Options of [`Graph::finalize_with`](crate::Graph::finalize_with): how a graph is split and ordered, and
/// what its executable can do.
///
/// ```
/// use wakegraph::{Device, FinalizeOptions, Graph};
///
/// # fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let mut graph = Graph::new(&device);
/// graph.fill(&device.buffer::<u32>(4)?, 1);
/// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true).profiling(true))?;
/// # drop(exec);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FinalizeOptions {
    /// Name of the executable in errors, progress reports, metrics, traces, timelines and tokio-console.
    ///
    /// Each name is a value of the label `executable` of metrics, so a program should have few:
    /// one for each model or stage, and the same for all slots of a pool. An executable without a name that
    /// the closure of a pool finalizes has the name of the [pool](crate::service::PoolBuilder::name).
    pub name: Option<Arc<str>>,
    /// Policy for grouping nodes into partitions.
    pub partition: PartitionPolicy,
    /// Order in which a partition's commands are appended.
    pub order: ExecutionOrder,
    /// Run every partition's commands one after the other, without sync-points: a hint for graphs
    /// with little to run side by side.
    pub in_order: bool,
    /// Record times of nodes and partitions. Off, it costs nothing.
    pub profiling: bool,
    /// Let the executable be [updated](crate::ExecutableGraph::update). Off, it costs nothing.
    pub updatable: bool,
    /// Urgency of the work among what else runs on its devices. On a device that
    /// [has priorities](crate::capabilities::Capabilities::queue_priorities), work-groups that wait for
    /// room on it start in this order; what runs is not interrupted. On CUDA and HIP, low counts as
    /// normal. Other devices, such as the host, ignore it.
    pub priority: Priority,
}

impl FinalizeOptions {
    /// The defaults: no name, signatures, depth-first, sync-points, no profiling, no updates, normal
    /// priority.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`name`](Self#structfield.name).
    #[must_use]
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The options, with the name that [`with_default_name`] gives to executables of this thread if they
    /// have none.
    pub(super) fn named(self) -> Self {
        let name = self.name.or_else(|| DEFAULT_NAME.with_borrow(Clone::clone));
        Self { name, ..self }
    }

    /// Adds the name to an error, if there is one.
    pub(super) fn name_in(&self, error: Error) -> Error {
        match &self.name {
            Some(name) => error.in_executable(name),
            None => error,
        }
    }
}

thread_local! {
    static DEFAULT_NAME: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Calls a closure, and gives this name to the executables that it finalizes without one.
pub(crate) fn with_default_name<R>(name: Option<&Arc<str>>, make: impl FnOnce() -> R) -> R {
    /// Puts the earlier name back, also where the closure panics.
    struct Restore(Option<Arc<str>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            DEFAULT_NAME.set(mem::take(&mut self.0));
        }
    }

    let _restore = Restore(DEFAULT_NAME.replace(name.cloned()));
    make()
}

setters! {
    FinalizeOptions {
        partition: PartitionPolicy, order: ExecutionOrder, in_order: bool,
        profiling: bool, updatable: bool, priority: Priority,
    }
}

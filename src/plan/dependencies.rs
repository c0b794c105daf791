//! Pass 6, first half: the dependencies between partitions.
//!
//! Every edge that crosses partitions is a dependency. This pass sorts the partitions topologically;
//! the [second half](super::transitive_reduction) removes the dependencies that others imply.

use super::csr::Csr;
use super::order::{Dag, depth_first};
use super::partition::Groups;

/// The positions in each partition, ascending.
pub(super) fn members(groups: &Groups) -> Csr {
    let pairs = groups.of.iter().enumerate().map(|(position, &group)| (group, position as u32));
    Csr::gather(groups.places.len(), pairs)
}

/// The graph's edges, split into those between partitions and those inside them.
pub(super) struct Edges {
    /// The graph of the partitions (the quotient graph), with each dependency once.
    pub(super) quotient: Dag,
    /// The positions of each member's predecessors in its own partition, partition by partition.
    pub(super) inner: Csr,
}

/// Separates edges inside partitions from dependencies, and sorts the partitions topologically.
///
/// # Errors
/// The partitions of a cycle, which only a fault in the partitioning can cause.
pub(super) fn split(preds: &Csr, groups: &Groups, members: &Csr) -> Result<Edges, Vec<u32>> {
    let mut inner = Csr::with_capacity(preds.len(), preds.items().len());
    let mut dependencies = Csr::with_capacity(members.len(), members.len());
    let mut met_by = vec![u32::MAX; members.len()];
    for (group, members) in members.iter().enumerate() {
        for &member in members {
            for &pred in preds.get(member as usize) {
                let from = groups.of[pred as usize];
                if from == group as u32 {
                    inner.push(pred);
                } else if std::mem::replace(&mut met_by[from as usize], group as u32) != group as u32 {
                    dependencies.push(from);
                }
            }
            inner.close();
        }
        dependencies.close();
    }
    Ok(Edges { quotient: depth_first(&dependencies)?, inner })
}

//! Pass 6, first half: which partitions wait for which.
//!
//! Every edge that crosses partitions is a dependency. Partitions are then put into topological
//! order; what follows from other dependencies is [dropped](super::reduce) after that.

use super::lists::Lists;
use super::order::{Dag, depth_first};
use super::partition::Groups;

/// The positions in every partition, in order.
pub(super) fn members(groups: &Groups) -> Lists {
    let pairs = groups.of.iter().enumerate().map(|(position, &group)| (group, position as u32));
    Lists::gather(groups.places.len(), pairs)
}

/// The graph's edges, told apart.
pub(super) struct Edges {
    /// Between partitions: the partitions as a graph of their own, with every dependency once.
    pub(super) quotient: Dag,
    /// Inside partitions: for every member, partition after partition, its predecessors' positions.
    pub(super) inner: Lists,
}

/// Tells edges inside partitions from dependencies, and puts the partitions into topological order.
///
/// # Errors
/// The partitions of a cycle. There is none unless partitioning is wrong.
pub(super) fn split(preds: &Lists, groups: &Groups, members: &Lists) -> Result<Edges, Vec<u32>> {
    let mut inner = Lists::with_capacity(preds.len(), preds.items().len());
    let mut dependencies = Lists::with_capacity(members.len(), members.len());
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

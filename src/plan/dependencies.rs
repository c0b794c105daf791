//! Pass 6, first half: the dependencies between partitions.
//!
//! Every edge that crosses partitions is a dependency. This pass sorts the partitions topologically;
//! the [second half](super::transitive_reduction) removes the dependencies that others imply.

use super::csr::{Csr, Lists};
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
    /// The edges inside each partition, in the order of `members`.
    pub(super) inner: InnerEdges,
}

/// The edges inside partitions.
pub(super) struct InnerEdges {
    /// The members of the partitions that are not paths, one after the other, as indices into the members of
    /// the same partition.
    preds: Csr,
    /// Where those of each partition start.
    starts: Vec<u32>,
}

impl InnerEdges {
    /// The edges between `count` members of a partition; `None` if each waits for the one before it.
    pub(super) fn get(&self, partition: usize) -> Option<Lists<'_>> {
        let (start, end) = (self.starts[partition] as usize, self.starts[partition + 1] as usize);
        (start < end).then(|| self.preds.lists(start..end))
    }

    /// The number of edges in partitions that are not paths.
    pub(super) fn edge_count(&self) -> usize {
        self.preds.items().len()
    }
}

/// Separates edges inside partitions from dependencies, and sorts the partitions topologically.
///
/// # Errors
/// The partitions of a cycle, which only a fault in the partitioning can cause.
pub(super) fn split(preds: &Csr, groups: &Groups, members: &Csr) -> Result<Edges, Vec<u32>> {
    let mut dependencies = Csr::with_capacity(members.len(), members.len());
    let mut inner = Csr::with_capacity(preds.len(), preds.items().len());
    let mut starts = Vec::with_capacity(members.len() + 1);
    starts.push(0);
    let mut met_by = vec![u32::MAX; members.len()];
    let mut index_of = vec![0; preds.len()];
    for (group, members) in (0u32..).zip(members.iter()) {
        let first = inner.len();
        let mut is_path = true;
        for (index, &member) in (0u32..).zip(members) {
            index_of[member as usize] = index;
            let mut follows = index == 0;
            for &pred in preds.get(member as usize) {
                let from = groups.of[pred as usize];
                if from == group {
                    let pred = index_of[pred as usize];
                    follows |= pred + 1 == index;
                    inner.push(pred);
                } else if std::mem::replace(&mut met_by[from as usize], group) != group {
                    dependencies.push(from);
                }
            }
            inner.close();
            is_path &= follows;
        }
        if is_path {
            inner.truncate(first);
        }
        starts.push(inner.len() as u32);
        dependencies.close();
    }
    Ok(Edges { quotient: depth_first(&dependencies)?, inner: InnerEdges { preds: inner, starts } })
}

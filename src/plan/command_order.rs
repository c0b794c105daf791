//! Pass 7: the order of the commands inside each partition, and their sync-points.
//!
//! Commands get sync-points where paths fork and join. A partition that is a single path is
//! in-order instead, which saves the device all synchronisation. The caller can request in-order
//! partitions of other shapes, too.

use super::PlanOptions;
use super::csr::Csr;
use super::dependencies::Edges;
use super::order::{Dag, Sorter};

/// The commands of all partitions, in the order of the partitions.
pub(super) struct CommandOrder {
    /// Positions by partition, in append order.
    pub(super) nodes: Csr,
    /// For each entry of `nodes`: the earlier entries of the same partition that it waits for.
    pub(super) waits: Csr,
    /// By partition.
    pub(super) in_order: Vec<bool>,
}

/// Orders the commands of the partitions, which are those of the quotient graph, in its order. `members` has
/// the positions in each partition before these are sorted.
///
/// A sync-point is left out if the depth-first order shows that another one implies it.
///
/// # Errors
/// The nodes of a cycle. If the members are in topological order there is none.
pub(super) fn order_commands(
    members: &Csr,
    edges: &Edges,
    options: &PlanOptions,
) -> Result<CommandOrder, Vec<u32>> {
    let count = members.items().len();
    let mut commands = CommandOrder {
        nodes: Csr::with_capacity(members.len(), count),
        waits: Csr::with_capacity(count, edges.inner.edge_count()),
        in_order: Vec::with_capacity(members.len()),
    };
    let mut sorter = Sorter::new();
    let mut kept = Vec::new();
    for &group in &edges.quotient.nodes {
        let members = members.get(group as usize);
        let Some(preds) = edges.inner.get(group as usize) else {
            commands.add_path(members, options.profiling);
            continue;
        };
        let sorted = sorter.sort(preds, options.order)?;
        commands.nodes.add(sorted.nodes.iter().map(|&index| members[index as usize]));
        commands.in_order.push(options.in_order && !options.profiling);
        match options.in_order && !options.profiling {
            true => commands.waits.close_many(members.len()),
            false => commands.add_waits(sorted, &mut kept),
        }
    }
    Ok(commands)
}

impl CommandOrder {
    /// Adds a partition each of whose members waits for the one before it. What else it waits for is implied.
    fn add_path(&mut self, members: &[u32], profiling: bool) {
        self.nodes.add_slice(members);
        self.in_order.push(!profiling);
        if !profiling {
            return self.waits.close_many(members.len());
        }
        self.waits.close();
        for before in 0..members.len() as u32 - 1 {
            self.waits.add_slice(&[before]);
        }
    }

    /// Adds the sync-points of one partition. `kept` is memory to work in.
    fn add_waits(&mut self, sorted: &Dag, kept: &mut Vec<u32>) {
        for preds in sorted.preds.iter() {
            if let [_, _, ..] = preds {
                kept.clear();
                kept.extend_from_slice(preds);
                kept.sort_unstable();
                kept.dedup();
                drop_covered(kept, &sorted.ancestors_from);
                self.waits.add_slice(kept);
            } else {
                self.waits.add_slice(preds);
            }
        }
    }
}

/// Removes from an ascending list the entries that the depth-first order shows to be ancestors of later ones.
fn drop_covered(kept: &mut Vec<u32>, ancestors_from: &[u32]) {
    let mut covered_from = u32::MAX;
    let mut write = kept.len();
    for read in (0..kept.len()).rev() {
        let entry = kept[read];
        if entry < covered_from {
            write -= 1;
            kept[write] = entry;
            covered_from = covered_from.min(ancestors_from[entry as usize]);
        }
    }
    kept.drain(..write);
}

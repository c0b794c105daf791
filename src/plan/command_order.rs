//! Pass 7: the order of the commands inside each partition, and their sync-points.
//!
//! Commands get sync-points where paths fork and join. A partition that is a single path is
//! in-order instead, which saves the device all synchronisation. The caller can request in-order
//! partitions of other shapes, too.

use super::csr::Csr;
use super::order::{breadth_first, depth_first};
use super::{ExecutionOrder, PlanOptions};

/// The commands of all partitions, in the order of the partitions.
pub(super) struct CommandOrder {
    /// Positions by partition, in append order.
    pub(super) nodes: Csr,
    /// For each entry of `nodes`: the earlier entries of the same partition that it waits for.
    pub(super) waits: Csr,
    /// By partition.
    pub(super) in_order: Vec<bool>,
}

/// Orders the commands of the partitions in `order`. `members` has the positions in each partition and
/// `inner` the predecessors of each member within its partition. Both are indexed by the old partition
/// numbers, which are the entries of `order`.
///
/// A sync-point is left out if the depth-first order shows that another one implies it.
///
/// # Errors
/// The nodes of a cycle. If the members are in topological order there is none.
pub(super) fn order_commands(
    members: &Csr,
    inner: &Csr,
    order: &[u32],
    options: &PlanOptions,
) -> Result<CommandOrder, Vec<u32>> {
    let slots = Slots::new(members, inner, order, options);
    let sorted = match options.order {
        ExecutionOrder::DepthFirst => depth_first(&slots.preds)?,
        ExecutionOrder::BreadthFirst => breadth_first(&slots.preds, &slots.parts),
    };

    let mut nodes = Csr::with_capacity(order.len(), slots.positions.len());
    let mut waits = Csr::with_capacity(slots.positions.len(), 0);
    let mut kept = Vec::new();
    let mut first = 0;
    for (&group, &in_order) in order.iter().zip(&slots.in_order) {
        let end = first + members.get(group as usize).len();
        nodes.add(sorted.nodes[first..end].iter().map(|&slot| slots.positions[slot as usize]));
        for at in first..end {
            if !in_order {
                kept.clear();
                kept.extend_from_slice(sorted.preds.get(at));
                if kept.len() > 1 {
                    kept.sort_unstable();
                    kept.dedup();
                    drop_covered(&mut kept, &sorted.ancestors_from);
                }
                kept.iter().for_each(|&pred| waits.push(pred - first as u32));
            }
            waits.close();
        }
        first = end;
    }
    Ok(CommandOrder { nodes, waits, in_order: slots.in_order })
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

/// All positions, partition by partition, and the edges between these slots inside the partitions.
struct Slots {
    positions: Vec<u32>,
    /// The partition of every slot.
    parts: Vec<u32>,
    /// Predecessors as slots; none for partitions that have only one possible order.
    preds: Csr,
    in_order: Vec<bool>,
}

impl Slots {
    fn new(members: &Csr, inner: &Csr, order: &[u32], options: &PlanOptions) -> Self {
        let count = inner.len();
        let mut slots = Self {
            positions: Vec::with_capacity(count),
            parts: Vec::with_capacity(count),
            preds: Csr::with_capacity(count, inner.items().len()),
            in_order: Vec::with_capacity(order.len()),
        };
        let mut slot_of = vec![0; count];
        for (part, &group) in order.iter().enumerate() {
            let start = members.start(group as usize);
            let members = members.get(group as usize);
            let is_path = is_path(members, start, inner);
            slots.in_order.push(!options.profiling && (is_path || options.in_order));
            let has_one_order = members.len() == 1 || (is_path && !options.profiling);
            for (index, &member) in members.iter().enumerate() {
                if has_one_order {
                    slots.preds.close();
                } else {
                    slot_of[member as usize] = slots.positions.len() as u32;
                    slots.preds.add(inner.get(start + index).iter().map(|&pred| slot_of[pred as usize]));
                }
                slots.positions.push(member);
                slots.parts.push(part as u32);
            }
        }
        slots
    }
}

/// Whether every member waits for the one before it.
fn is_path(members: &[u32], start: usize, inner: &Csr) -> bool {
    members.windows(2).zip(start + 1..).all(|(pair, at)| inner.get(at).contains(&pair[0]))
}

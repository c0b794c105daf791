//! Pass 7: inside partitions: in which order nodes are appended, and what each waits for.
//!
//! Sync-points where nodes fork and join; none where one command simply follows the other. A
//! partition that is a single path is in-order, which saves the device all synchronisation. The
//! caller can give that hint for other shapes, too.

use super::lists::Lists;
use super::order::{breadth_first, depth_first};
use super::{ExecutionOrder, PlanOptions};

/// The inside of all partitions, in their order.
pub(super) struct Inside {
    /// Positions by partition, in append order.
    pub(super) nodes: Lists,
    /// For every one of `nodes`: which before it in the partition it waits for.
    pub(super) waits: Lists,
    /// By partition.
    pub(super) in_order: Vec<bool>,
}

/// Arranges the partitions of `order`. `members` are their positions and `inner` each member's
/// predecessors within its partition, by the partitions' old numbers, which are the entries of
/// `order`.
///
/// A sync-point is left out where the depth-first order shows that another one implies it.
///
/// # Errors
/// The nodes of a cycle. There is none in a graph whose members are in topological order.
pub(super) fn arrange(
    members: &Lists,
    inner: &Lists,
    order: &[u32],
    options: &PlanOptions,
) -> Result<Inside, Vec<u32>> {
    let slots = Slots::new(members, inner, order, options);
    let sorted = match options.order {
        ExecutionOrder::DepthFirst => depth_first(&slots.preds)?,
        ExecutionOrder::BreadthFirst => breadth_first(&slots.preds, &slots.parts),
    };

    let mut nodes = Lists::with_capacity(order.len(), slots.positions.len());
    let mut waits = Lists::with_capacity(slots.positions.len(), 0);
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
                    drop_covered(&mut kept, &sorted.since);
                }
                kept.iter().for_each(|&pred| waits.push(pred - first as u32));
            }
            waits.close();
        }
        first = end;
    }
    Ok(Inside { nodes, waits, in_order: slots.in_order })
}

/// Drops from an ascending list what the depth-first order shows to be an ancestor of a later entry.
fn drop_covered(kept: &mut Vec<u32>, since: &[u32]) {
    let mut covered_from = u32::MAX;
    let mut write = kept.len();
    for read in (0..kept.len()).rev() {
        let entry = kept[read];
        if entry < covered_from {
            write -= 1;
            kept[write] = entry;
            covered_from = covered_from.min(since[entry as usize]);
        }
    }
    kept.drain(..write);
}

/// All positions, partition after partition, and the edges inside partitions between these slots.
struct Slots {
    positions: Vec<u32>,
    /// The partition of every slot.
    parts: Vec<u32>,
    /// Predecessors as slots; none where the slots are in the only order there is.
    preds: Lists,
    in_order: Vec<bool>,
}

impl Slots {
    fn new(members: &Lists, inner: &Lists, order: &[u32], options: &PlanOptions) -> Self {
        let count = inner.len();
        let mut slots = Self {
            positions: Vec::with_capacity(count),
            parts: Vec::with_capacity(count),
            preds: Lists::with_capacity(count, inner.items().len()),
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
fn is_path(members: &[u32], start: usize, inner: &Lists) -> bool {
    members.windows(2).zip(start + 1..).all(|(pair, at)| inner.get(at).contains(&pair[0]))
}

//! Pass 4: removes empty nodes and the joins around sub-graphs. The successors of a removed node wait
//! for its predecessors instead.
//!
//! Removing a join of `k` predecessors and `m` successors would turn `k + m` edges into `k * m`. So
//! the pass treats an empty node in one of three ways, with [`NARROW`] as the bound:
//!
//! - **narrow in**: it stands for at most `NARROW` nodes. Their list is kept and copied to each
//!   successor.
//! - **narrow out**: at most `NARROW` paths lead from it, through empty nodes only, to nodes that
//!   are not empty. Those few nodes walk back through it, each at most once.
//! - otherwise it **stays** as a join: a command that does nothing, on the device of one of its
//!   predecessors or, if none of these supports empty commands, on its own device. If no device does,
//!   successors walk through it whatever that costs.
//!
//! The successors of a node that is narrow out are narrow out as well, so a walk ends at lists and
//! joins. Both the work and the number of remaining edges are at most `NARROW * (V + E)`, also for
//! chains and trees of empty nodes.

use super::csr::Csr;
use super::order::Sorted;
use super::placement::{Devices, EMPTY, HOST, device_place};

/// The longest list that is copied, and the most walks through one node.
pub(super) const NARROW: usize = 8;

/// Removes the empty nodes.
pub(super) fn elide_empty_nodes(sorted: Sorted, devices: &Devices) -> Sorted {
    let Sorted { nodes, preds, places } = sorted;
    let count = places.len();
    let mut pass = Pass {
        preds: &preds,
        places,
        moved: vec![GONE; count],
        short: vec![NO_LIST; count],
        lists: Csr::with_capacity(0, 0),
        stamps: vec![u32::MAX; count],
        walk: Vec::new(),
        found: Vec::new(),
    };
    let paths = pass.paths_out();
    let mut left = Vec::with_capacity(count);
    let mut left_preds = Csr::with_capacity(count, preds.items().len());
    let mut left_places = Vec::with_capacity(count);
    for position in 0..count {
        let mut place = pass.places[position];
        if place & EMPTY != 0 {
            if paths[position] as usize <= NARROW {
                continue;
            }
            pass.resolve(position);
            if pass.found.len() <= NARROW {
                pass.keep_list(position);
                continue;
            }
            let Some(join) = pass.join_place(place & !EMPTY, devices) else { continue };
            place = join;
        } else {
            pass.resolve(position);
        }
        pass.places[position] = place;
        pass.moved[position] = left.len() as u32;
        left.push(nodes.as_ref().map_or(position as u32, |nodes| nodes[position]));
        left_preds.add(pass.found.iter().map(|&old| pass.moved[old as usize]));
        left_places.push(place);
    }
    Sorted { nodes: Some(left), preds: left_preds, places: left_places }
}

/// In `moved`: an empty node that was removed.
const GONE: u32 = u32::MAX;
/// In `short`: walk through it.
const NO_LIST: u32 = u32::MAX;

struct Pass<'a> {
    preds: &'a Csr,
    /// Indexed by old position, like all arrays here. Joins have their final place.
    places: Vec<u32>,
    /// The new position.
    moved: Vec<u32>,
    /// The index in `lists` of the (old) positions that an empty node stands for.
    short: Vec<u32>,
    lists: Csr,
    /// The last position that reached this one.
    stamps: Vec<u32>,
    walk: Vec<u32>,
    found: Vec<u32>,
}

impl Pass<'_> {
    /// For each empty node, the number of paths through empty nodes to other nodes.
    fn paths_out(&self) -> Vec<u32> {
        let mut paths = vec![0u32; self.places.len()];
        for (position, preds) in self.preds.iter().enumerate().rev() {
            let own = if self.places[position] & EMPTY != 0 { paths[position] } else { 1 };
            for &pred in preds {
                paths[pred as usize] = paths[pred as usize].saturating_add(own);
            }
        }
        paths
    }

    /// Fills `found` with the positions that `position` waits for after empty nodes are removed, each once.
    fn resolve(&mut self, position: usize) {
        self.found.clear();
        self.walk.push(position as u32);
        while let Some(through) = self.walk.pop() {
            // Reversed, so that the stack yields them in the order in which the edges were made.
            let first = self.walk.len();
            for &pred in self.preds.get(through as usize) {
                let at = pred as usize;
                if self.moved[at] != GONE {
                    meet(&mut self.stamps, &mut self.found, position, pred);
                } else if self.short[at] != NO_LIST {
                    for &one in self.lists.get(self.short[at] as usize) {
                        meet(&mut self.stamps, &mut self.found, position, one);
                    }
                } else if std::mem::replace(&mut self.stamps[at], position as u32) != position as u32 {
                    self.walk.push(pred);
                }
            }
            self.walk[first..].reverse();
        }
    }

    fn keep_list(&mut self, position: usize) {
        self.short[position] = self.lists.len() as u32;
        self.lists.add(self.found.iter().copied());
    }

    /// The place of a join whose predecessors are `found`.
    fn join_place(&self, own: u32, devices: &Devices) -> Option<u32> {
        let of_preds = self.found.iter().map(|&pred| device_place(self.places[pred as usize]));
        let of_preds = of_preds.filter(|&place| place != HOST);
        of_preds.chain([own]).find(|&place| devices.can_join(place))
    }
}

fn meet(stamps: &mut [u32], found: &mut Vec<u32>, position: usize, pred: u32) {
    if std::mem::replace(&mut stamps[pred as usize], position as u32) != position as u32 {
        found.push(pred);
    }
}

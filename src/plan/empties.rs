//! Pass 4: empty nodes, and the joins around sub-graphs, vanish; what waited for them waits for
//! what they waited for.
//!
//! Taken literally, that turns a join of `k` predecessors and `m` successors from `k + m` edges
//! into `k * m`. So an empty node goes one of three ways, with [`NARROW`] as the bound:
//!
//! - **narrow in**: it stands for at most `NARROW` nodes. Their list is kept and copied to whoever
//!   waits for it.
//! - **narrow out**: at most `NARROW` paths lead from it, through empty nodes only, to nodes that
//!   are not empty. Those few walk back through it, each at most once.
//! - otherwise it **stays**, as a join: a command that does nothing, on the device of one of its
//!   predecessors (where none can hold one, on its own). Where no device can, it is walked through
//!   at whatever cost.
//!
//! An empty node that is narrow out comes after none that is not, so a walk ends at lists and
//! joins, and both the work and the number of edges left are at most `NARROW * (V + E)`, for chains
//! and trees of empty nodes as well.

use super::check::{EMPTY, HOST, Places};
use super::lists::Lists;

/// The bound on lists copied and on walks through a node.
pub(super) const NARROW: usize = 8;

/// What is left of a graph, in topological order.
pub(super) struct Remaining {
    /// The node at every position.
    pub(super) nodes: Vec<u32>,
    /// By position.
    pub(super) preds: Lists,
    /// By position.
    pub(super) places: Vec<u32>,
}

/// Takes the empty nodes out of a graph in topological order: `nodes` at every position, and their
/// predecessors' positions.
pub(super) fn look_through(nodes: &[u32], preds: &Lists, places: &Places) -> Remaining {
    let count = nodes.len();
    let mut pass = Pass {
        preds,
        places: nodes.iter().map(|&node| places.of[node as usize]).collect(),
        moved: vec![GONE; count],
        short: vec![NO_LIST; count],
        lists: Lists::with_capacity(0, 0),
        stamps: vec![u32::MAX; count],
        walk: Vec::new(),
        found: Vec::new(),
    };
    let paths = pass.paths_out();
    let mut out = Remaining {
        nodes: Vec::with_capacity(count),
        preds: Lists::with_capacity(count, preds.items().len()),
        places: Vec::with_capacity(count),
    };
    for (position, &node) in nodes.iter().enumerate() {
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
            let Some(join) = pass.join_place(place & !EMPTY, places) else { continue };
            place = join;
        } else {
            pass.resolve(position);
        }
        pass.places[position] = place;
        pass.moved[position] = out.nodes.len() as u32;
        out.nodes.push(node);
        out.preds.add(pass.found.iter().map(|&old| pass.moved[old as usize]));
        out.places.push(place);
    }
    out
}

/// In `moved`: an empty node that vanished.
const GONE: u32 = u32::MAX;
/// In `short`: walk through it.
const NO_LIST: u32 = u32::MAX;

struct Pass<'a> {
    preds: &'a Lists,
    /// By old position, as all arrays here; of a join, the place it got.
    places: Vec<u32>,
    /// The new position.
    moved: Vec<u32>,
    /// Which of `lists` holds the (old) positions that an empty node stands for.
    short: Vec<u32>,
    lists: Lists,
    /// The last position that met this one.
    stamps: Vec<u32>,
    walk: Vec<u32>,
    found: Vec<u32>,
}

impl Pass<'_> {
    /// Of every empty node, the number of paths through empty nodes to others.
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

    /// Fills `found` with what `position` waits for once empty nodes are gone, each once.
    fn resolve(&mut self, position: usize) {
        self.found.clear();
        self.walk.push(position as u32);
        while let Some(through) = self.walk.pop() {
            // Backwards onto the stack, so that they come off in the order in which they were made.
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

    /// Where a join after `found` goes.
    fn join_place(&self, own: u32, places: &Places) -> Option<u32> {
        let of_preds =
            self.found.iter().map(|&pred| self.places[pred as usize]).filter(|&place| place != HOST);
        of_preds.chain([own]).find(|&place| places.can_join(place))
    }
}

fn meet(stamps: &mut [u32], found: &mut Vec<u32>, position: usize, pred: u32) {
    if std::mem::replace(&mut stamps[pred as usize], position as u32) != position as u32 {
        found.push(pred);
    }
}

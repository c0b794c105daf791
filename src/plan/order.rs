//! Topological orders, and graphs renumbered by them.
//!
//! Pass 3 is here: everything after it works on *positions* in some topological order, not on
//! nodes, so arrays are walked from front to back and an edge always leads to a larger number.
//! Where all edges lead from older to younger nodes, that order is the nodes' own and costs
//! nothing. The same sort later puts the partitions in order, and the nodes inside of each.
//!
//! # Depth first
//!
//! Sinks are taken in the order of their numbers, and each is preceded by its predecessors, theirs,
//! and so on: the postorder of a depth-first walk against the edges. A branch so stands in one
//! piece. The walk needs predecessor lists only, finds cycles as it goes, and knows for free a
//! range of positions that are all ancestors of a node: those given out between its discovery and
//! its end ([`Dag::since`]).

use super::lists::Lists;

/// An acyclic graph in topological order.
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Dag {
    /// The node at every position.
    pub(super) nodes: Vec<u32>,
    /// Positions of the predecessors of every position; all are smaller.
    pub(super) preds: Lists,
    /// All positions from `since[v]` up to `v` are ancestors of `v`. (Most ancestors may lie before.)
    pub(super) since: Vec<u32>,
}

const UNSEEN: u32 = u32::MAX;
const OPEN: u32 = u32::MAX - 1;

/// Orders the graph with these predecessor lists depth first.
///
/// # Errors
/// The nodes of a cycle, each followed by a successor, where there is one.
pub(super) fn depth_first(preds: &Lists) -> Result<Dag, Vec<u32>> {
    let count = preds.len();
    let mut walk = Walk {
        preds,
        position: vec![UNSEEN; count],
        stack: Vec::new(),
        dag: Dag {
            nodes: Vec::with_capacity(count),
            preds: Lists::with_capacity(count, preds.items().len()),
            since: Vec::with_capacity(count),
        },
    };
    let mut is_sink = vec![true; count];
    for &pred in preds.items() {
        is_sink[pred as usize] = false;
    }
    for (node, is_sink) in is_sink.into_iter().enumerate() {
        if is_sink {
            walk.finish(node as u32)?;
        }
    }
    // What leads to no sink leads to a cycle: the walk from there will find it.
    if walk.dag.nodes.len() < count {
        for node in 0..count as u32 {
            walk.finish(node)?;
        }
    }
    Ok(walk.dag)
}

/// A node whose predecessors are being finished.
struct Frame {
    node: u32,
    /// The next predecessor to look at.
    next: u32,
    since: u32,
}

struct Walk<'a> {
    preds: &'a Lists,
    /// By node: its position, or that it is unseen or still open.
    position: Vec<u32>,
    stack: Vec<Frame>,
    dag: Dag,
}

impl Walk<'_> {
    /// Gives out positions to `root` and to all its ancestors that have none.
    fn finish(&mut self, root: u32) -> Result<(), Vec<u32>> {
        if self.position[root as usize] != UNSEEN {
            return Ok(());
        }
        self.open(root);
        'frames: while let Some(frame) = self.stack.last_mut() {
            let node = frame.node as usize;
            let preds = self.preds.get(node);
            while let Some(&pred) = preds.get(frame.next as usize) {
                frame.next += 1;
                match self.position[pred as usize] {
                    UNSEEN => {
                        self.open(pred);
                        continue 'frames;
                    }
                    OPEN => return Err(self.cycle(pred)),
                    _ => {}
                }
            }
            self.position[node] = self.dag.nodes.len() as u32;
            self.dag.nodes.push(frame.node);
            self.dag.since.push(frame.since);
            self.dag.preds.add(preds.iter().map(|&pred| self.position[pred as usize]));
            self.stack.pop();
        }
        Ok(())
    }

    fn open(&mut self, node: u32) {
        self.position[node as usize] = OPEN;
        self.stack.push(Frame { node, next: 0, since: self.dag.nodes.len() as u32 });
    }

    /// Every frame's node is a predecessor of the one below it, and `closing` is one of the topmost.
    #[cold]
    fn cycle(&self, closing: u32) -> Vec<u32> {
        let above = self.stack.iter().rev().map(|frame| frame.node).take_while(|&node| node != closing);
        std::iter::once(closing).chain(above).collect()
    }
}

/// Orders a graph whose nodes are in topological order already: by part, then by level (the length
/// of the longest path to a node), then by number. Parts ascend and have no edges between them.
pub(super) fn breadth_first(preds: &Lists, parts: &[u32]) -> Dag {
    let mut levels: Vec<u32> = Vec::with_capacity(preds.len());
    for preds in preds.iter() {
        levels.push(preds.iter().map(|&pred| levels[pred as usize] + 1).max().unwrap_or(0));
    }
    // Counting sorts are stable: by the lesser key first.
    let lists = |keys: &[u32]| keys.iter().max().map_or(0, |&last| last as usize + 1);
    let by_level = Lists::gather(lists(&levels), levels.iter().zip(0..).map(|(&level, node)| (level, node)));
    let by_part = by_level.items().iter().map(|&node| (parts[node as usize], node));
    let nodes = Lists::gather(lists(parts), by_part).into_items();

    let mut position = vec![0; nodes.len()];
    for (at, &node) in nodes.iter().enumerate() {
        position[node as usize] = at as u32;
    }
    let mut moved = Lists::with_capacity(nodes.len(), preds.items().len());
    for &node in &nodes {
        moved.add(preds.get(node as usize).iter().map(|&pred| position[pred as usize]));
    }
    // A level holds no ancestors of its own nodes: nothing is known for free here.
    let since = (0..nodes.len() as u32).collect();
    Dag { nodes, preds: moved, since }
}

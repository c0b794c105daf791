//! Pass 3: sorts nodes topologically and renumbers graphs by the result.
//!
//! Later passes work on *positions* in a topological order instead of nodes, so they walk arrays
//! from front to back, and every edge leads to a larger number. If all edges lead from older to
//! newer nodes, insertion order is such an order and the pass costs nothing. The same sort later
//! orders the partitions, and the nodes inside each.
//!
//! # Depth first
//!
//! The walk takes the sinks in the order of their numbers and puts all ancestors of each before it:
//! the postorder of a depth-first walk against the edges. A branch therefore stays in one piece.
//! The walk needs predecessor lists only and finds cycles as it goes. It also finds, at no cost, a
//! range of positions that are all ancestors of a node: those assigned between its discovery and
//! its completion ([`Dag::ancestors_from`]).

use super::csr::Csr;

/// An acyclic graph in topological order.
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Dag {
    /// The node at every position.
    pub(super) nodes: Vec<u32>,
    /// The positions of the predecessors of every position; all are smaller.
    pub(super) preds: Csr,
    /// All positions from `ancestors_from[v]` up to `v` are ancestors of `v`. (Most ancestors may
    /// lie before.)
    pub(super) ancestors_from: Vec<u32>,
}

const UNSEEN: u32 = u32::MAX;
const OPEN: u32 = u32::MAX - 1;

/// Sorts the graph with these predecessor lists depth first.
///
/// # Errors
/// The nodes of a cycle, each followed by a successor, if the graph has one.
pub(super) fn depth_first(preds: &Csr) -> Result<Dag, Vec<u32>> {
    let count = preds.len();
    let mut walk = Walk {
        preds,
        position: vec![UNSEEN; count],
        stack: Vec::new(),
        dag: Dag {
            nodes: Vec::with_capacity(count),
            preds: Csr::with_capacity(count, preds.items().len()),
            ancestors_from: Vec::with_capacity(count),
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
    // A node that reaches no sink reaches a cycle: the walk from there finds it.
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
    /// Index of the next predecessor to visit.
    next: u32,
    ancestors_from: u32,
}

struct Walk<'a> {
    preds: &'a Csr,
    /// For each node: its position, `UNSEEN` or `OPEN`.
    position: Vec<u32>,
    stack: Vec<Frame>,
    dag: Dag,
}

impl Walk<'_> {
    /// Assigns positions to `root` and to all its ancestors that have none.
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
            self.dag.ancestors_from.push(frame.ancestors_from);
            self.dag.preds.add(preds.iter().map(|&pred| self.position[pred as usize]));
            self.stack.pop();
        }
        Ok(())
    }

    fn open(&mut self, node: u32) {
        self.position[node as usize] = OPEN;
        self.stack.push(Frame { node, next: 0, ancestors_from: self.dag.nodes.len() as u32 });
    }

    /// Every frame's node is a predecessor of the one below it, and `closing` is one of the topmost.
    #[cold]
    fn cycle(&self, closing: u32) -> Vec<u32> {
        let above = self.stack.iter().rev().map(|frame| frame.node).take_while(|&node| node != closing);
        std::iter::once(closing).chain(above).collect()
    }
}

/// Sorts a graph whose nodes are in topological order already: by part, then by level (the length
/// of the longest path to a node), then by number. Parts ascend and have no edges between them.
pub(super) fn breadth_first(preds: &Csr, parts: &[u32]) -> Dag {
    let mut levels: Vec<u32> = Vec::with_capacity(preds.len());
    for preds in preds.iter() {
        levels.push(preds.iter().map(|&pred| levels[pred as usize] + 1).max().unwrap_or(0));
    }
    // Counting sorts are stable: by the lesser key first.
    let lists = |keys: &[u32]| keys.iter().max().map_or(0, |&last| last as usize + 1);
    let by_level = Csr::gather(lists(&levels), levels.iter().zip(0..).map(|(&level, node)| (level, node)));
    let by_part = by_level.items().iter().map(|&node| (parts[node as usize], node));
    let nodes = Csr::gather(lists(parts), by_part).into_items();

    let mut position = vec![0; nodes.len()];
    for (at, &node) in nodes.iter().enumerate() {
        position[node as usize] = at as u32;
    }
    let mut moved = Csr::with_capacity(nodes.len(), preds.items().len());
    for &node in &nodes {
        moved.add(preds.get(node as usize).iter().map(|&pred| position[pred as usize]));
    }
    // A level holds no ancestors of its own nodes, so no range of ancestors is known here.
    let ancestors_from = (0..nodes.len() as u32).collect();
    Dag { nodes, preds: moved, ancestors_from }
}

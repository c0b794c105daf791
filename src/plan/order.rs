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

use super::ExecutionOrder;
use super::csr::{Csr, Lists};

/// The nodes of a graph in topological order.
pub(super) struct Sorted {
    /// The node at every position; `None` if the positions are the nodes' numbers.
    pub(super) nodes: Option<Vec<u32>>,
    /// By position, as positions.
    pub(super) preds: Csr,
    /// By position.
    pub(super) places: Vec<u32>,
}

/// Sorts a graph with these predecessor lists and places of its nodes.
///
/// # Errors
/// As [`depth_first`].
pub(super) fn sort(preds: Csr, places: Vec<u32>, is_sorted: bool) -> Result<Sorted, Vec<u32>> {
    if is_sorted {
        return Ok(Sorted { nodes: None, preds, places });
    }
    let Dag { nodes, preds, .. } = depth_first(&preds)?;
    let places = nodes.iter().map(|&node| places[node as usize]).collect();
    Ok(Sorted { nodes: Some(nodes), preds, places })
}

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

/// Sorts the graph with these predecessor lists depth first.
///
/// # Errors
/// The nodes of a cycle, each followed by a successor, if the graph has one.
pub(super) fn depth_first(preds: &Csr) -> Result<Dag, Vec<u32>> {
    let mut sorter = Sorter::new();
    sorter.depth_first(preds.lists(0..preds.len()))?;
    Ok(sorter.dag)
}

/// Sorts graphs one after the other, in the same memory.
pub(super) struct Sorter {
    /// For each node: its position, `SINK`, `INNER` or `OPEN`.
    position: Vec<u32>,
    stack: Vec<Frame>,
    dag: Dag,
}

/// State of a node before it has a position: no edge leads out of it, one does, or its predecessors are
/// being finished.
const SINK: u32 = u32::MAX;
const INNER: u32 = u32::MAX - 1;
const OPEN: u32 = u32::MAX - 2;

/// A node whose predecessors are being finished.
struct Frame {
    node: u32,
    /// Index of the next predecessor to visit.
    next: u32,
    ancestors_from: u32,
}

impl Sorter {
    pub(super) fn new() -> Self {
        let dag = Dag { nodes: Vec::new(), preds: Csr::with_capacity(0, 0), ancestors_from: Vec::new() };
        Self { position: Vec::new(), stack: Vec::new(), dag }
    }

    /// Sorts a graph whose nodes are in topological order already, in another such order.
    ///
    /// # Errors
    /// As [`depth_first`].
    pub(super) fn sort(&mut self, preds: Lists<'_>, order: ExecutionOrder) -> Result<&Dag, Vec<u32>> {
        match order {
            ExecutionOrder::DepthFirst => self.depth_first(preds)?,
            ExecutionOrder::BreadthFirst => self.breadth_first(preds),
        }
        Ok(&self.dag)
    }

    fn reset(&mut self, preds: Lists<'_>) {
        self.position.clear();
        self.position.resize(preds.len(), SINK);
        self.dag.nodes.clear();
        self.dag.nodes.reserve(preds.len());
        self.dag.preds.truncate(0);
        self.dag.preds.reserve(preds.len(), preds.items().len());
        self.dag.ancestors_from.clear();
        self.dag.ancestors_from.reserve(preds.len());
    }

    fn depth_first(&mut self, preds: Lists<'_>) -> Result<(), Vec<u32>> {
        self.reset(preds);
        for &pred in preds.items() {
            self.position[pred as usize] = INNER;
        }
        for node in 0..preds.len() as u32 {
            if self.position[node as usize] == SINK {
                self.finish(node, preds)?;
            }
        }
        // A node that reaches no sink reaches a cycle: the walk from there finds it.
        if self.dag.nodes.len() < preds.len() {
            for node in 0..preds.len() as u32 {
                if self.position[node as usize] == INNER {
                    self.finish(node, preds)?;
                }
            }
        }
        Ok(())
    }

    /// Assigns positions to `root` and to all its ancestors that have none.
    fn finish(&mut self, root: u32, preds: Lists<'_>) -> Result<(), Vec<u32>> {
        self.open(root);
        'frames: while let Some(frame) = self.stack.last_mut() {
            let node = frame.node as usize;
            let preds = preds.get(node);
            while let Some(&pred) = preds.get(frame.next as usize) {
                frame.next += 1;
                match self.position[pred as usize] {
                    INNER => {
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

    /// Sorts by level (the length of the longest path to a node), then by number.
    fn breadth_first(&mut self, preds: Lists<'_>) {
        self.reset(preds);
        // These are the levels, until the nodes have positions.
        let position = &mut self.position;
        let mut levels = 0;
        for (node, preds) in preds.iter().enumerate() {
            position[node] = preds.iter().map(|&pred| position[pred as usize] + 1).max().unwrap_or(0);
            levels = levels.max(position[node] as usize + 1);
        }
        let by_level = Csr::gather(levels, position.iter().copied().zip(0..));
        self.dag.nodes.extend_from_slice(by_level.items());
        for (at, &node) in (0..).zip(&self.dag.nodes) {
            position[node as usize] = at;
        }
        for &node in &self.dag.nodes {
            self.dag.preds.add(preds.get(node as usize).iter().map(|&pred| position[pred as usize]));
        }
        // A level holds no ancestors of its own nodes, so no range of ancestors is known here.
        self.dag.ancestors_from.extend(0..preds.len() as u32);
    }
}

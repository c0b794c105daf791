//! Lowering: adds the nodes of a command to a graph.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::builtin_kernels::fill;
use super::capture::capture;
use super::device_inner::HipDeviceInner;
use super::graph::{GraphNode, HipGraph, NewNode};
use super::launch::{HipLaunch, address};
use super::memory::HipMemory;
use super::stream::RawEvent;
use crate::hal::support::copy_box::{CopyAddress, CopyBox};
use crate::hal::support::fill_row::FillRow;
use crate::hal::support::once_each::once_each;
use crate::hal::support::transfer::{doublings, shortest_element};
use crate::hal::{Body, Command, Memory as _, MemoryDesc, MemoryKind, MemoryView, UsmPointer};
use crate::types::{Error, ErrorKind, Result};

/// The nodes that later commands follow to come after a command: as few as possible, each once.
pub(super) type EndNodes = SmallVec<[GraphNode; 1]>;

/// The nodes of one command in a graph.
#[derive(Default, Debug)]
pub(super) struct CommandNodes {
    pub(super) ends: EndNodes,
    /// The nodes that do its work.
    pub(super) work: SmallVec<[GraphNode; 1]>,
    /// If the command is one launch: its node, and the launch.
    pub(super) kernel: Option<(GraphNode, HipLaunch)>,
    /// With profiling: the nodes that record its times.
    pub(super) records: Option<[GraphNode; 2]>,
    /// Patterns of fills. Nodes read them, so they live as long as these.
    pub(super) patterns: Vec<Arc<HipMemory>>,
}

/// Adds the nodes of a command behind others, between nodes that record this event, if there is
/// one. On an error the graph is as it was. The caller has bound the context.
pub(super) fn add(
    device: &Arc<HipDeviceInner>,
    graph: &mut HipGraph,
    command: &Command,
    after: EndNodes,
    record: Option<&RawEvent>,
) -> Result<CommandNodes> {
    let mut adder = NodeAdder { device, graph, all: Vec::new(), nodes: CommandNodes::default() };
    let added = adder.timed(command, after, record);
    let NodeAdder { all, nodes, .. } = adder;
    if let Err(error) = added {
        for node in all.into_iter().rev() {
            if let Err(failure) = graph.remove(node) {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a node could not be removed again");
            }
        }
        return Err(error);
    }
    Ok(nodes)
}

/// Adds the nodes of one command.
struct NodeAdder<'a> {
    device: &'a Arc<HipDeviceInner>,
    graph: &'a mut HipGraph,
    /// All that were added.
    all: Vec<GraphNode>,
    nodes: CommandNodes,
}

impl NodeAdder<'_> {
    fn timed(&mut self, command: &Command, after: EndNodes, record: Option<&RawEvent>) -> Result<()> {
        let Some(event) = record else {
            self.nodes.ends = self.command(command, &after)?;
            return Ok(());
        };
        let first = self.add(NewNode::Record(event), &after)?;
        let ends = self.command(command, &smallvec![first])?;
        let last = self.add(NewNode::Record(event), &ends)?;
        self.nodes.records = Some([first, last]);
        self.nodes.ends = smallvec![last];
        Ok(())
    }

    /// Recursion is limited by the depth of bodies ([`Body::MAX_DEPTH`]).
    fn command(&mut self, command: &Command, after: &EndNodes) -> Result<EndNodes> {
        match command {
            Command::Kernel(launch) => self.kernel(HipLaunch::of(self.device, launch)?, after),
            Command::UsmCopy { .. }
            | Command::BufferCopy { .. }
            | Command::BufferRead { .. }
            | Command::BufferWrite { .. }
            | Command::BufferCopyRect { .. }
            | Command::BufferReadRect { .. }
            | Command::BufferWriteRect { .. } => {
                let mut ends = EndNodes::new();
                for copy in self.copy_boxes(command)? {
                    ends.push(self.add_work(NewNode::Copy(&copy), after)?);
                }
                self.joined(ends)
            }
            Command::UsmFill { dst, pattern } => self.fill(*dst, pattern, after),
            Command::BufferFill { dst, pattern } => self.fill(pointer(dst)?, pattern, after),
            // There are no nodes for hints, which only keep their place in the order. With one
            // predecessor, later commands can follow that.
            Command::Empty | Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } => match after.len() {
                0 | 1 => Ok(after.clone()),
                _ => Ok(smallvec![self.add(NewNode::Empty, after)?]),
            },
            Command::Child(body) => self.body(body, after),
            Command::Native(native) => {
                let captured = capture(self.device, native)?;
                Ok(smallvec![self.add_work(NewNode::Graph(&captured), after)?])
            }
            Command::If { .. } | Command::While { .. } => {
                let why =
                    format!("a HIP graph cannot hold a {}: it has no conditional nodes", command.kind());
                Err(Error::new(ErrorKind::FeatureNotSupported, why))
            }
            Command::StreamTask(task) => {
                let why = format!("stream task '{}' cannot be recorded", task.name());
                Err(Error::new(ErrorKind::FeatureNotSupported, why))
            }
        }
    }

    /// The boxes of a copy command, in the shapes that the driver copies as they are.
    fn copy_boxes(&self, command: &Command) -> Result<Vec<CopyBox>> {
        CopyBox::of_command(command, copy_address, |_| true)
    }

    fn kernel(&mut self, launch: HipLaunch, after: &EndNodes) -> Result<EndNodes> {
        let node = self.add_work(NewNode::Kernel(&launch), after)?;
        self.nodes.kernel = Some((node, launch));
        Ok(smallvec![node])
    }

    /// Adds a memset node where the driver can do the fill with one, else a kernel that reads the
    /// pattern from memory. Without a compiler for that, copies repeat the pattern, each of them all
    /// that is filled already.
    fn fill(&mut self, dst: UsmPointer, pattern: &[u8], after: &EndNodes) -> Result<EndNodes> {
        let (start, len) = (dst.address() as u64, dst.len());
        if let Some(row) = FillRow::of(start, len, pattern) {
            return Ok(smallvec![self.add_work(NewNode::Fill(&row), after)?]);
        }
        let pattern = shortest_element(pattern);
        let desc = MemoryDesc { len: pattern.len(), kind: MemoryKind::Device };
        let memory = Arc::new(HipMemory::allocate(self.device, &desc)?);
        write_new(&memory, pattern)?;
        self.nodes.patterns.push(Arc::clone(&memory));
        match fill(self.device, dst, pointer_at(memory.address(), pattern.len())) {
            Ok(launch) => return self.kernel(launch, after),
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => return Err(error),
        }
        let at = |address| CopyAddress { address, is_foreign: false };
        let first = CopyBox::row(at(memory.address()), at(start), pattern.len());
        let mut last = self.add_work(NewNode::Copy(&first), after)?;
        for (offset, more) in doublings(pattern.len(), len) {
            let copy = CopyBox::row(at(start), at(start + offset as u64), more);
            last = self.add_work(NewNode::Copy(&copy), &[last])?;
        }
        Ok(smallvec![last])
    }

    /// Adds the commands of a body with their order, the first of them behind `after`.
    fn body(&mut self, body: &Body, after: &EndNodes) -> Result<EndNodes> {
        let mut all: Vec<EndNodes> = Vec::with_capacity(body.len());
        let mut is_leaf = vec![true; body.len()];
        for (command, earlier) in body.commands() {
            let mut follows = EndNodes::new();
            for &earlier in earlier {
                is_leaf[earlier as usize] = false;
                follows.extend_from_slice(&all[earlier as usize]);
            }
            let follows = if follows.is_empty() { after.clone() } else { once_each(follows) };
            all.push(self.command(command, &follows)?);
        }
        // Updates do not change the commands of bodies.
        self.nodes.kernel = None;
        if body.is_empty() {
            return Ok(after.clone());
        }
        let leaves = all.into_iter().zip(is_leaf).filter(|(_, is_leaf)| *is_leaf);
        self.joined(leaves.flat_map(|(ends, _)| ends).collect())
    }

    /// Joins several nodes by an empty node, so that later commands follow one.
    fn joined(&mut self, ends: EndNodes) -> Result<EndNodes> {
        let ends = once_each(ends);
        if ends.len() <= 1 {
            return Ok(ends);
        }
        Ok(smallvec![self.add(NewNode::Empty, &ends)?])
    }

    fn add(&mut self, new: NewNode<'_>, after: &[GraphNode]) -> Result<GraphNode> {
        let node = self.graph.add(new, after)?;
        // It is removed again if adding the command fails.
        self.all.push(node);
        Ok(node)
    }

    /// As [`add`](Self::add), for a node that does the command's work.
    fn add_work(&mut self, new: NewNode<'_>, after: &[GraphNode]) -> Result<GraphNode> {
        let node = self.add(new, after)?;
        self.nodes.work.push(node);
        Ok(node)
    }
}

/// Where one side of a copy begins. Copies also take the host memory of other backends, which the
/// driver has to stage.
fn copy_address(view: &MemoryView) -> Result<CopyAddress> {
    let memory = view.memory();
    match memory.host_ptr() {
        Some(start) if memory.kind() == MemoryKind::Host && !memory.as_any().is::<HipMemory>() => {
            let address = start.as_ptr().expose_provenance() as u64 + view.offset() as u64;
            Ok(CopyAddress { address, is_foreign: true })
        }
        _ => Ok(CopyAddress { address: address(view)?, is_foreign: false }),
    }
}

fn pointer(view: &MemoryView) -> Result<UsmPointer> {
    Ok(pointer_at(address(view)?, view.len()))
}

#[expect(unsafe_code, reason = "names memory by its address")]
fn pointer_at(address: u64, len: usize) -> UsmPointer {
    // SAFETY: the bytes are valid on the device, and the command keeps their memory.
    unsafe { UsmPointer::new(address as usize, len) }
}

#[expect(unsafe_code, reason = "nothing else uses the memory yet")]
fn write_new(memory: &HipMemory, bytes: &[u8]) -> Result<()> {
    // SAFETY: the memory has just been allocated.
    unsafe { memory.write(0, bytes) }
}

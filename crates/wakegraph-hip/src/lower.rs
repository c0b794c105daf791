//! Lowering: adds the nodes of a command to a graph, in one path.
//!
//! Each node follows the one before it, whatever the commands' own order allows. The driver runs such a
//! graph on the stream of the launch, as one batch of packets. It spreads all others over several streams
//! and loses edges there: up to version 6.2 those to nodes that several paths lead to, later those to the
//! fifth and further followers of a node, and those around child graphs (conformance tests have found
//! that in 5.7.1 and 6.4.3; see `docs/adr/0023-hip.md`).

use std::ffi::c_int;
use std::sync::Arc;

use wakegraph_hal::support::graphs::CommandNodes;
use wakegraph_hal::support::memory::{CopyAddress, CopyBox, FillRow, doublings, shortest_element};
use wakegraph_hal::support::streams::{Kept, PinnedMemory, capture};
use wakegraph_hal::{Command, Error, ErrorKind, MemoryKind, MemoryView, Result, UsmPointer};

use super::context::HipRawEvent;
use super::device::{HipDeviceInner, HipMemory};
use super::graph::{HipGraph, HipGraphNode, HipNewNode, add_node, allocates, remove_node};
use super::kernel::{HipLaunch, fill};

/// The nodes of one command in a graph.
type HipCommandNodes = CommandNodes<HipDeviceInner>;

/// The last node of a graph's path; none while there are no nodes.
pub(super) type PathEnd = Option<HipGraphNode>;

/// Adds the nodes of a command at the end of the path, between nodes that record this event, if
/// there is one. On an error the graph is as it was. The caller has bound the context.
pub(super) fn add(
    device: &Arc<HipDeviceInner>,
    graph: &mut HipGraph,
    end: &mut PathEnd,
    command: &Command,
    updatable: bool,
    record: Option<&HipRawEvent>,
) -> Result<HipCommandNodes> {
    let (added, nodes) = (Vec::new(), HipCommandNodes::default());
    let mut adder = HipNodeAdder { device, graph, end: *end, updatable, added, nodes };
    if let Err(error) = adder.timed(command, record) {
        for node in adder.added.into_iter().rev() {
            if let Err(failure) = remove_node(graph, node) {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a node could not be removed again");
            }
        }
        return Err(error);
    }
    *end = adder.end;
    Ok(adder.nodes)
}

/// Adds the nodes of one command.
struct HipNodeAdder<'a> {
    device: &'a Arc<HipDeviceInner>,
    graph: &'a mut HipGraph,
    end: PathEnd,
    /// Whether updates may change the nodes in an instantiated graph.
    updatable: bool,
    added: Vec<HipGraphNode>,
    nodes: HipCommandNodes,
}

impl HipNodeAdder<'_> {
    fn timed(&mut self, command: &Command, record: Option<&HipRawEvent>) -> Result<()> {
        let Some(event) = record else { return self.command(command) };
        let first = self.add(HipNewNode::Record(event))?;
        self.command(command)?;
        self.nodes.records = Some(Box::new([first, self.add(HipNewNode::Record(event))?]));
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Result<()> {
        match command {
            Command::Kernel(launch) => self.kernel(HipLaunch::of(self.device, launch)?),
            Command::UsmCopy { .. }
            | Command::BufferCopy { .. }
            | Command::BufferRead { .. }
            | Command::BufferWrite { .. }
            | Command::BufferCopyRect { .. }
            | Command::BufferReadRect { .. }
            | Command::BufferWriteRect { .. } => {
                let pinned = PinnedMemory::of_copy(&**self.device, command);
                self.nodes.kept.extend(pinned.map(|pinned| Arc::new(pinned) as Kept));
                let boxes = copy_boxes(self.device, command)?;
                boxes.iter().try_for_each(|copy| self.add_work(HipNewNode::Copy(copy)).map(drop))
            }
            Command::UsmFill { dst, pattern } => self.fill(*dst, pattern),
            Command::BufferFill { dst, pattern } => self.fill(pointer(dst)?, pattern),
            // The path has their place in the order.
            Command::Empty | Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } => Ok(()),
            Command::Native(native) => {
                let captured = capture(&self.device.context, native)?;
                // With several such graphs in flight, 6.4.3 was seen to end the process.
                if allocates(&captured)? {
                    let why = format!(
                        "native command '{}' allocates memory in the order of its stream",
                        native.name()
                    );
                    return Err(Error::new(ErrorKind::FeatureNotSupported, why)
                        .help("allocate before finalize, and declare the memory; or use a `stream_task`"));
                }
                self.add_work(HipNewNode::Graph(&captured)).map(drop)
            }
            Command::If { .. } | Command::While { .. } | Command::Switch { .. } => {
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

    fn kernel(&mut self, launch: HipLaunch) -> Result<()> {
        let node = self.add_work(HipNewNode::Kernel(&launch))?;
        if self.updatable {
            self.nodes.kernel = Some(Box::new((node, launch)));
        }
        Ok(())
    }

    /// Adds a memset node where the driver can do the fill with one, else a kernel that reads the
    /// pattern from memory. Without a compiler for that, copies repeat the pattern, each of them all
    /// that is filled already.
    fn fill(&mut self, dst: UsmPointer, pattern: &[u8]) -> Result<()> {
        let (start, len) = (dst.address() as u64, dst.len());
        if let Some(row) = FillRow::of(start, len, pattern) {
            return self.add_work(HipNewNode::Fill(&row)).map(drop);
        }
        let pattern = shortest_element(pattern);
        let memory = Arc::new(HipMemory::with_bytes(self.device, pattern)?);
        self.nodes.kept.push(Arc::clone(&memory) as Kept);
        match fill(self.device, dst, pointer_at(memory.address(), pattern.len())) {
            Ok(launch) => return self.kernel(launch),
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => return Err(error),
        }
        let at = |address| CopyAddress { address, is_foreign: false };
        let first = CopyBox::row(at(memory.address()), at(start), pattern.len());
        self.add_work(HipNewNode::Copy(&first))?;
        for (offset, more) in doublings(pattern.len(), len) {
            let copy = CopyBox::row(at(start), at(start + offset as u64), more);
            self.add_work(HipNewNode::Copy(&copy))?;
        }
        Ok(())
    }

    fn add(&mut self, new: HipNewNode<'_>) -> Result<HipGraphNode> {
        let node = add_node(self.graph, new, self.end.as_slice())?;
        self.end = Some(node);
        // It is removed again if adding the command fails.
        self.added.push(node);
        Ok(node)
    }

    /// As [`add`](Self::add), for a node that does the command's work.
    fn add_work(&mut self, new: HipNewNode<'_>) -> Result<HipGraphNode> {
        let node = self.add(new)?;
        self.nodes.work.push(node);
        Ok(node)
    }
}

/// The boxes of a copy command; none for others. Version 5 does not begin where a box in host memory
/// does, so there such boxes are rows.
fn copy_boxes(device: &HipDeviceInner, command: &Command) -> Result<Vec<CopyBox>> {
    const WITH_BOXES_IN_HOST_MEMORY: c_int = 60_000_000;
    let is_host = |view: &MemoryView| view.memory().kind() == MemoryKind::Host;
    let touches_host = command.copy_sides().is_some_and(|sides| sides.into_iter().any(is_host));
    let takes_boxes = !touches_host || device.context.version >= WITH_BOXES_IN_HOST_MEMORY;
    CopyBox::of_command(command, HipMemory::copy_address_of, |_| takes_boxes)
}

fn pointer(view: &MemoryView) -> Result<UsmPointer> {
    Ok(pointer_at(HipMemory::address_of(view)?, view.len()))
}

#[expect(unsafe_code, reason = "names memory by its address")]
fn pointer_at(address: u64, len: usize) -> UsmPointer {
    // SAFETY: the bytes are valid on the device, and the command keeps their memory.
    unsafe { UsmPointer::new(address as usize, len) }
}

//! Lowering: adds the nodes of a command to a graph.
//!
//! Conditionals and loops of one command-buffer or body run one after the other. Where they ran beside each
//! other, every second process with random graphs met one that never completed, with an idle GPU (H200,
//! driver 580). Other commands may run beside them.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use wakegraph_hal::support::graphs::{CommandNodes, once_each};
use wakegraph_hal::support::memory::{CopyBox, FillRow, shortest_element};
use wakegraph_hal::support::streams::{Kept, PinnedMemory, capture};
use wakegraph_hal::{Body, Command, CommandKinds, Error, ErrorKind, KindPlace, NativeCommand, Result};

use super::context::CudaRawEvent;
use super::device::{CudaDeviceInner, CudaMemory, is_of};
use super::events::LoopStop;
use super::graph::{ConditionalHandle, CudaGraph, DriverGraph, GraphBody, GraphNode, NewNode, allocates};
use super::kernel::{BuiltinKernel, CudaLaunch};
use super::sys::{
    CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_SWITCH, CU_GRAPH_COND_TYPE_WHILE, CUgraphConditionalNodeType,
};

/// The nodes that later commands follow to come after a command: as few as possible, each once.
pub(super) type EndNodes = SmallVec<[GraphNode; 1]>;

/// The nodes of one command in a graph.
type CudaCommandNodes = CommandNodes<CudaDeviceInner>;

/// Options for adding a command.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct AddOptions<'a> {
    /// Whether updates may change its nodes, and disable them, in an instantiated graph.
    pub(super) can_be_disabled: bool,
    /// The event that nodes before and after it record.
    pub(super) record: Option<&'a CudaRawEvent>,
    /// Whether a kernel may be started before the one before it has ended.
    pub(super) may_overlap: bool,
    /// The node before it, if that is a kernel that lets this one be started early.
    pub(super) overlapping: Option<GraphNode>,
    /// Stops loops.
    pub(super) loops: Option<&'a LoopStop>,
    /// The work of the command, if that is a native one.
    pub(super) captured: Option<&'a DriverGraph>,
}

/// Kernels that are started before the end of the one before them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct EarlyStart {
    /// Whether a command may be started early, for which it then has to wait.
    pub(super) starts: bool,
    /// Whether it lets the kernel behind it be started early.
    pub(super) leads: bool,
}

/// Adds the nodes of a command behind others, also to `nodes`, which has none. On an error the graph is as it
/// was. The caller has bound the context.
pub(super) fn add(
    device: &Arc<CudaDeviceInner>,
    graph: &mut CudaGraph,
    command: &Command,
    after: EndNodes,
    options: AddOptions<'_>,
    nodes: &mut CudaCommandNodes,
) -> Result<EarlyStart> {
    let mut adder = NodeAdder {
        device,
        can_be_disabled: options.can_be_disabled,
        may_overlap: options.may_overlap,
        overlapping: options.overlapping,
        loops: options.loops,
        captured: options.captured,
        early: EarlyStart::default(),
        depth: 0,
        all: EndNodes::new(),
        nodes,
    };
    if let Err(error) = adder.timed(graph.body(), command, &after, options.record) {
        // The driver removes nodes in bodies together with the node that has the bodies.
        for node in adder.all.into_iter().rev() {
            if let Err(failure) = graph.remove(node) {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a node could not be removed again");
            }
        }
        return Err(error);
    }
    Ok(adder.early)
}

/// Adds the nodes of one command.
struct NodeAdder<'a> {
    device: &'a Arc<CudaDeviceInner>,
    can_be_disabled: bool,
    may_overlap: bool,
    overlapping: Option<GraphNode>,
    loops: Option<&'a LoopStop>,
    captured: Option<&'a DriverGraph>,
    early: EarlyStart,
    /// Number of bodies of conditional nodes around the current node.
    depth: usize,
    /// All nodes in the graph itself.
    all: EndNodes,
    nodes: &'a mut CudaCommandNodes,
}

/// Work-items of a fill: enough for every multiprocessor there is.
const MOST_FILL_ITEMS: usize = 1 << 19;

impl NodeAdder<'_> {
    /// Adds a command between nodes that record this event, if there is one.
    fn timed(
        &mut self,
        graph: GraphBody<'_>,
        command: &Command,
        after: &EndNodes,
        record: Option<&CudaRawEvent>,
    ) -> Result<()> {
        let Some(event) = record else {
            self.nodes.ends = self.command(graph, command, after)?;
            return Ok(());
        };
        let first = self.add(graph, NewNode::Record(event), after)?;
        let ends = self.command(graph, command, &smallvec![first])?;
        let last = self.add(graph, NewNode::Record(event), &ends)?;
        self.nodes.records = Some(Box::new([first, last]));
        self.nodes.ends = smallvec![last];
        Ok(())
    }

    /// Recursion is limited by the depth of bodies ([`Body::MAX_DEPTH`]).
    fn command(&mut self, graph: GraphBody<'_>, command: &Command, after: &EndNodes) -> Result<EndNodes> {
        match command {
            Command::Kernel(launch) => self.kernel(graph, CudaLaunch::of(self.device, launch)?, after),
            Command::UsmCopy { .. }
            | Command::BufferCopy { .. }
            | Command::BufferRead { .. }
            | Command::BufferWrite { .. }
            | Command::BufferCopyRect { .. }
            | Command::BufferReadRect { .. }
            | Command::BufferWriteRect { .. } => {
                let pinned = PinnedMemory::of_copy(&**self.device, command);
                self.nodes.kept.extend(pinned.map(|pinned| Arc::new(pinned) as Kept));
                let mut ends = EndNodes::new();
                for copy in copy_boxes(self.device, command)? {
                    ends.push(self.add_work(graph, NewNode::Copy(&copy), after)?);
                }
                self.joined(graph, ends)
            }
            Command::UsmFill { dst, pattern } => {
                self.fill(graph, (dst.address() as u64, dst.len()), pattern, after)
            }
            Command::BufferFill { dst, pattern } => {
                self.fill(graph, (CudaMemory::address_of(dst)?, dst.len()), pattern, after)
            }
            // There are no nodes for hints, which only keep their place in the order. With one
            // predecessor, later commands can follow that.
            Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } | Command::Empty => match after.len() {
                0 | 1 => Ok(after.clone()),
                _ => Ok(smallvec![self.add(graph, NewNode::Empty, after)?]),
            },
            Command::If { condition, then, otherwise } => {
                self.conditional(graph, CudaMemory::address_of(condition)?, then, otherwise.as_deref(), after)
            }
            Command::While { condition, body } => {
                self.repeated(graph, CudaMemory::address_of(condition)?, body, after)
            }
            // The driver takes no conditional node without a body.
            Command::Switch { bodies, .. } if bodies.is_empty() => self.joined(graph, after.clone()),
            Command::Switch { index, bodies } => {
                let word = CudaMemory::address_of(index)?;
                let (handle, decided) = self.decision(graph, word, DecideBy::Number, None, after)?;
                let bodies = bodies.iter().map(|body| &**body);
                Ok(smallvec![self.branch(graph, CU_GRAPH_COND_TYPE_SWITCH, handle, &[decided], bodies)?])
            }
            Command::Native(native) => {
                let in_body;
                let captured = match self.captured {
                    Some(captured) => captured,
                    None => {
                        in_body = captured_to_clone(self.device, native, self.depth)?;
                        &in_body
                    }
                };
                Ok(smallvec![self.add_work(graph, NewNode::Graph(captured), after)?])
            }
            Command::StreamTask(task) => {
                let why = format!("stream task '{}' cannot be recorded", task.name());
                Err(Error::new(ErrorKind::FeatureNotSupported, why))
            }
        }
    }

    fn kernel(&mut self, graph: GraphBody<'_>, mut launch: CudaLaunch, after: &EndNodes) -> Result<EndNodes> {
        if self.may_overlap && self.depth == 0 {
            launch.overlap(self.device);
        }
        let is_behind = |before| after[..] == [before];
        let early = match launch.overlaps && self.overlapping.is_some_and(is_behind) {
            true => self.add_early(graph, &launch, after),
            false => None,
        };
        self.early.starts |= early.is_some();
        let node = match early {
            Some(node) => node,
            None => self.add_work(graph, NewNode::Kernel(&launch), after)?,
        };
        self.early.leads |= launch.overlaps;
        if self.can_be_disabled {
            self.nodes.kernel = Some(Box::new((node, launch)));
        }
        Ok(smallvec![node])
    }

    /// Adds a kernel that may be started before the end of the one before it, unless the driver
    /// refuses.
    fn add_early(
        &mut self,
        graph: GraphBody<'_>,
        launch: &CudaLaunch,
        after: &[GraphNode],
    ) -> Option<GraphNode> {
        let node = self.add_work(graph, NewNode::OverlappingKernel(launch), after);
        let refused = |error: &Error| {
            tracing::debug!(target: "wakegraph::cuda", %error, "a kernel waits for all of the one before it");
        };
        node.inspect_err(refused).ok()
    }

    /// Adds a memset node where the driver can do the fill with one, else a kernel that reads the
    /// pattern from memory. A fill that can be disabled is always a kernel: behind a disabled
    /// memset node the driver loses the order.
    fn fill(
        &mut self,
        graph: GraphBody<'_>,
        (start, len): (u64, usize),
        pattern: &[u8],
        after: &EndNodes,
    ) -> Result<EndNodes> {
        let launch = match FillRow::of(start, len, pattern) {
            Some(row) if self.can_be_disabled => {
                let args = [start, len as u64, row.word().into()];
                // Each work-item sets 16 bytes at a time, and some set the bytes at either end.
                BuiltinKernel::Set.launch(self.device, &args, len.div_ceil(16).clamp(16, MOST_FILL_ITEMS))?
            }
            Some(row) => return Ok(smallvec![self.add_work(graph, NewNode::Fill(&row), after)?]),
            None => {
                let pattern = shortest_element(pattern);
                let memory = Arc::new(CudaMemory::with_bytes(self.device, pattern)?);
                let args = [start, len as u64, memory.address(), pattern.len() as u64];
                self.nodes.kept.push(memory);
                BuiltinKernel::Fill.launch(self.device, &args, len.min(MOST_FILL_ITEMS))?
            }
        };
        self.kernel(graph, launch, after)
    }

    /// Adds the body of a conditional node, with the order of its commands.
    fn body(&mut self, graph: GraphBody<'_>, body: &Body) -> Result<EndNodes> {
        // Updates do not change the commands of bodies.
        self.can_be_disabled = false;
        self.depth += 1;
        let mut all: Vec<EndNodes> = Vec::with_capacity(body.len());
        let mut is_leaf = vec![true; body.len()];
        let mut order = ControlFlowOrder::default();
        for (index, (command, earlier)) in (0..).zip(body.commands()) {
            let mut follows = EndNodes::new();
            for earlier in earlier.iter().copied().chain(order.predecessor(command)) {
                is_leaf[earlier as usize] = false;
                follows.extend_from_slice(&all[earlier as usize]);
            }
            order.append(index, command);
            all.push(self.command(graph, command, &once_each(follows))?);
        }
        self.depth -= 1;
        let leaves = all.into_iter().zip(is_leaf).filter(|(_, is_leaf)| *is_leaf);
        self.joined(graph, leaves.flat_map(|(ends, _)| ends).collect())
    }

    /// Adds one body or the other. Drivers before CUDA 12.8 have no `else`: there it is a second
    /// conditional, also decided before either body runs and may change the word.
    fn conditional(
        &mut self,
        graph: GraphBody<'_>,
        word: u64,
        then: &Body,
        otherwise: Option<&Body>,
        after: &EndNodes,
    ) -> Result<EndNodes> {
        let (handle, decided) = self.decision(graph, word, DecideBy::Word, None, after)?;
        let one_of = CU_GRAPH_COND_TYPE_IF;
        match otherwise {
            None => Ok(smallvec![self.branch(graph, one_of, handle, &[decided], [then].into_iter())?]),
            Some(otherwise) if self.device.has_else => {
                let bodies = [then, otherwise].into_iter();
                Ok(smallvec![self.branch(graph, one_of, handle, &[decided], bodies)?])
            }
            Some(otherwise) => {
                let (inverse, other) = self.decision(graph, word, DecideBy::Opposite, None, after)?;
                let first = self.branch(graph, one_of, handle, &[decided, other], [then].into_iter())?;
                let second =
                    self.branch(graph, one_of, inverse, &[decided, other], [otherwise].into_iter())?;
                self.joined(graph, smallvec![first, second])
            }
        }
    }

    /// Adds a conditional node with these bodies, of which it runs one.
    fn branch<'b>(
        &mut self,
        graph: GraphBody<'_>,
        kind: CUgraphConditionalNodeType,
        handle: ConditionalHandle,
        after: &[GraphNode],
        bodies: impl ExactSizeIterator<Item = &'b Body>,
    ) -> Result<GraphNode> {
        let (node, places) = graph.add_conditional(kind, handle, bodies.len(), after)?;
        self.keep(node);
        for (place, body) in places.zip(bodies) {
            self.body(place, body)?;
        }
        Ok(node)
    }

    /// Adds a loop, which is decided before the first run of the body and at the end of the body.
    fn repeated(
        &mut self,
        graph: GraphBody<'_>,
        word: u64,
        commands: &Body,
        after: &EndNodes,
    ) -> Result<EndNodes> {
        let (handle, decided) = self.decision(graph, word, DecideBy::Word, self.loops, after)?;
        let (node, bodies) = graph.add_conditional(CU_GRAPH_COND_TYPE_WHILE, handle, 1, &[decided])?;
        self.keep(node);
        for body in bodies {
            let ends = self.body(body, commands)?;
            let decide = decide(self.device, handle, word, DecideBy::Word, self.loops)?;
            body.add(NewNode::Kernel(&decide), &ends)?;
        }
        Ok(smallvec![node])
    }

    /// Adds a node that decides by the word, and returns it and what it sets.
    fn decision(
        &mut self,
        graph: GraphBody<'_>,
        word: u64,
        by: DecideBy,
        stop: Option<&LoopStop>,
        after: &EndNodes,
    ) -> Result<(ConditionalHandle, GraphNode)> {
        let handle = graph.create_handle()?;
        let launch = decide(self.device, handle, word, by, stop)?;
        Ok((handle, self.add(graph, NewNode::Kernel(&launch), after)?))
    }

    /// Joins several nodes by an empty node, so that later commands follow one.
    fn joined(&mut self, graph: GraphBody<'_>, ends: EndNodes) -> Result<EndNodes> {
        let ends = once_each(ends);
        if ends.len() <= 1 {
            return Ok(ends);
        }
        Ok(smallvec![self.add(graph, NewNode::Empty, &ends)?])
    }

    fn add(&mut self, graph: GraphBody<'_>, new: NewNode<'_>, after: &[GraphNode]) -> Result<GraphNode> {
        let node = graph.add(new, after)?;
        self.keep(node);
        Ok(node)
    }

    /// As [`add`](Self::add), for a node that does the command's work.
    fn add_work(&mut self, graph: GraphBody<'_>, new: NewNode<'_>, after: &[GraphNode]) -> Result<GraphNode> {
        let node = self.add(graph, new, after)?;
        if self.depth == 0 {
            self.nodes.work.push(node);
        }
        Ok(node)
    }

    /// Takes note of a node, which is removed again if adding the command fails.
    fn keep(&mut self, node: GraphNode) {
        if self.depth == 0 {
            self.all.push(node);
        }
    }
}

/// The work of a native command that can only be cloned: inside so many conditionals and loops, or outside a
/// command-buffer.
fn captured_to_clone(device: &CudaDeviceInner, native: &NativeCommand, depth: usize) -> Result<DriverGraph> {
    let captured = capture(&device.context, native)?;
    if allocates(&captured)? {
        let place = if depth == 0 { "outside a command-buffer" } else { "inside a conditional or loop" };
        let why = format!("native command '{}' allocates memory {place}", native.name());
        let remedy = "allocate before finalize, and declare the memory; or have the host decide (`if_nonzero` on a \
                      graph with a host task or a scratch buffer)";
        return Err(Error::new(ErrorKind::FeatureNotSupported, why).help(remedy));
    }
    Ok(captured)
}

/// Bytes of the largest copy within a device's memory that is one node. A copy of 1 GiB took 889 us in one
/// or two nodes on an H100, 717 us in four beside each other, and 722 us as a call on a stream.
const LARGEST_COPY: usize = 256 << 20;

/// The boxes that the nodes of a copy command copy; none for others.
pub(super) fn copy_boxes(device: &CudaDeviceInner, command: &Command) -> Result<Vec<CopyBox>> {
    let boxes = CopyBox::of_command(command, CudaMemory::copy_address_of, |_| true)?;
    Ok(match (command, &boxes[..]) {
        (Command::BufferCopy { src, dst }, [copy]) if [src, dst].iter().all(|view| is_of(device, view)) => {
            copy.cut(LARGEST_COPY)
        }
        _ => boxes,
    })
}

/// Orders the commands of one command-buffer or body around conditionals and loops.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControlFlowOrder {
    /// The last conditional or loop.
    last: Option<u32>,
}

impl ControlFlowOrder {
    /// The command that this one, the next, follows besides those that it names.
    pub(super) fn predecessor(self, command: &Command) -> Option<u32> {
        self.last.filter(|_| has_control_flow(command))
    }

    /// The command was added.
    pub(super) fn append(&mut self, index: u32, command: &Command) {
        if has_control_flow(command) {
            self.last = Some(index);
        }
    }
}

fn has_control_flow(command: &Command) -> bool {
    command.kind().row().place == KindPlace::DeviceOrHost
}

/// Whether the command is, or contains, a loop.
pub(super) fn has_loop(command: &Command) -> bool {
    let is_loop = matches!(command, Command::While { .. });
    is_loop || command.bodies().any(|body| body.kinds().intersects(CommandKinds::WHILE))
}

/// The value that a word gives to a handle, as `condition.ptx` counts them.
#[derive(Clone, Copy, Debug)]
enum DecideBy {
    /// Whether it is not 0.
    Word = 0,
    /// Whether it is 0.
    Opposite = 1,
    /// The word itself, the number of a body.
    Number = 2,
}

/// The launch that sets `handle` by the word at `address`. With `stop`, it decides about a loop, which may
/// have been asked to stop.
fn decide(
    device: &CudaDeviceInner,
    handle: ConditionalHandle,
    address: u64,
    by: DecideBy,
    stop: Option<&LoopStop>,
) -> Result<CudaLaunch> {
    let [run, asked] = stop.map_or([0; 2], LoopStop::addresses);
    BuiltinKernel::Condition.launch(device, &[handle, address, by as u64, run, asked], 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wakegraph_hal::{Body, MemoryDesc, MemoryKind, MemoryView};

    use super::*;
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    #[test]
    fn conditionals_and_loops_follow_each_other() {
        let device = FakeDevice::open(FakeOptions::new()).0;
        let word = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
        let condition = MemoryView::whole(word);
        let looping = || Command::While { condition: condition.clone(), body: Arc::new(Body::new()) };
        let choice =
            Command::If { condition: condition.clone(), then: Arc::new(Body::new()), otherwise: None };
        let commands = [
            (Command::Empty, None),
            (looping(), None),
            (Command::Empty, None),
            (Command::Empty, None),
            (choice, Some(1)),
            (looping(), Some(4)),
            (Command::Empty, None),
        ];
        let mut order = ControlFlowOrder::default();
        for (index, (command, expected)) in (0..).zip(commands) {
            assert_eq!(order.predecessor(&command), expected, "{index}");
            order.append(index, &command);
        }
    }
}

//! The graph as users build it: commands over buffers, host tasks, sub-graphs.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;

use super::allocation::{MemoryArg, Operand, View};
use super::buffer::Buffer;
use super::command::{Command, accesses};
use super::device::Device;
use super::executable::{ExecutableGraph, FinalizeOptions};
use super::finalize;
use super::host_buffer::HostBuffer;
use super::host_task::{HostAccesses, HostTask, TaskOutput};
use super::kernel::KernelCall;
use super::node::NodeBuilder;
use super::rect::RectCopy;
use crate::graph::{self, Content, GraphProperties, NodeId};
use crate::hal::{self, Advice, MemoryKind};
use crate::types::{Access, AccessMode, CommandKind, DeviceId, Error, ErrorKind, Range, Result};

/// A graph of commands and host tasks under construction: plain data, no device work.
///
/// Edges follow from what commands read and write, in the order in which they are added; [`after`](NodeBuilder::after)
/// and [`make_edge`](Self::make_edge) add others. A node runs on the device that its buffers live on, or else on the
/// graph's, or where [`on`](NodeBuilder::on) says.
///
/// The methods that add a node do not return errors: the first one, with the place in the source, comes out of
/// [`finalize`](Self::finalize), before anything runs ([`errors`](Self::errors) shows them earlier).
///
/// ```
/// use wakegraph::{Device, Graph, Range, read};
///
/// wakegraph::kernel! {
///     fn double(x: &mut [u32]) { host: |_range, x| x.iter_mut().for_each(|x| *x *= 2) }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let numbers = device.buffer_from(&[1u32, 2, 3])?;
/// let result = device.host_buffer::<u32>(3)?;
///
/// let mut graph = Graph::new(&device);
/// graph.launch(double(&numbers), Range::linear(3));
/// graph.copy(&numbers, &result);
/// graph.host_task((read(&result),), async |(result,)| assert_eq!(*result, [2, 4, 6]));
///
/// graph.finalize()?.submit().await
/// # }
/// ```
pub struct Graph {
    nodes: graph::Graph<Command>,
    device: Device,
    devices: SmallVec<[Device; 2]>,
    errors: Vec<Error>,
}

impl Graph {
    /// An empty graph for `device`.
    pub fn new(device: &Device) -> Self {
        Self::with_properties(device, GraphProperties::default())
    }

    /// An empty graph for `device`, with properties.
    pub fn with_properties(device: &Device, properties: GraphProperties) -> Self {
        Self {
            nodes: graph::Graph::with_properties(properties),
            device: device.clone(),
            devices: SmallVec::from_iter([device.clone()]),
            errors: Vec::new(),
        }
    }

    /// Adds a kernel launch. `call` is the kernel with its arguments, as the function made by
    /// [`kernel!`](crate::kernel!) returns it.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](ErrorKind::InvalidSize) for the range; [`InvalidArgument`](ErrorKind::InvalidArgument)
    /// for arguments that do not fit or overlap; [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) when the kernel
    /// has no variant for the device.
    #[track_caller]
    pub fn launch(&mut self, call: impl Into<KernelCall>, range: Range) -> NodeBuilder<'_> {
        let call = call.into();
        let name: Box<str> = call.kernel.name().into();
        let device = call.views().find(|view| view.kind() == MemoryKind::Device);
        let device = device.or(call.views().next()).map(|view| view.allocation.device().clone());
        let checked = range.check().and_then(|()| call.accesses());
        let node = self
            .add(CommandKind::Kernel, device, checked, || Command::Kernel { call: Arc::new(call), range });
        node.name(name)
    }

    /// Adds a copy of all of `src` to all of `dst`, which has the same length: between buffers, or from or to a
    /// [`HostBuffer`] (a buffer write or read). Between devices without a direct path it goes through the host.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](ErrorKind::InvalidSize) when the lengths differ;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the two overlap, or are both on the host.
    #[track_caller]
    pub fn copy<T: Pod>(&mut self, src: impl MemoryArg<T>, dst: impl MemoryArg<T>) -> NodeBuilder<'_> {
        let (Operand(src), Operand(dst)) = (src.operand(), dst.operand());
        if src.len != dst.len {
            let (from, to) = (src.len / size_of::<T>(), dst.len / size_of::<T>());
            let error = Error::new(
                ErrorKind::InvalidSize,
                format!("cannot copy {from} elements to a buffer of {to}"),
            );
            return self.refuse(CommandKind::BufferCopy, error.help("copy between slices of equal length"));
        }
        self.transfer(src, dst, |direction, src, dst| match direction {
            Direction::OnDevice => hal::Command::BufferCopy { src, dst },
            Direction::ToHost => hal::Command::BufferRead { src, host: dst },
            Direction::FromHost => hal::Command::BufferWrite { host: src, dst },
        })
    }

    /// Adds a rectangular copy; see [`RectCopy`]. Operands as for [`copy`](Self::copy), without the condition on lengths.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](ErrorKind::InvalidSize) when a rectangle is empty, overlaps itself or is not inside its
    /// buffer; those of [`copy`](Self::copy).
    #[track_caller]
    pub fn copy_rect<T: Pod>(
        &mut self,
        src: impl MemoryArg<T>,
        dst: impl MemoryArg<T>,
        copy: RectCopy,
    ) -> NodeBuilder<'_> {
        let (Operand(src), Operand(dst)) = (src.operand(), dst.operand());
        let bytes = match copy.to_bytes(size_of::<T>()) {
            Ok(bytes) => bytes,
            Err(error) => return self.refuse(CommandKind::BufferCopyRect, error),
        };
        let (rect, src_pitch, dst_pitch) = (bytes.rect, bytes.src, bytes.dst);
        for (view, pitch) in [(&src, &src_pitch), (&dst, &dst_pitch)] {
            let outside = |end: usize| {
                Error::new(
                    ErrorKind::InvalidSize,
                    format!("the rectangle ends at byte {end} of a buffer of {} bytes", view.len),
                )
            };
            if let Err(error) =
                rect.end(pitch).and_then(|end| if end > view.len { Err(outside(end)) } else { Ok(()) })
            {
                return self.refuse(CommandKind::BufferCopyRect, error);
            }
        }
        self.transfer(src, dst, |direction, src, dst| match direction {
            Direction::OnDevice => hal::Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch },
            Direction::ToHost => {
                hal::Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
            }
            Direction::FromHost => {
                hal::Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch }
            }
        })
    }

    /// Adds a write of `elements`, which the graph keeps a copy of, to all of `dst`.
    ///
    /// # Errors
    /// At finalize: those of [`copy`](Self::copy), and [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn write<T: Pod>(&mut self, dst: &Buffer<T>, elements: &[T]) -> NodeBuilder<'_> {
        match dst.device().host_buffer_from(elements) {
            Ok(staging) => self.copy(&staging, dst),
            Err(error) => self.refuse(CommandKind::BufferWrite, error),
        }
    }

    /// Adds a fill of all of `dst` with `value`.
    #[track_caller]
    pub fn fill<T: Pod>(&mut self, dst: &Buffer<T>, value: T) -> NodeBuilder<'_> {
        self.fill_pattern(dst, &[value])
    }

    /// Adds a fill of all of `dst` with a pattern of any number of elements, repeated.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](ErrorKind::InvalidSize) when the pattern is empty or does not divide the buffer.
    #[track_caller]
    pub fn fill_pattern<T: Pod>(&mut self, dst: &Buffer<T>, pattern: &[T]) -> NodeBuilder<'_> {
        let (view, bytes) = (dst.view().clone(), bytemuck::cast_slice::<T, u8>(pattern));
        if bytes.is_empty() || !view.len.is_multiple_of(bytes.len()) {
            let error = Error::new(
                ErrorKind::InvalidSize,
                format!("a pattern of {} elements does not divide a buffer of {}", pattern.len(), dst.len()),
            );
            return self.refuse(CommandKind::BufferFill, error);
        }
        let pattern = SmallVec::from_slice(bytes);
        let command = view.to_hal().map(|dst| hal::Command::BufferFill { dst, pattern });
        self.memory_command(CommandKind::BufferFill, command, [(view, AccessMode::Write)])
    }

    /// Adds a hint that `buffer` will soon be used. A device without use for it keeps the order only.
    #[track_caller]
    pub fn prefetch<T: Pod>(&mut self, buffer: &Buffer<T>) -> NodeBuilder<'_> {
        let view = buffer.view().clone();
        let command = usm(&view).map(|memory| hal::Command::UsmPrefetch { memory });
        self.memory_command(CommandKind::UsmPrefetch, command, [(view, AccessMode::Read)])
    }

    /// Adds a hint on how `buffer` will be used. A device without use for it keeps the order only.
    #[track_caller]
    pub fn advise<T: Pod>(&mut self, buffer: &Buffer<T>, advice: Advice) -> NodeBuilder<'_> {
        let view = buffer.view().clone();
        let command = usm(&view).map(|memory| hal::Command::UsmAdvise { memory, advice });
        self.memory_command(CommandKind::UsmAdvise, command, [(view, AccessMode::Read)])
    }

    /// Adds an empty node: a point to hang edges on. It costs nothing in the plan.
    #[track_caller]
    pub fn empty(&mut self) -> NodeBuilder<'_> {
        let id = self.nodes.add(CommandKind::Empty, self.device.id(), Content::Empty, &[]);
        NodeBuilder::new(self, id)
    }

    /// Adds a host task: an async closure that runs as a spawned tokio task when its predecessors are complete, once a
    /// run, and may await anything.
    ///
    /// `accesses` declares, with [`read`](crate::read) and [`write`](crate::write), the host buffers that it uses; the
    /// closure gets a tuple of views. The task is complete when its future has finished and its views are dropped, so a
    /// view can be moved on, for example into the body of a response. The closure is cloned for every run; put into an
    /// `Arc` what cannot be cloned, or is expensive to.
    ///
    /// An `Err` or a panic fails the submission with an error that names the node.
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](ErrorKind::InvalidArgument) when the accesses overlap and one of them writes.
    #[track_caller]
    pub fn host_task<A, F, R>(&mut self, accesses: A, closure: F) -> NodeBuilder<'_>
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + Clone + Send + Sync + 'static,
        R: Future + Send + 'static,
        R::Output: TaskOutput,
    {
        let declared = accesses.declared();
        self.add_host_task(declared, HostTask::new(accesses, closure))
    }

    /// Adds a host task whose closure blocks or computes for long: it runs on tokio's blocking pool. Otherwise as
    /// [`host_task`](Self::host_task).
    #[track_caller]
    pub fn host_task_blocking<A, F, R>(&mut self, accesses: A, closure: F) -> NodeBuilder<'_>
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + Clone + Send + Sync + 'static,
        R: TaskOutput,
    {
        let declared = accesses.declared();
        self.add_host_task(declared, HostTask::blocking(accesses, closure))
    }

    /// Adds a copy of `child` as it is now, as one node; its commands are copied in at finalize. The child stays usable on
    /// its own. Edges to and from the node hold for all its commands.
    #[track_caller]
    pub fn sub_graph(&mut self, child: &Graph) -> NodeBuilder<'_> {
        if let Some(error) = child.errors.first() {
            return self.refuse(CommandKind::SubGraph, error.clone());
        }
        for device in &child.devices {
            self.know(device);
        }
        let accesses = child.merged_accesses();
        let content = Content::SubGraph(Arc::new(child.nodes.clone()));
        let id = self.nodes.add(CommandKind::SubGraph, child.device.id(), content, &accesses);
        NodeBuilder::new(self, id)
    }

    /// Adds an edge: `to` runs after `from`. It may go backwards, to a node added earlier.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node of another graph, or an edge from a node to itself;
    /// [`Cycle`](ErrorKind::Cycle), naming its nodes, when it would close one. The graph is unchanged then.
    pub fn make_edge(&mut self, from: NodeId, to: NodeId) -> Result<()> {
        self.nodes.make_edge(from, to)
    }

    /// Plans the graph and records it for its devices. The graph stays as it is, to be changed and finalized again.
    ///
    /// # Errors
    /// The first of [`errors`](Self::errors); [`FeatureNotSupported`](ErrorKind::FeatureNotSupported), naming the node,
    /// when a device lacks a command; those of the devices.
    pub fn finalize(&self) -> Result<ExecutableGraph> {
        self.finalize_with(FinalizeOptions::default())
    }

    /// As [`finalize`](Self::finalize), with options.
    ///
    /// # Errors
    /// As [`finalize`](Self::finalize).
    pub fn finalize_with(&self, options: FinalizeOptions) -> Result<ExecutableGraph> {
        finalize::finalize(self, options)
    }

    /// What went wrong so far in adding nodes; [`finalize`](Self::finalize) returns the first.
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }

    /// The device of nodes that use no device's buffers.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes in the order in which they were added.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.nodes()
    }

    /// Nodes without a predecessor.
    pub fn roots(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.roots()
    }

    /// Nodes without a successor.
    pub fn leaves(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.leaves()
    }

    /// The nodes that `node` directly follows.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node of another graph; so for all queries.
    pub fn predecessors(&self, node: NodeId) -> Result<Vec<NodeId>> {
        Ok(self.nodes.node(node)?.predecessors().collect())
    }

    /// The nodes that directly follow `node`.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node of another graph.
    pub fn successors(&self, node: NodeId) -> Result<Vec<NodeId>> {
        Ok(self.nodes.node(node)?.successors().collect())
    }

    /// What the node does.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node of another graph.
    pub fn kind(&self, node: NodeId) -> Result<CommandKind> {
        Ok(self.nodes.node(node)?.kind())
    }

    /// The node's name, if it has one.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node of another graph.
    pub fn name(&self, node: NodeId) -> Result<Option<&str>> {
        Ok(self.nodes.node(node)?.name())
    }

    /// The first node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes.find(name)
    }

    /// The graph in Graphviz' language; `verbose` adds operands and accesses.
    pub fn dot(&self, verbose: bool) -> String {
        let dot = self.nodes.dot();
        if verbose { dot.verbose().to_string() } else { dot.to_string() }
    }

    pub(crate) fn inner(&self) -> &graph::Graph<Command> {
        &self.nodes
    }

    pub(crate) fn nodes_mut(&mut self) -> &mut graph::Graph<Command> {
        &mut self.nodes
    }

    pub(crate) fn find_device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|device| device.id() == id)
    }

    pub(crate) fn keep_error(&mut self, result: Result<()>) {
        self.errors.extend(result.err());
    }

    pub(crate) fn set_node_device(&mut self, node: NodeId, device: &Device) {
        self.know(device);
        let result = self.nodes.set_device(node, device.id());
        self.keep_error(result);
    }

    fn know(&mut self, device: &Device) {
        if !self.devices.contains(device) {
            self.devices.push(device.clone());
        }
    }

    #[track_caller]
    fn add(
        &mut self,
        kind: CommandKind,
        device: Option<Device>,
        accesses: Result<Vec<Access>>,
        command: impl FnOnce() -> Command,
    ) -> NodeBuilder<'_> {
        match accesses {
            Ok(accesses) => {
                let device = device.unwrap_or_else(|| self.device.clone());
                self.know(&device);
                let id = self.nodes.add(kind, device.id(), Content::Command(command()), &accesses);
                NodeBuilder::new(self, id)
            }
            Err(error) => self.refuse(kind, error),
        }
    }

    /// Keeps the error, and adds an empty node in the place of the one that is refused, so that its id is good.
    #[track_caller]
    fn refuse(&mut self, kind: CommandKind, error: Error) -> NodeBuilder<'_> {
        let place = format!("{kind} #{}", self.nodes.len());
        self.errors.push(error.in_node(place).at(Location::caller()));
        self.empty()
    }

    #[track_caller]
    fn memory_command<const N: usize>(
        &mut self,
        kind: CommandKind,
        command: Result<hal::Command>,
        uses: [(View, AccessMode); N],
    ) -> NodeBuilder<'_> {
        let command = match command {
            Ok(command) => Arc::new(command),
            Err(error) => return self.refuse(kind, error),
        };
        let device = preferred_device(&uses);
        let accesses = accesses(&uses);
        let mut views = uses.into_iter().map(|(view, _)| view);
        let uses = [views.next(), views.next()];
        self.add(kind, device, Ok(accesses), || Command::Memory { command, uses })
    }

    /// Adds a copy whose command `make` builds for the direction, through the host where there is no direct path.
    #[track_caller]
    fn transfer(
        &mut self,
        src: View,
        dst: View,
        make: impl Fn(Direction, hal::MemoryView, hal::MemoryView) -> hal::Command,
    ) -> NodeBuilder<'_> {
        let uses = [(src, AccessMode::Read), (dst, AccessMode::Write)];
        let [(src, _), (dst, _)] = &uses;
        let direction = match (src.kind(), dst.kind()) {
            (MemoryKind::Device, MemoryKind::Device) => Direction::OnDevice,
            (MemoryKind::Device, MemoryKind::Host) => Direction::ToHost,
            (MemoryKind::Host, MemoryKind::Device) => Direction::FromHost,
            (MemoryKind::Host, MemoryKind::Host) => {
                let error = Error::new(ErrorKind::InvalidArgument, "both sides of the copy are host buffers");
                return self.refuse(CommandKind::UsmCopy, error.help("copy them in a host task"));
            }
        };
        if direction == Direction::OnDevice && !reachable(src, dst) {
            return self.staged(src.clone(), dst.clone(), make);
        }
        let command = src.to_hal().and_then(|src| Ok(make(direction, src, dst.to_hal()?)));
        let kind = command.as_ref().map_or(CommandKind::BufferCopy, hal::Command::kind);
        self.memory_command(kind, command, uses)
    }

    /// Between devices that cannot reach each other's memory: a read on the one and a write on the other, as a sub-graph.
    #[track_caller]
    fn staged(
        &mut self,
        src: View,
        dst: View,
        make: impl Fn(Direction, hal::MemoryView, hal::MemoryView) -> hal::Command,
    ) -> NodeBuilder<'_> {
        // The staging memory has the layout of the source, so that a rectangle keeps its pitches.
        let (from, to) = (src.allocation.device().clone(), dst.allocation.device().clone());
        let staging = match HostBuffer::<u8>::allocate(&from, src.len) {
            Ok(staging) => staging.view().clone(),
            Err(error) => return self.refuse(CommandKind::BufferCopy, error),
        };
        let mut child = Graph::new(&from);
        let whole = |view: &View, mode| (view.clone(), mode);
        let read = src.to_hal().and_then(|src| Ok(hal::Command::BufferRead { src, host: staging.to_hal()? }));
        child
            .memory_command(
                CommandKind::BufferRead,
                read,
                [whole(&src, AccessMode::Read), whole(&staging, AccessMode::Write)],
            )
            .on(&from);
        let write = staging.to_hal().and_then(|host| Ok(make(Direction::FromHost, host, dst.to_hal()?)));
        let kind = write.as_ref().map_or(CommandKind::BufferWrite, hal::Command::kind);
        child
            .memory_command(kind, write, [whole(&staging, AccessMode::Read), whole(&dst, AccessMode::Write)])
            .on(&to);
        self.sub_graph(&child).name("staged copy")
    }

    #[track_caller]
    fn add_host_task(&mut self, declared: Vec<(Operand, AccessMode)>, task: HostTask) -> NodeBuilder<'_> {
        let uses: Vec<(View, AccessMode)> =
            declared.into_iter().map(|(Operand(view), mode)| (view, mode)).collect();
        let accesses = accesses(&uses);
        let overlap =
            accesses.iter().enumerate().any(|(i, a)| accesses[..i].iter().any(|b| a.conflicts_with(b)));
        let checked = if overlap {
            Err(Error::new(
                ErrorKind::InvalidArgument,
                "the host task's accesses overlap, and one of them writes",
            )
            .help("declare the buffer once, with `write`, or use disjoint slices"))
        } else {
            Ok(accesses)
        };
        let uses = uses.into_iter().map(|(view, _)| view).collect();
        let device = Some(self.device.clone());
        self.add(CommandKind::HostTask, device, checked, || Command::HostTask { task: Arc::new(task), uses })
    }

    /// All accesses of all nodes, as few as possible, for a parent's implicit dependencies.
    fn merged_accesses(&self) -> Vec<Access> {
        let mut all: Vec<Access> = Vec::new();
        for id in self.nodes.nodes() {
            if let Ok(node) = self.nodes.node(id) {
                all.extend_from_slice(node.accesses());
            }
        }
        all.sort_by_key(|access| access.resource);
        all.chunk_by(|a, b| a.resource == b.resource).flat_map(super::ordering::merged).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    OnDevice,
    ToHost,
    FromHost,
}

/// Whether the device of `dst` can copy from `src` directly.
fn reachable(src: &View, dst: &View) -> bool {
    dst.allocation.device().hal().can_access(&**src.allocation.memory())
}

/// Where a command runs best: where it writes device memory, else where it reads some.
fn preferred_device(uses: &[(View, AccessMode)]) -> Option<Device> {
    let on_device = |view: &View| view.kind() == MemoryKind::Device;
    let written = uses.iter().find(|(view, mode)| mode.writes() && on_device(view));
    let used = written.or_else(|| uses.iter().find(|(view, _)| on_device(view)));
    used.map(|(view, _)| view.allocation.device().clone())
}

#[expect(unsafe_code, reason = "narrows a pointer that the device vouches for")]
fn usm(view: &View) -> Result<hal::UsmPointer> {
    let whole = view.allocation.memory().usm().ok_or_else(|| {
        Error::new(ErrorKind::FeatureNotSupported, "the device's memory has no unified-shared-memory pointer")
    })?;
    // SAFETY: the view lies inside the allocation, which the node keeps alive.
    Ok(unsafe { hal::UsmPointer::new(whole.address() + view.offset, view.len) })
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("nodes", &self.nodes.len())
            .field("device", &self.device)
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

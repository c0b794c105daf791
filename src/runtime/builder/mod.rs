//! The graph as users build it: commands over buffers, host tasks, sub-graphs.
//!
//! | file | holds |
//! |---|---|
//! | `verbs` | the methods that queues have, too, from `launch` to `while_nonzero` |
//! | this | [`Graph`]: kernels, host tasks, empty nodes, sub-graphs, finalize |
//! | `memory_command` | the device commands of copies, fills and hints |
//! | `parameter`, `binding`, `command_group` | what nodes are bound to, to be changed later |
//! | `scratch_buffers` | memory that belongs to the graph |
//! | `native` | native commands |
//! | `recorded_queues` | which nodes queues have recorded |
//! | `queries` | what can be asked of a graph |

pub(crate) mod binding;
pub(crate) mod command;
pub(crate) mod command_group;
pub(crate) mod memory_command;
mod native;
pub(crate) mod node;
pub(crate) mod parameter;
mod queries;
pub(crate) mod recorded_queues;
mod scratch_buffers;
mod stream_task;
pub(crate) mod verbs;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

pub use native::{NativeAccess, NativeAccesses};
use smallvec::SmallVec;
use wakegraph_hal::{
    Access, AccessMode, CommandKind, DeviceId, Error, ErrorKind, KindPlace, MemoryKind, Range, Result,
};

use crate::graph::{self, Content, GraphProperties, NodeId};
use crate::runtime::builder::command::Command;
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::builder::parameter::BoundNodes;
use crate::runtime::builder::recorded_queues::RecordedQueues;
use crate::runtime::execution::accesses;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::resource::memory_arg::Operand;
use crate::runtime::resource::scratch;
use crate::runtime::resource::scratch::ScratchArena;

/// A graph of commands and host tasks under construction: plain data, no device work.
///
/// Edges follow from what commands read and write, in the order in which they are added;
/// [`after`](NodeBuilder::after) and [`make_edge`](Self::make_edge) add others. A node runs on the
/// device that its buffers live on, or else on the graph's, or where [`on`](NodeBuilder::on) says.
///
/// The methods that add a node do not return errors: the first one, with the place in the source,
/// comes out of [`finalize`](Self::finalize), before anything runs ([`errors`](Self::errors) shows
/// them earlier). [`take_errors`](Self::take_errors) makes the graph usable without the nodes that
/// were refused.
///
/// [Graphs](crate::guide::graphs) and [dependencies](crate::guide::dependencies) are pages of the guide.
///
/// ```
/// use wakegraph::{Device, Graph, Range, read};
///
/// wakegraph::kernel! {
///     fn double(x: &mut [u32]) { item: |i, x| x[i] *= 2 }
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
    /// Present once the graph has scratch buffers of its own.
    scratch_owner: Option<scratch::Owner>,
    /// Whether there may be scratch buffers, of sub-graphs too.
    has_scratch: bool,
    /// Place where the scratch buffers of its executables lie, if not in memory of their own.
    arena: Option<ScratchArena>,
    /// The nodes that dynamic parameters are bound to.
    bound: BoundNodes,
    /// Belongs to the queues that record into the graph.
    pub(crate) recorded_queues: RecordedQueues,
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
            scratch_owner: None,
            has_scratch: false,
            arena: None,
            bound: BoundNodes::default(),
            recorded_queues: RecordedQueues::default(),
        }
    }

    #[track_caller]
    fn add_launch(&mut self, call: KernelCall, range: Range) -> NodeBuilder<'_> {
        let name: Arc<str> = call.kernel.name().into();
        let device = preferred_device(&call);
        let checked = range
            .check()
            .and_then(|()| scratch::check_owner(call.views(), self.scratch_owner.as_ref()))
            .and_then(|()| call.accesses())
            .and_then(|accesses| call.check_range(&range).map(|()| accesses))
            .map_err(|error| error.in_node(format!("kernel '{name}' (#{})", self.nodes.len())));
        let node = self.add(CommandKind::Kernel, device, checked, || Command::Kernel {
            call: Arc::new(call),
            range,
            alternatives: Arc::default(),
            dynamic: None,
        });
        node.name(name)
    }

    /// Adds an empty node: a point to hang edges on. It costs nothing in the plan.
    #[track_caller]
    pub fn empty(&mut self) -> NodeBuilder<'_> {
        let id = self.nodes.add(CommandKind::Empty, self.device.id(), Content::Empty, &[]);
        NodeBuilder::new(self, id)
    }

    #[track_caller]
    fn add_sub_graph(&mut self, child: &Graph) -> NodeBuilder<'_> {
        if let Some(error) = child.errors.first() {
            return self.refuse(CommandKind::SubGraph, error.clone());
        }
        let nodes = match child.present() {
            Ok(nodes) => nodes.into_owned(),
            Err(error) => return self.refuse(CommandKind::SubGraph, error),
        };
        self.refresh_params();
        for device in &child.devices {
            self.know(device);
        }
        self.has_scratch |= child.has_scratch;
        let accesses = merged_accesses(&nodes);
        let content = Content::SubGraph(Arc::new(nodes));
        let id = self.nodes.add(CommandKind::SubGraph, child.device.id(), content, &accesses);
        NodeBuilder::new(self, id)
    }

    /// A node, to be refined: gives it a name, more predecessors, another device, parameters. For nodes that
    /// a queue has [recorded](Self::record), by their [events](crate::Event::node).
    ///
    /// ```
    /// # use wakegraph::{Device, Graph};
    /// # fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// # let (queue, x) = (device.queue()?, device.buffer::<u32>(4)?);
    /// let mut graph = Graph::new(&device);
    /// let recording = graph.record([&queue])?;
    /// let filled = queue.fill(&x, 1);
    /// drop(recording);
    /// if let Some(node) = filled.node() {
    ///     graph.node_mut(node)?.name("clear");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node of another graph.
    pub fn node_mut(&mut self, node: NodeId) -> Result<NodeBuilder<'_>> {
        self.nodes.node(node)?;
        Ok(NodeBuilder::new(self, node))
    }

    /// Adds an edge: `to` runs after `from`. It may go backwards, to a node added earlier.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node of another graph, or an edge from
    /// a node to itself; [`Cycle`](ErrorKind::Cycle), naming its nodes, when it would close one.
    /// The graph is unchanged then.
    pub fn make_edge(&mut self, from: NodeId, to: NodeId) -> Result<()> {
        self.nodes.make_edge(from, to)
    }

    /// The graph as it is now, with the present values of its parameters, for a node that holds it. The
    /// ids of its nodes are its own.
    pub(crate) fn snapshot(&self) -> Result<Self> {
        let errors = self.errors.clone();
        Ok(Self { errors, ..self.with_nodes(self.present()?.into_owned()) })
    }

    /// A copy that makes the same executables as the graph now does.
    ///
    /// # Errors
    /// The first error of the graph.
    pub(crate) fn copy_to_finalize(&self) -> Result<Self> {
        match self.errors.first() {
            Some(first) => Err(first.clone()),
            None => Ok(Self { arena: self.arena.clone(), ..self.snapshot()? }),
        }
    }

    /// A graph like this one with other commands in the same nodes.
    pub(crate) fn with_nodes(&self, nodes: graph::Graph<Command>) -> Self {
        Self {
            nodes,
            devices: self.devices.clone(),
            scratch_owner: self.scratch_owner.clone(),
            has_scratch: self.has_scratch,
            ..Self::new(&self.device)
        }
    }

    pub(crate) fn inner(&self) -> &graph::Graph<Command> {
        &self.nodes
    }

    pub(crate) fn nodes_mut(&mut self) -> &mut graph::Graph<Command> {
        &mut self.nodes
    }

    pub(crate) fn has_scratch(&self) -> bool {
        self.has_scratch
    }

    pub(crate) fn scratch_arena(&self) -> Option<&ScratchArena> {
        self.arena.as_ref()
    }

    pub(crate) fn add_alternative(
        &mut self,
        node: NodeId,
        kernel: KernelRef,
        at: &'static Location<'static>,
    ) {
        let added = match self.nodes.command_mut(node) {
            Ok(Command::Kernel { alternatives, .. }) => {
                *alternatives = alternatives.iter().cloned().chain([kernel]).collect();
                Ok(())
            }
            _ => {
                let label = self.nodes.node(node).map(|node| node.label()).unwrap_or_default();
                let error = Error::new(ErrorKind::InvalidArgument, "only kernels have alternatives");
                Err(error.in_node(label).at(at))
            }
        };
        self.keep_error(added);
    }

    pub(crate) fn find_device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|device| device.id() == id)
    }

    pub(crate) fn keep_error(&mut self, result: Result<()>) {
        self.errors.extend(result.err());
    }

    pub(crate) fn set_node_device(&mut self, node: NodeId, device: &Device, at: &'static Location<'static>) {
        let refused = self.nodes.node(node).and_then(|node| {
            let kind = node.kind();
            let (why, help) = match kind.row().place {
                KindPlace::Host => (
                    format!("a {kind} runs on no device"),
                    "leave out `on`; the task's accesses say what it uses",
                ),
                KindPlace::Inlined => (
                    format!("a {kind}'s nodes run on devices of their own"),
                    "say `on` for the nodes of the sub-graph, before it is added",
                ),
                KindPlace::DeviceOrHost if node.device() != device.id() => (
                    format!("the nodes of a {kind} run on a device of their own"),
                    "say `on` for the nodes of the body, before it is added",
                ),
                _ => return Ok(()),
            };
            let error = Error::new(
                ErrorKind::InvalidArgument,
                format!("{why}, so it cannot be put on {}", device.selector()),
            );
            Err(error.help(help).in_node(node.label()).at(at))
        });
        if refused.is_err() {
            return self.keep_error(refused);
        }
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
                self.refresh_params();
                let device = device.unwrap_or_else(|| self.device.clone());
                self.know(&device);
                let id = self.nodes.add(kind, device.id(), Content::Command(command()), &accesses);
                NodeBuilder::new(self, id)
            }
            Err(error) => self.refuse(kind, error),
        }
    }

    /// Keeps the error, and adds an empty node in the place of the one that is refused, so that its
    /// id is good.
    #[track_caller]
    pub(crate) fn refuse(&mut self, kind: CommandKind, error: Error) -> NodeBuilder<'_> {
        let place = format!("{kind} #{}", self.nodes.len());
        self.errors.push(error.in_node(place).at(Location::caller()));
        self.empty()
    }

    #[track_caller]
    pub(crate) fn add_host_task(
        &mut self,
        declared: Vec<(Operand, AccessMode)>,
        task: Arc<HostTask>,
    ) -> NodeBuilder<'_> {
        let command = host_task_command(declared, task);
        let checked = command.as_ref().map_err(Clone::clone).and_then(|command| command.check(None));
        match command {
            Ok(command) => self.add(CommandKind::HostTask, Some(self.device.clone()), checked, || command),
            Err(error) => self.refuse(CommandKind::HostTask, error),
        }
    }
}

/// The device of a kernel's memory.
fn preferred_device(call: &KernelCall) -> Option<Device> {
    let device = call.views().find(|view| view.kind() == MemoryKind::Device);
    device.or(call.views().next()).map(|view| view.allocation.device().clone())
}

/// A host task as a node's command.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) when the accesses overlap and one of them writes.
pub(crate) fn host_task_command(
    declared: Vec<(Operand, AccessMode)>,
    task: Arc<HostTask>,
) -> Result<Command> {
    let accesses = host_accesses(&declared)?;
    Ok(Command::HostTask {
        task,
        uses: declared.into_iter().map(|(Operand(view), _)| view).collect(),
        accesses: accesses.into(),
        dynamic: None,
    })
}

/// All accesses of all nodes, as few as possible, for a parent's implicit dependencies.
pub(crate) fn merged_accesses(nodes: &graph::Graph<Command>) -> Vec<Access> {
    let all = (0..nodes.len()).flat_map(|index| nodes.accesses_at(index).iter().copied());
    accesses::merged_by_allocation(all.collect())
}

/// The accesses that a host task has declared.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) when two overlap and one of them writes.
pub(crate) fn host_accesses(declared: &[(Operand, AccessMode)]) -> Result<Vec<Access>> {
    let accesses: Vec<_> = declared.iter().map(|(Operand(view), mode)| view.access(*mode)).collect();
    let overlap = accesses.iter().enumerate().any(|(i, a)| accesses[..i].iter().any(|b| a.conflicts_with(b)));
    if overlap {
        let why = "the host task's accesses overlap, and one of them writes";
        return Err(Error::new(ErrorKind::InvalidArgument, why)
            .help("declare the buffer once, with `write`, or use disjoint slices"));
    }
    Ok(accesses)
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

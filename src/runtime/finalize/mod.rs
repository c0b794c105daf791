//! The step from a graph to an executable: plan it, record a command-buffer for each device partition, and
//! make known which memory it uses.

pub(crate) mod control_flow;
pub(crate) mod idle;
mod kernels;
pub(crate) mod node_index;
pub(crate) mod options;
pub(crate) mod updatable;
pub(crate) mod uses;

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;
use wakegraph_hal as hal;
use wakegraph_hal::{
    Access, CommandKind, CommandKinds, DeviceId, Error, ErrorKind, KindPlace, ResourceId, Result,
};

use crate::graph::{self, Content};
use crate::plan::{PartitionKind, Plan, PlanOptions};
use crate::runtime::builder::Graph;
use crate::runtime::builder::command::Command;
use crate::runtime::completion::estimate::Estimator;
use crate::runtime::completion::reactor::new_queue_number;
use crate::runtime::completion::tasks::on_thread;
use crate::runtime::completion::tuning::WakePolicy;
use crate::runtime::execution::executable::{
    ExecutableHandle, ExecutableId, ExecutableInner, ExecutableState,
};
use crate::runtime::execution::executable_graph::ExecutableGraph;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::labels::{Labels, NodeLabel};
use crate::runtime::execution::run_data::RunDataType;
use crate::runtime::execution::submission_queue::queue_for;
use crate::runtime::execution::template::{
    DeviceQueue, PartitionExec, PartitionWork, Partitions, RunTemplate, Stoppable, UpdatableCell,
};
use crate::runtime::execution::{conflicts, in_flight};
use crate::runtime::finalize::idle::RecordedBuffer;
use crate::runtime::finalize::options::FinalizeOptions;
use crate::runtime::finalize::updatable::Updatable;
use crate::runtime::finalize::uses::Uses;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::load::load_all;
use crate::runtime::resource::preparation::measure;
use crate::runtime::resource::scratch::{Places, ScratchArena, ScratchMemory};
use crate::sync::{AtomicU8, AtomicU64};
use crate::util::attachment::Attached;
use crate::util::console;
use crate::util::panics;
use crate::util::preparation_step::PreparationStep;

impl Graph {
    /// Plans the graph and records it for its devices. The graph stays as it is, to be changed and
    /// finalized again.
    ///
    /// Blocks while drivers compile kernels and instantiate their graphs, some milliseconds or more.
    /// Kernels that their devices have not loaded are compiled in parallel, on all cores. Inside a
    /// task, use [`finalize_async`](Self::finalize_async). The closures of an
    /// [`ExecutablePool`](crate::service::ExecutablePool) and of an
    /// [`ExecutableCache`](crate::service::ExecutableCache) may block.
    ///
    /// # Errors
    /// The first of [`errors`](Self::errors);
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported), naming the node, when a device
    /// lacks a command; those of the devices.
    #[track_caller]
    pub fn finalize(&self) -> Result<ExecutableGraph> {
        self.finalize_with(FinalizeOptions::default())
    }

    /// Finalizes as [`finalize`](Self::finalize) does, with options.
    ///
    /// # Errors
    /// As [`finalize`](Self::finalize).
    #[track_caller]
    pub fn finalize_with(&self, options: FinalizeOptions) -> Result<ExecutableGraph> {
        let options = options.named();
        finalize(self, &options, Location::caller()).map_err(|error| options.name_in(error))
    }

    /// Finalizes as [`finalize`](Self::finalize) does, on a thread of its own: no worker of tokio's waits for
    /// a compiler or a driver. The executable is that of the graph as it is at the call.
    ///
    /// ```
    /// # use wakegraph::{Device, Graph};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let mut graph = Graph::new(&device);
    /// graph.fill(&device.buffer::<u32>(4)?, 1);
    /// let exec = graph.finalize_async().await?;
    /// exec.submit().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`finalize`](Self::finalize); [`Unavailable`](ErrorKind::Unavailable) when the system has no thread
    /// to give.
    ///
    /// # Cancel safety
    /// The work begins with the first poll. If the future is dropped then, the thread finishes and drops the
    /// executable. Kernels that it has loaded stay loaded for the next call.
    #[track_caller]
    pub fn finalize_async(&self) -> impl Future<Output = Result<ExecutableGraph>> + Send + use<> {
        self.finalize_async_with(FinalizeOptions::default())
    }

    /// Finalizes as [`finalize_async`](Self::finalize_async) does, with options.
    ///
    /// # Errors
    /// As [`finalize_async`](Self::finalize_async).
    ///
    /// # Cancel safety
    /// As [`finalize_async`](Self::finalize_async).
    #[track_caller]
    pub fn finalize_async_with(
        &self,
        options: FinalizeOptions,
    ) -> impl Future<Output = Result<ExecutableGraph>> + Send + use<> {
        let (graph, options, location) = (self.copy_to_finalize(), options.named(), Location::caller());
        let span = tracing::Span::current();
        async move {
            let panicked = |why| Error::new(ErrorKind::Bug, format!("finalizing a graph panicked: {why}"));
            let for_thread = options.clone();
            let work = move || {
                panics::catch(|| span.in_scope(|| finalize(&graph?, &for_thread, location)))
                    .unwrap_or_else(|panic| Err(panicked(panic)))
            };
            let finalized = match on_thread(work) {
                Ok(finalized) => {
                    finalized.await.unwrap_or_else(|_| Err(panicked("its thread is gone".into())))
                }
                Err(error) => Err(error),
            };
            finalized.map_err(|error| options.name_in(error))
        }
    }
}

fn finalize(
    graph: &Graph,
    options: &FinalizeOptions,
    location: &'static Location<'static>,
) -> Result<ExecutableGraph> {
    let (nodes, executable) = (graph.len(), options.name.as_deref());
    let _span = tracing::debug_span!(target: "wakegraph::finalize", "finalize", nodes, executable).entered();
    if let Some(first) = graph.errors().first() {
        return Err(first.clone());
    }
    let (executable, uses) = build(graph, options, graph.scratch_arena(), Some(location))?;
    conflicts::register(&executable, &[], uses);
    in_flight::register(&executable)?;
    tracing::debug!(target: "wakegraph::finalize", partitions = executable.partitions.len(), "finalized");
    Ok(ExecutableGraph { inner: ExecutableHandle::new(executable) })
}

/// Builds an executable that no register knows yet, and what it uses, merged. An `arena` takes its
/// scratch buffers. The console shows the `location`.
#[expect(clippy::type_complexity, reason = "the list is handed on as it is")]
fn build(
    graph: &Graph,
    options: &FinalizeOptions,
    arena: Option<&ScratchArena>,
    location: Option<&'static Location<'static>>,
) -> Result<(Arc<ExecutableInner>, Vec<(Arc<Allocation>, Vec<Access>)>)> {
    let device_of = |id: DeviceId| {
        graph
            .find_device(id)
            .ok_or_else(|| Error::new(ErrorKind::Bug, format!("the graph does not know {id}")))
    };
    let supported = |id: DeviceId| device_of(id).map_or(CommandKinds::empty(), Device::node_kinds);
    let nodes = graph.present()?;
    let plan = Plan::new(&nodes, supported, &plan_options(options))?;
    let kernels = kernels::of(graph, &nodes, options.updatable);
    load_all(&kernels);

    let source = Source::new(&nodes, &plan);
    let scratch = match graph.has_scratch() {
        true => Places::allocate(&plan, source.views(&plan), &Places::none(arena))?,
        false => Places::none(arena),
    };
    let scratch = Arc::new(scratch);
    let mut uses = Uses::of_shared(&scratch);
    let mut queues = Queues::default();
    let mut work = Vec::with_capacity(plan.partitions().len());
    let mut run_data = None;
    for (index, partition) in plan.partitions().iter().enumerate() {
        let device = partition.kind.device().map(device_of).transpose()?;
        if let Some(device) = device {
            device.start_reactor().map_err(|error| error.on_device(device.selector()))?;
        }
        let made = match (partition.kind, device) {
            (PartitionKind::StreamTask(_), Some(device)) => {
                let task = stream_task(&source, &plan, index, device, &mut uses)?;
                PartitionWork::StreamTask(UpdatableCell::new(task, options.updatable))
            }
            (_, Some(device)) => {
                let of = || match &options.name {
                    Some(name) => format!("partition {index} of '{name}'"),
                    None => format!("partition {index}"),
                };
                let instantiate = |recording: RecordedBuffer| {
                    measure(device, PreparationStep::Instantiate, of, || recording.finalize(device))
                };
                let buffer = record(&source, &plan, index, device, options, &scratch, &mut uses)
                    .and_then(instantiate)
                    .map_err(|error| error.on_device(device.selector()))?;
                PartitionWork::CommandBuffer(UpdatableCell::new(buffer, options.updatable))
            }
            (_, None) => {
                let task = host_task(&source, &plan, index, options, &mut uses)?;
                let added = RunDataType::add(&mut run_data, task.run_data());
                added.map_err(|error| source.locate(&plan, plan.nodes(index)[0], error))?;
                PartitionWork::HostTask(UpdatableCell::new(task, options.updatable))
            }
        };
        let on = device.map(|device| queues.get(device, partition.queue, options)).transpose()?;
        work.push((on, made));
    }
    // Nodes that the plan elides leave gaps in the numbers.
    let numbers = (0..plan.partitions().len())
        .flat_map(|partition| plan.nodes(partition))
        .max()
        .map_or(0, |last| last + 1);
    let labels = (0..numbers).map(|node| source.node_label(&plan, node)).collect();
    let registered = uses.merged();
    let updatable =
        options.updatable.then(|| Updatable::new(&source, &plan, options.clone(), &scratch, &mut uses));
    let memory = device_memory(registered.iter().map(|(used, _)| used).chain(scratch.allocations()));
    let device_of = |partition: usize| work[partition].0.as_ref().map(|on| &on.device);
    let stoppable = stoppable(&source, &plan, device_of);
    let mut executable =
        assemble(plan, work, labels, uses, scratch, memory, options, location, updatable, stoppable);
    executable.run_data = run_data;
    executable.kernels = kernels.iter().filter_map(|(kernel, device)| kernel.explain(device)).collect();
    Ok((Arc::new(executable), registered))
}

fn plan_options(options: &FinalizeOptions) -> PlanOptions {
    PlanOptions {
        partition: options.partition,
        order: options.order,
        profiling: options.profiling,
        in_order: options.in_order,
        ..PlanOptions::default()
    }
}

/// Finds the commands behind the plan's numbers.
pub(super) struct Source<'g> {
    /// The graph of each instance that the plan copied in.
    graphs: Vec<&'g graph::Graph<Command>>,
}

impl<'g> Source<'g> {
    pub(super) fn new(root: &'g graph::Graph<Command>, plan: &Plan) -> Self {
        let mut graphs: Vec<&graph::Graph<Command>> = Vec::with_capacity(plan.instances().len());
        for instance in plan.instances() {
            // A parent comes before its children.
            let parent = instance.parent.and_then(|parent| graphs.get(parent as usize)).copied();
            graphs.push(match parent.map(|parent| parent.content_at(instance.node as usize)) {
                Some(Content::SubGraph(child)) => child,
                _ => root,
            });
        }
        Self { graphs }
    }

    fn root(&self) -> &'g graph::Graph<Command> {
        self.graphs[0]
    }

    /// From the graph of each instance.
    pub(super) fn of_instances(graphs: &'g [graph::Graph<Command>]) -> Self {
        Self { graphs: graphs.iter().collect() }
    }

    pub(super) fn place(&self, plan: &Plan, node: u32) -> (&'g graph::Graph<Command>, usize) {
        let origin = plan.origin(node);
        (self.graphs[origin.instance as usize], origin.node as usize)
    }

    /// Returns the views that each planned node uses.
    pub(super) fn views<'s>(&'s self, plan: &'s Plan) -> impl Iterator<Item = (u32, &'g View)> + 's {
        let nodes = (0..plan.partitions().len()).flat_map(|partition| plan.nodes(partition));
        nodes.flat_map(|&node| {
            let command = self.command(plan, node).into_iter();
            command.flat_map(|(command, _)| command.views()).map(move |view| (node, view))
        })
    }

    /// The command of a planned node and its accesses; none for a join.
    fn command(&self, plan: &Plan, node: u32) -> Option<(&'g Command, &'g [Access])> {
        let (graph, index) = self.place(plan, node);
        match graph.content_at(index) {
            Content::Command(command) => Some((command, graph.accesses_at(index))),
            Content::Empty | Content::SubGraph(_) => None,
        }
    }

    /// Adds to an error the name of a node, and where the user added it.
    fn locate(&self, plan: &Plan, node: u32, error: Error) -> Error {
        let (graph, index) = self.place(plan, node);
        error.in_node(graph.label_at(index)).at(graph.location_at(index))
    }

    fn node_label(&self, plan: &Plan, node: u32) -> NodeLabel {
        let (graph, index) = self.place(plan, node);
        NodeLabel::new(graph, index)
    }
}

/// The executable's own queues: one for each queue of the plan on each device.
#[derive(Default)]
struct Queues(HashMap<(DeviceId, u16), DeviceQueue>);

impl Queues {
    fn get(&mut self, device: &Device, number: u16, options: &FinalizeOptions) -> Result<DeviceQueue> {
        Ok(match self.0.entry((device.id(), number)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let desc = hal::QueueDesc::new(hal::QueueOrder::InOrder);
                let desc = desc.profiling(options.profiling).priority(options.priority);
                let queue = device.observe(device.hal().create_queue(&desc))?;
                new.insert(DeviceQueue { device: device.clone(), queue, number: new_queue_number() }).clone()
            }
        })
    }
}

/// Returns the work of a host partition: a host task, or a conditional or loop that no device can run.
pub(super) fn host_task(
    source: &Source<'_>,
    plan: &Plan,
    partition: usize,
    options: &FinalizeOptions,
    uses: &mut Uses,
) -> Result<Arc<HostTask>> {
    for &node in plan.nodes(partition) {
        let Some((command, accesses)) = source.command(plan, node) else { continue };
        let (graph, index) = source.place(plan, node);
        let task = match command {
            Command::HostTask { task, .. } => Ok(task.clone()),
            Command::Control(control) => {
                control_flow::host_task(control, graph.label_at(index), options).map(Arc::new)
            }
            _ => continue,
        };
        uses.add(plan.origin(node), command.allocations(), accesses);
        return task.map_err(|error| error.in_node(graph.label_at(index)).at(graph.location_at(index)));
    }
    Err(Error::new(ErrorKind::Bug, "a partition of the host without a task").in_partition(partition as u32))
}

/// The command of a partition that is a stream task.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for memory that the device cannot access.
pub(super) fn stream_task(
    source: &Source<'_>,
    plan: &Plan,
    partition: usize,
    device: &Device,
    uses: &mut Uses,
) -> Result<Arc<hal::Command>> {
    let node = plan.nodes(partition)[0];
    match source.command(plan, node) {
        Some((command @ Command::Native { command: task, .. }, accesses)) => {
            let (graph, index) = source.place(plan, node);
            let addresses = command.views().try_for_each(|view| view.check_address(device));
            let checked = addresses.and_then(|()| device.hal().check_command(task));
            checked.map_err(|error| error.in_node(graph.label_at(index)).at(graph.location_at(index)))?;
            uses.add(plan.origin(node), command.allocations(), accesses);
            Ok(task.clone())
        }
        _ => {
            Err(Error::new(ErrorKind::Bug, "a stream task without a closure").in_partition(partition as u32))
        }
    }
}

/// Records a device partition, for the caller to finalize.
pub(super) fn record(
    source: &Source<'_>,
    plan: &Plan,
    partition: usize,
    device: &Device,
    options: &FinalizeOptions,
    scratch: &Places,
    uses: &mut Uses,
) -> Result<RecordedBuffer> {
    let in_order = plan.partitions()[partition].in_order;
    let &FinalizeOptions { updatable, profiling, .. } = options;
    // Where another device partition waits for this one, an event has to tell of its end anyway.
    let is_device = |later: &u32| plan.partitions()[*later as usize].kind.device().is_some();
    let low_latency =
        device.wake_policy() != WakePolicy::Efficient && !plan.successors(partition).iter().any(is_device);
    let desc = hal::CommandBufferDesc { updatable, in_order, profiling, low_latency };
    let record = || {
        let buffer = device.hal().create_command_buffer(&desc)?;
        let mut recording = RecordedBuffer { buffer, stand_ins: SmallVec::new() };
        recording.buffer.reserve(plan.nodes(partition).len());
        let mut points: Vec<hal::SyncPoint> = Vec::with_capacity(plan.nodes(partition).len());
        let mut after = Vec::new();
        for (position, &node) in plan.nodes(partition).iter().enumerate() {
            let (graph, index) = source.place(plan, node);
            after.clear();
            after.extend(plan.waits(partition, position).iter().map(|&earlier| points[earlier as usize]));
            let appended = match source.command(plan, node) {
                Some((command, accesses)) => {
                    uses.add(plan.origin(node), command.allocations(), accesses);
                    let node = NodeCommand { kind: graph.kinds()[index], command };
                    append(&mut recording, device, node, scratch, &after, updatable)
                }
                None => recording.buffer.append(&hal::Command::Empty, &after),
            };
            let appended = appended
                .map_err(|error| error.in_node(graph.label_at(index)).at(graph.location_at(index)))?;
            points.push(appended.sync_point);
        }
        Ok(recording)
    };
    device.observe(device.hal().bind_thread(record))
}

/// The command of a node.
#[derive(Clone, Copy)]
struct NodeCommand<'g> {
    kind: CommandKind,
    command: &'g Command,
}

fn append(
    recording: &mut RecordedBuffer,
    device: &Device,
    NodeCommand { kind, command }: NodeCommand<'_>,
    scratch: &Places,
    after: &[hal::SyncPoint],
    updatable: bool,
) -> Result<hal::Appended> {
    let mut recorded = to_hal(device, command, updatable)?;
    if !scratch.is_empty() {
        scratch.resolve(recorded.to_mut())?;
    }
    if updatable
        && command.is_idle()
        && let Some(stand_in) = idle::stand_in(kind, command, &recorded, device)?
    {
        let appended = recording.buffer.append(&stand_in, after);
        let appended = appended.map_err(|error| with_owner(error, command, device))?;
        recording.stand_ins.extend(appended.handle);
        return Ok(appended);
    }
    let appended =
        unless_disabled(command, recorded, device).and_then(|it| recording.buffer.append(&it, after));
    appended.map_err(|error| with_owner(error, command, device))
}

/// Says whose memory it is, if a command was refused because the device cannot access that.
fn with_owner(error: Error, command: &Command, device: &Device) -> Error {
    let is_foreign = |used: &&Arc<Allocation>| {
        ScratchMemory::of(used).is_none() && !device.hal().can_access(&**used.memory())
    };
    match command.allocations().find(is_foreign) {
        Some(used) if error.message().contains("cannot be accessed") => {
            error.with_note(&format!("as it belongs to {}", used.device().selector()))
        }
        _ => error,
    }
}

/// Nothing in the place of a command that is disabled or has nothing to do.
///
/// # Errors
/// Those of the command's operands.
pub(super) fn unless_disabled<'c>(
    command: &Command,
    recorded: Cow<'c, hal::Command>,
    device: &Device,
) -> Result<Cow<'c, hal::Command>> {
    idle::unless(matches!(command, Command::Disabled(_)) || command.is_idle(), recorded, device)
}

/// The command as a device takes it; a disabled one as it is while it is enabled, and a launch without
/// work-items as one of a few.
///
/// # Errors
/// Those of loading kernels; [`InvalidArgument`](ErrorKind::InvalidArgument) for memory by an address of
/// another device.
pub(super) fn to_hal<'c>(
    device: &Device,
    command: &'c Command,
    updatable: bool,
) -> Result<Cow<'c, hal::Command>> {
    if let Command::Memory { .. } | Command::Native { .. } = command {
        command.views().try_for_each(|view| view.check_address(device))?;
    }
    match command {
        Command::Disabled(command) => to_hal(device, command, updatable),
        // A hint that the device has no use for keeps its place in the order.
        Command::Memory { command, .. } if is_idle_hint(device, command) => {
            Ok(Cow::Owned(hal::Command::Empty))
        }
        Command::Memory { command, .. } | Command::Native { command, .. } => Ok(Cow::Borrowed(command)),
        Command::Kernel { call, range, alternatives, .. } => {
            let alternatives = if updatable { &**alternatives } else { &[] };
            // After an update, or in a command group, the kernel itself may be among them.
            let others = alternatives.iter().filter(|kernel| !kernel.is(&call.kernel));
            let launch = hal::KernelLaunch {
                kernel: call.kernel.on(device)?,
                args: call.to_hal(device)?,
                range: idle::range_on_device(range),
                alternatives: others.map(|kernel| kernel.on(device)).collect::<Result<_>>()?,
            };
            Ok(Cow::Owned(hal::Command::Kernel(Arc::new(launch))))
        }
        Command::Control(control) => {
            if updatable {
                kernels::load_alternatives(control)?;
            }
            control_flow::to_hal(control, device).map(Cow::Owned)
        }
        Command::HostTask { .. } => Err(Error::new(ErrorKind::Bug, "a host task in a device partition")),
    }
}

pub(crate) fn is_idle_hint(device: &Device, command: &hal::Command) -> bool {
    let kind = command.kind();
    kind.row().has_no_effect && !device.capabilities().commands.contains(kind.as_set())
}

/// The most that a deadline can stop among the partitions on devices.
pub(super) fn stoppable<'a>(
    source: &Source<'_>,
    plan: &Plan,
    device_of: impl Fn(usize) -> Option<&'a Device>,
) -> Stoppable {
    let partitions = (0..plan.partitions().len()).filter_map(|at| Some((at, device_of(at)?)));
    let commands = partitions.flat_map(|(at, device)| plan.nodes(at).iter().map(move |&node| (node, device)));
    let each = commands.filter_map(|(node, device)| match source.command(plan, node)?.0 {
        Command::Control(control) if control.has_loop_on_device() => Some(Stoppable::Loops),
        command => command.can_be_stopped(device).then_some(Stoppable::Kernels),
    });
    each.max().unwrap_or(Stoppable::Nothing)
}

/// The device memory among these allocations, each once, with its bytes.
fn device_memory<'a>(allocations: impl Iterator<Item = &'a Arc<Allocation>>) -> Box<[(ResourceId, u64)]> {
    let memory = allocations.map(|allocation| allocation.memory());
    let on_device = memory.filter(|memory| memory.kind() == hal::MemoryKind::Device);
    let bytes: BTreeMap<_, _> = on_device.map(|memory| (memory.resource(), memory.len() as u64)).collect();
    bytes.into_iter().collect()
}

/// The partitions after which none comes on the same device: neither on their queue, which is in order, nor
/// because it waits for them. A tail always counts.
fn ends_of_devices(plan: &Plan, partitions: &Partitions) -> Box<[u32]> {
    let numbered = partitions.iter().zip(0..);
    let last_of_queues: HashMap<_, u32> =
        numbered.map(|(partition, index)| (partition.queue_number(), index)).collect();
    let is_end = |&index: &u32| {
        let (partition, successors) = (&partitions[index as usize], plan.successors(index as usize));
        let goes_on = |&later: &u32| partitions[later as usize].device() == partition.device();
        successors.is_empty()
            || last_of_queues[&partition.queue_number()] == index && !successors.iter().any(goes_on)
    };
    (0..partitions.len() as u32).filter(is_end).collect()
}

/// Works out, once, which partitions wait for which, and how.
#[expect(clippy::too_many_arguments, reason = "what finalize has made, put together in one place")]
fn assemble(
    plan: Plan,
    work: Vec<(Option<DeviceQueue>, PartitionWork)>,
    nodes: Box<[NodeLabel]>,
    uses: Uses,
    scratch: Arc<Places>,
    device_memory: Box<[(ResourceId, u64)]>,
    options: &FinalizeOptions,
    location: Option<&'static Location<'static>>,
    updatable: Option<Updatable>,
    stoppable: Stoppable,
) -> ExecutableInner {
    let mut partitions: Vec<PartitionExec> = Vec::with_capacity(work.len());
    let mut wakes: Vec<Vec<u32>> = vec![Vec::new(); work.len()];
    for (index, (on, work)) in work.into_iter().enumerate() {
        let predecessors: Box<[u32]> = plan.predecessors(index).into();
        let device = on.as_ref().map(|on| &on.device);
        // A predecessor that `submit` enqueues itself can be waited for by the device, without the host.
        let on_device = |&p: &u32| {
            let predecessor = &partitions[p as usize];
            let devices = device.zip(predecessor.device());
            predecessor.eager && devices.is_some_and(|(device, other)| device.can_wait_for(other))
        };
        let (on_device, on_host): (Vec<u32>, Vec<u32>) = predecessors.iter().copied().partition(on_device);
        on_host.iter().for_each(|&predecessor| wakes[predecessor as usize].push(index as u32));
        partitions.push(PartitionExec {
            eager: device.is_some() && on_host.is_empty(),
            begins_device: predecessors.iter().all(|&p| partitions[p as usize].device() != device),
            host_predecessors: on_host.len() as u32,
            predecessors,
            device_predecessors: on_device.into(),
            wakes: Box::default(),
            estimator: Estimator::default(),
            on,
            work,
        });
    }
    for (partition, wakes) in partitions.iter_mut().zip(wakes) {
        partition.wakes = wakes.into();
    }
    let partitions = Partitions::from(partitions);
    let all = 0..partitions.len() as u32;
    let tails: Box<[u32]> = all.clone().filter(|&p| plan.successors(p as usize).is_empty()).collect();
    let ends_of_devices = ends_of_devices(&plan, &partitions);
    let all_eager = partitions.iter().all(|partition| partition.eager);
    let has_stream_tasks = partitions.iter().any(|partition| partition.stream_task().is_some());
    // A batch has one event, and a loop is stopped by the event of its run.
    let decides = nodes.iter().any(|node| node.kind.row().place == KindPlace::DeviceOrHost);
    let is_polled = |&tail: &u32| partitions[tail as usize].device().is_some_and(Device::is_polled);
    let polls_tails = all_eager && tails.iter().all(is_polled);
    ExecutableInner {
        id: ExecutableId::unique(),
        submission_queue: queue_for(&partitions).filter(|_| !options.profiling && !decides),
        template: RunTemplate {
            roots: all.filter(|&p| plan.predecessors(p as usize).is_empty()).collect(),
            tails,
            ends_of_devices,
            devices: partitions.devices(),
            polled: partitions.iter().filter_map(PartitionExec::device).any(Device::is_polled),
            console: console::Resource::executable(options.name.as_deref(), partitions.len(), location),
            polls_tails,
            all_eager,
            has_stream_tasks,
            stoppable: AtomicU8::new(stoppable as u8),
            labels: Arc::new(Labels {
                executable: options.name.clone(),
                plan,
                nodes,
                devices: partitions.iter().map(|partition| partition.device().cloned()).collect(),
            }),
            metrics: partitions.metrics().of_executable(options.name.as_deref()),
            reactors: partitions.reactors(),
            progress: partitions.progress(),
            partitions,
            profiling: options.profiling,
            ended: AtomicU64::new(0),
        },
        allocations: uses.into_allocations(),
        scratch,
        device_memory,
        updatable: updatable.map_or_else(Attached::default, Attached::new),
        run_data: None,
        kernels: Box::default(),
        broken: OnceLock::new(),
        devices: OnceLock::new(),
        state: Mutex::new(ExecutableState::default()),
    }
}

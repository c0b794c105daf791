//! From a graph to an executable: plan it, record a command-buffer for each device partition, find its rivals.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::allocation::Allocation;
use super::command::Command;
use super::device::Device;
use super::executable::{ExecutableGraph, FinalizeOptions, PartitionExec, Shared, State, Work};
use super::graph::Graph;
use super::ordering;
use super::outline::Outline;
use super::prediction::Prediction;
use crate::graph::{self, Content};
use crate::hal;
use crate::plan::{PartitionKind, Plan, PlanOptions};
use crate::types::{Access, CommandKinds, DeviceId, Error, ErrorKind, ResourceId, Result};

pub(crate) fn finalize(graph: &Graph, options: FinalizeOptions) -> Result<ExecutableGraph> {
    let _span =
        tracing::debug_span!(target: "wakegraph::finalize", "finalize", nodes = graph.len()).entered();
    if let Some(first) = graph.errors().first() {
        return Err(first.clone());
    }
    let device_of = |id: DeviceId| {
        graph
            .find_device(id)
            .ok_or_else(|| Error::new(ErrorKind::Bug, format!("the graph does not know {id}")))
    };
    let supported =
        |id: DeviceId| device_of(id).map_or(CommandKinds::empty(), |device| device.capabilities().commands);
    let plan = Plan::new(graph.inner(), supported, &plan_options(options))?;

    let source = Source::new(graph.inner(), &plan);
    let mut uses = Uses::default();
    let mut queues = Queues::default();
    let mut work = Vec::with_capacity(plan.partitions().len());
    for (index, partition) in plan.partitions().iter().enumerate() {
        work.push(match partition.kind {
            PartitionKind::HostTask => host_task(&source, &plan, index, &mut uses)?,
            PartitionKind::Device(id) => {
                let device = device_of(id)?;
                device.start_reactor().map_err(|error| error.on_device(device.selector()))?;
                let command_buffer = record(&source, &plan, index, device, options, &mut uses)
                    .map_err(|error| error.on_device(device.selector()))?;
                let (queue, lane) = queues.get(device, partition.lane, options.profiling)?;
                Work::Device { device: device.clone(), queue, lane, command_buffer }
            }
        });
    }
    // Nodes that the plan looked through leave gaps in the numbers.
    let numbers = (0..plan.partitions().len())
        .flat_map(|partition| plan.nodes(partition))
        .max()
        .map_or(0, |last| last + 1);
    let nodes = (0..numbers).map(|node| source.label_and_kind(&plan, node)).collect();
    let Uses { accesses, allocations } = uses;
    let shared = Arc::new(assemble(plan, work, nodes, &allocations, options));
    ordering::register(
        &shared,
        allocations.into_values().map(|allocation| {
            let accesses = accesses.get(&allocation.memory().resource()).map_or(&[][..], Vec::as_slice);
            (allocation, ordering::merged(accesses))
        }),
    );
    tracing::debug!(target: "wakegraph::finalize", partitions = shared.partitions.len(), "finalized");
    Ok(ExecutableGraph { shared })
}

fn plan_options(options: FinalizeOptions) -> PlanOptions {
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

    pub(super) fn place(&self, plan: &Plan, node: u32) -> (&'g graph::Graph<Command>, usize) {
        let origin = plan.origin(node);
        (self.graphs[origin.instance as usize], origin.node as usize)
    }

    fn label_and_kind(&self, plan: &Plan, node: u32) -> (Box<str>, crate::CommandKind) {
        let (graph, index) = self.place(plan, node);
        (graph.label_at(index).into(), graph.kinds()[index])
    }
}

/// What the executable uses, for keeping it alive and for its order among others.
#[derive(Default)]
struct Uses {
    accesses: HashMap<ResourceId, Vec<Access>>,
    allocations: HashMap<ResourceId, Arc<Allocation>>,
}

impl Uses {
    fn add(&mut self, graph: &graph::Graph<Command>, index: usize, command: &Command) {
        for allocation in command.allocations() {
            self.allocations.entry(allocation.memory().resource()).or_insert_with(|| allocation.clone());
        }
        for access in graph.accesses_at(index) {
            self.accesses.entry(access.resource).or_default().push(*access);
        }
    }
}

/// The executable's own queues: one for each lane of each device.
#[derive(Default)]
struct Queues(HashMap<(DeviceId, u16), (Arc<dyn hal::Queue>, u64)>);

impl Queues {
    fn get(&mut self, device: &Device, lane: u16, profiling: bool) -> Result<(Arc<dyn hal::Queue>, u64)> {
        static NEXT_LANE: AtomicU64 = AtomicU64::new(0);
        Ok(match self.0.entry((device.id(), lane)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let desc = hal::QueueDesc { order: hal::QueueOrder::InOrder, profiling };
                let queue = device.hal().create_queue(&desc)?;
                new.insert((queue, NEXT_LANE.fetch_add(1, Ordering::Relaxed))).clone()
            }
        })
    }
}

fn host_task(source: &Source<'_>, plan: &Plan, partition: usize, uses: &mut Uses) -> Result<Work> {
    for &node in plan.nodes(partition) {
        let (graph, index) = source.place(plan, node);
        if let Content::Command(command @ Command::HostTask { task, .. }) = graph.content_at(index) {
            uses.add(graph, index, command);
            return Ok(Work::HostTask(task.clone()));
        }
    }
    Err(Error::new(ErrorKind::Bug, "a host-task partition without a host task")
        .in_partition(partition as u32))
}

/// Records a device partition.
fn record(
    source: &Source<'_>,
    plan: &Plan,
    partition: usize,
    device: &Device,
    options: FinalizeOptions,
    uses: &mut Uses,
) -> Result<Box<dyn hal::CommandBuffer>> {
    let in_order = plan.partitions()[partition].in_order;
    let desc = hal::CommandBufferDesc { updatable: false, in_order, profiling: options.profiling };
    let mut buffer = device.hal().create_command_buffer(&desc)?;
    let mut points: Vec<hal::SyncPoint> = Vec::with_capacity(plan.nodes(partition).len());
    let mut after = Vec::new();
    for (position, &node) in plan.nodes(partition).iter().enumerate() {
        let (graph, index) = source.place(plan, node);
        after.clear();
        after.extend(plan.waits(partition, position).iter().map(|&earlier| points[earlier as usize]));
        let appended = match graph.content_at(index) {
            Content::Command(command) => {
                uses.add(graph, index, command);
                append(&mut *buffer, device, command, &after)
            }
            Content::Empty | Content::SubGraph(_) => buffer.append(&hal::Command::Empty, &after),
        };
        let appended =
            appended.map_err(|error| error.in_node(graph.label_at(index)).at(graph.location_at(index)))?;
        points.push(appended.sync_point);
    }
    buffer.finalize()?;
    Ok(buffer)
}

fn append(
    buffer: &mut dyn hal::CommandBuffer,
    device: &Device,
    command: &Command,
    after: &[hal::SyncPoint],
) -> Result<hal::Appended> {
    buffer.append(&*to_hal(device, command)?, after)
}

/// The command as a device takes it.
pub(super) fn to_hal<'c>(device: &Device, command: &'c Command) -> Result<Cow<'c, hal::Command>> {
    match command {
        Command::Memory { command, .. } | Command::Native { command, .. } => Ok(Cow::Borrowed(command)),
        Command::Kernel { call, range } => {
            let launch = hal::KernelLaunch {
                kernel: call.kernel.on(device)?,
                args: call.to_hal()?,
                range: *range,
                alternatives: Vec::new(),
            };
            Ok(Cow::Owned(hal::Command::Kernel(Box::new(launch))))
        }
        Command::Control(control) => control.to_hal(device).map(Cow::Owned),
        Command::HostTask { .. } => Err(Error::new(ErrorKind::Bug, "a host task in a device partition")),
    }
}

/// Works out, once, who waits for whom and how.
fn assemble(
    plan: Plan,
    work: Vec<Work>,
    nodes: Box<[(Box<str>, crate::CommandKind)]>,
    allocations: &HashMap<ResourceId, Arc<Allocation>>,
    options: FinalizeOptions,
) -> Shared {
    let mut partitions: Vec<PartitionExec> = Vec::with_capacity(work.len());
    let mut wakes: Vec<Vec<u32>> = vec![Vec::new(); work.len()];
    for (index, work) in work.into_iter().enumerate() {
        let predecessors: Box<[u32]> = plan.predecessors(index).into();
        let device = match &work {
            Work::Device { device, .. } => Some(device),
            Work::HostTask(_) => None,
        };
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
            host_predecessors: on_host.len() as u32,
            predecessors,
            device_predecessors: on_device.into(),
            wakes: Box::default(),
            prediction: Prediction::default(),
            queue_time: Prediction::default(),
            work,
        });
    }
    for (partition, wakes) in partitions.iter_mut().zip(wakes) {
        partition.wakes = wakes.into();
    }
    let all = 0..partitions.len() as u32;
    Shared {
        roots: all.clone().filter(|&p| plan.predecessors(p as usize).is_empty()).collect(),
        tails: all.filter(|&p| plan.successors(p as usize).is_empty()).collect(),
        polled: partitions
            .iter()
            .filter_map(PartitionExec::device)
            .any(|device| !device.capabilities().notifies),
        progress: progress(partitions.iter().filter_map(PartitionExec::device)),
        all_eager: partitions.iter().all(|partition| partition.eager),
        outline: Arc::new(Outline {
            plan,
            nodes,
            devices: partitions.iter().map(|partition| partition.device().cloned()).collect(),
            lowerings: partitions.iter().map(PartitionExec::lowering).collect(),
        }),
        partitions: partitions.into(),
        allocations: allocations.values().cloned().collect(),
        profiling: options.profiling,
        state: Mutex::new(State::default()),
    }
}

/// How to wait for all of these devices. One that notifies is not looked at.
fn progress<'a>(devices: impl Iterator<Item = &'a Device>) -> hal::Progress {
    let of = |device: &Device| match device.capabilities().notifies {
        true => hal::Progress::Device,
        false => device.capabilities().progress,
    };
    let together = |a, b| match (a, b) {
        (hal::Progress::Waiter, hal::Progress::Waiter) => hal::Progress::Waiter,
        (hal::Progress::Device, hal::Progress::Device) => hal::Progress::Device,
        _ => hal::Progress::HostCores,
    };
    devices.map(of).reduce(together).unwrap_or(hal::Progress::Device)
}

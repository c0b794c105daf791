//! A command of a queue as the owner of its run: what the run needs to know, and what it keeps alive.

use std::borrow::Cow;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use wakegraph_hal::{self as hal, CommandKind, CommandKinds, Error, QueueDesc, QueueOrder, Result};

use crate::graph::{Content, Graph};
use crate::plan::{Plan, PlanOptions};
use crate::runtime::completion::estimate::Estimator;
use crate::runtime::completion::reactor::new_queue_number;
use crate::runtime::execution::accesses;
use crate::runtime::execution::accesses::UsedAllocation;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::labels::{Labels, NodeLabel};
use crate::runtime::execution::run::FenceGuard;
use crate::runtime::execution::template::{
    DeviceQueue, PartitionExec, PartitionWork, Partitions, RunOwner, RunTemplate, Stoppable, UpdatableCell,
};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelRef;
use crate::sync::{AtomicU8, AtomicU64, Ordering};
use crate::util::console;
use crate::util::deferred_drop::{Failure, drop_later};

/// The first failure among the commands of a queue since it was last asked for.
#[derive(Default)]
pub(super) struct FirstFailure(Mutex<Option<Failure>>);

impl FirstFailure {
    pub(super) fn record(&self, error: Error) {
        let failure = Failure::new(error);
        let mut first = self.0.lock();
        if first.is_none() {
            *first = Some(failure);
        }
    }

    /// The failure as a result. The next one is the first again.
    pub(super) fn take(&self) -> Result<()> {
        let failure = self.0.lock().take();
        failure.map_or(Ok(()), |failure| Err(failure.error()))
    }
}

/// The common part of commands that run on the same queue of a device.
pub(super) struct CommandTemplate {
    template: RunTemplate,
    /// Whether the device runs them one after the other.
    in_order: bool,
    /// Sequence number of the last command, if they run one after the other.
    number: AtomicU64,
    failures: Arc<FirstFailure>,
}

impl CommandTemplate {
    /// For commands on a new queue of `device`.
    pub(super) fn on_device(
        device: &Device,
        order: QueueOrder,
        failures: &Arc<FirstFailure>,
    ) -> Result<Arc<Self>> {
        let queue = device.observe(device.hal().create_queue(&QueueDesc::new(order)))?;
        let on = DeviceQueue { device: device.clone(), queue, number: new_queue_number() };
        Self::new(
            CommandKind::Empty,
            Some(on),
            PartitionWork::Command,
            order == QueueOrder::InOrder,
            failures,
        )
    }

    fn host_task(task: Arc<HostTask>, failures: &Arc<FirstFailure>) -> Result<Arc<Self>> {
        let work = PartitionWork::HostTask(UpdatableCell::new(task, false));
        Self::new(CommandKind::HostTask, None, work, false, failures)
    }

    fn new(
        kind: CommandKind,
        on: Option<DeviceQueue>,
        work: PartitionWork,
        in_order: bool,
        failures: &Arc<FirstFailure>,
    ) -> Result<Arc<Self>> {
        let is_on_device = on.is_some();
        let partition = PartitionExec {
            eager: is_on_device,
            begins_device: true,
            host_predecessors: 0,
            predecessors: Box::default(),
            device_predecessors: Box::default(),
            wakes: Box::default(),
            estimator: Estimator::default(),
            on,
            work,
        };
        let device = partition.device().cloned();
        let polled = device.as_ref().is_some_and(Device::is_polled);
        let partitions = Partitions::from(vec![partition]);
        Ok(Arc::new(Self {
            template: RunTemplate {
                console: console::Resource::none(),
                labels: Arc::new(Labels {
                    executable: None,
                    plan: plan_of_one(kind, device.as_ref())?,
                    nodes: Box::new([NodeLabel::of_command(kind)]),
                    devices: Box::new([device]),
                }),
                metrics: partitions.metrics().of_queues(),
                devices: partitions.devices(),
                reactors: partitions.reactors(),
                progress: partitions.progress(),
                partitions,
                profiling: false,
                roots: Box::new([0]),
                tails: Box::new([0]),
                ends_of_devices: Box::new([0]),
                all_eager: is_on_device,
                has_stream_tasks: false,
                stoppable: AtomicU8::new(Stoppable::Nothing as u8),
                polled,
                polls_tails: polled,
                ended: AtomicU64::new(0),
            },
            in_order,
            number: AtomicU64::new(0),
            failures: failures.clone(),
        }))
    }

    /// The sequence number of the next command. Commands that may overlap all have the same. The caller has
    /// locked the queue.
    pub(super) fn next_number(&self) -> u64 {
        if !self.in_order {
            return 1;
        }
        let number = self.number.load(Ordering::Relaxed) + 1;
        self.number.store(number, Ordering::Relaxed);
        number
    }
}

/// The plan of a single command.
fn plan_of_one(kind: CommandKind, device: Option<&Device>) -> Result<Plan> {
    let device = device.map_or_else(wakegraph_hal::DeviceId::unique, Device::id);
    let mut graph = Graph::<()>::new();
    // An empty node would have no partition.
    let kind = if kind == CommandKind::HostTask { kind } else { CommandKind::Kernel };
    graph.add(kind, device, Content::Command(()), &[]);
    Plan::new(&graph, |_| CommandKinds::all(), &PlanOptions::default())
}

/// A command of a queue, which its run keeps alive.
pub(super) struct QueueCommand {
    /// Present until the drop.
    template: Option<Arc<CommandTemplate>>,
    command: Option<Arc<hal::Command>>,
    /// In the order of the resources, each once.
    pub(super) uses: SmallVec<[UsedAllocation; 2]>,
    /// The closure is the user's.
    kernel: Option<KernelRef>,
    location: &'static Location<'static>,
    /// Given up when the command has ended.
    lease: Option<Arc<FenceGuard>>,
}

impl QueueCommand {
    /// A command for the device queue of a template. It uses these allocations, each access by itself.
    #[inline]
    pub(super) fn on_device(
        template: &Arc<CommandTemplate>,
        command: hal::Command,
        uses: SmallVec<[UsedAllocation; 2]>,
        kernel: Option<KernelRef>,
        location: &'static Location<'static>,
    ) -> Arc<Self> {
        let (template, command) = (Some(template.clone()), Some(Arc::new(command)));
        Arc::new(Self { template, command, uses: by_allocation(uses), kernel, location, lease: None })
    }

    /// A command that holds memory by a guard's lease, and has ended before others get it.
    pub(super) fn holding(
        template: &Arc<CommandTemplate>,
        command: hal::Command,
        uses: SmallVec<[UsedAllocation; 2]>,
        lease: Arc<FenceGuard>,
        location: &'static Location<'static>,
    ) -> Arc<Self> {
        let (template, command) = (Some(template.clone()), Some(Arc::new(command)));
        let (uses, lease) = (by_allocation(uses), Some(lease));
        Arc::new(Self { template, command, uses, kernel: None, location, lease })
    }

    /// A host task. It uses these allocations, each access by itself.
    pub(super) fn host_task(
        task: Arc<HostTask>,
        uses: SmallVec<[UsedAllocation; 2]>,
        failures: &Arc<FirstFailure>,
        location: &'static Location<'static>,
    ) -> Result<Arc<Self>> {
        let template = Some(CommandTemplate::host_task(task, failures)?);
        let uses = by_allocation(uses);
        Ok(Arc::new(Self { template, command: None, uses, kernel: None, location, lease: None }))
    }

    /// The part that it has in common with other commands.
    pub(super) fn common(&self) -> &CommandTemplate {
        self.template.as_ref().expect("a command has its template until it is dropped")
    }

    /// Whether it runs on a device.
    pub(super) fn is_on_device(&self) -> bool {
        self.command.is_some()
    }

    fn label(&self) -> Cow<'static, str> {
        match (&self.command, &self.kernel) {
            (Some(_), Some(kernel)) => format!("kernel '{}'", kernel.name()).into(),
            (Some(command), None) => command.kind().name().into(),
            (None, _) => CommandKind::HostTask.name().into(),
        }
    }
}

impl RunOwner for QueueCommand {
    fn template(&self) -> &RunTemplate {
        &self.common().template
    }

    fn command(&self) -> Option<&Arc<hal::Command>> {
        self.command.as_ref()
    }

    fn command_label(&self) -> Option<(Cow<'static, str>, &'static Location<'static>)> {
        Some((self.label(), self.location))
    }

    /// But not its lease, for which others wait.
    fn keep_for_ever(self: Arc<Self>) {
        let memory: Vec<_> = self.uses.iter().map(|used| used.allocation.clone()).collect();
        std::mem::forget((self.template.clone(), self.command.clone(), self.kernel.clone(), memory));
    }

    fn locate(&self, error: Error) -> Error {
        error.in_node(self.label()).at(self.location)
    }

    fn failed(&self, error: Error) {
        // The queue reads the results of host tasks itself.
        if self.is_on_device() {
            self.common().failures.record(error);
        }
    }
}

impl Drop for QueueCommand {
    /// The thread may be a device's, which must not free its own memory, nor run the user's code.
    fn drop(&mut self) {
        self.command = None;
        self.lease = None;
        for used in self.uses.drain(..) {
            Arc::into_inner(used.allocation).into_iter().for_each(drop_later);
        }
        if let Some(KernelRef::Raw(kernel)) = self.kernel.take() {
            Arc::into_inner(kernel).into_iter().for_each(drop_later);
        }
        self.template.take().and_then(Arc::into_inner).into_iter().for_each(drop_later);
    }
}

/// The uses of a command, each of one access, by allocation: in the order of the resources, each once.
fn by_allocation(mut uses: SmallVec<[UsedAllocation; 2]>) -> SmallVec<[UsedAllocation; 2]> {
    let resource = |one: &UsedAllocation| one.accesses.first().map(|access| access.resource);
    if uses.windows(2).all(|pair| resource(&pair[0]) < resource(&pair[1])) {
        return uses;
    }
    uses.sort_unstable_by_key(resource);
    let of_allocation = |uses: &[UsedAllocation]| UsedAllocation {
        allocation: uses[0].allocation.clone(),
        accesses: match uses {
            [one] => one.accesses.clone(),
            _ => {
                let all = uses.iter().flat_map(|one| one.accesses.iter().copied());
                accesses::merged(&all.collect::<Vec<_>>()).into()
            }
        },
    };
    uses.chunk_by(|a, b| resource(a) == resource(b)).map(of_allocation).collect()
}

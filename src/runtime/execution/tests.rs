//! Runs that fail at any moment between submission and end, on one device and on two: nobody is let in
//! while an earlier run that uses the memory is in flight.

use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};
use wakegraph_hal::{self as hal, Error, ErrorKind, EventStatus};

use crate::graph::NodeId;
use crate::runtime::execution::run::Run;
use crate::runtime::{
    Buffer, Device, Event, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, Queue, read, write,
};

fn fake(name: &str) -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).peers(true).name(name));
    (Device::from_hal(device), control)
}

fn why() -> Error {
    Error::new(ErrorKind::Driver, "on purpose")
}

// Two devices that wait for each other. One writes a host buffer. A run on the other comes after that, and
// its device is lost.
#[test]
fn a_lost_device_gives_nothing_away_that_another_uses() {
    let ((a, control_a), (b, control_b)) = (fake("a"), fake("b"));
    let host = a.host_buffer::<u32>(4).unwrap();
    let (x, y) = (a.buffer::<u32>(4).unwrap(), b.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(&a);
    graph.copy(&x, &host).on(&a);
    let first = graph.finalize().unwrap();
    let mut graph = Graph::new(&b);
    graph.copy(&y, &host).on(&b);
    let second = graph.finalize().unwrap();
    let (one, two) = (first.submit(), second.submit());
    assert!(host.try_write().is_err() && control_b.pending() == 1, "device b waits by itself");
    control_b.lose_device();
    assert!(!one.is_finished() && !two.is_finished(), "device a still writes");
    assert!(host.try_write().is_err());
    control_a.complete_all();
    assert!(one.is_finished() && two.is_finished() && host.try_write().is_ok());
}

/// An executable with a copy from the first device to the host buffer, and one to another from each of the
/// others, one after the other. Each copy is a partition of its own.
fn copies(host: &HostBuffer<u32>, devices: &[&Device]) -> ExecutableGraph {
    let (mut graph, mut last) = (Graph::new(devices[0]), None);
    for device in devices {
        let own = device.host_buffer::<u32>(4).unwrap();
        let to = if last.is_none() { host } else { &own };
        last = Some(graph.copy(device.buffer::<u32>(4).unwrap(), to).on(device).after(last).id());
    }
    let exec = graph.finalize().unwrap();
    assert_eq!(exec.plan().partitions().len(), devices.len());
    exec
}

// The last device waits for a device that is lost, which waits for one that is not.
#[test]
fn a_device_does_not_overtake_what_a_lost_one_waits_for() {
    // A device that runs, one that is lost, and one that waits; the last may be the first as well.
    for (last, shared) in [("c", false), ("a", false), ("c", true), ("a", true)] {
        let ((a, control_a), (b, control_b), (c, control_c)) = (fake("a"), fake("b"), fake("c"));
        let (last, control) = if last == "a" { (&a, &control_a) } else { (&c, &control_c) };
        let host = a.host_buffer::<u32>(4).unwrap();
        // In one executable, or in two.
        let earlier = match shared {
            true => vec![copies(&host, &[&a, &b])],
            false => vec![copies(&host, &[&a]), copies(&host, &[&b])],
        };
        let later = copies(&host, &[last]);
        let submitted: Vec<_> = earlier.iter().map(ExecutableGraph::submit).collect();
        let waits = later.submit();
        assert!(waits.event().run().is_all_enqueued(), "the device waits by itself");
        control_b.lose_device();
        let event = waits.event().run().event(0).unwrap().clone();
        assert!(!control.may_run(&*event), "device a still writes");
        assert!(control_a.complete_next(None) && control.may_run(&*event));
        control.complete_all();
        assert!(waits.is_finished() && submitted.iter().all(crate::Submission::is_finished));
    }
}

// Runs of one executable over two devices. The second fails early on both.
#[test]
fn runs_over_two_devices_keep_their_order_when_one_fails() {
    let ((a, control_a), (b, control_b)) = (fake("a"), fake("b"));
    let (x, y) = (a.buffer::<u32>(4).unwrap(), b.buffer::<u32>(4).unwrap());
    let host = a.host_buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&a);
    let fill = graph.fill(&x, 1).on(&a).id();
    graph.copy(&y, &host).on(&b).after([fill]);
    let exec = graph.finalize().unwrap();
    assert_eq!(exec.plan().partitions().len(), 2);
    let mut graph = Graph::new(&b);
    graph.fill(&b.buffer::<u32>(4).unwrap(), 1);
    let dependency = graph.finalize().unwrap().submit();
    let first = exec.submit();
    let second = exec.prepare().after(&dependency).submit();
    assert!(control_b.fail_newest(why()) && control_a.fail_newest(why()));
    assert!(!second.is_finished() && !first.is_finished());
    assert!(host.try_write().is_err());
    let third = exec.submit();
    assert_eq!(control_a.complete_all(), 1, "the fill of the first run");
    control_b.complete_all();
    assert!(first.is_finished() && second.is_finished() && !third.is_finished());
    while control_a.complete_all() + control_b.complete_all() > 0 {}
    assert!(third.is_finished());
}

#[test]
fn memory_of_a_device_that_was_given_up_stays_fenced() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let ((a, control_a), (b, control_b)) = (fake("a"), fake("b"));
        let host = a.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&a);
        graph.copy(a.buffer::<u32>(4).unwrap(), &host).on(&a);
        let exec = graph.finalize().unwrap();
        let mut graph = Graph::new(&b);
        graph.copy(&host, b.buffer::<u32>(4).unwrap()).on(&b);
        let reads = graph.finalize().unwrap();
        let given_up = exec.submit();
        let behind = reads.prepare().after_future(std::future::ready(())).submit();
        control_a.give_up();
        assert_eq!(given_up.await.unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(behind.await.unwrap_err().kind(), ErrorKind::DeviceLost);
        for _ in 0..3 {
            assert_eq!(host.try_write().unwrap_err().kind(), ErrorKind::DeviceLost);
            assert_eq!(host.try_read().unwrap_err().kind(), ErrorKind::DeviceLost);
            assert_eq!(reads.submit().await.unwrap_err().kind(), ErrorKind::DeviceLost);
            assert_eq!(exec.submit().await.unwrap_err().kind(), ErrorKind::DeviceLost);
            let queue = b.queue().unwrap();
            let command = queue.copy(&host, b.buffer::<u32>(4).unwrap());
            assert_eq!(command.wait().await.unwrap_err().kind(), ErrorKind::DeviceLost);
        }
        assert_eq!(control_b.pending(), 0);
        let mut guard = std::pin::pin!(host.read());
        assert!(futures::poll!(&mut guard).is_pending());
    });
}

const BUFFERS: usize = 3;

const EXECUTABLES: usize = 7;

/// More than there are steps.
const STEPS: usize = 50;

/// What a node or a guard does: the index of a buffer, and whether it writes.
type Use = (usize, bool);

#[derive(Clone, Debug)]
enum Step {
    /// An executable, maybe after something that was submitted before, maybe by a queue.
    Submit {
        executable: usize,
        after: Option<prop::sample::Index>,
        queue: Option<usize>,
    },
    Command {
        queue: usize,
        uses: Use,
        after: Option<prop::sample::Index>,
    },
    Barrier {
        queue: usize,
        after: Option<prop::sample::Index>,
    },
    HostTask {
        queue: usize,
        uses: Use,
    },
    Guard(Use),
    /// A guard or a host task lets go.
    Release,
    Update {
        executable: usize,
        buffer: usize,
    },
    Cancel(prop::sample::Index),
    Complete(usize),
    /// One of those that may fail before their turn does.
    FailEarly(prop::sample::Index),
    FailNext(usize),
    RefuseNext(usize),
    Lose(usize),
    HoldNotifications(usize, bool),
    Look(prop::sample::Index),
}

fn uses() -> impl Strategy<Value = Use> {
    (0..BUFFERS, any::<bool>())
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let after = || prop::option::weighted(0.4, any::<prop::sample::Index>());
    prop_oneof![
        6 => (0..EXECUTABLES, after(), prop::option::weighted(0.3, 0usize..4))
            .prop_map(|(executable, after, queue)| Step::Submit { executable, after, queue }),
        4 => (0usize..4, uses(), after())
            .prop_map(|(queue, uses, after)| Step::Command { queue, uses, after }),
        1 => (0usize..4, after()).prop_map(|(queue, after)| Step::Barrier { queue, after }),
        2 => (0usize..4, uses()).prop_map(|(queue, uses)| Step::HostTask { queue, uses }),
        2 => uses().prop_map(Step::Guard),
        3 => Just(Step::Release),
        1 => (0usize..4, 0..BUFFERS).prop_map(|(executable, buffer)| Step::Update { executable, buffer }),
        1 => index().prop_map(Step::Cancel),
        4 => (0usize..2).prop_map(Step::Complete),
        5 => index().prop_map(Step::FailEarly),
        1 => (0usize..2).prop_map(Step::FailNext),
        1 => (0usize..2).prop_map(Step::RefuseNext),
        1 => (0usize..2, any::<bool>()).prop_map(|(device, hold)| Step::HoldNotifications(device, hold)),
        2 => index().prop_map(Step::Look),
    ]
}

/// What orders things by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Executable(usize),
    Queue(usize),
}

/// Something that was submitted. It keeps its run, which is not used again.
struct Submitted {
    run: Arc<Run>,
    sources: Vec<Source>,
    /// Whether it depends on something that has not ended.
    depends: bool,
    /// What its sources had before it, and has not ended.
    behind: Vec<Arc<Run>>,
    /// What each partition on a device does.
    uses: Vec<Vec<Use>>,
}

impl Submitted {
    /// Whether it may fail before its turn: with what it depends on, or with what is before it on its queue.
    fn may_fail_early(&self) -> bool {
        let failed = |run: &Arc<Run>| {
            let mut events = (0..run.partitions()).filter_map(|partition| run.event(partition));
            events.any(|event| matches!(event.status(), EventStatus::Failed(_)))
        };
        self.depends || self.behind.iter().any(failed)
    }

    /// The uses of partitions that have not ended on their devices, by what the devices themselves say.
    fn in_flight(&self) -> impl Iterator<Item = (usize, Use)> {
        let is_pending = |partition: usize| {
            let event = self.run.event(partition);
            event.is_some_and(|event| matches!(event.status(), EventStatus::Pending))
        };
        let all = self.uses.iter().enumerate().filter(move |(partition, _)| is_pending(*partition));
        all.flat_map(|(partition, uses)| uses.iter().map(move |&one| (partition, one)))
    }
}

fn conflict(one: Use, other: Use) -> bool {
    one.0 == other.0 && (one.1 || other.1)
}

/// What the checks know.
#[derive(Default)]
struct Known {
    submitted: Vec<Submitted>,
    /// Guards and host tasks that use memory now.
    on_host: Vec<Use>,
    /// The first thing that was let in too early.
    wrong: Option<String>,
}

impl Known {
    /// The host comes to use memory.
    fn check_host(&mut self, what: &str, uses: Use) {
        let in_flight = self.submitted.iter().flat_map(Submitted::in_flight).map(|(_, uses)| uses);
        if in_flight.chain(self.on_host.iter().copied()).any(|other| conflict(other, uses)) {
            self.wrong.get_or_insert_with(|| format!("{what} of {uses:?} was let in"));
        }
    }

    /// Whether devices run something before what it comes after.
    fn check_devices(&mut self, controls: &[FakeControl]) {
        let mut earlier: Vec<Use> = Vec::new();
        for (number, one) in self.submitted.iter().enumerate() {
            for (partition, uses) in one.in_flight() {
                let event = one.run.event(partition).unwrap();
                let runs = controls.iter().any(|control| control.may_run(&**event));
                let rivals = || earlier.iter().chain(&self.on_host);
                if runs && rivals().any(|&other| conflict(other, uses)) {
                    self.wrong.get_or_insert_with(|| format!("{number} runs and uses {uses:?}"));
                }
            }
            earlier.extend(one.in_flight().map(|(_, uses)| uses));
        }
    }
}

struct World {
    controls: Vec<FakeControl>,
    hosts: Vec<HostBuffer<u32>>,
    devices: Vec<Device>,
    /// Memory of each device for the other side of copies, so that nothing else conflicts.
    owned: Vec<Vec<Buffer<u32>>>,
    /// Each with its first node, and what its partitions use.
    executables: Vec<(ExecutableGraph, NodeId, Vec<Vec<Use>>)>,
    queues: Vec<(Queue, usize)>,
    known: Arc<Mutex<Known>>,
    releases: Arc<Semaphore>,
}

/// A use of memory by the host. A host task that is cancelled drops it, too.
struct OnHost(Arc<Mutex<Known>>, Use);

impl OnHost {
    fn begin(known: Arc<Mutex<Known>>, what: &str, uses: Use) -> Self {
        {
            let mut known = known.lock();
            known.check_host(what, uses);
            known.on_host.push(uses);
        }
        Self(known, uses)
    }
}

impl Drop for OnHost {
    fn drop(&mut self) {
        let mut known = self.0.lock();
        let own = known.on_host.iter().position(|&other| other == self.1).unwrap();
        known.on_host.swap_remove(own);
    }
}

/// Uses memory on the host until it is told to let go.
async fn use_on_host(known: Arc<Mutex<Known>>, releases: Arc<Semaphore>, what: &'static str, uses: Use) {
    let _on_host = OnHost::begin(known, what, uses);
    let released = releases.acquire().await;
    released.unwrap().forget();
}

/// Adds a copy from or to a host buffer, on a device.
fn copy(graph: &mut Graph, device: &Device, host: &HostBuffer<u32>, writes: bool) -> NodeId {
    let own = device.buffer::<u32>(4).unwrap();
    match writes {
        true => graph.copy(&own, host).on(device).id(),
        false => graph.copy(host, &own).on(device).id(),
    }
}

impl World {
    fn new(count: usize) -> Self {
        let (devices, controls): (Vec<_>, Vec<_>) = ["a", "b"][..count].iter().map(|name| fake(name)).unzip();
        let hosts: Vec<_> = (0..BUFFERS).map(|_| devices[0].host_buffer::<u32>(4).unwrap()).collect();
        let queues = (0..4).map(|number| {
            let device = number / 2 % count;
            let queue = match number % 2 {
                0 => devices[device].queue(),
                _ => devices[device].out_of_order_queue(),
            };
            (queue.unwrap(), device)
        });
        let queues = queues.collect();
        let own = |device: &Device| (0..STEPS).map(|_| device.buffer::<u32>(4).unwrap()).collect();
        let owned = devices.iter().map(own).collect();
        let (known, releases) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let mut world =
            Self { controls, hosts, devices, owned, executables: Vec::new(), queues, known, releases };
        world.executables = (0..EXECUTABLES).map(|number| world.executable(number)).collect();
        world
    }

    /// One copy, two on devices in turn, the same one after the other, or a copy before a host task.
    fn executable(&self, number: usize) -> (ExecutableGraph, NodeId, Vec<Vec<Use>>) {
        let device = |at: usize| &self.devices[at % self.devices.len()];
        let mut graph = Graph::new(device(number));
        let first = (number % BUFFERS, number.is_multiple_of(2));
        let node = copy(&mut graph, device(number), &self.hosts[first.0], first.1);
        let mut uses = vec![vec![first]];
        if number == 4 || number == 6 {
            let second = (2, true);
            let after = copy(&mut graph, device(number + 1), &self.hosts[second.0], second.1);
            if number == 6 {
                graph.make_edge(node, after).unwrap();
            }
            match self.devices.len() {
                1 => uses[0].push(second),
                _ => uses.push(vec![second]),
            }
        }
        if number == 5 {
            let used = (1, false);
            let (known, releases) = (self.known.clone(), self.releases.clone());
            let accesses = (read(&self.hosts[used.0]),);
            let task = async move |_views| use_on_host(known, releases, "a node", used).await;
            graph.host_task(accesses, task).after([node]);
            uses.push(Vec::new());
        }
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        assert_eq!(exec.plan().partitions().len(), uses.len());
        (exec, node, uses)
    }

    /// Something that was submitted, and whether it has not ended.
    fn event(&self, after: Option<prop::sample::Index>) -> (Option<Event>, bool) {
        let known = self.known.lock();
        let Some(after) = after.filter(|_| !known.submitted.is_empty()) else { return (None, false) };
        let run = &after.get(&known.submitted).run;
        (Some(Event::new(run.clone())), !run.has_ended())
    }

    fn add(&self, run: &Arc<Run>, sources: Vec<Source>, depends: bool, uses: Vec<Vec<Use>>) {
        let mut known = self.known.lock();
        // One that was refused has no partitions.
        let uses = if run.has_ended() { Vec::new() } else { uses };
        let is_before = |one: &&Submitted| {
            !one.run.has_ended() && sources.iter().any(|source| one.sources.contains(source))
        };
        let behind = known.submitted.iter().filter(is_before).map(|one| one.run.clone()).collect();
        known.submitted.push(Submitted { run: run.clone(), sources, depends, behind, uses });
    }

    /// The event of one that may fail before its turn and is in flight.
    fn early_event(&self, index: prop::sample::Index) -> Option<Arc<dyn hal::Event>> {
        let known = self.known.lock();
        let early = known.submitted.iter().filter(|one| one.may_fail_early());
        let events = early.flat_map(|one| (0..one.uses.len()).filter_map(|at| one.run.event(at)));
        let events: Vec<_> =
            events.filter(|event| matches!(event.status(), EventStatus::Pending)).cloned().collect();
        (!events.is_empty()).then(|| index.get(&events).clone())
    }

    async fn take(&mut self, step: Step) {
        let count = self.devices.len();
        match step {
            Step::Submit { executable, after, queue } => {
                let (exec, _, uses) = &self.executables[executable];
                let (after, depends) = self.event(after);
                let submission = match (queue, &after) {
                    (Some(queue), _) => self.queues[queue].0.after(after.iter()).submit(exec),
                    (None, Some(after)) => exec.prepare().after_event(after).submit(),
                    (None, None) => exec.submit(),
                };
                let sources = [Source::Executable(executable)].into_iter().chain(queue.map(Source::Queue));
                self.add(submission.event().run(), sources.collect(), depends, uses.clone());
            }
            Step::Command { queue, uses, after } => {
                let ((after, depends), source) = (self.event(after), Source::Queue(queue));
                let (queue, device) = &self.queues[queue];
                let own = self.owned[*device].pop().unwrap();
                let queue = queue.after(after.iter());
                let command = match uses.1 {
                    true => queue.copy(&own, &self.hosts[uses.0]),
                    false => queue.copy(&self.hosts[uses.0], &own),
                };
                self.add(command.run(), vec![source], depends, vec![vec![uses]]);
            }
            Step::Barrier { queue, after } => {
                let (after, depends) = self.event(after);
                let barrier = self.queues[queue].0.after(after.iter()).barrier();
                // It uses nothing, but may fail like others.
                self.add(barrier.run(), vec![Source::Queue(queue)], depends, vec![Vec::new()]);
            }
            Step::HostTask { queue, uses } => {
                let (known, releases) = (self.known.clone(), self.releases.clone());
                let source = Source::Queue(queue);
                let (queue, host) = (&self.queues[queue].0, &self.hosts[uses.0]);
                let event = match uses.1 {
                    true => queue.host_task((write(host),), async move |_view| {
                        use_on_host(known, releases, "a host task", uses).await;
                    }),
                    false => queue.host_task((read(host),), async move |_view| {
                        use_on_host(known, releases, "a host task", uses).await;
                    }),
                };
                self.add(event.run(), vec![source], false, Vec::new());
            }
            Step::Guard(uses) => {
                let (known, releases) = (self.known.clone(), self.releases.clone());
                let host = self.hosts[uses.0].clone();
                tokio::spawn(async move {
                    match uses.1 {
                        true => {
                            drop((host.write().await, use_on_host(known, releases, "a guard", uses).await))
                        }
                        false => {
                            drop((host.read().await, use_on_host(known, releases, "a guard", uses).await))
                        }
                    }
                });
            }
            Step::Release => self.releases.add_permits(usize::from(!self.known.lock().on_host.is_empty())),
            Step::Update { executable, buffer } => {
                let (exec, node, uses) = &mut self.executables[executable];
                let own = self.owned[executable % count].pop().unwrap();
                let writes = uses[0][0].1;
                let update = match writes {
                    true => exec.update().copy(*node, &own, &self.hosts[buffer]),
                    false => exec.update().copy(*node, &self.hosts[buffer], &own),
                };
                let applied = update.apply();
                uses[0][0] = (buffer, writes);
                tokio::spawn(applied);
            }
            Step::Cancel(index) => {
                if let Some(event) = self.event(Some(index)).0 {
                    event.run().cancel();
                }
            }
            Step::Complete(device) => _ = self.controls[device % count].complete_next(None),
            Step::FailEarly(index) => {
                let event = self.early_event(index);
                event.iter().for_each(|event| _ = self.controls.iter().any(|one| one.fail(&**event, why())));
            }
            Step::RefuseNext(device) => self.controls[device % count].refuse_next(why()),
            Step::Lose(device) => self.controls[device % count].lose_device(),
            Step::FailNext(device) => self.controls[device % count].fail_next(why()),
            Step::HoldNotifications(device, hold) => self.controls[device % count].hold_notifications(hold),
            Step::Look(index) => {
                if let Some(event) = self.event(Some(index)).0 {
                    event.is_finished();
                }
            }
        }
        for _ in 0..10 {
            yield_now().await;
        }
    }

    /// Guards that need not wait, of each buffer.
    fn check(&self) -> Result<(), TestCaseError> {
        for (buffer, host) in self.hosts.iter().enumerate() {
            for writes in [false, true] {
                let granted = if writes { host.try_write().is_ok() } else { host.try_read().is_ok() };
                if granted {
                    self.known.lock().check_host("a guard that does not wait", (buffer, writes));
                }
            }
        }
        let mut known = self.known.lock();
        known.check_devices(&self.controls);
        known.wrong.take().map_or(Ok(()), |wrong| Err(TestCaseError::fail(wrong)))
    }

    /// Lets everything end.
    async fn end(&self) -> Result<(), TestCaseError> {
        self.controls.iter().for_each(|control| control.hold_notifications(false));
        for _ in 0..1_000 {
            self.releases.add_permits(self.known.lock().on_host.len());
            self.controls.iter().for_each(|control| _ = control.complete_next(None));
            for _ in 0..10 {
                yield_now().await;
            }
            self.check()?;
            let runs: Vec<_> = self.known.lock().submitted.iter().map(|one| one.run.clone()).collect();
            if runs.iter().all(|run| run.is_finished()) {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("something never ends"))
    }
}

fn run_steps(devices: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(devices);
        for step in steps {
            world.take(step).await;
            world.check()?;
        }
        world.end().await
    })
}

proptest! {
    #[test]
    fn nobody_is_let_in_early_on_one_device(steps in prop::collection::vec(step(), 1..40)) {
        run_steps(1, steps)?;
    }

    #[test]
    fn nobody_is_let_in_early_on_two_devices(steps in prop::collection::vec(step(), 1..40)) {
        run_steps(2, steps)?;
    }

    #[test]
    fn nobody_is_let_in_early_when_a_device_is_lost(
        before in prop::collection::vec(step(), 1..30),
        lost in 0usize..2,
        after in prop::collection::vec(step(), 0..10),
    ) {
        run_steps(2, before.into_iter().chain([Step::Lose(lost)]).chain(after).collect())?;
    }
}

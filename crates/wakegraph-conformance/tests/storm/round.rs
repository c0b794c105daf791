//! One round: what there is, who submits, and the books at the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions, FakeTiming};
use wakegraph::{
    Buffer, Device, Error, ErrorKind, ExecutableGraph, Graph, HostBuffer, Range, Result, Submission,
    WakePolicy, hal,
};
use wakegraph_conformance::programs::{self, LEN, ON_DEVICES, ON_HOST};

use crate::executables::{self, Entry, count, uniform};
use crate::faults::{Census, Dice, calmly};
use crate::ledger::{Account, Exceptions, Failures, Flight, Outcome};
use crate::random::Random;
use crate::steps::{foreign_thread, worker};
use crate::support::block_on;
use crate::watchdog::watch;

/// Which device a storm is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Host {
        polled: bool,
    },
    /// Completes at once.
    Fake,
    /// Completes and fails what a thread says, and may be lost.
    FakeManual,
    /// Completes by the clock.
    FakeTimed,
    Opencl(&'static str),
}

/// OpenCL devices stay open: to compile kernels again in every round would take most of the time.
static KEPT: Mutex<Vec<Device>> = Mutex::new(Vec::new());

impl Kind {
    /// Whether kernels are closures.
    pub(crate) fn runs_closures(self) -> bool {
        matches!(self, Self::Host { .. })
    }

    /// Whether commands do what they say.
    pub(crate) fn has_results(self) -> bool {
        matches!(self, Self::Host { .. } | Self::Opencl(_))
    }

    pub(crate) fn open(self, random: &mut Random) -> Result<(Device, Option<FakeControl>)> {
        let with_control = |options| {
            let (device, control) = FakeDevice::open(options);
            Ok((Device::from_hal(device), Some(control)))
        };
        match self {
            Self::Host { polled } => {
                Ok((Device::from_hal(host::open(HostOptions::new().threads(2).polled(polled))?), None))
            }
            Self::Fake => with_control(FakeOptions::new().notifies(random.chance(2))),
            Self::FakeManual => with_control(FakeOptions::new().manual(true).notifies(random.chance(2))),
            Self::FakeTimed => {
                let work = Duration::from_micros(random.below(60) as u64);
                with_control(FakeOptions::new().timing(FakeTiming { work, ..FakeTiming::default() }))
            }
            Self::Opencl(selector) => {
                let mut kept = KEPT.lock();
                if let Some(device) = kept.iter().find(|device| device.selector() == selector) {
                    return Ok((device.clone(), None));
                }
                let device = Device::open(selector)?;
                kept.push(device.clone());
                Ok((device, None))
            }
        }
    }
}

/// An executable of one kernel that conflicts with nothing and needs no runtime: it can be awaited anywhere.
pub(crate) struct Solo {
    exec: ExecutableGraph,
    counter: Buffer<u32>,
    /// Submissions that are about to be made, and those that have been made.
    begun: AtomicU64,
    submitted: AtomicU64,
}

impl Solo {
    fn new(device: &Device) -> Self {
        let counter = device.buffer::<u32>(LEN).unwrap();
        let mut graph = Graph::new(device);
        graph.launch(count(&counter), Range::linear(LEN));
        Self {
            exec: graph.finalize().unwrap(),
            counter,
            begun: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
        }
    }

    fn submit(&self) -> Submission {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let submission = self.exec.submit();
        self.submitted.fetch_add(1, Ordering::SeqCst);
        submission
    }

    pub(crate) fn submit_and_drop(&self) {
        drop(self.submit());
    }

    /// Blocks this thread.
    pub(crate) fn submit_and_wait(&self) {
        let submission = self.submit();
        let event = submission.event();
        let _watched = watch(move || Some(format!("the solo, waited for on a thread: {event:?}")));
        let _ = Outcome::of(block_on(submission));
    }
}

/// What all that take part in a round share.
pub(crate) struct World {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) device: Device,
    pub(crate) host: Vec<HostBuffer<u32>>,
    pub(crate) device_memory: Vec<Buffer<u32>>,
    /// The same memory, for steps of random programs.
    pub(crate) memory: programs::World,
    pub(crate) solo: Arc<Solo>,
    pub(crate) dice: Arc<Dice>,
    pub(crate) failures: Failures,
    pub(crate) census: Arc<Census>,
    pub(crate) entries: Mutex<Vec<Arc<Entry>>>,
    /// Of all executables there were, with what counts their runs.
    accounts: Mutex<Vec<(Arc<Account>, Buffer<u32>)>>,
    flights: Mutex<Vec<Arc<Flight>>>,
    executables: AtomicUsize,
    submissions: AtomicUsize,
}

/// Executables at a time, and steps of each worker.
const EXECUTABLES: usize = 6;
const STEPS: usize = 25;

impl World {
    /// Puts a new executable in the place of another, or adds one.
    pub(crate) fn replace(self: &Arc<Self>, place: Option<usize>, random: &mut Random) {
        let number = self.executables.fetch_add(1, Ordering::SeqCst);
        let entry = match executables::build(self, format!("executable {number}"), random) {
            Ok(entry) => Arc::new(entry),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::DeviceLost, "{}: {error}", self.name),
        };
        self.accounts.lock().push((entry.account.clone(), entry.counter.clone()));
        let old = {
            let mut entries = self.entries.lock();
            match place {
                Some(place) if place < entries.len() => Some(std::mem::replace(&mut entries[place], entry)),
                _ => {
                    entries.push(entry);
                    None
                }
            }
        };
        calmly(|| drop(old));
    }

    pub(crate) fn entry(&self, random: impl FnOnce(usize) -> usize) -> Option<Arc<Entry>> {
        let entries = self.entries.lock();
        if entries.is_empty() { None } else { Some(entries[random(entries.len())].clone()) }
    }

    /// An earlier submission.
    pub(crate) fn some_flight(&self, random: &mut Random) -> Option<Arc<Flight>> {
        let flights = self.flights.lock();
        let recent = flights.len().min(16);
        (recent > 0).then(|| flights[flights.len() - 1 - random.below(recent)].clone())
    }

    /// The number of the next submission.
    pub(crate) fn next_number(&self) -> u64 {
        self.submissions.fetch_add(1, Ordering::SeqCst) as u64
    }

    /// A submission whose end will be checked.
    pub(crate) fn observe(&self, flight: &Arc<Flight>, event: wakegraph::Event) {
        let (shown, name) = (Arc::downgrade(flight), self.name.clone());
        let watched = watch(move || {
            let flight = shown.upgrade().filter(|flight| !flight.is_over())?;
            Some(format!("{name}: {flight}"))
        });
        flight.observe(event, watched);
        self.flights.lock().push(flight.clone());
    }

    /// A host task submits something and does not wait for it.
    pub(crate) fn submit_from_a_task(self: &Arc<Self>) {
        let Some(entry) = self.entry(|len| self.dice.below(len)) else { return };
        let flight = Arc::new(Flight::new(self.next_number(), &entry.account, Vec::new(), None, false));
        match calmly(|| entry.exec.submit()) {
            Some(submission) => {
                self.observe(&flight, submission.event());
                calmly(|| drop(submission));
            }
            None => drop(entry.account.unobserved.fetch_add(1, Ordering::SeqCst)),
        }
        calmly(|| drop(entry));
    }
}

pub(crate) struct Round {
    world: Arc<World>,
    control: Option<FakeControl>,
    random: Random,
}

impl Round {
    /// # Errors
    /// The device is not there.
    pub(crate) fn new(storm: &str, kind: Kind, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let (device, control) = kind.open(&mut random)?;
        device.set_wake_policy(match random.below(3) {
            0 => WakePolicy::Latency,
            1 => WakePolicy::Balanced,
            _ => WakePolicy::Efficient,
        });
        let host: Vec<_> = (0..ON_HOST).map(|_| device.host_buffer(LEN).unwrap()).collect();
        let device_memory: Vec<_> = (0..ON_DEVICES).map(|_| device.buffer(LEN).unwrap()).collect();
        let world = Arc::new(World {
            name: format!("storm/{storm}, seed {seed}"),
            kind,
            memory: programs::World::of(&device, &device_memory, &host),
            host,
            device_memory,
            solo: Arc::new(Solo::new(&device)),
            device,
            dice: Dice::new(random.next()),
            failures: Failures::new(),
            census: Arc::default(),
            entries: Mutex::default(),
            accounts: Mutex::default(),
            flights: Mutex::default(),
            executables: AtomicUsize::new(0),
            submissions: AtomicUsize::new(0),
        });
        Ok(Self { world, control, random })
    }

    /// Runs the round; gives how many submissions there were.
    pub(crate) fn run(self) -> usize {
        let Self { world, control, mut random } = self;
        let name = world.name.clone();
        let _rest = RestOfRound(name.clone());
        for _ in 0..EXECUTABLES {
            world.replace(None, &mut random);
        }
        let mut exceptions = Exceptions::default();
        let manual = world.kind == Kind::FakeManual;
        let completer = control.clone().filter(|_| manual).map(|control| {
            exceptions.device_fails = random.chance(3);
            exceptions.lost = random.chance(6);
            Completer::start(control, world.dice.clone(), exceptions)
        });
        exceptions.shut_down = random.chance(8);

        let (finish, finished) = watch::channel(false);
        let (done, all_done) = mpsc::channel();
        let mut runtimes = Vec::new();
        let shape = if exceptions.shut_down { 2 } else { random.below(3) };
        if shape != 0 {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtimes.push((runtime, exceptions.shut_down));
        }
        if shape != 1 {
            runtimes.push((Builder::new_current_thread().enable_all().build().unwrap(), false));
        }
        if random.chance(3) && world.kind != Kind::FakeManual {
            let _ = world.device.run_reactor_on(runtimes[0].0.handle());
        }
        let handle = runtimes[runtimes.len() - 1].0.handle().clone();
        let threads: Vec<_> = runtimes
            .into_iter()
            .map(|(runtime, shut_down)| {
                let (world, seed, ends) = (world.clone(), random.next(), (done.clone(), finished.clone()));
                spawn(&name, move || in_runtime(runtime, world, ends, seed, shut_down))
            })
            .collect();
        let (of_thread, seed) = (world.clone(), random.next());
        let outsider = spawn(&name, move || foreign_thread(&of_thread, &handle, seed, STEPS));

        outsider.join().unwrap();
        drop(done);
        // Until every worker has dropped its end.
        while all_done.recv().is_ok() {}
        // The runtimes stay until all has ended, as what was submitted there needs them.
        let entries_go_first = random.chance(2);
        if entries_go_first {
            drop_all(&world.entries);
        }
        wait_for_all(&world);
        drop_all(&world.entries);
        wait_for_all(&world);
        check_books(&world, exceptions);
        let submissions = world.submissions.load(Ordering::SeqCst);
        let census = world.census.clone();
        let is_kept = matches!(world.kind, Kind::Opencl(_));
        let device = (!is_kept).then(|| Arc::downgrade(world.device.hal().inner()));
        finish.send_replace(true);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        calmly(|| drop(world));
        check_all_is_gone(&name, &census, device);
        drop(completer);
        if let Some(control) = control {
            assert_eq!(control.pending(), 0, "{name}: the device has something in flight");
        }
        submissions
    }
}

/// Says which round it was where a check fails.
struct RestOfRound(String);

impl Drop for RestOfRound {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("FAILED: {}", self.0);
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let name = name.to_owned();
    thread::Builder::new()
        .name("storm".into())
        .spawn(move || {
            let _rest = RestOfRound(name);
            work();
        })
        .expect("a thread")
}

fn in_runtime(
    runtime: Runtime,
    world: Arc<World>,
    (done, mut finished): (mpsc::Sender<()>, watch::Receiver<bool>),
    seed: u64,
    shut_down: bool,
) {
    let mut random = Random::new(seed);
    let workers: Vec<_> =
        (0..3).map(|_| runtime.spawn(worker(world.clone(), random.next(), STEPS))).collect();
    if shut_down {
        thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        return match random.chance(2) {
            true => runtime.shutdown_background(),
            false => drop(runtime),
        };
    }
    runtime.block_on(async {
        for worker in workers {
            worker.await.unwrap();
        }
        drop((world, done));
        let _ = finished.wait_for(|finished| *finished).await;
    });
}

/// Completes what is pending on a device, until it is dropped.
struct Completer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Completer {
    fn start(control: FakeControl, dice: Arc<Dice>, exceptions: Exceptions) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = spawn("completer", move || {
            while !stopped.load(Ordering::SeqCst) {
                if exceptions.device_fails && dice.chance(50) {
                    control.fail_next(Error::new(ErrorKind::Driver, "the device fails on purpose"));
                }
                if exceptions.lost && dice.chance(400) {
                    calmly(|| control.lose_device());
                }
                if calmly(|| control.complete_next(None)) != Some(true) {
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn drop_all(entries: &Mutex<Vec<Arc<Entry>>>) {
    let all = std::mem::take(&mut *entries.lock());
    for entry in all {
        calmly(|| drop(entry));
    }
}

/// Waits for every submission whose end is checked, also for those that host tasks still make.
fn wait_for_all(world: &World) {
    let mut from = 0;
    loop {
        let flights: Vec<_> = world.flights.lock()[from..].to_vec();
        if flights.is_empty() {
            return;
        }
        from += flights.len();
        for flight in flights {
            if let Some(event) = flight.event() {
                let outcome = block_on(async { Outcome::of(event.wait().await) });
                calmly(|| drop(event));
                flight.ended(outcome);
            }
        }
    }
}

/// Whether the outcomes, the calls of closures and what is in memory fit together.
fn check_books(world: &Arc<World>, exceptions: Exceptions) {
    let flights = world.flights.lock().clone();
    flights.iter().for_each(|flight| flight.check(exceptions));
    let mut by_account: BTreeMap<*const Account, Vec<&Arc<Flight>>> = BTreeMap::new();
    for flight in &flights {
        by_account.entry(Arc::as_ptr(&flight.account)).or_default().push(flight);
    }
    for (account, counter) in &*world.accounts.lock() {
        let flights = by_account.remove(&Arc::as_ptr(account)).unwrap_or_default();
        let succeeded = flights.iter().filter(|f| f.outcome() == Some(Outcome::Succeeded)).count() as u64;
        let unobserved = account.unobserved.load(Ordering::SeqCst);
        let possible = succeeded..=flights.len() as u64 + unobserved;
        // Those that were not awaited may still run.
        for calls in &*account.calls.lock() {
            let calls = calls.load(Ordering::SeqCst);
            let most = *possible.end();
            assert!(
                possible.contains(&calls),
                "{account}: a closure was called {calls} times, {succeeded} of {most} runs succeeded"
            );
        }
        if world.kind.has_results() {
            let runs = block_on_with_tokio(counter.to_vec());
            let runs = u64::from(uniform(&runs.unwrap()));
            assert!(
                possible.contains(&runs),
                "{account}: {runs} runs counted, {succeeded} of {} succeeded",
                possible.end()
            );
        }
        let only_closures_fail = !(exceptions.shut_down || exceptions.lost || exceptions.device_fails);
        if account.one_fault && unobserved == 0 && only_closures_fail {
            check_failures(account, &flights);
        }
    }
    if world.kind.has_results() {
        let before = world.solo.submitted.load(Ordering::SeqCst);
        let runs = block_on_with_tokio(world.solo.counter.to_vec());
        let runs = u64::from(uniform(&runs.unwrap()));
        let after = world.solo.begun.load(Ordering::SeqCst);
        assert!((before..=after).contains(&runs), "{runs} runs of {before} submissions of the solo");
    }
}

/// Every failure of a closure shows in exactly one run, but for those of tasks that were cancelled while they
/// ran: a panic in the drop of what they had captured is only logged.
fn check_failures(account: &Account, flights: &[&Arc<Flight>]) {
    let (mut numbers, mut without, mut cancelled) = (Vec::new(), 0, 0);
    for flight in flights.iter().filter(|flight| !flight.inherits()) {
        let Some(Outcome::Failed { kind, number, .. }) = flight.outcome() else { continue };
        cancelled += usize::from(kind == ErrorKind::Cancelled);
        match number {
            _ if flight.future_fails.is_some() && number == flight.future_fails => {}
            Some(number) => numbers.push(number),
            None => {
                let panicked = matches!(kind, ErrorKind::HostTaskPanicked | ErrorKind::KernelPanicked);
                without += u64::from(panicked);
            }
        }
    }
    numbers.sort_unstable();
    let (mut raised, in_drops) = (account.raised.lock().clone(), account.raised_in_drops.lock().clone());
    raised.sort_unstable();
    let all = raised.len();
    raised.retain(|number| !in_drops.contains(number) || numbers.contains(number));
    assert!(
        all - raised.len() <= cancelled,
        "{account}: {cancelled} cancelled, {in_drops:?} raised in drops"
    );
    assert_eq!(numbers, raised, "{account}: failures in results, and failures that happened");
    assert_eq!(without, account.raised_without_number.load(Ordering::SeqCst), "{account}: bad payloads");
}

fn block_on_with_tokio<F: Future>(future: F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Every captured value has been dropped, and the device with its memory, threads and queues, where
/// it is not kept.
fn check_all_is_gone(name: &str, census: &Arc<Census>, device: Option<Weak<dyn hal::Device>>) {
    let handles = move || device.as_ref().map_or(0, Weak::strong_count);
    let (shown, name) = (census.clone(), name.to_owned());
    let shown_handles = handles.clone();
    let _watched = watch(move || {
        let (made, dropped, handles) = (shown.made(), shown.dropped(), shown_handles());
        Some(format!(
            "{name}: the end: {dropped} of {made} captured values dropped, {handles} handles of the device"
        ))
    });
    while census.dropped() != census.made() || handles() > 0 {
        thread::sleep(Duration::from_micros(100));
    }
}

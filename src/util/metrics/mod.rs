//! Metrics reported to the `metrics` facade. The page `docs/metrics.md` lists every metric; a test
//! compares the two.
//!
//! Handles to metrics are made once for each device, executable and pool, so counting allocates nothing.
//! Without the feature `metrics`, the handles are `silent`.

#[cfg_attr(feature = "metrics", path = "facade.rs")]
#[cfg_attr(not(feature = "metrics"), path = "silent.rs")]
mod handles;

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use handles::{Counter, Gauge, Histogram, counter, describe, gauge, has_listener, histogram};
use parking_lot::Mutex;
use wakegraph_hal::{CodeOrigin, ErrorKind};

use crate::sync::{AtomicU8, Ordering};
use crate::util::panics::catch_and_log;
use crate::util::preparation_step::PreparationStep;

const RUNS: &str = "wakegraph_runs_total";
const RUNS_FAILED: &str = "wakegraph_runs_failed_total";
const RUNS_IN_FLIGHT: &str = "wakegraph_runs_in_flight";
const RUN: &str = "wakegraph_run_seconds";
const HOST_TASK: &str = "wakegraph_host_task_seconds";
const WAKE: &str = "wakegraph_wake_seconds";
const BUSY: &str = "wakegraph_device_busy_nanoseconds_total";
const MEMORY: &str = "wakegraph_memory_bytes";
const PREPARATION: &str = "wakegraph_preparation_seconds";
const KERNELS: &str = "wakegraph_kernels_loaded_total";
const WAITING: &str = "wakegraph_requests_waiting";
const WAIT: &str = "wakegraph_request_wait_seconds";
const GIVEN_UP: &str = "wakegraph_requests_given_up_total";
const SLOTS: &str = "wakegraph_slots_in_use";
const BATCH_ITEMS: &str = "wakegraph_batch_items";
const REFUSED: &str = "wakegraph_requests_refused_total";

/// The name that runs of executables without one count for, and that of commands of queues.
const UNNAMED: &str = "unnamed";
const QUEUE: &str = "queue";

/// The metrics of one device. Clones are handles to the same. Empty where no recorder listens.
#[derive(Clone, Default)]
pub(crate) struct DeviceMetrics(Option<Arc<DeviceHandles>>);

struct DeviceHandles {
    device: String,
    /// Of executables without a name.
    unnamed: RunSourceMetrics,
    /// Of commands of queues.
    queues: OnceLock<RunSourceMetrics>,
    busy: Mutex<Busy>,
    device_memory: Gauge,
    host_memory: Gauge,
    /// One for each step.
    preparation: [Histogram; PreparationStep::ALL.len()],
}

/// The partitions on a device, and since when there have been any.
struct Busy {
    nanoseconds: Counter,
    partitions: i64,
    since: Instant,
}

/// The metrics of the runs that count for one device and one name. Clones are handles to the same. Empty
/// where no recorder listens.
#[derive(Clone, Default)]
pub(crate) struct RunSourceMetrics(Option<Arc<RunHandles>>);

struct RunHandles {
    device: String,
    executable: String,
    runs: Counter,
    in_flight: Gauge,
    run: Histogram,
    host_task: Histogram,
    wake: Histogram,
}

impl DeviceMetrics {
    pub(crate) fn new(selector: &str) -> Self {
        describe();
        let runs = RunHandles::new(selector, UNNAMED);
        let [device_memory, host_memory] =
            ["device", "host"].map(|kind| gauge(MEMORY, &[("device", selector), ("kind", kind)]));
        let gauges = [&runs.in_flight, &device_memory, &host_memory];
        if !has_listener(&gauges, &[&runs.host_task, &runs.wake]) {
            return Self(None);
        }
        let nanoseconds = counter(BUSY, &[("device", selector)]);
        Self(Some(Arc::new(DeviceHandles {
            device: selector.to_owned(),
            unnamed: RunSourceMetrics(Some(Arc::new(runs))),
            queues: OnceLock::new(),
            busy: Mutex::new(Busy { nanoseconds, partitions: 0, since: Instant::now() }),
            device_memory,
            host_memory,
            preparation: PreparationStep::ALL
                .map(|step| histogram(PREPARATION, &[("device", selector), ("step", step.name())])),
        })))
    }

    /// Of runs that use no device.
    pub(crate) fn without_device() -> Self {
        static NONE: LazyLock<DeviceMetrics> = LazyLock::new(|| DeviceMetrics::new("none"));
        NONE.clone()
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// A step of preparation has taken so long.
    pub(crate) fn prepared(&self, step: PreparationStep, took: Duration) {
        if let Some(device) = &self.0 {
            tell_recorder(|| device.preparation[step as usize].record(took));
        }
    }

    /// A kernel is loaded whose code comes from here.
    pub(crate) fn kernel_loaded(&self, origin: CodeOrigin) {
        if let Some(device) = &self.0 {
            let labels = [("device", &*device.device), ("origin", origin.name())];
            tell_recorder(|| counter(KERNELS, &labels).increment(1));
        }
    }

    /// Returns the metrics of the runs of executables with this name.
    pub(crate) fn of_executable(&self, name: Option<&str>) -> RunSourceMetrics {
        match (&self.0, name) {
            (Some(device), Some(name)) => {
                RunSourceMetrics(Some(Arc::new(RunHandles::new(&device.device, name))))
            }
            (Some(device), None) => device.unnamed.clone(),
            (None, _) => RunSourceMetrics::default(),
        }
    }

    /// Returns the metrics of commands of queues.
    pub(crate) fn of_queues(&self) -> RunSourceMetrics {
        let Some(device) = &self.0 else { return RunSourceMetrics::default() };
        let new = || RunSourceMetrics(Some(Arc::new(RunHandles::new(&device.device, QUEUE))));
        device.queues.get_or_init(new).clone()
    }

    /// Memory is allocated, and freed when the guard is dropped.
    pub(crate) fn allocated(&self, is_on_host: bool, bytes: usize) -> Tally {
        match &self.0 {
            Some(handles) if is_on_host => Tally::new(&handles.host_memory, bytes as f64),
            Some(handles) => Tally::new(&handles.device_memory, bytes as f64),
            None => Tally::none(),
        }
    }
}

impl DeviceHandles {
    fn partition_starts(&self) {
        let mut busy = self.busy.lock();
        if busy.partitions == 0 {
            busy.since = Instant::now();
        }
        busy.partitions += 1;
    }

    fn partition_ends(&self) {
        let mut busy = self.busy.lock();
        busy.partitions -= 1;
        if busy.partitions == 0 {
            tell_recorder(|| busy.nanoseconds.increment(busy.since.elapsed().as_nanos() as u64));
        }
    }
}

impl RunSourceMetrics {
    fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// A submission is refused before it becomes a run.
    pub(crate) fn refused(&self, why: ErrorKind) {
        if let Some(handles) = &self.0 {
            tell_recorder(|| {
                handles.runs.increment(1);
                handles.run_failed(why);
            });
        }
    }

    /// A host task is called, and over when the guard is dropped.
    pub(crate) fn host_task(&self) -> Option<HostTaskTimer> {
        Some(HostTaskTimer { source: self.0.clone()?, start: Instant::now() })
    }
}

impl RunHandles {
    fn new(device: &str, executable: &str) -> Self {
        let labels = [("device", device), ("executable", executable)];
        Self {
            device: device.to_owned(),
            executable: executable.to_owned(),
            runs: counter(RUNS, &labels),
            in_flight: gauge(RUNS_IN_FLIGHT, &labels),
            run: histogram(RUN, &labels),
            host_task: histogram(HOST_TASK, &labels),
            wake: histogram(WAKE, &labels),
        }
    }

    fn run_failed(&self, why: ErrorKind) {
        let kind = format!("{why:?}");
        let labels = [("device", &*self.device), ("executable", &*self.executable), ("kind", &*kind)];
        counter(RUNS_FAILED, &labels).increment(1);
    }
}

/// Tells the recorder what has ended, say. It is the user's: its panic must neither keep a run from ending
/// nor come out of a submission.
fn tell_recorder(tell: impl FnOnce()) {
    catch_and_log("a recorder of metrics", tell);
}

/// Metrics of one run and its partitions. Empty where no recorder listens.
#[derive(Default)]
pub(crate) struct RunMetrics(Option<Box<RunMetricsInner>>);

struct RunMetricsInner {
    source: RunSourceMetrics,
    submitted: Instant,
    ended: OnceLock<Instant>,
    partitions: Box<[PartitionMetrics]>,
}

/// Whether a partition of a run counts as being on its device.
struct PartitionMetrics {
    /// Empty for a host task.
    device: DeviceMetrics,
    state: AtomicU8,
}

const WAITS: u8 = 0;
const ON_DEVICE: u8 = 1;
const OVER: u8 = 2;

impl RunMetrics {
    /// Of a run that counts for `source`, with the metrics of each partition's device.
    pub(crate) fn new<'a>(
        source: &RunSourceMetrics,
        partitions: impl Iterator<Item = Option<&'a DeviceMetrics>> + Clone,
    ) -> Self {
        let is_heard = source.is_heard() || partitions.clone().flatten().any(DeviceMetrics::is_heard);
        let partition = |device: Option<&DeviceMetrics>| {
            let device = device.cloned().unwrap_or_default();
            PartitionMetrics { device, state: AtomicU8::new(WAITS) }
        };
        Self(is_heard.then(|| {
            Box::new(RunMetricsInner {
                source: source.clone(),
                submitted: Instant::now(),
                ended: OnceLock::new(),
                partitions: partitions.map(partition).collect(),
            })
        }))
    }

    /// The run, or the next one with the same partitions, is submitted.
    #[inline]
    pub(crate) fn submitted(&mut self) {
        let Some(run) = &mut self.0 else { return };
        run.ended = OnceLock::new();
        run.partitions.iter_mut().for_each(|partition| partition.state = AtomicU8::new(WAITS));
        if let RunSourceMetrics(Some(handles)) = &run.source {
            run.submitted = Instant::now();
            tell_recorder(|| {
                handles.runs.increment(1);
                handles.in_flight.increment(1.0);
            });
        }
    }

    /// The run has ended. Called once.
    #[inline]
    pub(crate) fn ended(&self, failure: Option<ErrorKind>) {
        let Some(run) = &self.0 else { return };
        if let RunSourceMetrics(Some(handles)) = &run.source {
            let ended = *run.ended.get_or_init(Instant::now);
            tell_recorder(|| {
                handles.run.record(ended - run.submitted);
                handles.in_flight.decrement(1.0);
                failure.into_iter().for_each(|kind| handles.run_failed(kind));
            });
        }
    }

    /// A task that was waiting for the run finds it over.
    pub(crate) fn woken(&self) {
        if let Some(run) = &self.0
            && let (RunSourceMetrics(Some(handles)), Some(ended)) = (&run.source, run.ended.get())
        {
            tell_recorder(|| handles.wake.record(ended.elapsed()));
        }
    }

    /// A partition is about to be handed to its device. It may have ended already, if the device is lost.
    #[inline]
    pub(crate) fn partition_started(&self, partition: usize) {
        self.partition(partition).into_iter().for_each(PartitionMetrics::started);
    }

    /// It was not handed to its device after all.
    pub(crate) fn partition_given_back(&self, partition: usize) {
        self.partition(partition).into_iter().for_each(|partition| partition.leave_device(WAITS));
    }

    /// It has ended, or will not start.
    #[inline]
    pub(crate) fn partition_ended(&self, partition: usize) {
        self.partition(partition).into_iter().for_each(|partition| partition.leave_device(OVER));
    }

    fn partition(&self, partition: usize) -> Option<&PartitionMetrics> {
        self.0.as_ref().map(|run| &run.partitions[partition])
    }
}

impl PartitionMetrics {
    fn started(&self) {
        let exchange = |from, to| self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if let DeviceMetrics(Some(device)) = &self.device
            && exchange(WAITS, ON_DEVICE).is_ok()
        {
            device.partition_starts();
        }
    }

    fn leave_device(&self, state: u8) {
        if let DeviceMetrics(Some(device)) = &self.device
            && self.state.swap(state, Ordering::AcqRel) == ON_DEVICE
        {
            device.partition_ends();
        }
    }
}

/// Measures a host task until it is dropped.
pub(crate) struct HostTaskTimer {
    source: Arc<RunHandles>,
    start: Instant,
}

impl Drop for HostTaskTimer {
    fn drop(&mut self) {
        tell_recorder(|| self.source.host_task.record(self.start.elapsed()));
    }
}

/// The metrics of a pool or batcher: of the requests that wait in its queue, of slots and of batches. Empty
/// where no recorder listens.
pub(crate) struct QueueMetrics(Option<QueueHandles>);

struct QueueHandles {
    waiting: Gauge,
    wait: Histogram,
    refused: Counter,
    given_up: Counter,
    slots_in_use: Gauge,
    batch_items: Histogram,
}

/// The time at which a request arrived, if a recorder wants to know how long it waits.
pub(crate) struct Arrival(Option<Instant>);

impl QueueMetrics {
    /// `of` says whether it is a pool's or a batcher's.
    pub(crate) fn new(of: &'static str, pool: &str) -> Self {
        describe();
        let labels = [("pool", pool), ("queue", of)];
        let handles = QueueHandles {
            waiting: gauge(WAITING, &labels),
            wait: histogram(WAIT, &labels),
            refused: counter(REFUSED, &labels),
            given_up: counter(GIVEN_UP, &labels),
            slots_in_use: gauge(SLOTS, &labels[..1]),
            batch_items: histogram(BATCH_ITEMS, &labels[..1]),
        };
        let is_heard =
            has_listener(&[&handles.waiting, &handles.slots_in_use], &[&handles.wait, &handles.batch_items]);
        Self(is_heard.then_some(handles))
    }

    fn tell(&self, what: impl FnOnce(&QueueHandles)) {
        if let Some(handles) = &self.0 {
            tell_recorder(|| what(handles));
        }
    }

    pub(crate) fn arrival(&self) -> Arrival {
        Arrival(self.0.as_ref().map(|_| Instant::now()))
    }

    /// A request waits.
    pub(crate) fn entered(&self) {
        self.tell(|handles| handles.waiting.increment(1.0));
    }

    /// Some requests wait no longer.
    pub(crate) fn left(&self, requests: usize) {
        if requests > 0 {
            self.tell(|handles| handles.waiting.decrement(requests as f64));
        }
    }

    /// A request gets a slot, or an item a place in a batch.
    pub(crate) fn served(&self, arrival: &Arrival) {
        let waited = arrival.0.map_or(Duration::ZERO, |since| since.elapsed());
        self.tell(|handles| handles.wait.record(waited));
    }

    /// Some requests leave the queue without having got anything.
    pub(crate) fn given_up(&self, requests: usize) {
        if requests > 0 {
            self.tell(|handles| handles.given_up.increment(requests as u64));
        }
    }

    pub(crate) fn refused(&self) {
        self.tell(|handles| handles.refused.increment(1));
    }

    /// A slot is taken by a request, or to be made.
    pub(crate) fn slot_taken(&self) {
        self.tell(|handles| handles.slots_in_use.increment(1.0));
    }

    pub(crate) fn slot_given_back(&self) {
        self.tell(|handles| handles.slots_in_use.decrement(1.0));
    }

    /// A batch of so many items begins.
    pub(crate) fn batch(&self, items: usize) {
        self.tell(|handles| handles.batch_items.record(items as f64));
    }
}

/// Counts in a gauge until it is dropped.
pub(crate) struct Tally {
    gauge: Gauge,
    amount: f64,
}

impl Tally {
    fn new(gauge: &Gauge, amount: f64) -> Self {
        tell_recorder(|| gauge.increment(amount));
        Self { gauge: gauge.clone(), amount }
    }

    /// Counts nothing.
    pub(crate) fn none() -> Self {
        Self { gauge: Gauge::noop(), amount: 0.0 }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        tell_recorder(|| self.gauge.decrement(self.amount));
    }
}

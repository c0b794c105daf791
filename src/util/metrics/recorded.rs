//! Metrics, with the feature `metrics`.

use std::cell::Cell;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use metrics::{
    Counter, Gauge, Histogram, IntoF64, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};
use parking_lot::Mutex;

use crate::sync::{AtomicU8, Ordering};
use crate::types::ErrorKind;

const RUNS: &str = "wakegraph_runs_total";
const RUNS_FAILED: &str = "wakegraph_runs_failed_total";
const RUNS_IN_FLIGHT: &str = "wakegraph_runs_in_flight";
const HOST_TASK: &str = "wakegraph_host_task_seconds";
const WAKE: &str = "wakegraph_wake_seconds";
const BUSY: &str = "wakegraph_device_busy_nanoseconds_total";
const MEMORY: &str = "wakegraph_memory_bytes";
const WAITING: &str = "wakegraph_requests_waiting";
const REFUSED: &str = "wakegraph_requests_refused_total";

/// The metrics of one device. Clones are handles to the same. Empty where no recorder listens.
#[derive(Clone, Default)]
pub(crate) struct DeviceMetrics(Option<Arc<DeviceHandles>>);

struct DeviceHandles {
    device: String,
    runs: Counter,
    in_flight: Gauge,
    host_task: Histogram,
    wake: Histogram,
    busy: Mutex<Busy>,
    device_memory: Gauge,
    host_memory: Gauge,
}

/// The partitions on a device, and since when there have been any.
struct Busy {
    nanoseconds: Counter,
    partitions: i64,
    since: Instant,
}

impl DeviceMetrics {
    pub(crate) fn new(selector: &str) -> Self {
        describe();
        let handles = DeviceHandles::new(selector);
        Self(handles.has_listener().then(|| Arc::new(handles)))
    }

    /// Of runs that use no device.
    pub(crate) fn without_device() -> Self {
        static NONE: LazyLock<DeviceMetrics> = LazyLock::new(|| DeviceMetrics::new("none"));
        NONE.clone()
    }

    /// A run is submitted.
    pub(crate) fn run(&self) -> RunMetrics {
        if let Some(handles) = &self.0 {
            handles.runs.increment(1);
            handles.in_flight.increment(1.0);
        }
        RunMetrics { device: self.clone(), ended: OnceLock::new() }
    }

    /// A submission is refused before it becomes a run.
    pub(crate) fn refused(&self, why: ErrorKind) {
        self.run().ended(Some(why));
    }

    /// A host task is called, and over when the guard is dropped.
    pub(crate) fn host_task(&self) -> Option<HostTaskTimer> {
        Some(HostTaskTimer { device: self.0.clone()?, start: Instant::now() })
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

fn describe() {
    describe_counter!(RUNS, Unit::Count, "Runs submitted");
    describe_counter!(RUNS_FAILED, Unit::Count, "Runs that ended with an error, by its kind");
    describe_gauge!(RUNS_IN_FLIGHT, Unit::Count, "Runs submitted and not over");
    describe_histogram!(HOST_TASK, Unit::Seconds, "Time from the call of a host task until it has ended");
    describe_histogram!(
        WAKE,
        Unit::Seconds,
        "Time from the end of a run until a task that was waiting for it goes on"
    );
    describe_counter!(BUSY, Unit::Nanoseconds, "Time with a partition on the device");
    describe_gauge!(MEMORY, Unit::Bytes, "Bytes allocated by buffers and graphs");
}

impl DeviceHandles {
    fn new(selector: &str) -> Self {
        let device = || Label::new("device", selector.to_owned());
        let memory = |kind| gauge!(MEMORY, vec![device(), Label::new("kind", kind)]);
        let nanoseconds = counter!(BUSY, vec![device()]);
        Self {
            device: selector.to_owned(),
            runs: counter!(RUNS, vec![device()]),
            in_flight: gauge!(RUNS_IN_FLIGHT, vec![device()]),
            host_task: histogram!(HOST_TASK, vec![device()]),
            wake: histogram!(WAKE, vec![device()]),
            busy: Mutex::new(Busy { nanoseconds, partitions: 0, since: Instant::now() }),
            device_memory: memory("device"),
            host_memory: memory("host"),
        }
    }

    /// Whether a recorder listens. Handles convert what they are given only if one does; none of
    /// what this gives them changes a metric.
    fn has_listener(&self) -> bool {
        let heard = Cell::new(false);
        for gauge in [&self.in_flight, &self.device_memory, &self.host_memory] {
            gauge.increment(Nothing { heard: &heard });
        }
        for histogram in [&self.host_task, &self.wake] {
            histogram.record_many(Nothing { heard: &heard }, 0);
        }
        heard.get()
    }

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
            busy.nanoseconds.increment(busy.since.elapsed().as_nanos() as u64);
        }
    }
}

/// A value of 0 that notes when a recorder asks for it.
struct Nothing<'a> {
    heard: &'a Cell<bool>,
}

impl IntoF64 for Nothing<'_> {
    fn into_f64(self) -> f64 {
        self.heard.set(true);
        0.0
    }
}

/// What is counted of one run.
#[derive(Default)]
pub(crate) struct RunMetrics {
    device: DeviceMetrics,
    ended: OnceLock<Instant>,
}

impl RunMetrics {
    /// The run is over. Called once.
    #[inline]
    pub(crate) fn ended(&self, failure: Option<ErrorKind>) {
        if let DeviceMetrics(Some(handles)) = &self.device {
            self.record_end(handles, failure);
        }
    }

    fn record_end(&self, handles: &DeviceHandles, failure: Option<ErrorKind>) {
        let _ = self.ended.set(Instant::now());
        handles.in_flight.decrement(1.0);
        if let Some(kind) = failure {
            let kind = format!("{kind:?}");
            counter!(RUNS_FAILED, "device" => handles.device.clone(), "kind" => kind).increment(1);
        }
    }

    /// A task that was waiting for the run finds it over.
    pub(crate) fn woken(&self) {
        if let (DeviceMetrics(Some(handles)), Some(ended)) = (&self.device, self.ended.get()) {
            handles.wake.record(ended.elapsed());
        }
    }
}

/// Measures a host task until it is dropped.
pub(crate) struct HostTaskTimer {
    device: Arc<DeviceHandles>,
    start: Instant,
}

impl Drop for HostTaskTimer {
    fn drop(&mut self) {
        self.device.host_task.record(self.start.elapsed());
    }
}

/// Whether a partition of a run counts as being on its device.
pub(crate) struct PartitionMetrics {
    device: DeviceMetrics,
    state: AtomicU8,
}

const WAITS: u8 = 0;
const ON_DEVICE: u8 = 1;
const OVER: u8 = 2;

impl PartitionMetrics {
    /// Without a device for a host task.
    pub(crate) fn new(device: Option<&DeviceMetrics>) -> Self {
        Self { device: device.cloned().unwrap_or_default(), state: AtomicU8::new(WAITS) }
    }

    /// Of the next run.
    pub(crate) fn reset(&mut self) {
        self.state = AtomicU8::new(WAITS);
    }

    /// It is about to be handed to its device. It may be over already, if the device is lost.
    #[inline]
    pub(crate) fn started(&self) {
        let exchange = |from, to| self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if let DeviceMetrics(Some(device)) = &self.device
            && exchange(WAITS, ON_DEVICE).is_ok()
        {
            device.partition_starts();
        }
    }

    /// It was not handed to its device after all.
    pub(crate) fn given_back(&self) {
        self.leave_device(WAITS);
    }

    /// It is over, or will not start.
    pub(crate) fn ended(&self) {
        self.leave_device(OVER);
    }

    #[inline]
    fn leave_device(&self, state: u8) {
        if let DeviceMetrics(Some(device)) = &self.device
            && self.state.swap(state, Ordering::AcqRel) == ON_DEVICE
        {
            device.partition_ends();
        }
    }
}

/// The metrics of the requests that wait in the queue of a pool or batcher.
pub(crate) struct QueueMetrics {
    waiting: Gauge,
    refused: Counter,
}

impl QueueMetrics {
    /// `of` says whether it is a pool's or a batcher's.
    pub(crate) fn new(of: &'static str, pool: &str) -> Self {
        describe_gauge!(WAITING, Unit::Count, "Requests that wait in a queue");
        describe_counter!(REFUSED, Unit::Count, "Requests refused because a queue was full");
        let labels = || vec![Label::new("pool", pool.to_owned()), Label::new("queue", of)];
        Self { waiting: gauge!(WAITING, labels()), refused: counter!(REFUSED, labels()) }
    }

    /// A request waits until the guard is dropped.
    pub(crate) fn waiting(&self) -> Tally {
        Tally::new(&self.waiting, 1.0)
    }

    pub(crate) fn refused(&self) {
        self.refused.increment(1);
    }
}

/// Counts in a gauge until it is dropped.
pub(crate) struct Tally {
    gauge: Gauge,
    amount: f64,
}

impl Tally {
    fn new(gauge: &Gauge, amount: f64) -> Self {
        gauge.increment(amount);
        Self { gauge: gauge.clone(), amount }
    }

    /// Counts nothing.
    pub(crate) fn none() -> Self {
        Self { gauge: Gauge::noop(), amount: 0.0 }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.gauge.decrement(self.amount);
    }
}

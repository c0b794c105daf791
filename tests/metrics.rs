//! What a recorder of the `metrics` facade hears, compared with `docs/metrics.md`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use wakegraph::kernel::RawKernel;
use wakegraph::service::{Batcher, ExecutablePool};
use wakegraph::testing::{FakeDevice, FakeOptions};
use wakegraph::{Device, Error, ErrorKind, FinalizeOptions, Graph, Range, read};

/// What was heard of one metric since the last time.
#[derive(Debug)]
struct Heard {
    unit: String,
    labels: BTreeMap<String, String>,
    is_described: bool,
    /// How much was added to a counter or gauge, or how many values a histogram got.
    change: f64,
}

struct Ear {
    snapshotter: Snapshotter,
    /// Name, type, unit and labels of all metrics so far.
    seen: BTreeSet<[String; 4]>,
}

impl Ear {
    fn listen(&mut self) -> BTreeMap<String, Vec<Heard>> {
        let mut all: BTreeMap<String, Vec<Heard>> = BTreeMap::new();
        for (key, unit, description, value) in self.snapshotter.snapshot().into_vec() {
            let (kind, change) = match value {
                DebugValue::Counter(count) => ("counter", count as f64),
                DebugValue::Gauge(change) => ("gauge", *change),
                DebugValue::Histogram(values) => ("histogram", values.len() as f64),
            };
            let labels = key.key().labels().map(|label| (label.key().to_owned(), label.value().to_owned()));
            let heard = Heard {
                unit: unit.map_or("none", |unit| unit.as_str()).into(),
                labels: labels.collect(),
                is_described: description.is_some(),
                change,
            };
            let labels: Vec<_> = heard.labels.keys().map(|label| format!("`{label}`")).collect();
            let name = key.key().name();
            self.seen.insert([format!("`{name}`"), kind.into(), heard.unit.clone(), labels.join(", ")]);
            all.entry(name.to_owned()).or_default().push(heard);
        }
        all
    }
}

/// The change of the metric with these labels, and maybe others.
fn change(heard: &BTreeMap<String, Vec<Heard>>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |heard: &Heard| {
        labels.iter().all(|&(label, value)| heard.labels.get(label).is_some_and(|other| other == value))
    };
    let metric = heard.get(name).into_iter().flatten();
    metric.filter(|heard| has(heard)).map(|heard| heard.change).sum()
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A recorder whose counters panic, and its gauges when they go down.
struct Panicking;

impl GaugeFn for Panicking {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {
        panic!("on purpose")
    }

    fn set(&self, _: f64) {}
}

impl CounterFn for Panicking {
    fn increment(&self, _: u64) {
        panic!("on purpose")
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Panicking {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Self))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Self))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn runs_end_although_a_recorder_panics() {
    metrics::with_local_recorder(&Panicking, || {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).name("fake:8"));
        let device = Device::from_hal(device);
        let mut graph = Graph::new(&device);
        graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
        let exec = graph.finalize().unwrap();
        for fails in [false, true] {
            let submission = exec.submit();
            if fails {
                control.fail_next(Error::new(ErrorKind::Driver, "as it should"));
            }
            control.complete_all();
            assert!(submission.is_finished());
        }
        let refused = exec.prepare().run_data(1u32).submit();
        assert!(refused.is_finished());
    });
}

/// A recorder whose gauges ask a pool for its state when they go up.
#[derive(Clone)]
struct Asking(Arc<OnceLock<ExecutablePool<()>>>);

impl GaugeFn for Asking {
    fn increment(&self, _: f64) {
        self.0.get().into_iter().for_each(|pool| _ = pool.status());
    }

    fn decrement(&self, _: f64) {}

    fn set(&self, _: f64) {}
}

impl Recorder for Asking {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.clone()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A pool that told a recorder under its lock would hang here.
#[test]
fn a_recorder_may_ask_the_pool() {
    let asked = Asking(Arc::default());
    let pool = metrics::with_local_recorder(&asked, || {
        let (device, _) = FakeDevice::open(FakeOptions::new().name("fake:9"));
        let device = Device::from_hal(device);
        ExecutablePool::new(2, move |_| {
            let mut graph = Graph::new(&device);
            graph.fill(&device.buffer::<u32>(4)?, 1);
            Ok((graph.finalize()?, ()))
        })
    });
    assert!(asked.0.set(pool.clone()).is_ok());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        pool.warm_up().await.unwrap();
        drop(pool.acquire().await.unwrap());
        drop(pool.try_acquire().unwrap());
    });
    assert_eq!(pool.status().idle, 2);
}

#[test]
fn the_page_lists_what_a_recorder_hears() {
    let recorder = DebuggingRecorder::new();
    let mut ear = Ear { snapshotter: recorder.snapshotter(), seen: BTreeSet::new() };
    recorder.install().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _in_runtime = runtime.enter();
    let fake = [("device", "fake:7")];

    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).name("fake:7"));
    let device = Device::from_hal(device);
    let x = device.buffer::<u32>(4).unwrap();
    let out = device.host_buffer::<u32>(8).unwrap();
    let heard = ear.listen();
    let memory =
        ["device", "host"].map(|kind| change(&heard, "wakegraph_memory_bytes", &[fake[0], ("kind", kind)]));
    assert_eq!(memory, [16.0, 32.0]);
    let steps = |heard: &_, names: [&str; 4]| {
        names.map(|step| change(heard, "wakegraph_preparation_seconds", &[fake[0], ("step", step)]))
    };
    let all = ["compile", "load", "allocate", "instantiate"];
    assert_eq!(steps(&heard, all), [0.0, 0.0, 2.0, 0.0]);

    // A kernel, which is loaded once.
    let kernel = RawKernel::new("kernel").writes::<u32>("x").build();
    let mut graph = Graph::new(&device);
    graph.launch(kernel.call().memory::<u32>(&x), Range::linear(4));
    graph.finalize().unwrap();
    graph.finalize().unwrap();
    drop(graph);
    let heard = ear.listen();
    assert_eq!(steps(&heard, all), [1.0, 1.0, 0.0, 2.0]);
    let compiled = [fake[0], ("origin", "compiled")];
    assert_eq!(change(&heard, "wakegraph_kernels_loaded_total", &compiled), 1.0);

    // A run in flight, which then ends.
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    graph.copy(&x, out.slice(..4).unwrap());
    graph.host_task((read(&out),), async |(_,)| ());
    let exec = graph.finalize().unwrap();
    let mut submission = pin!(exec.submit());
    assert!(poll_once(submission.as_mut()).is_pending());
    let heard = ear.listen();
    assert_eq!(change(&heard, "wakegraph_runs_total", &fake), 1.0);
    assert_eq!(change(&heard, "wakegraph_runs_in_flight", &fake), 1.0);
    assert_eq!(change(&heard, "wakegraph_device_busy_nanoseconds_total", &fake), 0.0);
    control.complete_all();
    runtime.block_on(submission).unwrap();
    let heard = ear.listen();
    assert_eq!(change(&heard, "wakegraph_runs_in_flight", &fake), -1.0);
    assert!(change(&heard, "wakegraph_device_busy_nanoseconds_total", &fake) > 0.0);
    assert_eq!(change(&heard, "wakegraph_host_task_seconds", &fake), 1.0);
    assert_eq!(change(&heard, "wakegraph_wake_seconds", &fake), 1.0);
    assert_eq!(change(&heard, "wakegraph_runs_failed_total", &fake), 0.0);
    assert_eq!(change(&heard, "wakegraph_run_seconds", &[fake[0], ("executable", "unnamed")]), 1.0);

    // Runs of executables with a name, and commands of a queue.
    let named = |name: &str| graph.finalize_with(FinalizeOptions::new().name(name)).unwrap();
    let names = ["embedder", "reranker", "embedder"];
    let queue = device.queue().unwrap();
    let submissions: Vec<_> = names.iter().map(|name| named(name).submit()).collect();
    let command = queue.fill(&x, 1);
    while submissions.iter().any(|submission| !submission.is_finished()) || !command.is_finished() {
        control.complete_all();
        runtime.block_on(tokio::task::yield_now());
    }
    let heard = ear.listen();
    for (name, runs) in [("embedder", 2.0), ("reranker", 1.0), ("queue", 1.0), ("unnamed", 0.0)] {
        let labels = [fake[0], ("executable", name)];
        assert_eq!(change(&heard, "wakegraph_runs_total", &labels), runs, "{name}");
        assert_eq!(change(&heard, "wakegraph_run_seconds", &labels), runs, "{name}");
    }

    // Runs that fail: on the device, cancelled, and refused.
    control.fail_next(Error::new(ErrorKind::Driver, "as it should"));
    let failing = exec.submit();
    control.complete_all();
    assert!(runtime.block_on(failing).is_err());
    let cancelled = exec.prepare().after_future(std::future::pending::<()>()).submit();
    cancelled.cancel();
    assert!(runtime.block_on(cancelled).is_err());
    runtime.block_on(device.shutdown(std::time::Duration::MAX)).unwrap();
    assert!(runtime.block_on(exec.submit()).is_err());
    let heard = ear.listen();
    for kind in ["Driver", "Cancelled", "Unavailable"] {
        assert_eq!(change(&heard, "wakegraph_runs_failed_total", &[fake[0], ("kind", kind)]), 1.0, "{kind}");
    }
    assert_eq!(change(&heard, "wakegraph_runs_total", &fake), 3.0);
    assert_eq!(change(&heard, "wakegraph_runs_in_flight", &fake), 0.0);

    // Requests that wait for a slot, in the queue of the pool and in that of the batcher.
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).name("fake:8"));
    let device = Device::from_hal(device);
    let builder = ExecutablePool::builder().name("photos").slots(1).queue(1);
    let pool = builder.build(move |_| {
        let mut graph = Graph::new(&device);
        graph.fill(&device.buffer::<u32>(4)?, 1);
        Ok((graph.finalize()?, ()))
    });
    let of = |queue| [("pool", "photos"), ("queue", queue)];
    let slot = runtime.block_on(pool.acquire()).unwrap();
    let heard = ear.listen();
    assert_eq!(change(&heard, "wakegraph_slots_in_use", &[("pool", "photos")]), 1.0);
    assert_eq!(change(&heard, "wakegraph_request_wait_seconds", &of("pool")), 1.0);
    {
        let mut waits = pin!(pool.acquire());
        assert!(poll_once(waits.as_mut()).is_pending());
        assert!(runtime.block_on(pool.acquire()).is_err());
        assert!(pool.try_acquire().is_err());
        let heard = ear.listen();
        assert_eq!(change(&heard, "wakegraph_requests_waiting", &of("pool")), 1.0);
        assert_eq!(change(&heard, "wakegraph_requests_refused_total", &of("pool")), 2.0);
    }
    let heard = ear.listen();
    assert_eq!(change(&heard, "wakegraph_requests_waiting", &of("pool")), -1.0);
    assert_eq!(change(&heard, "wakegraph_requests_given_up_total", &of("pool")), 1.0);
    let batcher: Batcher<u32, u32> = pool.batcher().queue(1).build(async |_, items| Ok(items));
    let mut waits = pin!(batcher.call(1));
    assert!(poll_once(waits.as_mut()).is_pending());
    assert!(runtime.block_on(batcher.call(2)).is_err());
    let heard = ear.listen();
    assert_eq!(change(&heard, "wakegraph_requests_waiting", &of("batcher")), 1.0);
    assert_eq!(change(&heard, "wakegraph_requests_refused_total", &of("batcher")), 1.0);
    drop(slot);
    assert_eq!(runtime.block_on(waits).unwrap(), 1);
    // A slot is free, so the next item has it for itself.
    assert_eq!(runtime.block_on(batcher.call(2)).unwrap(), 2);
    let heard = ear.listen();
    assert_eq!(change(&heard, "wakegraph_requests_waiting", &of("batcher")), -1.0);
    assert_eq!(change(&heard, "wakegraph_request_wait_seconds", &of("batcher")), 2.0);
    assert_eq!(change(&heard, "wakegraph_batch_items", &[("pool", "photos")]), 2.0);
    assert_eq!(change(&heard, "wakegraph_slots_in_use", &[("pool", "photos")]), -1.0);
    let slot = pool.try_acquire().unwrap();
    drop(poll_once(pin!(batcher.call(3))));
    drop(slot);
    assert_eq!(change(&ear.listen(), "wakegraph_requests_given_up_total", &of("batcher")), 1.0);
    control.lose_device();

    // Freed memory.
    drop((exec, graph, x, out));
    let heard = ear.listen();
    assert_eq!(change(&heard, "wakegraph_memory_bytes", &fake), -48.0);
    assert!(heard.values().flatten().all(|heard| heard.is_described), "{heard:#?}");

    let rows = include_str!("../docs/metrics.md").lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| -> [String; 4] {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        [1, 2, 3, 4].map(|cell| cells[cell].clone())
    };
    assert_eq!(rows.map(row).collect::<BTreeSet<_>>(), ear.seen);
}

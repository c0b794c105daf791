//! A submission in steady state allocates nothing, on any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use metrics::{Key, KeyName, Metadata, SharedString, Unit};
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::host_task::run_data;
use wakegraph::kernel::RawKernel;
use wakegraph::{Device, Event, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, Range};

use crate::{ALLOCATIONS, wait_for_nothing};

wakegraph::kernel! {
    fn square(x: &mut [f32]) { host: |_range, x| x.iter_mut().for_each(|x| *x *= *x) }
    fn add(amount: f32, x: &mut [f32]) { host: |_range, amount, x| x.iter_mut().for_each(|x| *x += amount) }
}

/// Listens to metrics, and allocates nothing itself when it hears of them.
struct Listener;

struct Values(AtomicUsize);

impl metrics::HistogramFn for Values {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl metrics::Recorder for Listener {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::from_arc(Arc::new(Values(AtomicUsize::new(0))))
    }
}

const THREADS: usize = 2;
const WARM_UP: usize = 500;
const ROUNDS: usize = 1000;
const STRETCHES: usize = 5;

/// More runs in flight than any measured round has, so that there are always some to reuse,
/// whatever a worker that was interrupted on its way out still holds.
const BURST: usize = 64;

pub(crate) fn a_submission_in_steady_state_allocates_nothing() {
    metrics::set_global_recorder(Listener).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for (kind, polled, on_runtime) in
            [("notifying", false, false), ("polled", true, false), ("polled on the runtime", true, true)]
        {
            let device = host::open(HostOptions::new().threads(THREADS).polled(polled)).unwrap();
            let device = Device::from_hal(device);
            if on_runtime {
                device.run_reactor_on(runtime.handle()).unwrap();
            }
            let chain = chain(&device);
            warm_up(&device, &chain).await;

            measure(&format!("{kind}: submit and await"), async || chain.submit().await.unwrap()).await;
            measure(&format!("{kind}: dropped submissions"), async || {
                // The submissions are dropped at once. Their events are waited for, so that no more
                // is in flight than the pool of runs has grown to, however late the reactor gets
                // its turn.
                let events: [Event; 4] = std::array::from_fn(|_| chain.submit().event());
                chain.submit().await.unwrap();
                for event in &events {
                    event.wait().await.unwrap();
                }
            })
            .await;
            measure(&format!("{kind}: four in flight, awaited last to first"), async || {
                let [a, b, c, d] = std::array::from_fn(|_| chain.submit());
                for submission in [d, c, b, a] {
                    submission.await.unwrap();
                }
            })
            .await;
            let (exec, host) = with_host_buffer(&device);
            measure(&format!("{kind}: guards before and after"), async || {
                host.write().await[0] = 1.0;
                exec.submit().await.unwrap();
                assert_eq!(host.read().await[0], 2.0);
            })
            .await;
            let empty = Graph::new(&device).finalize().unwrap();
            measure(&format!("{kind}: empty graph"), async || empty.submit().await.unwrap()).await;
            let (few, many) = (update_allocations(&device, 10).await, update_allocations(&device, 110).await);
            assert!(many - few <= 100 * DEVICE_COPIES + 10, "{kind}: {few} of 10 nodes, {many} of 110");
        }
    });
}

/// One partition: a fill and two kernels.
fn chain(device: &Device) -> ExecutableGraph {
    let x = device.buffer::<f32>(64).unwrap();
    let mut graph = Graph::new(device);
    graph.fill(&x, 1.5);
    graph.launch(square(&x), Range::linear(64));
    graph.launch(add(1.0, &x), Range::linear(64));
    let exec = graph.finalize().unwrap();
    assert_eq!(exec.plan().partitions().len(), 1);
    exec
}

/// Adds 1 to the elements of a host buffer.
fn with_host_buffer(device: &Device) -> (ExecutableGraph, HostBuffer<f32>) {
    let (x, host) = (device.buffer::<f32>(64).unwrap(), device.host_buffer::<f32>(64).unwrap());
    let mut graph = Graph::new(device);
    graph.copy(&host, &x);
    graph.launch(add(1.0, &x), Range::linear(64));
    graph.copy(&x, &host);
    (graph.finalize().unwrap(), host)
}

/// What this device allocates for each launch that an update changes: a copy of the launch.
const DEVICE_COPIES: usize = 2;

/// A value for the host tasks of a run is one allocation; without one there is none.
pub(crate) fn a_value_for_host_tasks_is_one_allocation() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let device = Device::open("host").unwrap();
        let mut graph = Graph::new(&device);
        graph.host_task((), async |()| ());
        let without = graph.finalize().unwrap();
        let mut graph = Graph::new(&device);
        graph.host_task((run_data::<[u64; 100]>(),), async |(value,)| assert!(value.take().is_some()));
        let with = graph.finalize().unwrap();
        let without = fewest(async || without.submit().await.unwrap()).await;
        let with = fewest(async || with.prepare().run_data([0u64; 100]).submit().await.unwrap()).await;
        println!("{with} allocations with a value, {without} without");
        assert!(with <= without + 1, "{with} allocations with a value, {without} without");
    });
}

/// The fewest allocations of a round.
async fn fewest(round: impl AsyncFn()) -> usize {
    let mut fewest = usize::MAX;
    for _ in 0..100 {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        round().await;
        fewest = fewest.min(ALLOCATIONS.load(Ordering::Relaxed) - before);
    }
    fewest
}

/// The fewest allocations of an update that gives so many kernels other arguments.
async fn update_allocations(device: &Device, nodes: usize) -> usize {
    let x = device.buffer::<f32>(64).unwrap();
    let mut graph = Graph::new(device);
    let nodes: Vec<_> = (0..nodes).map(|_| graph.launch(add(0.0, &x), Range::linear(64)).id()).collect();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let mut fewest = usize::MAX;
    for round in 1..20 {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let mut update = exec.update();
        for &node in &nodes {
            update = update.launch(node, add(round as f32, &x));
        }
        update.apply().await.unwrap();
        fewest = fewest.min(ALLOCATIONS.load(Ordering::Relaxed) - before);
    }
    fewest
}

/// What grows once: the tables and the pool of runs, by a burst behind workers that are held up;
/// and each thread's place to wait in the crate's locks, which it allocates when it first has to.
async fn warm_up(device: &Device, exec: &ExecutableGraph) {
    let turnstile = Arc::new(Barrier::new(THREADS + 1));
    let held_up = RawKernel::new("held up").host({
        let turnstile = turnstile.clone();
        move |_range, _args| {
            wait_for_nothing();
            turnstile.wait();
            turnstile.wait();
            Ok(())
        }
    });
    let mut graph = Graph::new(device);
    (0..THREADS).for_each(|_| {
        graph.launch(held_up.call(), Range::linear(1));
    });
    let all_workers = graph.finalize().unwrap().submit();
    wait_for_nothing();
    turnstile.wait();
    let burst: Vec<_> = (0..BURST).map(|_| exec.submit()).collect();
    turnstile.wait();
    all_workers.await.unwrap();
    for submission in burst {
        submission.await.unwrap();
    }
}

/// What a thread allocates once it may allocate late, if it gets no core for long; what a
/// submission allocates, it allocates in every stretch.
async fn measure(what: &str, round: impl AsyncFn()) {
    for _ in 0..WARM_UP {
        round().await;
    }
    let mut counts = Vec::with_capacity(STRETCHES);
    while counts.len() < STRETCHES && counts.last() != Some(&0) {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..ROUNDS {
            round().await;
        }
        counts.push(ALLOCATIONS.load(Ordering::Relaxed) - before);
    }
    println!("{what}: {counts:?} allocations in stretches of {ROUNDS} rounds");
    assert_eq!(counts.last(), Some(&0), "{what}: {counts:?} allocations in stretches of {ROUNDS} rounds");
}

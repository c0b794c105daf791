//! What a submission costs, beside the hand-off that one would write by hand: a worker pool and a oneshot.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `handoff_*` | `submit().await` of a graph of one tiny kernel | hand a closure to the pool, await its oneshot | 1.2 |
//! | `empty_*` | `submit().await` of an empty graph | make, send and await a oneshot | 2.0 |
//! | `pipelined_64_*` | 64 submissions in flight, then awaited | 64 hand-offs in flight, then awaited | none |
//! | `in_flight_10000_*` | 10,000 | 10,000 | none |
//! | `chain_10_*` | a graph of ten kernels in a chain | one hand-off of ten | 1.5 |
//! | `over_one_buffer_1000` | `submit().await` of one of 1,000 executables that write one buffer | of one of 10 | 2.0 |
//! | `finalize_over_one_buffer` | microseconds to finalize, while 2,000 executables write the buffer | while 500 do | 6.0 |
//! | `deadline` | `submit().await` with a deadline that is far off | without one | 2.0 |
//! | `deadline_behind` | the same behind an earlier submission of the executable | without one | |
//! | `allocations` | heap allocations of a submission in the steady state, on all threads | of a hand-off | 0 |
//! | `slope_*` | by which power of their number the CPU time grows, from a quarter of it to all | 1 | 1.1 |
//!
//! | slope | of |
//! |---|---|
//! | `queue_60000` | submissions to an in-order queue behind events of another queue, 50 in flight |
//! | `updates_8000` | updates with a submission behind each, which wait for one run |
//! | `guards_8000` | guards that wait for one, each for all before it |
//! | `readers_8000` | guards that read at once, then one that writes |
//! | `host_tasks_8000` | host tasks of one queue that wait for a guard |
//!
//! Each in a tokio runtime of the current thread and in one of two workers. Both pools have two threads.

mod support;

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::counting::{self, Counting};
use support::handoff::WorkerPool;
use support::{Contender, Report, Row, cpu};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::{Device, ExecutableGraph, FinalizeOptions, Graph, Range, Submission, write};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const THREADS: usize = 2;
const ELEMENTS: usize = 16;
/// Windows in which allocations are counted.
const WINDOWS: usize = 20;

wakegraph::kernel! {
    fn bump(x: &mut [u32]) {
        host: |_range, x| bump_all(x),
    }
}

fn bump_all(x: &mut [u32]) {
    x.iter_mut().for_each(|x| *x = x.wrapping_add(1));
    black_box(x);
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let device = Device::from_hal(host::open(HostOptions::new().threads(THREADS)).expect("a host device"));
    let pool = WorkerPool::start(THREADS);

    for (flavour, runtime) in [("current", support::current_thread()), ("multi", support::multi_thread())] {
        let name = |row: &str| format!("{row}_{flavour}");
        let hand_off = |calls| HandOffs { pool: pool.clone(), data: vec![vec![0; ELEMENTS]], kernels: calls };
        report.race(Row::new(&name("handoff")).limit(1.2), &runtime, One(kernels(&device, 1)), hand_off(1));
        report.race(
            Row::new(&name("chain_10")).limit(1.5),
            &runtime,
            One(kernels(&device, 10)),
            hand_off(10),
        );
        report.race(
            Row::new(&name("empty")).limit(2.0).calls(200),
            &runtime,
            One(kernels(&device, 0)),
            Oneshot,
        );
        for (row, count, rounds) in [("pipelined_64", 64, (100, 10)), ("in_flight_10000", 10_000, (20, 1))] {
            let row = name(row);
            let row = Row::new(&row).operations(count).rounds(rounds.0, rounds.1);
            let ours = Many { exec: kernels(&device, 1), count };
            let data = (0..count).map(|_| vec![0; ELEMENTS]).collect();
            report.race(row, &runtime, ours, HandOffs { pool: pool.clone(), data, kernels: 1 });
        }
    }
    let runtime = support::current_thread();
    let (many, few) = (Writers::new(&device, 1000), Writers::new(&device, 10));
    report.race(Row::new("over_one_buffer_1000").limit(2.0), &runtime, many, few);
    finalize_over_one_buffer(&mut report, &device);
    let timely = |earlier, has_deadline| Timely { exec: kernels(&device, 1), earlier, has_deadline };
    report.race(Row::new("deadline").limit(2.0), &runtime, timely(0, true), timely(0, false));
    report.race(Row::new("deadline_behind"), &runtime, timely(1, true), timely(1, false));
    slopes(&mut report, &device);
    allocations(&mut report, &support::current_thread(), &device, &pool);
    report.finish()
}

/// What waits behind one thing costs as much for each, however many wait.
fn slopes(report: &mut Report, device: &Device) {
    let runtime = support::current_thread();
    let seconds = |work: &dyn Fn(usize) -> Pin<Box<dyn Future<Output = ()>>>, count| {
        let start = cpu::seconds();
        runtime.block_on(work(count));
        cpu::seconds() - start
    };
    let rows: [(&str, usize, Work); 5] = [
        ("slope_queue_60000", 60_000, |device, count| Box::pin(submit_behind_events(device, count))),
        ("slope_updates_8000", 8_000, |device, count| Box::pin(update_and_submit(device, count))),
        ("slope_guards_8000", 8_000, |device, count| Box::pin(wait_for_guards(device, count))),
        ("slope_readers_8000", 8_000, |device, count| Box::pin(read_at_once(device, count))),
        ("slope_host_tasks_8000", 8_000, |device, count| Box::pin(queue_host_tasks(device, count))),
    ];
    for (name, most, work) in rows {
        report.slope(name, most, |count| seconds(&|count| work(device.clone(), count), count));
    }
}

type Work = fn(Device, usize) -> Pin<Box<dyn Future<Output = ()>>>;

async fn submit_behind_events(device: Device, count: usize) {
    let y = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
    let exec = kernels(&device, 1);
    let (queue, other) = (device.queue().expect("a queue"), device.queue().expect("a queue"));
    for _ in 0..count / 50 {
        let mut last = None;
        for _ in 0..50 {
            let event = other.fill(&y, 1);
            last = Some(queue.after([&event]).submit(&exec));
        }
        last.expect("it has submitted").await.expect("a run");
    }
}

async fn update_and_submit(device: Device, count: usize) {
    let (data, gate) = (device.buffer::<u32>(ELEMENTS).expect("a small buffer"), Arc::new(Semaphore::new(0)));
    let (mut graph, held) = (Graph::new(&device), gate.clone());
    let hold = async move |()| held.acquire().await.map(SemaphorePermit::forget);
    let hold = graph.host_task((), hold).id();
    let node = graph.launch(bump(&data), Range::linear(ELEMENTS)).after([hold]).id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).expect("a valid graph");
    let mut last = exec.submit();
    let mut updates = Vec::with_capacity(count);
    for _ in 0..count {
        updates.push(exec.update().launch(node, bump(&data)).apply());
        last = exec.submit();
    }
    gate.add_permits(count + 1);
    for update in updates {
        update.await.expect("an update");
    }
    last.await.expect("a run");
}

async fn wait_for_guards(device: Device, count: usize) {
    let host = device.host_buffer::<u32>(ELEMENTS).expect("a small buffer");
    let held = host.write().await;
    let waiting = (0..count).map(|_| {
        let host = host.clone();
        tokio::spawn(async move { host.write().await[0] += 1 })
    });
    let waiting: Vec<_> = waiting.collect();
    tokio::task::yield_now().await;
    drop(held);
    for one in waiting {
        one.await.expect("no panic");
    }
}

async fn read_at_once(device: Device, count: usize) {
    let host = device.host_buffer::<u32>(ELEMENTS).expect("a small buffer");
    let mut readers = Vec::with_capacity(count);
    for _ in 0..count {
        readers.push(host.read().await);
    }
    let writer = host.clone();
    let writing = tokio::spawn(async move { writer.write().await[0] += 1 });
    tokio::task::yield_now().await;
    drop(readers);
    writing.await.expect("no panic");
}

async fn queue_host_tasks(device: Device, count: usize) {
    let host = device.host_buffer::<u32>(ELEMENTS).expect("a small buffer");
    let queue = device.queue().expect("a queue");
    let held = host.write().await;
    for _ in 0..count {
        queue.host_task((write(&host),), async |(mut host,)| host[0] += 1);
    }
    drop(held);
    queue.wait().await.expect("all tasks");
}

fn kernels(device: &Device, count: usize) -> ExecutableGraph {
    let data = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
    let mut graph = Graph::new(device);
    for _ in 0..count {
        graph.launch(bump(&data), Range::linear(ELEMENTS));
    }
    graph.finalize().expect("a valid graph")
}

/// Executables that write one buffer.
struct Writers {
    graph: Graph,
    execs: Vec<ExecutableGraph>,
}

impl Writers {
    fn new(device: &Device, count: usize) -> Self {
        let data = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
        let mut graph = Graph::new(device);
        graph.launch(bump(&data), Range::linear(ELEMENTS));
        let execs = (0..count).map(|_| graph.finalize().expect("a valid graph")).collect();
        Self { graph, execs }
    }

    /// Microseconds to finalize one more, which is dropped.
    fn time_to_finalize(&self) -> f64 {
        let times: Vec<_> = (0..100)
            .map(|_| {
                let start = Instant::now();
                let one_more = self.graph.finalize().expect("a valid graph");
                let time = start.elapsed();
                drop(one_more);
                time.as_secs_f64() * 1e6
            })
            .collect();
        support::median(&times)
    }
}

/// Awaits a submission of one of them.
impl Contender for Writers {
    async fn once(&mut self) {
        self.execs[0].submit().await.expect("a run");
    }
}

fn finalize_over_one_buffer(report: &mut Report, device: &Device) {
    if !report.wants("finalize_over_one_buffer") {
        return;
    }
    let (ours, base) = (Writers::new(device, 2000), Writers::new(device, 500));
    let (ours, base) = (ours.time_to_finalize(), base.time_to_finalize());
    report.figure("finalize_over_one_buffer", ours, base, "us", ours > 6.0 * base);
}

/// One submission, awaited.
struct One(ExecutableGraph);

impl Contender for One {
    async fn once(&mut self) {
        self.0.submit().await.expect("a run");
    }
}

/// A submission behind earlier ones of its executable, with a deadline that it keeps or without one.
struct Timely {
    exec: ExecutableGraph,
    earlier: usize,
    has_deadline: bool,
}

impl Contender for Timely {
    async fn once(&mut self) {
        let earlier: Vec<Submission> = (0..self.earlier).map(|_| self.exec.submit()).collect();
        let mut submission = self.exec.prepare();
        if self.has_deadline {
            submission = submission.deadline(Instant::now() + Duration::from_secs(3600));
        }
        submission.submit().await.expect("a run");
        for submission in earlier {
            submission.await.expect("a run");
        }
    }
}

/// Several submissions in flight.
struct Many {
    exec: ExecutableGraph,
    count: usize,
}

impl Contender for Many {
    async fn once(&mut self) {
        let submissions: Vec<Submission> = (0..self.count).map(|_| self.exec.submit()).collect();
        for submission in submissions {
            submission.await.expect("a run");
        }
    }
}

/// As many hand-offs in flight as there are pieces of data. A piece moves into the closure and
/// comes back as its result, so nothing is locked.
struct HandOffs {
    pool: WorkerPool,
    data: Vec<Vec<u32>>,
    kernels: usize,
}

impl HandOffs {
    fn start(&self, mut data: Vec<u32>) -> impl Future<Output = Vec<u32>> + Send + 'static {
        let kernels = self.kernels;
        self.pool.hand_off(move || {
            (0..kernels).for_each(|_| bump_all(&mut data));
            data
        })
    }
}

impl Contender for HandOffs {
    async fn once(&mut self) {
        if let [data] = &mut self.data[..] {
            let data = std::mem::take(data);
            self.data[0] = self.start(data).await;
            return;
        }
        let mut data = std::mem::take(&mut self.data);
        let hand_offs: Vec<_> = data.drain(..).map(|data| self.start(data)).collect();
        for hand_off in hand_offs {
            data.push(hand_off.await);
        }
        self.data = data;
    }
}

struct Oneshot;

impl Contender for Oneshot {
    async fn once(&mut self) {
        let (sender, receiver) = oneshot::channel();
        sender.send(black_box(Ok::<(), wakegraph::Error>(()))).expect("a receiver");
        receiver.await.expect("a value").expect("an Ok");
    }
}

/// Counts after a warm-up, in which tables grow to their working size. The median over windows: a
/// thread that is preempted while it holds on to a finished run may still cost another run to be
/// made, once.
fn allocations(report: &mut Report, runtime: &Runtime, device: &Device, pool: &WorkerPool) {
    if !report.wants("allocations") {
        return;
    }
    let count = report.reduced(20_000);
    let ours = counted(runtime, count, One(kernels(device, 1)));
    let hand_off = HandOffs { pool: pool.clone(), data: vec![vec![0; ELEMENTS]], kernels: 1 };
    let base = counted(runtime, count, hand_off);
    report.figure("allocations", ours, base, "allocations", ours > 0.0);
}

fn counted(runtime: &Runtime, count: usize, mut contender: impl Contender) -> f64 {
    runtime.block_on(async {
        for _ in 0..count {
            contender.once().await;
        }
        let mut windows = Vec::with_capacity(WINDOWS);
        for _ in 0..WINDOWS {
            counting::start();
            for _ in 0..count / WINDOWS {
                contender.once().await;
            }
            windows.push(counting::stop().allocations as f64 / (count / WINDOWS) as f64);
        }
        support::median(&windows)
    })
}

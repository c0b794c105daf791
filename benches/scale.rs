//! Growth of a large service: CPU time and heap from a quarter of each number to all of it.
//!
//! | row | grows with |
//! |---|---|
//! | `scale_executables_10000` | executables that are finalized, run once and exist at the same time |
//! | `scale_in_flight_100000` | submissions in flight on four devices, of ten executables each |
//! | `scale_pool_1000` | slots of a pool, each with four requests at a time, five times |
//! | `scale_shapes_1000` | shapes in an executable cache, each of which is asked for ten times |
//! | `scale_devices_16` | devices, each with four tasks of 200 runs; a device takes the time of an H200 |
//!
//! The figure is the power of the number by which CPU time grows: 1 is linear, the limit is 1.1. `.._bytes`
//! is the heap of one of them, beside one of a quarter: the limit is 1.1. `scale_nodes_1000000` is the time
//! for a node of a graph that is made and finalized, beside that of four graphs which have as many
//! together: the limit is 1.1.

mod support;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use support::barrier::Barrier;
use support::counting::{self, Counting};
use support::{Report, cpu};
use tokio::task::JoinHandle;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::service::{ExecutableCache, ExecutablePool};
use wakegraph::testing::{FakeDevice, FakeOptions, FakeTiming};
use wakegraph::{Device, ExecutableGraph, Graph, Range, Submission};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ELEMENTS: usize = 16;
const NODES: usize = 1_000_000;

wakegraph::kernel! {
    fn bump(x: &mut [u32]) {
        each: |_, x| *x = x.wrapping_add(1),
    }
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    nodes(&mut report);
    let rows: [(&str, usize, Work); 5] = [
        ("scale_executables_10000", 10_000, |count| Box::pin(executables(count))),
        ("scale_in_flight_100000", 100_000, |count| Box::pin(in_flight(count))),
        ("scale_pool_1000", 1_000, |count| Box::pin(pool(count))),
        ("scale_shapes_1000", 1_000, |count| Box::pin(shapes(count))),
        ("scale_devices_16", 16, |count| Box::pin(devices(count))),
    ];
    let runtime = support::current_thread();
    for (name, most, work) in rows {
        report.slope(name, most, |count| {
            let start = cpu::seconds();
            runtime.block_on(work(count));
            cpu::seconds() - start
        });
        let bytes_name = format!("{name}_bytes");
        if report.wants(&bytes_name) {
            let [few, many] = [most / 4, most].map(|count| {
                counting::start();
                runtime.block_on(work(count)) as f64 / count as f64
            });
            report.figure(&bytes_name, many, few, "bytes", many > 1.1 * few);
        }
    }
    report.finish()
}

/// Work in proportion to a number. Returns the bytes of heap that it held at its height, if they are counted.
type Work = fn(usize) -> Pin<Box<dyn Future<Output = i64>>>;

fn held() -> i64 {
    counting::stop().bytes
}

/// Waits for tasks. Returns what was held once all had begun.
async fn held_while(tasks: Vec<JoinHandle<()>>) -> i64 {
    tokio::task::yield_now().await;
    let bytes = held();
    for task in tasks {
        task.await.expect("no panic");
    }
    bytes
}

fn host_device() -> Device {
    Device::from_hal(host::open(HostOptions::new().threads(1)).expect("a host device"))
}

/// An executable of one kernel, with memory of its own.
fn executable(device: &Device) -> ExecutableGraph {
    let data = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
    let mut graph = Graph::new(device);
    graph.launch(bump(&data), Range::linear(ELEMENTS));
    graph.finalize().expect("a valid graph")
}

async fn executables(count: usize) -> i64 {
    let device = host_device();
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let exec = executable(&device);
        exec.submit().await.expect("a run");
        all.push(exec);
    }
    held()
}

async fn in_flight(count: usize) -> i64 {
    let (devices, barrier) = ([(); 4].map(|()| host_device()), Barrier::default());
    let all: Vec<_> = (0..40).map(|index| barrier.executable(&devices[index % 4])).collect();
    let submissions: Vec<Submission> = (0..count).map(|index| all[index % all.len()].submit()).collect();
    let bytes = held();
    barrier.open();
    for submission in submissions {
        submission.await.expect("a run");
    }
    bytes
}

/// One large graph beside four that are as large together: both need as much memory, and most of what they
/// take is the system's to hand it out.
fn nodes(report: &mut Report) {
    if !report.wants("scale_nodes_1000000") {
        return;
    }
    let device = Device::from_hal(FakeDevice::open(FakeOptions::new()).0);
    let data = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
    let finalize = |nodes| {
        let mut graph = Graph::new(&device);
        for _ in 0..nodes {
            graph.launch(bump(&data), Range::linear(ELEMENTS));
        }
        graph.finalize().expect("a valid graph")
    };
    // One after the other: pieces of heap that one of them leaves would make the other wait for pages.
    let rounds = report.reduced(20);
    let [ours, base] = [1, 4].map(|graphs| {
        let times = (0..rounds).map(|_| {
            let start = cpu::seconds();
            let executables: Vec<_> = (0..graphs).map(|_| finalize(NODES / graphs)).collect();
            let time = (cpu::seconds() - start) * 1e6 / NODES as f64;
            drop(executables);
            time
        });
        times.fold(f64::INFINITY, f64::min)
    });
    report.figure("scale_nodes_1000000", ours, base, "us", ours > 1.1 * base);
}

async fn pool(slots: usize) -> i64 {
    let device = host_device();
    let pool = ExecutablePool::<()>::builder().slots(slots).queue(4 * slots);
    let pool = pool.build(move |_| Ok((executable(&device), ())));
    pool.warm_up().await.expect("all slots");
    let clients = (0..4 * slots).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                let slot = pool.acquire().await.expect("a slot");
                slot.submit().await.expect("a run");
            }
        })
    });
    held_while(clients.collect()).await
}

async fn shapes(count: usize) -> i64 {
    let device = host_device();
    let cache = ExecutableCache::new(u64::MAX, move |_| Ok((executable(&device), ())));
    for _ in 0..10 {
        for shape in 0..count {
            cache.get(&shape).await.expect("an executable").submit().await.expect("a run");
        }
    }
    held()
}

/// Seen on an H200, for a kernel of 1 ms.
const TIMING: FakeTiming = FakeTiming {
    work: Duration::from_millis(1),
    enqueue: Duration::from_micros(3),
    pending_status: Duration::from_nanos(300),
    final_status: Duration::from_micros(1),
};

async fn devices(count: usize) -> i64 {
    let devices = (0..count).map(|_| Device::from_hal(FakeDevice::open(FakeOptions::new().timing(TIMING)).0));
    let tasks = devices.flat_map(|device| {
        [(); 4].map(|()| {
            let exec = executable(&device);
            tokio::spawn(async move {
                for _ in 0..200 {
                    exec.submit().await.expect("a run");
                }
            })
        })
    });
    held_while(tasks.collect()).await
}

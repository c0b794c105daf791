//! The steady state allocates nothing: submitting a graph of one partition, or an empty one, and awaiting it.
//!
//! A test binary of its own, because its allocator counts the allocations of all threads.
#![expect(unsafe_code, reason = "a global allocator that counts")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports what it counted")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use wakegraph::backend::host::{self, HostOptions};
use wakegraph::kernel::RawKernel;
use wakegraph::{Device, ExecutableGraph, Graph, Range, WakePolicy, kernel};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

kernel! {
    fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
        host: |_, a, x, y| y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x),
    }
}

/// Submissions whose allocations are counted.
const COUNTED: usize = 1000;

/// Submissions before that, in bursts: they fill the tables, and the pool of runs to reuse.
const WARM_UP: usize = 200;
const BURST: usize = 50;

async fn submit(exec: &ExecutableGraph, times: usize) {
    for _ in 0..times {
        exec.submit().await.unwrap();
    }
}

async fn warm_up(exec: &ExecutableGraph) {
    for _ in 0..WARM_UP / BURST {
        let burst: Vec<_> = (0..BURST).map(|_| exec.submit()).collect();
        for submission in burst {
            submission.await.unwrap();
        }
    }
    submit(exec, WARM_UP).await;
}

/// As many in flight at once as a pipelining service would have.
async fn submit_pipelined(exec: &ExecutableGraph, times: usize) {
    let mut ring: [Option<wakegraph::Submission>; 4] = [const { None }; 4];
    for i in 0..times {
        if let Some(oldest) = ring[i % 4].replace(exec.submit()) {
            oldest.await.unwrap();
        }
    }
    for submission in ring.into_iter().flatten() {
        submission.await.unwrap();
    }
}

/// Counts the allocations of all threads in the steady state.
async fn counted(what: &str, exec: &ExecutableGraph) -> [usize; 2] {
    warm_up(exec).await;
    let start = ALLOCATIONS.load(Ordering::SeqCst);
    submit(exec, COUNTED).await;
    let between = ALLOCATIONS.load(Ordering::SeqCst);
    submit_pipelined(exec, COUNTED).await;
    let end = ALLOCATIONS.load(Ordering::SeqCst);
    let counts = [between - start, end - between];
    println!(
        "{what}: {} allocations in {COUNTED} submissions one by one, {} in as many pipelined",
        counts[0], counts[1]
    );
    counts
}

fn one_kernel(device: &Device) -> ExecutableGraph {
    let (x, y) = (device.buffer::<f32>(64).unwrap(), device.buffer::<f32>(64).unwrap());
    let mut graph = Graph::new(device);
    graph.launch(axpy(2.0, &x, &y), Range::linear(64));
    graph.finalize().unwrap()
}

/// A partition with sync-points: copies, fills and kernels side by side.
fn one_partition(device: &Device) -> ExecutableGraph {
    let buffers: Vec<_> = (0..6).map(|_| device.buffer::<f32>(64).unwrap()).collect();
    let mut graph = Graph::new(device);
    graph.fill(&buffers[0], 1.0);
    for pair in buffers.windows(2) {
        graph.copy(&pair[0], &pair[1]);
        graph.launch(axpy(2.0, &pair[0], &pair[1]), Range::linear(64));
    }
    graph.launch(axpy(1.0, &buffers[0], &buffers[3]), Range::linear(64));
    graph.finalize().unwrap()
}

/// Two kernels that wait for each other: afterwards both threads of the device have set themselves up.
fn on_both_threads(device: &Device) -> ExecutableGraph {
    let barrier = Arc::new(Barrier::new(2));
    let mut graph = Graph::new(device);
    for _ in 0..2 {
        let barrier = barrier.clone();
        let kernel = RawKernel::new("meet").host(move |_, _| {
            barrier.wait();
            Ok(())
        });
        graph.launch(kernel.call(), Range::linear(1));
    }
    graph.finalize().unwrap()
}

#[test]
fn the_steady_state_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut found = Vec::new();
        for polled in [false, true] {
            let device = Device::from_hal(host::open(HostOptions::new().threads(2).polled(polled)).unwrap());
            warm_up(&on_both_threads(&device)).await;
            for policy in [WakePolicy::Latency, WakePolicy::Balanced, WakePolicy::Efficient] {
                device.set_wake_policy(policy);
                let empty = Graph::new(&device).finalize().unwrap();
                for (what, exec) in [
                    ("no node", empty),
                    ("one kernel", one_kernel(&device)),
                    ("one partition", one_partition(&device)),
                ] {
                    let what = format!("{what}, polled: {polled}, {policy:?}");
                    let [one_by_one, mut pipelined] = counted(&what, &exec).await;
                    // The reactor of a polled device holds on to runs that it has found finished until it gets to run,
                    // which is a matter of time: how many more are needed meanwhile is shown, not judged.
                    if polled {
                        pipelined = 0;
                    }
                    found.push(([one_by_one, pipelined], what));
                }
            }
        }
        for (counts, what) in found {
            assert_eq!(counts, [0, 0], "{what}");
        }
    });
}

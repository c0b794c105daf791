//! What a submission costs while nobody listens to its traces, its metrics and its timelines.
//!
//! | row | figure | limit |
//! |---|---|---|
//! | `submission` | nanoseconds of a submission to a device that is over at once, until its result is there | none |
//! | `allocations` | heap allocations of a submission | 0 |
//! | `recorded` | as `submission`, while a timeline is recorded | none |
//!
//! `scripts/observe.sh` compares the first row with a build that has nothing to listen to: limit 1.02.
#![expect(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

use wakegraph::testing::{FakeDevice, FakeOptions};
use wakegraph::timeline::Timeline;
use wakegraph::{Device, ExecutableGraph, Graph};

/// Counts what every thread of the process asks for.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn submit(exec: &ExecutableGraph) {
    let submission = pin!(exec.submit());
    let polled = submission.poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready(), "the device is over at once");
}

/// The shortest of `rounds`, in nanoseconds per submission: what else runs on the machine only adds to it.
fn time(exec: &ExecutableGraph, rounds: usize, submissions: usize) -> f64 {
    let round = || {
        let start = Instant::now();
        (0..submissions).for_each(|_| submit(exec));
        start.elapsed().as_secs_f64() * 1e9 / submissions as f64
    };
    (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() -> ExitCode {
    let device = Device::from_hal(FakeDevice::open(FakeOptions::new()).0);
    let mut graph = Graph::new(&device);
    graph.fill(&device.buffer::<u32>(4).expect("a small buffer"), 1);
    let exec = graph.finalize().expect("a valid graph");
    time(&exec, 10, 2000);
    println!("submission {:.1} ns", time(&exec, 1000, 500));
    // The fake device allocates for its own books, so a real one is counted.
    let host = Device::open("host").expect("there is a CPU");
    let mut graph = Graph::new(&host);
    graph.fill(&host.buffer::<u32>(4).expect("a small buffer"), 1);
    let on_host = graph.finalize().expect("a valid graph");
    let run = || {
        let submission = on_host.submit();
        while !submission.is_finished() {
            std::hint::spin_loop();
        }
    };
    (0..2000).for_each(|_| run());
    let windows = (0..20).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..100).for_each(|_| run());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    let allocations = windows.min().unwrap_or(0);
    println!("allocations {allocations}");
    let recording = Timeline::record();
    println!("recorded {:.1} ns", time(&exec, 10, 500));
    drop(recording);
    if allocations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! Allocations of the library. The tests run one after the other, as the allocator that counts is the
//! process's.
#![expect(unsafe_code, reason = "a global allocator that counts")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/deadline_storm.rs"]
mod deadline_storm;
mod enqueue;
mod finalize;
mod requests;
mod scratch;
mod submission;

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};

/// Counts what every thread of the process asks for: `alloc_zeroed` and `realloc` come through `alloc`.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are allocated.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of large blocks that are allocated. A CPU device allocates its memory here.
static LARGE_BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// The smallest of the large blocks.
const LARGE: usize = 1 << 18;

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        if layout.size() >= LARGE {
            LARGE_BLOCKS.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        if layout.size() >= LARGE {
            LARGE_BLOCKS.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Has this thread allocate its place to wait in a lock, which it does when it first has to wait.
fn wait_for_nothing() {
    let mutex = parking_lot::Mutex::new(());
    parking_lot::Condvar::new().wait_for(&mut mutex.lock(), Duration::ZERO);
}

fn main() -> ExitCode {
    let test = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    // The strictest first: threads of devices that were closed may still be about to end.
    let tests = vec![
        test("enqueue::a_repeated_enqueue_allocates_nothing", enqueue::a_repeated_enqueue_allocates_nothing),
        test(
            "submission::a_submission_in_steady_state_allocates_nothing",
            submission::a_submission_in_steady_state_allocates_nothing,
        ),
        test(
            "submission::a_value_for_host_tasks_is_one_allocation",
            submission::a_value_for_host_tasks_is_one_allocation,
        ),
        test(
            "scratch::shapes_that_share_an_arena_take_the_memory_of_the_largest",
            scratch::shapes_that_share_an_arena_take_the_memory_of_the_largest,
        ),
        test("finalize::wide_graphs_cost_in_proportion", finalize::wide_graphs_cost_in_proportion),
        test(
            "requests::a_storm_of_deadlines_leaves_memory_and_threads_as_they_were",
            requests::a_storm_of_deadlines_leaves_memory_and_threads_as_they_were,
        ),
    ];
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit_code()
}

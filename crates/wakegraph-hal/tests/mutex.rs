//! A thread that waits for a lock gives its core away only to sleep.
#![cfg(all(target_os = "linux", not(miri)))]
#![expect(unsafe_code, reason = "stands in for a function of the C library")]

use std::ffi::c_int;
use std::fs::{read_link, read_to_string};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use wakegraph_hal::util::Mutex;

static YIELDS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it has the signature of the C library's function, whose place it takes in this process.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    YIELDS.fetch_add(1, Ordering::Relaxed);
    0
}

/// On a busy machine, a yield takes as long as the time slices of other programs.
#[test]
fn a_thread_that_waits_for_a_lock_does_not_yield() {
    thread::yield_now();
    assert_eq!(YIELDS.swap(0, Ordering::Relaxed), 1, "yields are counted");

    let lock = Arc::new(Mutex::new(0));
    let guard = lock.lock();
    let (names, name) = channel();
    let waiter = {
        let lock = lock.clone();
        thread::spawn(move || {
            names.send(read_link("/proc/thread-self").expect("a thread")).expect("an open channel");
            *lock.lock() += 1;
        })
    };
    let stat = std::path::Path::new("/proc").join(name.recv().expect("its name")).join("stat");
    let sleeps = || read_to_string(&stat).expect("a thread that waits").contains(") S ");
    while !sleeps() {
        thread::sleep(Duration::from_millis(1));
    }
    drop(guard);
    waiter.join().expect("no panic");
    assert_eq!((*lock.lock(), YIELDS.load(Ordering::Relaxed)), (1, 0));
}

//! Random programs ([`programs`](crate::programs)) from seeds.
//!
//! `WAKEGRAPH_RANDOM_PROGRAMS` sets how many programs each test runs, `WAKEGRAPH_RANDOM_SEED` the
//! first seed, and `WAKEGRAPH_RANDOM_THREADS` how many threads share them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::programs::{Choices, Settings, run};
use crate::random::from_environment;
use crate::suite::{Need, Setup, tests};

// Updates bring parts of buffers that no edge orders after other parts of the same buffer.
tests!("graph/random_programs":
    &[Need::Results] => [with_scratch_memory, without_updates],
    &[Need::Results, Need::ConcurrentParts] => [one_executable, several_executables],
    &[Need::Results, Need::TwoDevices] => [without_updates_on_two_devices],
    &[Need::Results, Need::ConcurrentParts, Need::TwoDevices] => [on_two_devices]);

/// How many programs each test runs, unless the environment says.
const PROGRAMS: u64 = 110;
/// How many programs each test runs on a device that an earlier variant has opened: `.ci/run` has some 16
/// such variants, which differ only in how the device is used.
const PROGRAMS_OF_ANOTHER_WAY: u64 = 25;

const ONE: Settings = Settings { executables: 1, scratch: false, updates: true, faults: true, control: None };

fn one_executable(setup: &Setup) {
    check(setup, 1, &ONE);
}

fn several_executables(setup: &Setup) {
    check(setup, 1, &Settings { executables: 3, ..ONE });
}

fn with_scratch_memory(setup: &Setup) {
    check(setup, 1, &Settings { executables: 2, scratch: true, ..ONE });
}

fn without_updates(setup: &Setup) {
    check(setup, 1, &Settings { executables: 3, updates: false, ..ONE });
}

fn without_updates_on_two_devices(setup: &Setup) {
    check(setup, 2, &Settings { executables: 2, updates: false, ..ONE });
}

fn on_two_devices(setup: &Setup) {
    check(setup, 2, &Settings { executables: 2, ..ONE });
}

fn check(setup: &Setup, devices: usize, settings: &Settings) {
    let default = if setup.is_another_way { PROGRAMS_OF_ANOTHER_WAY } else { PROGRAMS };
    let programs = from_environment("WAKEGRAPH_RANDOM_PROGRAMS").unwrap_or(default);
    let first = from_environment("WAKEGRAPH_RANDOM_SEED").unwrap_or(0);
    let threads = from_environment("WAKEGRAPH_RANDOM_THREADS").unwrap_or(1);
    let (next, wrong) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + programs {
                break;
            }
            let program = run(Choices::seeded(seed), &setup.devices[..devices], settings);
            // The panic hook has printed what is wrong.
            if catch_unwind(AssertUnwindSafe(|| setup.block_on(program))).is_err() {
                wrong.lock().unwrap().push(seed);
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {programs} programs are wrong: seeds {wrong:?}", wrong.len());
}

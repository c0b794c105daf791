//! One suite for all backends.
//!
//! `registry.rs` says which devices there are; every test below `hal/` (the backend contract) and
//! `graph/` (the public API) runs on each of them under the name `backend/device/topic/test`, and
//! those of the contract a second time on out-of-order queues, as
//! `backend/device/out-of-order-queue/topic/test`. What a device cannot show is reported as
//! ignored, by name and with the reason; a backend that is not there likewise, unless the
//! environment variable `WAKEGRAPH_REQUIRE` lists it (`WAKEGRAPH_REQUIRE=host,opencl`): then its
//! absence is a failure.
//!
//! Random tests use fixed seeds and name the seed when they fail. No test reads a clock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod features;
mod graph;
mod hal;
mod hip_devices;
#[path = "../../../../tests/support/hip_stack.rs"]
mod hip_stack;
mod in_flight;
mod kernels;
mod level_zero_devices;
mod opencl_devices;
mod random;
mod registry;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod watch;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    level_zero_devices::choose_library();
    support::silence_expected_panics();
    let mut arguments = Arguments::from_args();
    // Most tests wait for a device, or for another thread, half of their time.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(2 * cores);
    let (contract, graph) = (hal::tests().collect::<Vec<_>>(), graph::tests().collect::<Vec<_>>());
    let conclusion = libtest_mimic::run(&arguments, registry::trials(&contract, &graph));
    let is_whole = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    if let (true, Err(wrong)) = (is_whole, features::check_outcomes()) {
        eprintln!("docs/features.md is wrong:\n{wrong}");
        return ExitCode::FAILURE;
    }
    match hip_devices::run_children() {
        true => hip_devices::leave_child(conclusion.has_failed()),
        false => return ExitCode::FAILURE,
    }
    conclusion.exit_code()
}

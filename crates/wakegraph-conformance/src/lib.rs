//! One suite for all backends.
//!
//! Every test below `hal/` (the backend contract) and `graph/` (the public API) runs on each device under the
//! name `backend/device/topic/test`, and those of the contract a second time on out-of-order queues, as
//! `backend/device/out-of-order-queue/topic/test`. The suite reports as ignored, by name and with the reason,
//! what a device cannot show; a backend that is not there likewise, unless the environment variable
//! `WAKEGRAPH_REQUIRE` lists it (`WAKEGRAPH_REQUIRE=host,opencl`): then its absence is a failure.
//!
//! Random tests use fixed seeds and name the seed when they fail. No test reads a clock.
//!
//! A backend runs the suite as a test without harness:
//!
//! ```no_run
//! # use wakegraph::backend;
//! use wakegraph_conformance::{Need, Variant};
//!
//! fn main() -> std::process::ExitCode {
//!     let device = Variant::new("mine", "0", &[Need::Results], || Ok(vec![backend::open("host:0")?]));
//!     wakegraph_conformance::run(&[device])
//! }
//! ```
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod graph;
mod hal;
mod in_flight;
mod kernels;
pub mod programs;
mod random;
mod suite;
mod support;
mod trials;
mod watch;

use std::process::ExitCode;

use libtest_mimic::Arguments;

pub use suite::{Devices, Need, Setup, Test, Variant};
pub use trials::{is_required, trials};

/// Runs the suite on these devices, with the arguments of the process as a test program takes them.
pub fn run(variants: &[Variant]) -> ExitCode {
    libtest_mimic::run(&arguments(), trials(variants, |_, _, _| ())).exit_code()
}

/// The arguments of the process. From now on, panics that tests expect are not printed.
pub fn arguments() -> Arguments {
    support::silence_expected_panics();
    let mut arguments = Arguments::from_args();
    // Most tests wait for a device, or for another thread, half of their time.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(2 * cores);
    arguments
}

/// All tests of the suite.
pub fn tests() -> Vec<Test> {
    hal::tests().chain(graph::tests()).collect()
}

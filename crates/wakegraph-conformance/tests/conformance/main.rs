//! The suite of `wakegraph-conformance` on every backend of this repository, and what `docs/features.md` says
//! of the tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod devices;
mod features;
mod hip_devices;
#[path = "../../../../tests/support/hip_stack.rs"]
mod hip_stack;
mod level_zero_devices;
mod opencl_devices;

use std::process::ExitCode;

use libtest_mimic::{Failed, Trial};

fn main() -> ExitCode {
    level_zero_devices::choose_library();
    let arguments = wakegraph_conformance::arguments();
    let variants = devices::variants();
    let page = features::check(&wakegraph_conformance::tests(), &devices::abilities(&variants));
    let mut trials = vec![Trial::test("docs/features", || page.map_err(Failed::from))];
    trials.extend(wakegraph_conformance::trials(&variants, features::record));
    let conclusion = libtest_mimic::run(&arguments, trials);
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

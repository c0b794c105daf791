//! AMD's own HIP library, unmodified, over the HSA runtime of `tests/hsa_runtime`: what it does
//! with streams, kernels and graphs. `scripts/hip.sh` fetches it; where it is absent, each test is
//! ignored by name.
//!
//! Each test runs in a process of its own: a copy of this program with the dynamic linker and the
//! libraries of one version.
#![allow(unsafe_code, reason = "raw calls of a C library")]
#![allow(clippy::too_many_arguments, reason = "HIP's functions have them")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod api;
mod device;
#[path = "../../../../tests/support/hip_stack.rs"]
mod hip_stack;
mod tests;

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;
use std::sync::Arc;

use hip_stack::{HipStack, VERSIONS};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tests::End;

/// Names the test that a process is to run.
const CHILD: &str = "WAKEGRAPH_HIP_RAW";

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CHILD) {
        let (_, _, _, test) = tests::ALL.iter().find(|(test, ..)| *test == name).unwrap();
        test();
        // HIP's threads do not survive its destructors.
        std::process::exit(0);
    }
    let mut trials = Vec::new();
    for version in VERSIONS {
        let stack = HipStack::prepare(version).map(Arc::new);
        for &(name, environment, end, _) in tests::ALL {
            let stack = stack.clone();
            let stack = match tests::defect(version, name) {
                Some(defect) => Err(defect.to_owned()),
                None => stack,
            };
            trials.push(Trial::ignorable_test(format!("{version}/{name}"), move || match &stack {
                Ok(stack) => run(stack, name, environment, end).map(|()| Completion::Completed),
                Err(reason) => Ok(Completion::ignored_with(reason.clone())),
            }));
        }
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    conclusion.exit_code()
}

fn run(stack: &HipStack, test: &str, environment: &[(&str, &str)], end: End) -> Result<(), Failed> {
    let output = stack.command().env(CHILD, test).envs(environment.iter().copied()).output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let as_expected = match end {
        End::Well => output.status.success(),
        End::Aborts(text) => output.status.signal().is_some() && printed.contains(text),
    };
    as_expected.then_some(()).ok_or_else(|| format!("{}\n{printed}", output.status).into())
}

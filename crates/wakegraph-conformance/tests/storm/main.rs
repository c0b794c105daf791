//! The storm: random submissions of random executables, with everything going wrong that can.
//!
//! A round makes executables over a few shared buffers and submits them from tasks of several
//! runtimes and from threads outside. Submissions are awaited, dropped, forgotten, cancelled, timed
//! out; closures fail and panic, and so do captured values and errors when they are dropped, and
//! wakers. Meanwhile guards are taken and updates applied. Then the books are balanced: every
//! submission has ended in one way that was possible, every closure was called as often as the
//! results say, buffers were never seen half-written, every captured value was dropped once, and
//! the device is gone with its memory.
//!
//! Beside it, requests to a pool are given up at random moments (`requests`).
//!
//! | environment variable | what it says |
//! |---|---|
//! | `WAKEGRAPH_STORM_SUBMISSIONS` | how many submissions, and how many requests, there are on each device, 1,500 unless set |
//! | `WAKEGRAPH_STORM_SEED` | the seed of the first round, 1 unless set; each following round has the next |
//! | `WAKEGRAPH_STORM_TIMEOUT` | after how many seconds the watchdog calls it a hang, 30 unless set |
//!
//! A failure names the device and the round's seed, in `storm/host, seed 7`: the environment
//! `WAKEGRAPH_STORM_SEED=7 WAKEGRAPH_STORM_SUBMISSIONS=1` with the arguments `--exact storm/host` runs that
//! round alone. Which thread comes first is not in the seed, so it may take several tries.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod executables;
mod faults;
mod ledger;
#[allow(dead_code, reason = "the suite of the backends uses more of it")]
#[path = "../../src/random.rs"]
mod random;
mod requests;
mod round;
mod steps;
#[path = "../../src/support/mod.rs"]
mod support;
mod watchdog;

use std::process::ExitCode;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use round::{Kind, Round};
use wakegraph::Error;
use wakegraph_conformance::is_required;

struct Settings {
    submissions: usize,
    seed: u64,
    timeout: Duration,
}

fn settings() -> &'static Settings {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(|| {
        let number = |name: &str, default: u64| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
            Err(_) => default,
        };
        Settings {
            submissions: number("WAKEGRAPH_STORM_SUBMISSIONS", 1_500) as usize,
            seed: number("WAKEGRAPH_STORM_SEED", 1),
            timeout: Duration::from_secs(number("WAKEGRAPH_STORM_TIMEOUT", 30)),
        }
    });
    &SETTINGS
}

const KINDS: [(&str, Kind); 7] = [
    ("host", Kind::Host { polled: false }),
    ("host-polled", Kind::Host { polled: true }),
    ("fake", Kind::Fake),
    ("fake-manual", Kind::FakeManual),
    ("fake-timed", Kind::FakeTimed),
    ("opencl:0", Kind::Opencl("opencl:0")),
    ("opencl:1", Kind::Opencl("opencl:1")),
];

/// All rounds on one device.
fn storm(name: &str, kind: Kind) -> Result<Completion, Failed> {
    let (mut seed, mut submissions, mut rounds) = (settings().seed, 0, 0);
    while submissions < settings().submissions {
        // Printed first: a crash tells nothing.
        if std::env::var_os("WAKEGRAPH_STORM_VERBOSE").is_some() {
            eprintln!("storm/{name}: seed {seed}");
        }
        match Round::new(name, kind, seed) {
            Ok(round) => submissions += round.run(),
            Err(error) => return absent(name, error),
        }
        (seed, rounds) = (seed + 1, rounds + 1);
    }
    let escaped = faults::ESCAPED.load(Ordering::SeqCst);
    eprintln!(
        "storm/{name}: {submissions} submissions in {rounds} rounds, {escaped} panics came out of calls so far"
    );
    Ok(Completion::Completed)
}

/// The outcome where a device does not open: nothing has run on it.
fn absent(name: &str, error: Error) -> Result<Completion, Failed> {
    let backend = name.split([':', '-']).next().unwrap_or(name);
    match is_required(backend) || is_required(name) {
        true => Err(Failed::from(format!("WAKEGRAPH_REQUIRE asks for this device: {error}"))),
        false => Ok(Completion::ignored_with(error)),
    }
}

/// Requests to a pool on one device, of which half are given up.
fn request_storm(name: &str, kind: Kind) -> Result<Completion, Failed> {
    match requests::storm(name, kind, settings().submissions, settings().seed) {
        Ok(figures) => {
            eprintln!("requests/{name}: {figures}");
            Ok(Completion::Completed)
        }
        Err(error) => absent(name, error),
    }
}

fn main() -> ExitCode {
    support::silence_expected_panics();
    let submissions =
        KINDS.map(|(name, kind)| Trial::ignorable_test(format!("storm/{name}"), move || storm(name, kind)));
    let requests = KINDS.into_iter().filter(|(_, kind)| kind.has_results()).map(|(name, kind)| {
        Trial::ignorable_test(format!("requests/{name}"), move || request_storm(name, kind))
    });
    let tests = submissions.into_iter().chain(requests).collect();
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

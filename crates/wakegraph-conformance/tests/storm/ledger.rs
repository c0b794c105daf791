//! The ledger: what was submitted, what came of it, and whether that could be.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use wakegraph::{Error, ErrorKind, Event, Result};

use crate::executables::RACE;
use crate::faults::calmly;
use crate::watchdog::Watched;

/// How a submission ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed { kind: ErrorKind, number: Option<u64>, text: String },
}

impl Outcome {
    /// What a result says. The result is dropped here: an error may be the last to hold one whose
    /// drop panics.
    pub(crate) fn of(result: Result<()>) -> Self {
        let outcome = match &result {
            Ok(()) => Self::Succeeded,
            Err(error) => Self::failed(error),
        };
        calmly(|| drop(result));
        outcome
    }

    fn failed(error: &Error) -> Self {
        let text = error.to_string();
        let number = text.split('#').find_map(leading_number);
        Self::Failed { kind: error.kind(), number, text }
    }
}

/// The number that a text begins with. Names of nodes have `#`, too, so failures are numbered from
/// [`FIRST_NUMBER`].
fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok().filter(|&number| number >= FIRST_NUMBER)
}

/// The number of the first failure.
pub(crate) const FIRST_NUMBER: u64 = 1_000_000;

/// Numbers failures of a round and remembers which there were.
pub(crate) struct Failures(AtomicU64);

impl Failures {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(FIRST_NUMBER))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// What is known of one executable after it is gone, too.
pub(crate) struct Account {
    /// What it is called, and what its nodes are.
    pub(crate) name: OnceLock<String>,
    /// Whether at most one node can fail in a run: then every failure shows in the result of exactly one run.
    pub(crate) one_fault: bool,
    /// Numbers of the failures that happened in its closures.
    pub(crate) raised: Mutex<Vec<u64>>,
    /// Those among them that happened when captured values were dropped.
    pub(crate) raised_in_drops: Mutex<Vec<u64>>,
    /// Panics whose payload says nothing.
    pub(crate) raised_without_number: AtomicU64,
    /// For each host task, how often its closure was called.
    pub(crate) calls: Mutex<Vec<Arc<AtomicU64>>>,
    /// Runs whose end may be unnoticed.
    pub(crate) unobserved: AtomicU64,
}

impl Account {
    pub(crate) fn new(one_fault: bool) -> Self {
        Self {
            name: OnceLock::new(),
            one_fault,
            raised: Mutex::default(),
            raised_in_drops: Mutex::default(),
            raised_without_number: AtomicU64::new(0),
            calls: Mutex::default(),
            unobserved: AtomicU64::new(0),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.get().map_or("an executable that is being built", String::as_str))
    }
}

/// One submission whose end is checked.
pub(crate) struct Flight {
    pub(crate) number: u64,
    pub(crate) account: Arc<Account>,
    /// Its wait list.
    pub(crate) after: Vec<Arc<Flight>>,
    /// The failure of a future in its wait list.
    pub(crate) future_fails: Option<u64>,
    /// It was submitted where no tokio runtime is.
    pub(crate) outside: bool,
    cancelled: AtomicBool,
    event: Mutex<Option<Event>>,
    watched: Mutex<Option<Watched>>,
    outcome: Mutex<Option<Outcome>>,
}

/// What was special about a round.
#[derive(Clone, Copy, Default)]
pub(crate) struct Exceptions {
    /// A runtime was shut down with submissions in flight.
    pub(crate) shut_down: bool,
    /// The device was lost.
    pub(crate) lost: bool,
    /// The device failed commands of its own accord, with these many numbers.
    pub(crate) device_fails: bool,
}

impl Flight {
    pub(crate) fn new(
        number: u64,
        account: &Arc<Account>,
        after: Vec<Arc<Self>>,
        future_fails: Option<u64>,
        outside: bool,
    ) -> Self {
        Self {
            number,
            account: account.clone(),
            after,
            future_fails,
            outside,
            cancelled: AtomicBool::new(false),
            event: Mutex::default(),
            watched: Mutex::default(),
            outcome: Mutex::default(),
        }
    }

    /// From now on the end is awaited.
    pub(crate) fn observe(&self, event: Event, watched: Watched) {
        *self.event.lock() = Some(event);
        *self.watched.lock() = Some(watched);
    }

    pub(crate) fn event(&self) -> Option<Event> {
        self.event.lock().clone()
    }

    /// It is about to be cancelled.
    pub(crate) fn will_be_cancelled(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// One of those that wait for it has seen the end. All have to see the same.
    pub(crate) fn ended(&self, outcome: Outcome) {
        // Dropped after the lock, as they may be the last to hold the run.
        let (event, watched) = {
            let mut known = self.outcome.lock();
            if let Some(known) = &*known {
                assert_eq!(*known, outcome, "submission {} ended in two ways", self.number);
                return;
            }
            *known = Some(outcome);
            (self.event.lock().take(), self.watched.lock().take())
        };
        calmly(|| drop((event, watched)));
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.lock().clone()
    }

    /// Whether its run is over, as far as the crate knows: asking the event would poll the
    /// device and end the run.
    pub(crate) fn is_over(&self) -> bool {
        self.event.try_lock().is_some_and(|event| format!("{event:?}").contains("done: true"))
    }

    fn has_failed(&self) -> bool {
        matches!(self.outcome(), Some(Outcome::Failed { .. }))
    }

    /// Whether it ended like an entry of its wait list.
    pub(crate) fn inherits(&self) -> bool {
        let Some(Outcome::Failed { kind, number, .. }) = self.outcome() else { return false };
        self.after.iter().any(|earlier| match earlier.outcome() {
            Some(Outcome::Failed { kind: of_it, number: its, .. }) => (of_it, its) == (kind, number),
            _ => false,
        })
    }

    /// Whether its wait list lets it succeed, and whether a failure has a cause.
    pub(crate) fn check(&self, exceptions: Exceptions) {
        let outcome = self.outcome().expect("all have ended");
        let account = &self.account;
        let (kind, number) = match &outcome {
            Outcome::Succeeded => {
                let failed = self.after.iter().find(|earlier| earlier.has_failed());
                assert!(failed.is_none(), "{self} succeeded after {} had failed", failed.expect("one"));
                assert!(self.future_fails.is_none(), "{self} succeeded although its future failed");
                return;
            }
            Outcome::Failed { kind, number, text } => {
                assert!(!text.contains(RACE), "{self}: {text}");
                (*kind, *number)
            }
        };
        let raised = |number: Option<u64>| match number {
            Some(number) => account.raised.lock().contains(&number),
            None => account.raised_without_number.load(Ordering::SeqCst) > 0,
        };
        let is_possible = self.inherits()
            || match kind {
                ErrorKind::Cancelled => self.cancelled.load(Ordering::SeqCst) || exceptions.shut_down,
                ErrorKind::InvalidOperation => self.outside,
                ErrorKind::DeviceLost => exceptions.lost,
                ErrorKind::Driver if exceptions.device_fails && number.is_none() => true,
                ErrorKind::HostTaskFailed | ErrorKind::HostTaskPanicked
                    if self.future_fails.is_some() && number == self.future_fails =>
                {
                    true
                }
                ErrorKind::HostTaskFailed
                | ErrorKind::HostTaskPanicked
                | ErrorKind::KernelPanicked
                | ErrorKind::Driver => raised(number),
                _ => false,
            };
        assert!(is_possible, "{self} cannot end like this");
    }
}

impl fmt::Display for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "submission {} of {}", self.number, self.account)?;
        if !self.after.is_empty() {
            let after: Vec<_> = self.after.iter().map(|flight| flight.number).collect();
            write!(f, ", after {after:?}")?;
        }
        if let Some(number) = self.future_fails {
            write!(f, ", after a future that fails with #{number}")?;
        }
        if self.outside {
            f.write_str(", outside tokio")?;
        }
        if self.cancelled.load(Ordering::SeqCst) {
            f.write_str(", cancelled")?;
        }
        if let Some(outcome) = self.outcome.try_lock() {
            write!(f, ": {outcome:?}")?;
        }
        if let Some(event) = self.event.try_lock() {
            write!(f, ": {event:?}")?;
        }
        Ok(())
    }
}

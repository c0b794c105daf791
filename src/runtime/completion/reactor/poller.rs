//! The poller: the only code that polls the events of a device and ends the partitions that are through
//! there.
//!
//! It is a role. The thread that has locked the [`Poller`] takes a turn: that of the reactor's host, which is
//! the reactor's thread or its task, or that of a submission that spins.

use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::Result;

use crate::runtime::completion::estimate::Sample;
use crate::runtime::completion::pending::Pending;
use crate::runtime::completion::reactor::ReactorInner;
use crate::runtime::completion::reactor::schedule::{By, Entry, Found, Schedule, Work};
use crate::runtime::completion::tuning::Tuning;
use crate::runtime::completion::wakers::wake_after_locks;
use crate::sync::Ordering;
use crate::util::panics::catch_and_log;

pub(super) struct Poller {
    pub(super) schedule: Schedule<InFlight>,
    /// Exchanged with the inbox, so that neither side allocates.
    added: Vec<Added>,
}

/// One partition in flight.
pub(super) struct InFlight {
    pub(super) run: Arc<dyn Pending>,
    pub(super) partition: usize,
}

/// A partition that has been enqueued since the last turn.
pub(super) struct Added {
    pub(super) at: u64,
    pub(super) queue: u64,
    pub(super) entry: Entry<InFlight>,
}

/// The findings of a turn, to be [dispatched](dispatch) without locks.
pub(super) type AllFound = SmallVec<[Found<InFlight>; 8]>;

impl Poller {
    pub(super) fn new(tuning: Tuning) -> Self {
        Self { schedule: Schedule::new(tuning), added: Vec::new() }
    }

    /// Polls what is due, also of what has just been added.
    pub(super) fn turn(&mut self, reactor: &ReactorInner, now: u64, by: By, found: &mut AllFound) {
        if reactor.has_changed.load(Ordering::Relaxed) && reactor.has_changed.swap(false, Ordering::Acquire) {
            std::mem::swap(&mut reactor.inbox.lock().added, &mut self.added);
            for Added { at, queue, entry } in self.added.drain(..) {
                self.schedule.add(at, queue, entry, found);
            }
        }
        self.schedule.turn(now, by, found);
    }
}

/// Ends what a turn has found. Tasks are woken at the end: a thread that is woken for the first would
/// otherwise be asleep again when the next one is found.
pub(super) fn dispatch(found: &mut AllFound) {
    if !found.is_empty() {
        wake_after_locks(|| {
            found.drain(..).for_each(|one| catch_and_log("what the reactor called", || one.dispatch()))
        });
    }
}

impl Found<InFlight> {
    fn dispatch(self) {
        match self {
            Self::Ended { work, result, sample } => work.end(result, sample),
            Self::KnownToHaveEnded { work } => drop(work),
        }
    }
}

impl InFlight {
    fn end(self, result: Result<()>, sample: Option<Sample>) {
        self.run.end(self.partition, result, sample);
    }
}

impl Work for InFlight {
    fn has_ended(&self) -> bool {
        self.run.has_ended(self.partition)
    }

    /// If what listens to the backend's log panics, the work is polled again later.
    fn poll(&self) -> Option<Result<()>> {
        let mut outcome = None;
        catch_and_log("a poll of a device", || outcome = self.run.poll(self.partition));
        outcome
    }

    fn has_poller(&self) -> bool {
        self.run.has_poller()
    }
}

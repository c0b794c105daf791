//! For how long a host sleeps that has found nothing to poll.

use crate::runtime::completion::clock::{nanoseconds, now};
use crate::runtime::completion::reactor::GUARD;
use crate::runtime::completion::reactor::driver::InFlight;
use crate::runtime::completion::reactor::schedule::Schedule;

/// A host that finds nothing in flight sleeps for a while first, and only then until it is woken: waking it
/// takes a system call, and what is submitted next mostly needs it when it is awake again.
#[derive(Default)]
pub(super) struct Linger {
    is_over: bool,
}

impl Linger {
    /// When to take the next turn; `None` if only a submission can tell.
    pub(super) fn next_turn(&self, schedule: &mut Schedule<InFlight>) -> Option<u64> {
        let idle = || {
            let shortly = now() + nanoseconds(GUARD);
            schedule.next_in_period().map_or(shortly, |next| next.max(shortly))
        };
        match schedule.next_for_host() {
            Some(next) => {
                schedule.sleep_until(next);
                Some(next)
            }
            None => (!self.is_over).then(idle),
        }
    }

    /// The host has slept.
    pub(super) fn sleep(&mut self, was_idle: bool) {
        self.is_over = was_idle;
    }

    /// The host has found something.
    pub(super) fn end(&mut self) {
        self.is_over = false;
    }
}

//! Waking many that wait, from inside their runtime: one of them, the leader, does it for all.

use std::collections::VecDeque;
use std::task::Waker;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::runtime::clock;
use crate::sync::{AtomicU64, Ordering};

/// Whom to wake, and who does.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    due: Mutex<Due>,
    /// The leader's number, 0 if there is none.
    leader: AtomicU64,
    leaders: AtomicU64,
}

#[derive(Debug, Default)]
struct Due {
    wakers: VecDeque<Waker>,
    /// When the first of them became due.
    since: u64,
}

/// That somebody leads, or did until it was relieved.
#[derive(Debug)]
pub(crate) struct Lead(u64);

/// Elsewhere each wake-up by the leader would wake another thread to share the work, as would the leader's own.
fn is_single_threaded() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// A leader that lets others wait for longer is relieved: nobody can make it poll.
const PATIENCE: u64 = 50_000;

impl Wakes {
    /// Takes the lead if nobody has it, and all that wait are on this thread. Whoever does calls [`wake`](Self::wake) again
    /// and again until it [resigns](Self::resign).
    pub(crate) fn lead(&self) -> Option<Lead> {
        if self.leader.load(Ordering::Relaxed) != 0 || !is_single_threaded() {
            return None;
        }
        let number = self.leaders.fetch_add(1, Ordering::Relaxed) + 1;
        let led = self.leader.compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed);
        led.is_ok().then_some(Lead(number))
    }

    /// Whether a leader has not been relieved.
    pub(crate) fn is_led_by(&self, lead: &Lead) -> bool {
        self.leader.load(Ordering::Relaxed) == lead.0
    }

    /// Gives up the lead, and wakes whom it left.
    pub(crate) fn resign(&self, lead: &Lead) {
        let _ = self.leader.compare_exchange(lead.0, 0, Ordering::SeqCst, Ordering::Relaxed);
        // What comes later than this finds no leader.
        self.wake();
    }

    /// Somebody is due: the leader's to wake, or that of the next [`settle`](Self::settle).
    pub(crate) fn add(&self, wakers: impl ExactSizeIterator<Item = Waker>) {
        if wakers.len() == 0 {
            return;
        }
        let mut due = self.due.lock();
        if due.wakers.is_empty() {
            due.since = 0;
        }
        due.wakers.extend(wakers);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.lock().wakers.is_empty()
    }

    /// Wakes all that are due.
    pub(crate) fn wake(&self) {
        loop {
            // Not under the lock, as a waker is somebody else's code; some at a time, as a list of all would be allocated.
            let some: SmallVec<[Waker; 16]> = {
                let wakers = &mut self.due.lock().wakers;
                let count = wakers.len().min(16);
                wakers.drain(..count).collect()
            };
            if some.is_empty() {
                return;
            }
            some.into_iter().for_each(Waker::wake);
        }
    }

    /// Leaves those that are due to the leader, unless there is none or it does not come; wakes them then. `asleep` from
    /// then on: nobody calls this again soon.
    pub(crate) fn settle(&self, asleep: bool) {
        {
            let mut due = self.due.lock();
            if due.wakers.is_empty() {
                return;
            }
            let leader = self.leader.load(Ordering::SeqCst);
            if leader != 0 && !asleep {
                let now = clock::now();
                match due.since {
                    0 => {
                        due.since = now;
                        return;
                    }
                    since if now.saturating_sub(since) < PATIENCE => return,
                    _ => {
                        let _ =
                            self.leader.compare_exchange(leader, 0, Ordering::SeqCst, Ordering::Relaxed);
                    }
                }
            }
        }
        self.wake();
    }
}

//! The reactor's thread: it looks, unless a task does, and launches what was handed over.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::runtime::completion::clock::{nanoseconds, now};
use crate::runtime::completion::pending::Pending;
use crate::runtime::completion::reactor::look::{Looker, Pause};
use crate::runtime::completion::reactor::{Shared, State, Watch};

/// How often batches are looked after before lanes are.
const TURNS: usize = 16;

impl Shared {
    pub(super) fn run(&self) {
        sleep_precisely();
        let mut looker = Looker::default();
        let mut state = self.state.lock();
        loop {
            let submitter = self.submitter.get();
            let submitting = MutexGuard::unlocked(&mut state, || {
                let watch = &mut |lane, run| self.watch_submitted(lane, run);
                // The lanes need no look as often.
                submitter.is_some_and(|submitter| (0..TURNS).all(|_| submitter.turn(watch)))
            });
            if state.is_overdue(now()) {
                state.leave_to_thread();
                MutexGuard::unlocked(&mut state, || {
                    tracing::debug!(target: "wakegraph", "a runtime does not let the reactor's task run: its thread looks");
                });
            }
            let attended = state.attended();
            let pause = match attended {
                Some(pause) => pause,
                None => looker.look(&mut state),
            };
            let sleep = match pause {
                Pause::Found { .. } => continue,
                _ if submitting => continue,
                Pause::Yield => {
                    MutexGuard::unlocked(&mut state, thread::yield_now);
                    continue;
                }
                Pause::Sleep(sleep) => sleep,
                Pause::End => return,
            };
            if let Some(submitter) = submitter {
                if submitter.has_completed() {
                    MutexGuard::unlocked(&mut state, || submitter.settle());
                    continue;
                }
                if !submitter.fall_asleep() {
                    continue;
                }
            }
            if attended.is_some() {
                self.sleep(&mut state, sleep.time);
            } else if !state.is_attended() {
                looker.fall_asleep(sleep);
                state.asleep_until =
                    sleep.time.map_or(u64::MAX, |time| now().saturating_add(nanoseconds(time)));
                let timed_out = self.sleep(&mut state, sleep.time);
                looker.wake_up(sleep, timed_out);
                if !state.is_attended() {
                    state.asleep_until = 0;
                }
            }
            if let Some(submitter) = submitter {
                submitter.wake_up();
            }
        }
    }

    /// Watches a run that is on a shared queue and takes long. What is known of its times was seen
    /// on its own queue.
    fn watch_submitted(&self, lane: u64, run: Arc<dyn Pending>) {
        self.watch(now(), lane, Watch { run, partition: 0 }, None, None);
    }

    /// Whether it slept for as long as that.
    fn sleep(&self, state: &mut MutexGuard<'_, State>, time: Option<Duration>) -> bool {
        match time {
            Some(time) => self.changed.wait_for(state, time).timed_out(),
            None => {
                self.changed.wait(state);
                false
            }
        }
    }
}

/// Asks the system for timers of microseconds: by default Linux lets a thread sleep 50 microseconds longer.
fn sleep_precisely() {
    if cfg!(target_os = "linux")
        && let Ok(thread) = std::fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        // Without the permission sleeps are as long as they are.
        let _ = std::fs::write(std::path::Path::new("/proc").join(id).join("timerslack_ns"), "1000");
    }
}

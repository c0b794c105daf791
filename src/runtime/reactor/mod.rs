//! Learning of completions on devices that do not notify: one thread per device, asleep while nothing is in flight.
//!
//! `schedule.rs` decides when to look at what, as data; this file gives it a thread and a clock.

mod schedule;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::clock::{nanoseconds, now};
use super::run::Run;
use super::wake_policy::WakePolicy;
use schedule::{Next, Pace, Schedule};

/// Handle to a device's reactor thread. The thread holds what is in flight, and ends when the handle is dropped and
/// nothing is in flight any more.
pub(crate) struct Reactor {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    name: String,
}

struct State {
    schedule: Schedule<Watch>,
    /// Whether the thread sleeps with nothing in flight, and has to be woken for new work.
    idle: bool,
    thread: Thread,
    closed: bool,
}

#[derive(PartialEq, Eq)]
enum Thread {
    NotStarted,
    Running,
}

/// One partition in flight.
struct Watch {
    run: Arc<Run>,
    partition: usize,
}

impl Reactor {
    pub(crate) fn new(device: &str, policy: WakePolicy) -> Self {
        let state = State {
            schedule: Schedule::new(pace(policy)),
            idle: false,
            thread: Thread::NotStarted,
            closed: false,
        };
        let name = format!("wakegraph-reactor-{device}");
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), name }) }
    }

    pub(crate) fn set_policy(&self, policy: WakePolicy) {
        self.shared.state.lock().schedule.set_pace(pace(policy));
    }

    /// Watches a partition that has just been enqueued on an in-order queue, the lane.
    pub(crate) fn watch(&self, lane: u64, run: Arc<Run>, partition: usize, expected: Option<Duration>) {
        let mut state = self.shared.state.lock();
        state.schedule.watch(now(), lane, Watch { run, partition }, expected);
        if state.thread == Thread::NotStarted {
            state.thread = Thread::Running;
            let shared = self.shared.clone();
            let spawned = thread::Builder::new().name(shared.name.clone()).spawn(move || shared.run());
            if let Err(error) = spawned {
                // Submissions that are polled still make progress; the next watch tries again.
                state.thread = Thread::NotStarted;
                tracing::error!(target: "wakegraph", %error, "could not start the reactor's thread");
            }
        } else if state.idle {
            self.shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut finished = Vec::new();
        let mut state = self.state.lock();
        loop {
            let next = state.schedule.look(now(), |watch| watch.run.is_final(watch.partition), &mut finished);
            if !finished.is_empty() {
                // Completion wakes tasks and may drop buffers: not under the lock.
                drop(state);
                for Watch { run, partition } in finished.drain(..) {
                    run.look_at(partition);
                }
                state = self.state.lock();
                continue;
            }
            match next {
                Next::Idle if state.closed => return,
                Next::Idle => {
                    state.idle = true;
                    self.changed.wait(&mut state);
                    state.idle = false;
                }
                Next::After(pause) if pause.is_zero() => {
                    drop(state);
                    thread::yield_now();
                    state = self.state.lock();
                }
                Next::After(pause) => {
                    self.changed.wait_for(&mut state, pause);
                }
            }
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

fn pace(policy: WakePolicy) -> Pace {
    Pace {
        margin: nanoseconds(policy.reactor_margin()),
        first_pause: nanoseconds(policy.first_pause()),
        longest_pause: nanoseconds(policy.longest_pause()),
    }
}

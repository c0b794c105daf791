//! Learning of completions on devices that do not notify: one thread per device, asleep while
//! nothing is in flight, or a task of a tokio runtime in its place.
//!
//! `schedule` decides when to look at what, as data; `look.rs` looks and tells who waits;
//! `thread.rs` and `task.rs` have it do so in time. This file is for those that submit.

mod look;
mod schedule;
mod task;
mod tell;
mod thread;
mod timer;

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::runtime::completion::clock::{nanoseconds, now};
use crate::runtime::completion::estimate::Guess;
use crate::runtime::completion::pending::Pending;
use crate::runtime::completion::submitter::Submitter;
use crate::runtime::completion::wake_policy::WakePolicy;
use crate::types::{Error, ErrorKind, Result};
use look::By;
use schedule::{Pace, Schedule, Times};
use task::Attendant;

/// Handle to a device's reactor, which holds what is in flight. Its thread, and its task if there
/// is one, end when the handle is dropped and nothing is in flight any more.
pub(crate) struct Reactor {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Submits runs on the thread, once a run may be left to it.
    submitter: OnceLock<Arc<dyn Submitter>>,
    name: String,
}

struct State {
    schedule: Schedule<Watch>,
    policy: WakePolicy,
    /// Until when whoever looks sleeps unless it is woken; 0 while it is awake.
    asleep_until: u64,
    /// Looks in the place of the thread.
    attendant: Option<Attendant>,
    /// How long what a submission looks at itself is left alone, beyond that.
    grace: Duration,
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
    run: Arc<dyn Pending>,
    partition: usize,
}

/// How long the reactor leaves alone what a submission looks at itself, beyond the time for which
/// that looks: to be woken for each would cost both threads more than they have to do. It looks
/// after all, in case the submission is not polled: soon at first, and less and less so while each
/// look is in vain, as even those take cores from who has work.
const LEAST_GRACE: Duration = Duration::from_micros(100);
const MOST_GRACE: Duration = Duration::from_millis(2);

impl Watch {
    /// The same again, if a submission waits for the run, and for nothing but this partition of it.
    fn awaited(&self) -> Option<Self> {
        let Self { run, partition } = self;
        run.is_awaited(*partition).then(|| self.again())
    }

    /// Whether somebody has seen its end.
    fn is_over(&self) -> bool {
        self.run.is_over(self.partition)
    }

    fn again(&self) -> Self {
        Self { run: self.run.clone(), partition: self.partition }
    }
}

impl Reactor {
    pub(crate) fn new(device: &str, policy: WakePolicy) -> Self {
        let state = State {
            schedule: Schedule::new(pace(policy, By::Thread)),
            policy,
            asleep_until: 0,
            attendant: None,
            grace: LEAST_GRACE,
            thread: Thread::NotStarted,
            closed: false,
        };
        let name = format!("wakegraph-reactor-{device}");
        let state = Mutex::new(state);
        let shared = Shared { state, changed: Condvar::new(), submitter: OnceLock::new(), name };
        Self { shared: Arc::new(shared) }
    }

    /// Has the thread submit runs, too. The first call counts.
    pub(crate) fn set_submitter(&self, submitter: impl FnOnce() -> Arc<dyn Submitter>) {
        self.shared.submitter.get_or_init(submitter);
    }

    /// Wakes the thread: there is something to submit.
    pub(crate) fn wake(&self) {
        // Between its last look into the submission queue and its sleep, the thread has the lock.
        drop(self.shared.state.lock());
        self.shared.changed.notify_one();
    }

    /// Keeps the reactor from looking while the guard lives.
    #[cfg(test)]
    pub(crate) fn pause(&self) -> impl Drop + '_ {
        self.shared.state.lock()
    }

    pub(crate) fn set_policy(&self, policy: WakePolicy) {
        let mut state = self.shared.state.lock();
        state.policy = policy;
        let by = state.looks_by();
        state.schedule.set_pace(pace(policy, by));
    }

    /// Starts the thread, unless it runs already. Without it nobody would learn of completions, so
    /// this comes before the first submission.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the system has no thread to give.
    pub(crate) fn start(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.thread == Thread::NotStarted {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name(shared.name.clone());
            builder.spawn(move || shared.run()).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "could not start the thread that looks for completions")
                    .caused_by(error)
            })?;
            state.thread = Thread::Running;
        }
        Ok(())
    }

    /// Has a task of this runtime look in the place of the thread.
    pub(crate) fn run_on(&self, runtime: &Handle) -> Result<()> {
        self.shared.attend_in(runtime)
    }

    /// Watches a partition that has been enqueued `now` on an in-order queue, the lane.
    /// `looked_after` is for how long a submission looks for its end, if one does.
    pub(crate) fn watch(
        &self,
        now: u64,
        lane: u64,
        run: Arc<dyn Pending>,
        partition: usize,
        expected: Option<Guess>,
        looked_after: Option<Duration>,
    ) {
        let watch = Watch { run, partition };
        self.shared.watch(now, lane, watch, expected, looked_after);
    }

    /// The submission that was to look for the end of this partition, on this lane, is gone: the
    /// reactor looks from now on.
    pub(crate) fn look_instead(&self, lane: u64, run: &Arc<dyn Pending>, partition: usize) {
        let is_it = |watch: &Watch| is_same(&watch.run, run) && watch.partition == partition;
        let mut state = self.shared.state.lock();
        if let Some(latest_look) = state.schedule.leave_alone_no_longer(now(), lane, is_it)
            && state.look_before(latest_look, None)
        {
            self.shared.changed.notify_one();
        }
    }
}

impl Shared {
    /// See [`Reactor::watch`].
    fn watch(
        &self,
        now: u64,
        lane: u64,
        watch: Watch,
        expected: Option<Guess>,
        looked_after: Option<Duration>,
    ) {
        // Dropped after the lock: they may be the last to hold their runs, and so the errors of users.
        let mut forgotten: SmallVec<[Watch; 4]> = SmallVec::new();
        let mut state = self.state.lock();
        // A submission that is polled looks for itself, and its run is wanted for the next one.
        let grace = looked_after.map_or(Duration::ZERO, |looks| state.grace + looks);
        let times = Times { expected, grace };
        let first_at = (!state.schedule.is_in_flight()).then_some(now);
        let latest_look = state.schedule.watch(now, lane, watch, times, Watch::is_over, &mut forgotten);
        if state.look_before(latest_look, first_at) {
            self.changed.notify_one();
        }
        drop(state);
    }
}

/// Whether both are the same run.
fn is_same(one: &Arc<dyn Pending>, other: &Arc<dyn Pending>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// A number for a queue that is not any other's.
pub(crate) fn new_lane() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Drop for Reactor {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.wake_attendant();
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

fn pace(policy: WakePolicy, by: By) -> Pace {
    Pace {
        margin: nanoseconds(policy.reactor_margin()),
        first_pause: nanoseconds(policy.first_pause()),
        longest_pause: nanoseconds(policy.longest_pause()),
        growth: policy.pause_growth(),
        spins: policy.spins(),
        lead: nanoseconds(match by {
            By::Thread => policy.scout_lead(),
            By::Task => policy.look_lead(),
        }),
        few: policy.few(),
        late: policy == WakePolicy::Efficient,
        slack: match policy {
            WakePolicy::Latency => |expected| WakePolicy::Latency.slack(expected),
            WakePolicy::Balanced => |expected| WakePolicy::Balanced.slack(expected),
            WakePolicy::Efficient => |expected| WakePolicy::Efficient.slack(expected),
        },
        scouts: match policy {
            WakePolicy::Latency => |expected| WakePolicy::Latency.scout_margin(expected),
            WakePolicy::Balanced => |expected| WakePolicy::Balanced.scout_margin(expected),
            WakePolicy::Efficient => |expected| WakePolicy::Efficient.scout_margin(expected),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Thread;
    use crate::runtime::{Device, Graph};
    use crate::testing::{FakeDevice, FakeOptions};

    #[test]
    fn its_thread_runs_before_anything_can_be_submitted() {
        let (device, _) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        assert!(device.reactor().unwrap().shared.state.lock().thread == Thread::NotStarted);
        let _exec = graph.finalize().unwrap();
        assert!(device.reactor().unwrap().shared.state.lock().thread == Thread::Running);
    }

    // a: fill -> b: fill, and a host task between them
    #[test]
    fn learns_how_long_each_partition_takes() {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(&device);
        let first = graph.fill(&x, 1).id();
        let task = graph.host_task((), async |()| {}).after([first]).id();
        graph.fill(&y, 1).after([task]);
        let exec = graph.finalize().unwrap();
        let known = || exec.inner.partitions.iter().filter(|p| p.queue_time.expected().is_some()).count();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut run = exec.submit();
            for done in 0..2 {
                assert_eq!(known(), done);
                while control.complete_all() == 0 {
                    tokio::task::yield_now().await;
                }
                // Seen by the reactor, which alone looks.
                while known() == done {
                    tokio::task::yield_now().await;
                }
            }
            (&mut run).await.unwrap();
        });
        let expected: Vec<_> = (0..3).map(|partition| exec.inner.expected_of(partition).is_some()).collect();
        assert_eq!(expected, [true, false, true]);
    }

    #[test]
    fn a_dropped_submission_leaves_its_run_to_the_reactor_at_once() {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        let mut graph = Graph::new(&device);
        graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
        let exec = graph.finalize().unwrap();
        // Known to be short: submissions look for its end themselves, where a second core lets them.
        exec.inner.partitions[0].prediction.record(Duration::from_micros(5));
        let reactor = device.reactor().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for _ in 0..3 {
                // So long that the test fails rather than waits for it.
                reactor.shared.state.lock().grace = Duration::from_secs(3600);
                let submission = exec.submit();
                let event = submission.event();
                drop(submission);
                control.complete_all();
                tokio::time::timeout(Duration::from_secs(60), event.wait()).await.unwrap().unwrap();
            }
        });
    }
}

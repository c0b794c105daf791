//! The hosts of the poller. Each takes turns and sleeps until the [schedule](super::schedule) wants the
//! next one.
//!
//! The reactor's thread always is one. It also submits the runs that were left to it. A task of a tokio
//! runtime may be the other: where tasks of that runtime wait for long work, one thread then wakes up in
//! place of two. tokio's timers run out up to two milliseconds late, so the task takes only the turns that
//! are [`FAR`] away when they are planned. The thread takes all others, and those of a task that its
//! runtime does not poll.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use wakegraph_hal::{Error, ErrorKind, Progress, Result};

use crate::runtime::completion::clock::now;
use crate::runtime::completion::reactor::schedule::By;
use crate::runtime::completion::reactor::{AllFound, Inbox, ReactorInner, Submitter, dispatch};
use crate::runtime::completion::tasks::spawn;
use crate::sync::Ordering;

/// Number of turns that the submitter has between two turns of the poller, which are needed less often.
const SUBMITTER_TURNS: usize = 16;

/// Nanoseconds until a turn that is the task's.
const FAR: u64 = 5_000_000;

/// Nanoseconds by which the task may be late before the thread takes all turns.
const LATE: u64 = 10_000_000;

/// The next action of a host that has taken a turn.
enum Next<'a> {
    /// Something has ended or was added: it takes another turn.
    Turn,
    /// A poll is due: it takes another turn, after other tasks had theirs.
    Yield,
    /// It sleeps until this time. A wake-up that comes later has seen the time under this lock.
    Sleep(MutexGuard<'a, Inbox>, u64),
    /// Nothing will be in flight any more.
    End,
}

impl ReactorInner {
    /// Takes a turn as the task that `task` wakes, or else as the thread, and plans when it is to take the
    /// next one.
    fn take_turn(&self, task: Option<&Arc<Notify>>, found: &mut AllFound) -> Next<'_> {
        if self.is_paused() {
            return Next::Sleep(self.inbox.lock(), now() + 1_000_000);
        }
        let mut poller = self.poller.lock();
        poller.turn(self, now(), By::Host, found);
        if !found.is_empty() {
            drop(poller);
            dispatch(found);
            return Next::Turn;
        }
        let (next, now) = (poller.schedule.next_for_host(), now());
        if next.is_some_and(|next| next <= now) {
            return Next::Yield;
        }
        // The poller stays locked until a submission that takes a turn can see for how long this host sleeps.
        let mut inbox = self.inbox.lock();
        if self.has_changed.load(Ordering::Acquire) {
            return Next::Turn;
        }
        if inbox.is_closed && poller.schedule.is_idle() || task.is_some_and(|task| !inbox.is_task(task)) {
            return Next::End;
        }
        inbox.many = poller.schedule.has_many();
        let until = next.or_else(|| poller.schedule.idle_until(now)).unwrap_or(u64::MAX);
        let until = match task {
            Some(_) => self.plan_task(&mut inbox, until),
            None => self.plan_thread(&mut inbox, until),
        };
        Next::Sleep(inbox, until)
    }

    /// The task sleeps until a turn that is far, and the thread takes one that is not.
    fn plan_task(&self, inbox: &mut Inbox, next: u64) -> u64 {
        inbox.is_task_in_time = true;
        let is_far = inbox.is_far(next);
        let until = if is_far { next } else { u64::MAX };
        self.task_due.store(until, Ordering::Relaxed);
        self.wake_host(inbox, next, is_far);
        until
    }

    /// The thread sleeps until a turn that is not far, and leaves others to the task.
    fn plan_thread(&self, inbox: &mut Inbox, next: u64) -> u64 {
        let due = self.task_due.load(Ordering::Relaxed);
        inbox.is_task_in_time &= now() <= due.saturating_add(LATE);
        let is_far = inbox.is_far(next);
        let until = if is_far { next.saturating_add(inbox.takes_over_after) } else { next };
        self.asleep_until.store(until, Ordering::Relaxed);
        self.wake_host(inbox, next, is_far);
        until
    }

    /// Makes sure that a host takes a turn before this time.
    pub(super) fn wake_before(&self, inbox: &mut Inbox, time: u64) {
        self.wake_host(inbox, time, inbox.is_far(time));
    }

    /// Makes sure that the task takes a turn before this time if that is far, and the thread in case the
    /// task does not. A host that plans a turn asks once whether that is far: it would otherwise wake itself,
    /// before it sleeps, for a turn that is not far any more.
    fn wake_host(&self, inbox: &Inbox, time: u64, is_far: bool) {
        let mut of_thread = time;
        if let Some(task) = inbox.task.as_ref().filter(|_| is_far) {
            of_thread = time.saturating_add(inbox.takes_over_after);
            if time < self.task_due.load(Ordering::Relaxed) {
                self.task_due.store(time, Ordering::Relaxed);
                task.notify_one();
            }
        }
        if of_thread < self.asleep_until.load(Ordering::Relaxed) {
            self.rouse_thread();
        }
    }

    /// Wakes the thread, which plans its sleep again. The caller has locked the inbox.
    fn rouse_thread(&self) {
        self.asleep_until.store(0, Ordering::Relaxed);
        self.changed.notify_one();
    }
}

impl Inbox {
    fn is_task(&self, task: &Arc<Notify>) -> bool {
        self.task.as_ref().is_some_and(|one| Arc::ptr_eq(one, task))
    }

    /// Whether a turn at this time is the task's.
    fn is_far(&self, time: u64) -> bool {
        self.is_task_in_time && time > now().saturating_add(FAR)
    }
}

/// The thread.
impl ReactorInner {
    pub(super) fn run_thread(&self) {
        sleep_precisely();
        let mut found = AllFound::new();
        loop {
            let is_submitting = self.submitter.get().is_some_and(|submitter| self.submit(&**submitter));
            match self.take_turn(None, &mut found) {
                // There is more to submit at once.
                _ if is_submitting => {}
                Next::Turn => {}
                Next::Yield if self.progress == Progress::HostCores => thread::yield_now(),
                // On a busy machine another thread would keep the core for its whole time slice.
                Next::Yield => std::hint::spin_loop(),
                Next::Sleep(mut inbox, until) => self.sleep(&mut inbox, until),
                Next::End => return,
            }
            self.asleep_until.store(0, Ordering::Relaxed);
        }
    }

    /// Lets the submitter take turns. Returns whether it has more to do at once.
    fn submit(&self, submitter: &dyn Submitter) -> bool {
        // The run is on a queue that executables share, so an estimate from its own queue says little.
        let watch = &mut |queue, run| self.watch(now(), queue, run, 0, None, None);
        (0..SUBMITTER_TURNS).all(|_| submitter.turn(watch))
    }

    /// Sleeps until it is woken or until a time, unless there is something to submit or to end.
    fn sleep(&self, inbox: &mut MutexGuard<'_, Inbox>, until: u64) {
        // Under the lock of the inbox: a submitter that is set later than this wakes the thread.
        let submitter = self.submitter.get();
        if let Some(submitter) = submitter {
            if submitter.has_ended() {
                return MutexGuard::unlocked(inbox, || submitter.settle());
            }
            if !submitter.fall_asleep() {
                return;
            }
        }
        match until {
            u64::MAX => self.changed.wait(inbox),
            until => {
                let time = Duration::from_nanos(until.saturating_sub(now()));
                let _ = self.changed.wait_for(inbox, time);
            }
        }
        if let Some(submitter) = submitter {
            submitter.wake_up();
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

/// The task. The thread takes all turns when it is dropped, as when its runtime is shut down.
struct ReactorTask {
    reactor: Arc<ReactorInner>,
    woken: Arc<Notify>,
}

impl ReactorInner {
    /// Has a task of this runtime take turns from now on.
    pub(super) fn run_as_task(self: &Arc<Self>, runtime: &Handle) -> Result<()> {
        let inside = runtime.enter();
        // There is no other way to ask whether it has timers.
        catch_unwind(|| drop(sleep(Duration::ZERO))).map_err(|_| {
            Error::new(ErrorKind::Unavailable, "the runtime's timers are not enabled")
                .help("build the runtime with enable_time() or enable_all()")
        })?;
        drop(inside);
        let woken = Arc::new(Notify::new());
        let before = self.set_task(&mut self.inbox.lock(), Some(woken.clone()));
        // It finds that it is not asked any more.
        before.iter().for_each(|task| task.notify_one());
        let task = ReactorTask { reactor: self.clone(), woken };
        spawn(runtime, || self.name.clone(), task.run());
        Ok(())
    }

    /// The thread takes all turns until this task has taken one. Returns the task before it.
    fn set_task(&self, inbox: &mut Inbox, task: Option<Arc<Notify>>) -> Option<Arc<Notify>> {
        inbox.is_task_in_time = false;
        self.task_due.store(if task.is_some() { u64::MAX } else { 0 }, Ordering::Relaxed);
        self.rouse_thread();
        std::mem::replace(&mut inbox.task, task)
    }
}

impl ReactorTask {
    async fn run(self) {
        let mut found = AllFound::new();
        loop {
            let time = match self.reactor.take_turn(Some(&self.woken), &mut found) {
                // The tasks that it has woken go on before it plans its sleep.
                Next::Turn | Next::Yield => None,
                Next::Sleep(_, until) => Some(Duration::from_nanos(until.saturating_sub(now()))),
                Next::End => return,
            };
            match time {
                None => tokio::task::yield_now().await,
                Some(time) => _ = timeout(time, self.woken.notified()).await,
            }
        }
    }
}

impl Drop for ReactorTask {
    fn drop(&mut self) {
        let mut inbox = self.reactor.inbox.lock();
        if inbox.is_task(&self.woken) {
            self.reactor.set_task(&mut inbox, None);
            drop(inbox);
            tracing::debug!(target: "wakegraph", "the reactor's task has ended: its thread takes over");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;
    use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};

    use super::*;
    use crate::runtime::completion::reactor::Reactor;
    use crate::runtime::{Device, ExecutableGraph, Graph, WakePolicy};

    /// An executable that should take so long that its end is the task's, and whose submissions do not poll.
    fn setup(takes: Duration) -> (Device, FakeControl, ExecutableGraph) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        device.set_wake_policy(WakePolicy::Efficient);
        let mut graph = Graph::new(&device);
        graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
        let exec = graph.finalize().unwrap();
        exec.inner.partitions[0].estimator.record_duration(takes);
        (device, control, exec)
    }

    const FAR_AWAY: Duration = Duration::from_millis(20);

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_time().build().unwrap()
    }

    /// Has the thread leave turns to the task for so long that a test fails rather than waits for it.
    fn never_take_over(reactor: &Reactor) {
        reactor.inner.inbox.lock().takes_over_after = 3_600_000_000_000;
    }

    async fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            yield_now().await;
        }
    }

    async fn until_in_time(reactor: &Reactor) {
        until(|| reactor.inner.inbox.lock().is_task_in_time).await;
    }

    async fn one(exec: &ExecutableGraph, control: &FakeControl) {
        let submission = exec.submit();
        while control.complete_all() == 0 {
            yield_now().await;
        }
        submission.await.unwrap();
    }

    #[test]
    fn the_task_takes_turns_that_are_far() {
        let ((device, control, exec), home) = (setup(FAR_AWAY), runtime());
        let reactor = device.reactor().unwrap();
        never_take_over(reactor);
        device.run_reactor_on(home.handle()).unwrap();
        home.block_on(async {
            until_in_time(reactor).await;
            one(&exec, &control).await;
        });
    }

    #[test]
    fn the_thread_takes_over_while_the_task_is_not_polled() {
        let ((device, control, exec), home) = (setup(FAR_AWAY), runtime());
        let reactor = device.reactor().unwrap();
        device.run_reactor_on(home.handle()).unwrap();
        for _ in 0..2 {
            home.block_on(until_in_time(reactor));
            // A thread that was kept from running for long finds that the turn is not far any more.
            while reactor.inner.inbox.lock().is_task_in_time {
                runtime().block_on(one(&exec, &control));
            }
        }
    }

    #[test]
    fn the_thread_takes_over_when_the_runtime_shuts_down() {
        let ((device, control, exec), home) = (setup(Duration::from_secs(3600)), runtime());
        let reactor = device.reactor().unwrap();
        never_take_over(reactor);
        device.run_reactor_on(home.handle()).unwrap();
        let due = || reactor.inner.task_due.load(Ordering::Relaxed);
        let asleep_until = || reactor.inner.asleep_until.load(Ordering::Relaxed);
        let (submission, due) = home.block_on(async {
            until_in_time(reactor).await;
            let submission = exec.submit();
            until(|| due() < u64::MAX && asleep_until() > due()).await;
            (submission, due())
        });
        drop(home);
        runtime().block_on(until(|| (1..=due).contains(&asleep_until())));
        control.complete_all();
        assert!(submission.is_finished());
    }

    #[test]
    fn a_runtime_that_is_never_run_is_no_worse_than_none() {
        let ((device, control, exec), home, never_run) = (setup(FAR_AWAY), runtime(), runtime());
        let reactor = device.reactor().unwrap();
        never_take_over(reactor);
        device.run_reactor_on(home.handle()).unwrap();
        home.block_on(until_in_time(reactor));
        device.run_reactor_on(never_run.handle()).unwrap();
        runtime().block_on(one(&exec, &control));
    }
}

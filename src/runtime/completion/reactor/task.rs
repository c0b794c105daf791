//! The reactor as a task of a tokio runtime: where tasks of that runtime wait for the device, one thread is
//! woken in place of two.
//!
//! The reactor's thread stays as a safety net: it comes by now and then, and takes over while the runtime
//! does not poll the task.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use wakegraph_hal::Result;

use crate::runtime::completion::clock::now;
use crate::runtime::completion::reactor::poller::{AllFound, dispatch};
use crate::runtime::completion::reactor::schedule::By;
use crate::runtime::completion::reactor::timer::Timer;
use crate::runtime::completion::reactor::{Inbox, ReactorInner};
use crate::runtime::completion::spawn::spawn;
use crate::sync::Ordering;

/// What the inbox knows of the task.
pub(super) struct TaskState {
    timer: Arc<Timer>,
    /// It hosts the poller, and not the thread.
    pub(super) is_hosting: bool,
    /// When it should take its next turn at the latest.
    pub(super) due: u64,
    /// Something was submitted since the thread came by.
    pub(super) is_busy: bool,
    /// The thread sleeps until it is woken.
    pub(super) is_thread_asleep: bool,
}

impl TaskState {
    /// Sets the timer to run out at this time. Whether the system did so.
    #[must_use]
    pub(super) fn set_timer(&self, until: u64) -> bool {
        self.timer.set(Duration::from_nanos(until.saturating_sub(now()))).is_ok()
    }
}

impl ReactorInner {
    /// Hosts the poller as a task of this runtime from now on.
    pub(super) fn run_as_task(self: &Arc<Self>, runtime: &Handle) -> Result<()> {
        let timer = Arc::new(Timer::new(runtime)?);
        let mut inbox = self.inbox.lock();
        // Another task finds that it is not asked any more.
        inbox.task.iter().for_each(|task| _ = task.set_timer(0));
        self.leave_to_thread(&mut inbox);
        inbox.task = Some(TaskState {
            timer: timer.clone(),
            // The thread goes on until the task takes its first turn.
            is_hosting: false,
            due: now(),
            is_busy: true,
            is_thread_asleep: false,
        });
        drop(inbox);
        let task = ReactorTask { reactor: self.clone(), timer };
        spawn(runtime, || self.name.clone(), task.run());
        Ok(())
    }
}

/// The task. The thread takes over when it is dropped, as when its runtime is shut down.
struct ReactorTask {
    reactor: Arc<ReactorInner>,
    timer: Arc<Timer>,
}

/// The next step of the task.
enum Step {
    /// It takes another turn after other tasks had theirs.
    Yield,
    /// It waits for the timer.
    Wait,
    End,
}

impl ReactorTask {
    async fn run(self) {
        let mut found = AllFound::new();
        loop {
            match self.turn(&mut found) {
                Step::Yield => tokio::task::yield_now().await,
                Step::Wait => {
                    if self.timer.ran_out().await.is_err() {
                        return;
                    }
                }
                Step::End => return,
            }
        }
    }

    /// Takes a turn. Before [`Step::Wait`] the timer is set to run out when the next one is due.
    fn turn(&self, found: &mut AllFound) -> Step {
        let reactor = &*self.reactor;
        let mut poller = reactor.poller.lock();
        {
            let mut inbox = reactor.inbox.lock();
            let Some(task) = self.state(&mut inbox) else { return Step::End };
            if !std::mem::replace(&mut task.is_hosting, true) {
                // The thread has to see that it need not host any more.
                reactor.changed.notify_one();
            }
            task.due = now();
            reactor.asleep_until.store(0, Ordering::Relaxed);
        }
        if !reactor.is_paused() {
            poller.turn(reactor, now(), By::Host, found);
        }
        if !found.is_empty() {
            drop(poller);
            dispatch(found);
            // The tasks that it has woken go on before it plans its sleep.
            return Step::Yield;
        }
        let next = poller.schedule.next_for_host();
        let mut inbox = reactor.inbox.lock();
        let (is_closed, is_idle) = (inbox.is_closed, poller.schedule.is_idle());
        if reactor.has_changed.load(Ordering::Acquire) || next.is_some_and(|next| next <= now()) {
            return Step::Yield;
        }
        inbox.many = poller.schedule.has_many();
        let Some(task) = self.state(&mut inbox) else { return Step::End };
        if !task.is_hosting {
            // The thread found that this took too long.
            return Step::Yield;
        }
        let until = next.unwrap_or(u64::MAX);
        task.due = until;
        if (is_closed && is_idle) || (next.is_some() && !task.set_timer(until)) {
            return Step::End;
        }
        reactor.asleep_until.store(until, Ordering::Relaxed);
        Step::Wait
    }

    /// What the inbox knows of this task, unless another one is to host in its place.
    fn state<'a>(&self, inbox: &'a mut Inbox) -> Option<&'a mut TaskState> {
        inbox.task.as_mut().filter(|task| Arc::ptr_eq(&task.timer, &self.timer))
    }
}

impl Drop for ReactorTask {
    fn drop(&mut self) {
        let mut inbox = self.reactor.inbox.lock();
        if self.state(&mut inbox).is_some() {
            inbox.task = None;
            self.reactor.leave_to_thread(&mut inbox);
            drop(inbox);
            tracing::debug!(target: "wakegraph", "the reactor's task has ended: its thread takes over");
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;
    use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};

    use super::now;
    use crate::runtime::{Device, ExecutableGraph, Graph, WakePolicy};

    fn setup() -> (Device, FakeControl, ExecutableGraph) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        device.set_wake_policy(WakePolicy::Efficient);
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        (device, control, exec)
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_io().build().unwrap()
    }

    fn is_hosted_by_task(device: &Device) -> bool {
        device.reactor().unwrap().inner.inbox.lock().is_hosted_by_task()
    }

    async fn one(exec: &ExecutableGraph, control: &FakeControl) {
        let submission = exec.submit();
        while control.complete_all() == 0 {
            yield_now().await;
        }
        submission.await.unwrap();
    }

    /// Submits from elsewhere until that is so.
    fn until_hosted_by_task(device: &Device, by_task: bool, exec: &ExecutableGraph, control: &FakeControl) {
        while is_hosted_by_task(device) != by_task {
            runtime().block_on(one(exec, control));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no timerfd")]
    fn it_hosts_while_its_runtime_polls_it_else_the_thread_does() {
        let ((device, control, exec), home) = (setup(), runtime());
        assert!(!is_hosted_by_task(&device));
        device.run_reactor_on(home.handle()).unwrap();
        for _ in 0..2 {
            home.block_on(async {
                while !is_hosted_by_task(&device) {
                    yield_now().await;
                }
                one(&exec, &control).await;
            });
            assert!(is_hosted_by_task(&device));
            until_hosted_by_task(&device, false, &exec, &control);
        }
        home.block_on(one(&exec, &control));
        drop(home);
        assert!(!is_hosted_by_task(&device));
    }

    // As when a submission has spun in vain: the thread, which is woken as well, must not take over.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no timerfd")]
    fn a_task_that_is_woken_at_once_is_not_late() {
        let ((device, control, exec), home) = (setup(), runtime());
        device.run_reactor_on(home.handle()).unwrap();
        let reactor = device.reactor().unwrap();
        let due = || reactor.inner.inbox.lock().task.as_ref().unwrap().due;
        home.block_on(async {
            one(&exec, &control).await;
            while due() < u64::MAX {
                yield_now().await;
            }
        });
        let asked = now();
        reactor.poll_instead();
        assert!(due() >= asked);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no timerfd")]
    fn a_runtime_that_is_never_run_is_no_worse_than_none() {
        let ((device, control, exec), home, never_run) = (setup(), runtime(), runtime());
        device.run_reactor_on(home.handle()).unwrap();
        let inner = &device.reactor().unwrap().inner;
        let is_thread_asleep = || inner.inbox.lock().task.as_ref().is_some_and(|task| task.is_thread_asleep);
        home.block_on(async {
            one(&exec, &control).await;
            // The thread sees that nothing is in flight, and sleeps until it is woken. The task has to be
            // polled until then: the thread would take over from one that is late.
            while !is_thread_asleep() {
                yield_now().await;
            }
        });
        device.run_reactor_on(never_run.handle()).unwrap();
        runtime().block_on(one(&exec, &control));
    }
}

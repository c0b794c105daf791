//! The end of partitions, and with the last of them of the run.

use std::sync::Arc;

use crate::hal::EventStatus;
use crate::runtime::completion::clock;
use crate::runtime::execution::deadline;
use crate::runtime::execution::partitions::PartitionExec;
use crate::runtime::execution::run::cancel::cancelled;
use crate::runtime::execution::run::extras::{RunExtras, UntilEnd};
use crate::runtime::execution::run::host_scheduler::{HostScheduler, Ready};
use crate::runtime::execution::run::order::end_in_order;
use crate::runtime::execution::run::{ENQUEUED, FAILED, Go, Run, RunInner, SUCCEEDED};
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::runtime::resource::device::Device;
use crate::sync::Ordering;
use crate::types::{Error, ErrorKind, Result};
use crate::util::deferred_drop::{Failure, drop_later};
use crate::util::panics::catch_and_log;

impl Run {
    /// A partition does not start because of the others. Gives back what that makes ready.
    pub(crate) fn skip(&self, partition: usize, why: Go) -> Ready {
        match why {
            Go::Cancel => self.end(partition, Err(cancelled())),
            Go::Late => self.end(partition, Err(deadline::exceeded())),
            Go::Start | Go::Skip => self.end_with(partition, None, FAILED),
        }
    }

    /// Nothing of the run has started, and nothing will. The error comes from outside the run: it keeps the
    /// place it names.
    pub(crate) fn abandon(&self, error: &Error) {
        self.set_failure(&mut self.inner.lock(), Failure::new(error.clone()));
        if self.slots.is_empty() {
            return self.complete();
        }
        for partition in 0..self.slots.len() {
            // What that makes ready ends here as well.
            let _ = self.end_with(partition, None, FAILED);
        }
    }

    /// A partition is final; starts what that makes ready.
    pub(crate) fn finish(&self, partition: usize, result: Result<()>) {
        let ready = self.end(partition, result);
        if let Some(scheduler) = self.scheduler_for(&ready) {
            scheduler.start(ready);
        }
    }

    pub(super) fn scheduler_for(&self, ready: &Ready) -> Option<HostScheduler> {
        if ready.is_empty() { None } else { self.extra(|extras| extras.until_end.scheduler.clone()) }
    }

    /// A partition is final. Only the first call for a partition counts: a device, the reactor and
    /// a task may all see it. Gives back the partitions that the caller has to start, as they
    /// waited for this one last.
    #[must_use]
    pub(crate) fn end(&self, partition: usize, result: Result<()>) -> Ready {
        match result {
            Ok(()) => self.end_with(partition, None, SUCCEEDED),
            Err(error) => self.end_with(partition, Some(Failure::new(error)), FAILED),
        }
    }

    pub(super) fn end_with(&self, partition: usize, failure: Option<Failure>, state: u8) -> Ready {
        let mut ready = Ready::new();
        let failed = failure.is_some();
        if let Some(failure) = failure {
            // Before the state says so: a thread that sees the partition failed finds the failure. The
            // first one counts.
            let Some(owner) = self.inner.lock().owner.clone() else { return ready };
            if failure.kind() == ErrorKind::DeviceLost {
                owner.partitions[partition].device().into_iter().for_each(Device::check_for_loss);
            }
            self.record_failure(&*owner, partition, failure);
        }
        if self.slots[partition].state.swap(state, Ordering::AcqRel) > ENQUEUED {
            return ready;
        }
        self.metrics.partition_ended(partition);
        if state == SUCCEEDED {
            self.slots[partition].measure_until(clock::now);
        }
        let succeeded = state == SUCCEEDED;
        self.trace_end(partition, succeeded);
        // Each partition counts once, and this one has not been counted yet: at 1 all others are
        // over, and none waits.
        let last = self.progress.unfinished.load(Ordering::Acquire) == 1;
        if failed || !last {
            // Cloned: the others may still need it.
            let Some(owner) = self.inner.lock().owner.clone() else { return ready };
            for &successor in &owner.partitions[partition].wakes {
                if self.release(successor as usize) {
                    ready.push(successor);
                }
            }
        }
        if last || self.progress.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete();
        }
        ready
    }

    pub(super) fn record_failure(&self, owner: &dyn RunOwner, partition: usize, failure: Failure) {
        let template = owner.template();
        // Finding out where a device was lost asks for every partition, so it is not done
        // for each of them.
        if says_enough(&self.inner.lock(), &failure) {
            return;
        }
        // The failure of something it waited for is reported there, with the right place.
        let inherited = |&p: &u32| {
            self.event(p as usize).is_some_and(|event| matches!(event.status(), EventStatus::Failed(_)))
        };
        if template.partitions[partition].device_predecessors.iter().any(inherited) {
            return;
        }
        let failure = match self.failed_dependency() {
            Some(theirs) => Failure::new(theirs),
            None => {
                failure.map(|error| self.locate(template, partition, owner.locate(self.of_deadline(error))))
            }
        };
        let mut inner = self.inner.lock();
        if !says_enough(&inner, &failure) {
            self.set_failure(&mut inner, failure);
        }
    }

    pub(super) fn set_failure(&self, inner: &mut RunInner, failure: Failure) {
        inner.extras.get_or_make().failure = Some(failure);
        self.progress.failed.store(true, Ordering::Release);
    }

    /// The failure of a run that this one depends on, with the place where it happened there.
    pub(super) fn failed_dependency(&self) -> Option<Error> {
        let depends_on = self.extra(|extras| extras.until_end.depends_on.clone());
        // Their devices may have notified this run first.
        end_in_order(&depends_on);
        depends_on.iter().find_map(|run| run.result().err())
    }

    /// All partitions are over. The first call in the run's turn ends it; later ones find its result final.
    pub(super) fn complete(&self) {
        // Devices have run one that has succeeded in its turn.
        if self.has_failed() && !self.is_in_turn() {
            return;
        }
        let (owner, until_end) = {
            let mut inner = self.inner.lock();
            let Some(owner) = inner.owner.take() else {
                let until_end = inner.extras.if_made(|extras| std::mem::take(&mut extras.until_end));
                drop(inner);
                self.done.set();
                return drop(until_end);
            };
            // Under the lock: a thread that finds no owner finds this done.
            let failure = inner.failure();
            self.has_ended(&*owner, failure);
            self.metrics.ended(failure.map(|failure| failure.kind()));
            (owner, inner.extras.if_made(RunExtras::end))
        };
        let UntilEnd { scheduler, depends_on, comes_after, guard: _, this, retired, guards, trace } =
            until_end;
        if self.waiting.is_timed {
            self.learn(&owner);
        }
        if let Some(in_flight) = self.in_flight() {
            in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        // Over on their devices, whose notifications may lag.
        end_in_order(&depends_on);
        // What listens may format an error of the user's.
        trace.iter().for_each(|trace| catch_and_log("what traces a run", || self.finish_trace(trace)));
        let may_run = self.has_failed() && may_still_run(&owner);
        let is_given_up = || comes_after.iter().any(|earlier| earlier.given_up().is_some());
        if may_run || self.has_failed() && is_given_up() {
            // Before it can be seen to have ended.
            self.progress.given_up.store(true, Ordering::Release);
        }
        self.done.set();
        if may_run {
            Arc::clone(&owner).keep_for_ever();
        }
        // These go last: they may be the only ones left.
        drop((owner, scheduler, depends_on, comes_after, this));
        if may_run {
            std::mem::forget(retired);
        } else if !retired.is_empty() {
            drop_later(retired);
        }
        if !guards.is_empty() {
            drop_later(guards);
        }
    }
}

/// Whether a device of the run is lost because its driver no longer says whether work is over.
pub(crate) fn may_still_run(template: &RunTemplate) -> bool {
    let mut devices = template.partitions.iter().filter_map(PartitionExec::device);
    devices.any(|device| device.hal().may_still_run())
}

/// Whether a run's failure is not replaced by `later`: the first one counts, but a cause says more
/// than the cancellation or deadline that followed or preceded it.
fn says_enough(inner: &RunInner, later: &Failure) -> bool {
    let is_stop =
        |failure: &Failure| matches!(failure.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded);
    inner.failure().is_some_and(|earlier| !is_stop(earlier) || is_stop(later))
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use tokio::time::timeout;
    use tracing::field::{Field, Visit};
    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    use crate::runtime::{Device, Graph};
    use crate::testing::{FakeDevice, FakeOptions};
    use crate::types::ErrorKind;

    #[derive(Debug)]
    struct Unspeakable;

    impl fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("on purpose")
        }
    }

    impl std::error::Error for Unspeakable {}

    /// Formats all fields of all events.
    struct Formatting;

    impl<S: Subscriber> Layer<S> for Formatting {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            event.record(&mut Self);
        }
    }

    impl Visit for Formatting {
        fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
            drop(format!("{value:?}"));
        }
    }

    /// Panics at every event of a partition, and of the loss of a device.
    struct Panicking;

    impl<S: Subscriber> Layer<S> for Panicking {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let target = event.metadata().target();
            assert!(target != "wakegraph::partition" && target != "wakegraph", "on purpose")
        }
    }

    /// Panics when the partitions of a run are described.
    struct PanickingEarly;

    impl<S: Subscriber> Layer<S> for PanickingEarly {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            assert!(event.metadata().target().starts_with("wakegraph"), "on purpose")
        }
    }

    #[test]
    fn a_run_keeps_its_place_although_what_traces_it_panics() {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        let device = Device::from_hal(device);
        let host = device.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.copy(device.buffer::<u32>(4).unwrap(), &host);
        let exec = graph.finalize().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(PanickingEarly), || {
            let submission = exec.submit();
            control.complete_all();
            assert!(submission.is_finished());
        });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Panicking), || {
            let submission = exec.submit();
            assert!(host.try_read().is_err(), "the device writes it");
            control.complete_all();
            assert!(submission.is_finished() && host.try_read().is_ok());
            let lost = exec.submit();
            control.lose_device();
            assert!(lost.is_finished() && device.health().borrow().is_lost());
        });
    }

    #[test]
    fn what_a_device_may_still_use_is_never_released() {
        for is_given_up in [false, true] {
            let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
            let device = Device::from_hal(device);
            let (owner, mut graph) = (Arc::new(vec![1_u32; 4]), Graph::new(&device));
            // SAFETY: the elements live until the owner is dropped, and nothing else uses them.
            #[expect(unsafe_code, reason = "registers memory")]
            let source = unsafe { device.register::<u32>(owner.as_ptr().addr(), 4, owner.clone()) };
            graph.copy(source.unwrap(), device.buffer::<u32>(4).unwrap());
            let exec = graph.finalize().unwrap();
            drop(graph);
            let submission = exec.submit();
            match is_given_up {
                true => control.give_up(),
                false => control.lose_device(),
            }
            assert!(submission.is_finished());
            let run = submission.event().run().clone();
            assert_eq!(run.result().unwrap_err().kind(), ErrorKind::DeviceLost);
            drop((submission, run, exec));
            if is_given_up {
                assert_eq!(Arc::strong_count(&owner), 2);
                continue;
            }
            let end = Instant::now() + Duration::from_secs(60);
            while Arc::strong_count(&owner) > 1 {
                assert!(Instant::now() < end, "the memory of a lost device is released");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_run_ends_although_its_error_cannot_be_formatted() {
        let device = Device::from_hal(FakeDevice::open(FakeOptions::new()).0);
        let mut graph = Graph::new(&device);
        graph.host_task((), async |()| Err::<(), _>(Unspeakable));
        let exec = graph.finalize().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let submitted = async { timeout(Duration::from_secs(60), exec.submit()).await };
        let subscriber = tracing_subscriber::registry().with(Formatting);
        let ended = tracing::subscriber::with_default(subscriber, || runtime.block_on(submitted));
        assert_eq!(ended.expect("it ends").unwrap_err().kind(), ErrorKind::HostTaskFailed);
    }
}

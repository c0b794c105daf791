//! The end of partitions, and with the last of them of the run: seen by polls and notifications, recorded
//! with its failure, passed on to what waits for it.
//!
//! A device that is lost fails everything pending on it with one error, which knows no node. What had not
//! started is not to blame, and that is known here.

use std::sync::Arc;

use wakegraph_hal::{Error, ErrorKind, EventStatus, Result};

use crate::runtime::completion::clock;
use crate::runtime::completion::estimate::Sample;
use crate::runtime::completion::reactor::Pending;
use crate::runtime::execution::run::launch::{HostScheduler, Ready, cancelled};
use crate::runtime::execution::run::order::end_in_order;
use crate::runtime::execution::run::parts::{RunExtras, UntilEnd};
use crate::runtime::execution::run::{ENQUEUED, FAILED, Predecessor, Run, RunInner, SUCCEEDED, WAITING};
use crate::runtime::execution::template::{PartitionExec, RunOwner, RunTemplate};
use crate::runtime::resource::device::Device;
use crate::sync::{Ordering, fence};
use crate::util::deferred_drop::{Failure, drop_later};
use crate::util::panics::catch_and_log;

/// How a partition has ended.
pub(crate) enum Ended {
    Succeeded,
    Failed(Failure),
    /// The run was cancelled before it started.
    Cancelled,
    /// It was given up before it started, as another has failed.
    Abandoned,
}

impl From<Result<()>> for Ended {
    fn from(result: Result<()>) -> Self {
        result.map_or_else(|error| Self::Failed(Failure::new(error)), |()| Self::Succeeded)
    }
}

impl Run {
    /// Nothing of the run has started, and nothing will. The error comes from outside the run: it keeps the
    /// place it names.
    pub(crate) fn abandon(&self, error: &Error) {
        let error = self.answered_late(error).unwrap_or_else(|| error.clone());
        self.set_failure(&mut self.inner.lock(), Failure::new(error));
        if self.slots.is_empty() {
            return self.end_run();
        }
        for partition in 0..self.slots.len() {
            // What that makes ready ends here as well.
            let _ = self.end(partition, Ended::Abandoned);
        }
    }

    /// A partition has ended: starts what that makes ready.
    pub(crate) fn end_then_start(&self, partition: usize, ended: impl Into<Ended>) {
        let ready = self.end(partition, ended);
        if let Some(scheduler) = self.scheduler_for(&ready) {
            scheduler.start(ready);
        }
    }

    pub(super) fn scheduler_for(&self, ready: &Ready) -> Option<HostScheduler> {
        if ready.is_empty() { None } else { self.extra(|extras| extras.until_end.scheduler.clone()) }
    }

    /// A partition has ended. Only the first call for a partition counts: a device, the reactor and a task
    /// may all see it. Gives back the partitions that the caller has to start, as they waited for this one
    /// last.
    #[must_use]
    pub(crate) fn end(&self, partition: usize, ended: impl Into<Ended>) -> Ready {
        let (state, failure) = match ended.into() {
            Ended::Succeeded => (SUCCEEDED, None),
            Ended::Failed(failure) => (FAILED, Some(failure)),
            Ended::Cancelled => (FAILED, Some(Failure::new(cancelled()))),
            Ended::Abandoned => (FAILED, None),
        };
        self.end_as(partition, state, failure)
    }

    fn end_as(&self, partition: usize, state: u8, failure: Option<Failure>) -> Ready {
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
        self.tell_trace(|trace| trace.partition_ended(partition, succeeded));
        // Each partition counts once, and this one has not been counted yet: at 1 all others have
        // ended, and none waits.
        let last = self.progress.not_ended.load(Ordering::Acquire) == 1;
        if failed || !last {
            // Cloned: the others may still need it.
            let Some(owner) = self.inner.lock().owner.clone() else { return ready };
            for &successor in &owner.partitions[partition].wakes {
                if self.release(successor as usize) {
                    ready.push(successor);
                }
            }
        }
        if last || self.progress.not_ended.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end_run();
        }
        ready
    }

    /// Lets the next runs know how long this one's partitions took.
    fn learn(&self, template: &RunTemplate) {
        for (slot, partition) in self.slots.iter().zip(&template.partitions) {
            slot.took().into_iter().for_each(|took| partition.estimator.record(Sample::Exact(took)));
        }
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
            None => failure.map(|error| {
                let late = self.answered_late(&error);
                late.unwrap_or_else(|| {
                    self.locate(template, partition, owner.locate(self.of_deadline(error)))
                })
            }),
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

    /// All partitions have ended. The first call in the run's turn ends it; later ones find its result there.
    pub(super) fn end_run(&self) {
        // Devices have run one that has succeeded in its turn.
        if self.has_failed() && !self.is_in_turn() {
            return;
        }
        let (owner, until_end) = {
            let mut inner = self.inner.lock();
            let Some(owner) = inner.owner.take() else {
                let until_end = inner.extras.if_made(|extras| std::mem::take(&mut extras.until_end));
                drop(inner);
                self.ended.set();
                return drop(until_end);
            };
            // Under the lock: a thread that finds no owner finds all of this noted.
            let failure = inner.failure();
            self.note_end(&*owner, failure);
            self.metrics.ended(failure.map(|failure| failure.kind()));
            (owner, inner.extras.if_made(RunExtras::end))
        };
        let UntilEnd { scheduler, depends_on, comes_after, this, retired, guards, trace, run_data, .. } =
            until_end;
        if self.waiting.is_timed {
            self.learn(&owner);
        }
        if let Some(in_flight) = self.in_flight() {
            in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        // Ended on their devices, whose notifications may lag.
        end_in_order(&depends_on);
        // What listens may format an error of the user's.
        trace.iter().for_each(|trace| catch_and_log("what traces a run", || trace.end(self)));
        let may_run = self.has_failed() && may_still_run(&owner);
        let is_given_up = || comes_after.iter().any(|earlier| earlier.given_up().is_some());
        if may_run || self.has_failed() && is_given_up() {
            // Before it can be seen to have ended.
            self.progress.given_up.store(true, Ordering::Release);
        }
        self.ended.set();
        if may_run {
            Arc::clone(&owner).keep_for_ever();
        }
        // These go last: they may be the only ones left.
        drop((owner, scheduler, depends_on, comes_after, this, run_data));
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

/// Whether a device of the run is lost because its driver no longer says whether work has ended.
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

impl Run {
    /// The outcome of a partition that was enqueued, once its device has one.
    pub(super) fn outcome(&self, partition: usize) -> Option<Result<()>> {
        let status = match self.slots[partition].state.load(Ordering::Acquire) {
            WAITING if self.is_in_batch() => self.batch_status()?,
            ENQUEUED => self.event(partition)?.status(),
            _ => return None,
        };
        outcome(status)
    }

    /// Whether a poll would end a partition.
    pub(super) fn has_unseen_end(&self) -> bool {
        let first = self.progress.oldest.load(Ordering::Relaxed) as usize;
        !self.has_ended() && (first..self.slots.len()).any(|partition| self.outcome(partition).is_some())
    }

    /// Whether the run has ended. Asks the devices, also those that notify, because notifications may come
    /// late and out of order. Ends the run if so, which may wake tasks and drop buffers: not for callers
    /// that hold a lock.
    pub(crate) fn is_finished(&self) -> bool {
        if !self.has_ended() {
            self.poll_events();
            if self.awaits_turn() {
                end_in_order(&self.predecessors());
            }
            // Another thread that has ended the last partition may not have come to say so yet.
            if !self.slots.is_empty()
                && (0..self.slots.len()).all(|partition| self.has_partition_ended(partition))
            {
                self.end_run();
            }
        }
        self.has_ended()
    }

    /// Polls the partitions in the order of the plan, up to the first that has not ended.
    pub(super) fn poll_events(&self) {
        let mut oldest = self.progress.oldest.load(Ordering::Relaxed) as usize;
        while oldest < self.slots.len() && (self.has_partition_ended(oldest) || self.poll_partition(oldest)) {
            oldest += 1;
        }
        self.progress.oldest.fetch_max(oldest as u32, Ordering::Relaxed);
    }

    /// Polls one partition; whether it has ended.
    fn poll_partition(&self, partition: usize) -> bool {
        self.outcome(partition).is_some_and(|outcome| {
            self.end_then_start_later(partition, outcome);
            true
        })
    }

    /// A device has notified of a partition: its event has ended, even if the enqueue has not returned yet.
    pub(super) fn poll_event(&self, partition: usize) {
        if let Some(outcome) = self.event(partition).and_then(|event| outcome(event.status())) {
            self.end_then_start_later(partition, outcome);
        }
    }

    /// A partition has ended: starts in a task what that makes ready.
    pub(super) fn end_then_start_later(&self, partition: usize, outcome: Result<()>) {
        let ready = self.end(partition, outcome);
        if let Some(scheduler) = self.scheduler_for(&ready) {
            scheduler.start_later(ready);
        }
    }

    /// Whether a device still runs a partition, where only the ends of the tails are polled for.
    pub(super) fn has_pending_before_tails(&self) -> bool {
        let is_pending = |partition| self.is_enqueued(partition) && self.outcome(partition).is_none();
        (0..self.slots.len()).any(is_pending) && self.owner().is_some_and(|owner| owner.polls_tails)
    }

    /// Ends the partitions before the tails, once all tails have ended: no other thread polls for them.
    pub(super) fn end_before_tails(&self, template: &RunTemplate) {
        if self.has_ended() {
            return;
        }
        // Of two threads that each end a tail, the later one sees both.
        fence(Ordering::SeqCst);
        if !template.tails.iter().all(|&tail| self.has_partition_ended(tail as usize)) {
            return;
        }
        if !template.tails.iter().all(|&tail| self.has_succeeded(tail as usize)) {
            return self.poll_events();
        }
        for partition in self.progress.oldest.load(Ordering::Relaxed) as usize..self.slots.len() {
            if self.slots[partition].state.load(Ordering::Acquire) == ENQUEUED {
                // Nothing waits for the host.
                let _ = self.end(partition, Ok(()));
            }
        }
    }
}

fn outcome(status: EventStatus) -> Option<Result<()>> {
    match status {
        EventStatus::Complete => Some(Ok(())),
        EventStatus::Failed(error) => Some(Err(error)),
        EventStatus::Pending | EventStatus::Idle => None,
    }
}

impl Pending for Run {
    fn has_ended(&self, partition: usize) -> bool {
        self.has_partition_ended(partition)
    }

    fn poll(&self, partition: usize) -> Option<Result<()>> {
        // A lost device fails a tail at once, while another device may still run what comes before the tail.
        // Only the polls of the tail will see that end.
        self.outcome(partition).filter(|outcome| outcome.is_ok() || !self.has_pending_before_tails())
    }

    fn has_poller(&self) -> bool {
        self.waiting.is_polled_by_submission()
    }

    fn end(&self, partition: usize, result: Result<()>, sample: Option<Sample>) {
        // Gone if another thread has seen the run end.
        let Some(owner) = self.owner() else { return };
        if let Some(sample) = sample {
            owner.partitions[partition].estimator.record(sample);
        }
        self.end_then_start_later(partition, result);
        if owner.polls_tails {
            self.end_before_tails(&owner);
        }
    }
}

impl Run {
    /// Adds to an error with which a partition ended where it happened, as far as that is known.
    pub(super) fn locate(&self, template: &RunTemplate, partition: usize, error: Error) -> Error {
        let labels = &template.labels;
        let enqueued = self.state(partition) != WAITING || self.is_in_batch();
        match error.kind() {
            ErrorKind::DeviceLost if !enqueued => {
                let why = "the device was lost before this partition could start";
                labels.place(partition, error.with_note(why))
            }
            ErrorKind::DeviceLost if self.is_behind(template) => {
                let why = "this submission was queued behind another that was still in flight";
                labels.place(partition, error.with_note(why))
            }
            ErrorKind::DeviceLost => {
                labels.locate_among(&self.suspects(template, partition), partition, error)
            }
            ErrorKind::Driver if enqueued => labels.locate_among(&[partition as u32], partition, error),
            _ => labels.locate(partition, error),
        }
    }

    /// Partitions that may have been running on what was lost when this one was: nothing that they
    /// come after was pending. They need not all be on its device, which may have taken others of
    /// its driver with it.
    fn suspects(&self, template: &RunTemplate, partition: usize) -> Vec<u32> {
        let device = template.partitions[partition].device();
        let running = |&index: &u32| {
            let other = &template.partitions[index as usize];
            self.is_lost(index as usize, other.device() == device)
                && other.predecessors.iter().all(|&before| self.is_known_to_have_succeeded(before as usize))
        };
        (0..template.partitions.len() as u32).filter(running).collect()
    }

    fn is_lost(&self, partition: usize, on_lost_device: bool) -> bool {
        let event = self.event(partition).filter(|_| self.state(partition) == ENQUEUED);
        event.is_some_and(|event| match event.status() {
            EventStatus::Failed(error) => error.kind() == ErrorKind::DeviceLost,
            // It is about to fail as well.
            EventStatus::Pending => on_lost_device,
            EventStatus::Complete | EventStatus::Idle => false,
        })
    }

    pub(super) fn is_known_to_have_succeeded(&self, partition: usize) -> bool {
        match self.state(partition) {
            SUCCEEDED => true,
            ENQUEUED => {
                self.event(partition).is_some_and(|event| matches!(event.status(), EventStatus::Complete))
            }
            _ => false,
        }
    }

    /// Whether devices had this run wait for another that did not end, but for the loss.
    fn is_behind(&self, template: &RunTemplate) -> bool {
        if template.ended.load(Ordering::Acquire) + 1 < self.number {
            return true;
        }
        let others: Vec<_> = self.comes_after().iter().filter_map(Predecessor::run).collect();
        end_in_order(&others);
        others.iter().any(|run| {
            !run.has_ended() || run.result().is_err_and(|error| error.kind() == ErrorKind::DeviceLost)
        })
    }

    /// The run has ended: the next one of the executable has not waited for it in vain, unless its
    /// device is lost.
    pub(super) fn note_end(&self, owner: &dyn RunOwner, failure: Option<&Failure>) {
        let lost = failure.is_some_and(|error| error.kind() == ErrorKind::DeviceLost);
        let ended = &owner.template().ended;
        // Several are seen to end in any order.
        if !lost && ended.load(Ordering::Relaxed) < self.number {
            ended.store(self.number, Ordering::Release);
        }
        if let Some(failure) = failure {
            owner.failed(failure.error());
        }
    }

    pub(super) fn state(&self, partition: usize) -> u8 {
        self.slots[partition].state.load(Ordering::Acquire)
    }
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
    use wakegraph_hal::ErrorKind;
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use crate::runtime::{Device, Graph};

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

#[cfg(test)]
mod polling_tests {
    use std::time::Duration;

    use tokio::time::timeout;
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};
    use wakegraph_hal::{Error, ErrorKind, Range};

    use crate::backend::host::{self, HostOptions};
    use crate::graph::NodeId;
    use crate::kernel::RawKernel;
    use crate::runtime::completion::reactor::Pending;
    use crate::runtime::{Device, Graph, Submission};

    /// Kernels in a chain, on two devices in turn that wait for each other; one of them fails, if
    /// that is asked for. Nobody but the submission looks.
    fn finished_chain(failing: Option<usize>) -> Submission {
        let devices = [(); 2].map(|()| {
            let options = HostOptions::new().threads(2).polled(true).peer_access(true);
            Device::from_hal(host::open(options).unwrap())
        });
        let mut graph = Graph::new(&devices[0]);
        let mut last = None;
        for step in 0..9 {
            let kernel = RawKernel::new("step").host(move |_, _| match failing == Some(step) {
                true => Err(Error::new(ErrorKind::Driver, "as it should")),
                false => Ok(()),
            });
            let name = format!("step {step}");
            let node = graph.launch(kernel.call(), Range::linear(1)).on(&devices[step % 2]).name(name);
            last = Some(node.after(last).id());
        }
        let exec = graph.finalize().unwrap();
        assert_eq!(exec.plan().partitions().len(), 9);
        let submission = exec.submit();
        let _paused = devices.each_ref().map(|device| device.reactor().unwrap().pause());
        while !submission.is_finished() {
            std::thread::yield_now();
        }
        submission
    }

    // As when a device is lost and another one runs on: only the tail is polled for.
    #[tokio::test]
    async fn a_tail_that_fails_early_leaves_no_partition_behind() {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let mut graph = Graph::new(&Device::from_hal(device));
        let mut partition = |name: &str, after: &[NodeId]| {
            // SAFETY: it does nothing.
            #[expect(unsafe_code, reason = "stream tasks are partitions of their own")]
            let task = unsafe { graph.stream_task(name, [], |_, []| Ok(())) };
            task.after(after.iter().copied()).id()
        };
        let before = [partition("one", &[]), partition("another", &[])];
        partition("tail", &before);
        let submission = graph.finalize().unwrap().submit();
        let run = submission.event().run().clone();
        assert_eq!(control.pending(), 3);
        assert!(control.fail_newest(Error::new(ErrorKind::DeviceLost, "as it should")));
        assert!(
            Pending::poll(&*run, 2).is_none() && !run.has_partition_ended(2),
            "it is the only one that is polled"
        );
        control.complete_all();
        let ended = timeout(Duration::from_secs(60), submission).await;
        assert_eq!(ended.expect("it ends").unwrap_err().kind(), ErrorKind::DeviceLost);
    }

    #[test]
    fn the_last_of_a_chain_tells_for_all_before_it() {
        let run = finished_chain(None).event().run().clone();
        assert!((0..9).all(|partition| run.has_succeeded(partition)));
    }

    #[test]
    fn a_failure_in_the_middle_of_a_chain_is_that_of_its_node() {
        for failing in [0, 4, 8] {
            let run = finished_chain(Some(failing)).event().run().clone();
            let error = run.result().unwrap_err();
            assert!(error.to_string().contains(&format!("step {failing}")), "{error}");
            assert_eq!((0..9).filter(|&partition| run.has_succeeded(partition)).count(), failing);
        }
    }
}

//! Polling the events of a run.

use crate::hal::EventStatus;
use crate::runtime::execution::run::order::end_in_order;
use crate::runtime::execution::run::{ENQUEUED, Run, WAITING};
use crate::runtime::execution::template::RunTemplate;
use crate::sync::{Ordering, fence};
use crate::types::Result;

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
        !self.is_done() && (first..self.slots.len()).any(|partition| self.outcome(partition).is_some())
    }

    /// Whether the run is over. Asks the devices, also those that notify, because notifications may come
    /// late and out of order. Ends the run if so, which may wake tasks and drop buffers: not for callers
    /// that hold a lock.
    pub(crate) fn is_finished(&self) -> bool {
        if !self.is_done() {
            self.poll_events();
            if self.awaits_turn() {
                end_in_order(&self.predecessors());
            }
            // Another thread that has ended the last partition may not have come to say so yet.
            if !self.slots.is_empty() && (0..self.slots.len()).all(|partition| self.is_over(partition)) {
                self.complete();
            }
        }
        self.is_done()
    }

    /// Polls the partitions in the order of the plan, up to the first that is not over.
    pub(super) fn poll_events(&self) {
        let mut oldest = self.progress.oldest.load(Ordering::Relaxed) as usize;
        while oldest < self.slots.len() && (self.is_over(oldest) || self.poll_partition(oldest)) {
            oldest += 1;
        }
        self.progress.oldest.fetch_max(oldest as u32, Ordering::Relaxed);
    }

    /// Polls one partition; whether it is over.
    fn poll_partition(&self, partition: usize) -> bool {
        self.outcome(partition).is_some_and(|outcome| {
            self.end_and_go_on(partition, outcome);
            true
        })
    }

    /// A device has notified of a partition: its event is final, even if the enqueue has not returned yet.
    pub(super) fn poll_event(&self, partition: usize) {
        if let Some(outcome) = self.event(partition).and_then(|event| outcome(event.status())) {
            self.end_and_go_on(partition, outcome);
        }
    }

    /// A partition is over: starts in a task what that makes ready.
    pub(super) fn end_and_go_on(&self, partition: usize, outcome: Result<()>) {
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

    /// Ends the partitions before the tails, once all tails are over: no other thread polls for them.
    pub(super) fn end_before_tails(&self, template: &RunTemplate) {
        if self.is_done() {
            return;
        }
        // Of two threads that each end a tail, the later one sees both.
        fence(Ordering::SeqCst);
        if !template.tails.iter().all(|&tail| self.is_over(tail as usize)) {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use crate::backend::host::{self, HostOptions};
    use crate::graph::NodeId;
    use crate::kernel::RawKernel;
    use crate::runtime::completion::pending::Pending;
    use crate::runtime::{Device, Graph, Submission};
    use crate::testing::{FakeDevice, FakeOptions};
    use crate::types::{Error, ErrorKind, Range};

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
        assert!(Pending::poll(&*run, 2).is_none() && !run.is_over(2), "it is the only one that is polled");
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

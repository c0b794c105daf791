//! Looking at the real status of what is on devices.

use crate::hal::EventStatus;
use crate::runtime::execution::run::{ENQUEUED, Run, WAITING};
use crate::runtime::execution::template::RunTemplate;
use crate::sync::Ordering;

pub(super) const ASKED_NOT: u8 = 0;
const ASKED_PENDING: u8 = 1;
const ASKED_FINAL: u8 = 2;
const ASKED_LATER: u8 = 3;

/// A driver takes a microsecond to say of one that it has ended.
const MOST_SEEN: usize = 2;

impl Run {
    /// Whether a partition that was enqueued is over; reads the event without acting on it.
    pub(crate) fn is_final(&self, partition: usize) -> bool {
        match self.slots[partition].state.load(Ordering::Acquire) {
            WAITING => self.is_in_batch() && self.batch_status().is_some_and(|status| status.is_final()),
            ENQUEUED => self.event(partition).is_none_or(|event| event.status().is_final()),
            _ => true,
        }
    }

    /// Whether a look would end a partition.
    pub(super) fn has_unseen_end(&self) -> bool {
        let is_unseen = |&partition: &usize| self.slots[partition].state.load(Ordering::Acquire) == ENQUEUED;
        let first = self.oldest.load(Ordering::Relaxed) as usize;
        let mut unseen = (first..self.slots.len()).filter(is_unseen);
        !self.is_done() && (self.is_in_batch() || unseen.any(|partition| self.is_final(partition)))
    }

    /// For the reactor: reads the event, and keeps the answer for [`answer`](Self::answer). Whether
    /// it is final.
    pub(crate) fn ask(&self, partition: usize) -> bool {
        let is_final = self.is_final(partition);
        let answer = if is_final { ASKED_FINAL } else { ASKED_PENDING };
        self.slots[partition].asked.store(answer, Ordering::Release);
        is_final
    }

    /// Instead of [`ask`](Self::ask): there is no answer this time.
    pub(crate) fn ask_later(&self, partition: usize) {
        self.slots[partition].asked.store(ASKED_LATER, Ordering::Release);
    }

    /// What [`ask`](Self::ask) has found, once; without, as [`is_final`](Self::is_final).
    pub(crate) fn answer(&self, partition: usize) -> Option<bool> {
        match self.slots[partition].asked.swap(ASKED_NOT, Ordering::AcqRel) {
            ASKED_NOT => Some(self.is_final(partition)),
            ASKED_LATER => None,
            answer => Some(answer == ASKED_FINAL),
        }
    }

    /// Whether the run is over; asks devices that do not notify, unless the reactor does without a
    /// pause. Ends it if so, which may wake tasks and drop buffers: not for callers that hold a
    /// lock.
    pub(crate) fn is_finished(&self) -> bool {
        if self.polled && !self.is_done() && !self.is_left_to_reactor() {
            self.look();
            if !self.is_done() {
                self.set_seen_near();
            }
        }
        self.is_done()
    }

    /// Looks at the real status of what has been enqueued: all that matters to anybody.
    pub(crate) fn look(&self) {
        let several = self.slots.len() > 1;
        let owner = if several { self.inner.lock().owner.clone() } else { None };
        match owner.filter(|owner| owner.all_eager) {
            Some(owner) => self.look_at_tails(&owner),
            None => self.look_at_all(),
        }
    }

    pub(super) fn look_at_all(&self) {
        let first = self.oldest.load(Ordering::Relaxed) as usize;
        let mut oldest = first;
        for partition in first..self.slots.len() {
            if self.look_at(partition) && partition == oldest {
                oldest += 1;
            }
        }
        self.oldest.fetch_max(oldest as u32, Ordering::Relaxed);
    }

    /// Nobody waits for any other partition, and the devices let each tail wait for all before it:
    /// one question tells as much as one for each.
    fn look_at_tails(&self, template: &RunTemplate) {
        let mut over = true;
        for &tail in &template.tails {
            over &= self.look_at(tail as usize);
        }
        if !over {
            return self.look_at_oldest();
        }
        if !template.tails.iter().all(|&tail| self.has_succeeded(tail as usize)) {
            return self.look_at_all();
        }
        for partition in self.oldest.load(Ordering::Relaxed) as usize..self.slots.len() {
            if self.slots[partition].state.load(Ordering::Acquire) == ENQUEUED {
                // Nothing waits for the host.
                let _ = self.end(partition, Ok(()));
            }
        }
    }

    /// Looks at the first partitions that nobody has seen the end of, few at a time: what is known
    /// of them need not be found out when the last one ends.
    fn look_at_oldest(&self) {
        let mut oldest = self.oldest.load(Ordering::Relaxed) as usize;
        let mut seen = 0;
        while seen < MOST_SEEN && oldest < self.slots.len() {
            if !self.is_over(oldest) {
                if !self.look_at(oldest) {
                    break;
                }
                seen += 1;
            }
            oldest += 1;
        }
        self.oldest.fetch_max(oldest as u32, Ordering::Relaxed);
    }

    /// Looks at one partition that was enqueued; whether it is final.
    pub(crate) fn look_at(&self, partition: usize) -> bool {
        match self.slots[partition].state.load(Ordering::Acquire) {
            WAITING => self.is_in_batch() && self.look_at_batch(),
            ENQUEUED => self.read_event(partition),
            _ => true,
        }
    }

    pub(super) fn read_event(&self, partition: usize) -> bool {
        let ready = match self.event(partition).map(|event| event.status()) {
            Some(EventStatus::Complete) => self.end(partition, Ok(())),
            Some(EventStatus::Failed(error)) => self.end(partition, Err(error)),
            _ => return false,
        };
        if let Some(scheduler) = self.scheduler_for(&ready) {
            scheduler.start_later(ready);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::host::{self, HostOptions};
    use crate::kernel::RawKernel;
    use crate::runtime::{Device, Graph, Submission};
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
        let _nobody_else_looks = devices.each_ref().map(|device| device.reactor().unwrap().pause());
        while !submission.is_finished() {
            std::thread::yield_now();
        }
        submission
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

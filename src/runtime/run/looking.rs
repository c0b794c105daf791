//! Looking at the real status of what is on devices.

use super::{ENQUEUED, Run, WAITING};
use crate::hal::EventStatus;
use crate::sync::Ordering;

pub(super) const ASKED_NOT: u8 = 0;
const ASKED_PENDING: u8 = 1;
const ASKED_FINAL: u8 = 2;
const ASKED_LATER: u8 = 3;

impl Run {
    /// Whether a partition that was enqueued is over; reads the event without acting on it.
    pub(crate) fn is_final(&self, partition: usize) -> bool {
        match self.slots[partition].state.load(Ordering::Acquire) {
            WAITING => false,
            ENQUEUED => self.event(partition).is_none_or(|event| event.status().is_final()),
            _ => true,
        }
    }

    /// For the reactor: reads the event, and keeps the answer for [`answer`](Self::answer). Whether it is final.
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

    /// Whether the run is over; asks devices that do not notify, unless the reactor does without a pause. Ends it if so,
    /// which may wake tasks and drop buffers: not for callers that hold a lock.
    pub(crate) fn is_finished(&self) -> bool {
        if self.polled && !self.is_done() && self.batcher().is_none() {
            self.look();
            if !self.is_done() {
                self.set_seen_near();
            }
        }
        self.is_done()
    }

    /// Looks at the real status of all partitions that have been enqueued.
    pub(crate) fn look(&self) {
        for partition in 0..self.slots.len() {
            self.look_at(partition);
        }
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
        if let Some(driver) = self.driver_for(&ready) {
            driver.start_later(ready);
        }
        true
    }
}

//! Manual completion: what is enqueued, and the hand that completes it.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::event::Completion;
use super::queue::NullQueue;
use super::timing::spend;
use super::{NullOptions, NullTiming};
use crate::hal::{CommandBufferId, CommandTimes, EventProfile, EventStatus, Notification, Queue};
use crate::types::{Error, ErrorKind, Result};

/// Completes what is pending on a null device opened with [`manual`](super::NullOptions::manual),
/// and breaks things.
///
/// Clones control the same device. Everything is decided under one lock, and notifications are
/// called outside it.
#[derive(Clone)]
pub struct NullControl(Arc<Shared>);

struct Shared {
    manual: bool,
    notifies: bool,
    timing: Option<NullTiming>,
    name: String,
    looks: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    pending: VecDeque<Entry>,
    clock: u64,
    lost: bool,
    fail_next: Option<Error>,
}

/// One enqueue, as the queue gives it.
pub(super) struct Enqueue {
    pub(super) queue: u64,
    pub(super) in_order: bool,
    pub(super) buffer: Option<CommandBufferId>,
    pub(super) wait: Vec<Arc<Completion>>,
    /// How many of them, from the front, whose results are needed; the others only come before.
    pub(super) dependencies: usize,
    pub(super) event: Arc<Completion>,
    pub(super) notification: Option<Notification>,
    pub(super) profiled: bool,
    pub(super) timed_commands: usize,
}

struct Entry {
    what: Enqueue,
    /// For each event in the wait list, which use of it is waited for.
    wait_generations: Vec<u64>,
    generation: u64,
    submitted: u64,
    /// An event in the wait list had failed before.
    failure: Option<Error>,
}

impl NullControl {
    pub(super) fn new(options: &NullOptions) -> Self {
        let NullOptions { manual, timing, name, capabilities } = options.clone();
        let notifies = capabilities.notifies;
        let (looks, inner) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Shared { manual, notifies, timing, name, looks, inner }))
    }

    /// How many enqueues are pending.
    pub fn pending(&self) -> usize {
        self.0.inner.lock().pending.len()
    }

    /// How often the device was asked for the status of an event.
    pub fn looks(&self) -> u64 {
        self.0.looks.load(Ordering::Relaxed)
    }

    /// Completes the oldest enqueue, of this queue if one is given, that nothing holds back: not
    /// its in-order queue, not its command-buffer's earlier enqueues, not its wait list. False when
    /// there is none.
    pub fn complete_next(&self, queue: Option<&dyn Queue>) -> bool {
        let queue = match queue.map(|queue| queue.as_any().downcast_ref::<NullQueue>()) {
            None => None,
            Some(Some(queue)) => Some(queue.id()),
            Some(None) => return false,
        };
        let mut inner = self.0.inner.lock();
        let Some(index) = inner.next_free(queue) else { return false };
        let notification = inner.complete(index, None);
        drop(inner);
        tell(notification);
        true
    }

    /// Completes everything, in an order that respects queues, command-buffers and wait lists;
    /// gives how many.
    pub fn complete_all(&self) -> usize {
        let mut count = 0;
        while self.complete_next(None) {
            count += 1;
        }
        count
    }

    /// The next enqueue to be completed fails with this error instead.
    pub fn fail_next(&self, error: Error) {
        self.0.inner.lock().fail_next = Some(error);
    }

    /// The device is lost: everything pending fails, and from now on it refuses everything.
    pub fn lose_device(&self) {
        let mut notifications = Vec::new();
        let mut inner = self.0.inner.lock();
        inner.lost = true;
        while !inner.pending.is_empty() {
            notifications.push(inner.complete(0, Some(self.lost())));
        }
        drop(inner);
        notifications.into_iter().for_each(tell);
    }

    pub(super) fn status(&self) -> Result<()> {
        if self.0.inner.lock().lost { Err(self.lost()) } else { Ok(()) }
    }

    pub(super) fn timestamp(&self) -> u64 {
        self.0.inner.lock().tick()
    }

    pub(super) fn enqueue(&self, mut what: Enqueue) -> Result<()> {
        if !self.0.notifies {
            what.notification = None;
        }
        let start = Instant::now();
        let mut failure = None;
        let mut inner = self.0.inner.lock();
        if inner.lost {
            return Err(self.lost());
        }
        let mut wait_generations = Vec::with_capacity(what.wait.len());
        for (index, event) in what.wait.iter().enumerate() {
            let (status, generation) = event.status();
            wait_generations.push(generation);
            match status {
                EventStatus::Failed(error) if index < what.dependencies => failure = failure.or(Some(error)),
                EventStatus::Idle => {
                    let why = "an event in the wait list was never enqueued";
                    return Err(Error::new(ErrorKind::InvalidWaitList, why));
                }
                EventStatus::Pending | EventStatus::Complete | EventStatus::Failed(_) => {}
            }
        }
        let due = self.0.timing.map(|timing| inner.start_of(&what) + timing.work);
        let generation = what.event.begin(due)?;
        let submitted = inner.tick();
        inner.pending.push_back(Entry { what, wait_generations, generation, submitted, failure });
        drop(inner);
        if !self.0.manual {
            self.complete_all();
        }
        if let Some(timing) = self.0.timing {
            spend(start, timing.enqueue);
        }
        Ok(())
    }

    /// Somebody looks at an event: completes what is over by the clock, and costs what that costs.
    pub(super) fn ask(&self, event: &Completion) {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        let Some(timing) = self.0.timing else { return };
        let start = Instant::now();
        match event.due() {
            Some(due) if start < due => return spend(start, timing.pending_status),
            Some(_) => self.complete_due(),
            None => {}
        }
        if event.tell_end(start) {
            spend(start, timing.final_status);
        }
    }

    fn complete_due(&self) {
        let now = Instant::now();
        loop {
            let mut inner = self.0.inner.lock();
            let is_due = |entry: &Entry| entry.what.event.due().is_some_and(|due| due <= now);
            let mut all = inner.pending.iter().enumerate();
            let next = all.find(|(index, entry)| is_due(entry) && inner.is_free(*index, entry));
            let Some(index) = next.map(|(index, _)| index) else { return };
            inner.complete(index, None);
        }
    }

    /// Blocks while an event's use, or the one of this generation, is pending, at most for `timeout`.
    pub(super) fn wait(
        &self,
        event: &Completion,
        generation: Option<u64>,
        timeout: Option<Duration>,
    ) -> EventStatus {
        if let Some(due) = event.due() {
            let left = due.saturating_duration_since(Instant::now());
            let status = event.wait(generation, Some(timeout.map_or(left, |timeout| timeout.min(left))));
            if status.is_final() || timeout.is_some_and(|timeout| timeout < left) {
                return status;
            }
            self.complete_due();
        }
        event.wait(generation, timeout)
    }

    /// The events that the queue has to signal, each with which use of it that is.
    pub(super) fn pending_events(&self, queue: u64) -> Vec<(Arc<Completion>, u64)> {
        let inner = self.0.inner.lock();
        let of_queue = inner.pending.iter().filter(|entry| entry.what.queue == queue);
        of_queue.map(|entry| (Arc::clone(&entry.what.event), entry.generation)).collect()
    }

    fn lost(&self) -> Error {
        Error::new(ErrorKind::DeviceLost, "the device is gone").on_device(&self.0.name)
    }
}

impl Debug for NullControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NullControl").field("device", &self.0.name).field("pending", &self.pending()).finish()
    }
}

impl Inner {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// When, by the clock, nothing holds back any more what is enqueued now.
    fn start_of(&self, what: &Enqueue) -> Instant {
        let before = self.pending.iter().filter(|entry| holds_back(&entry.what, what));
        let before = before.map(|entry| &entry.what.event).chain(&what.wait);
        before.filter_map(|event| event.due()).fold(Instant::now(), Instant::max)
    }

    fn next_free(&self, queue: Option<u64>) -> Option<usize> {
        let wanted = |entry: &Entry| queue.is_none_or(|queue| entry.what.queue == queue);
        let mut all = self.pending.iter().enumerate();
        all.find(|(index, entry)| wanted(entry) && self.is_free(*index, entry)).map(|(index, _)| index)
    }

    fn is_free(&self, index: usize, entry: &Entry) -> bool {
        let waits = entry.what.wait.iter().zip(&entry.wait_generations).any(|(event, generation)| {
            let (status, now) = event.status();
            now == *generation && !status.is_final()
        });
        // A wait for an earlier use of the event to signal has ended, or the event could not have
        // become pending.
        !waits && !self.pending.range(..index).any(|earlier| holds_back(&earlier.what, &entry.what))
    }

    /// Makes the event of an entry final; gives back whom to notify once the lock is released.
    fn complete(&mut self, index: usize, lost: Option<Error>) -> Option<Notification> {
        let Entry { what, wait_generations, submitted, failure, .. } = self.pending.remove(index)?;
        let start = self.tick();
        let mut commands = Vec::with_capacity(what.timed_commands);
        for _ in 0..what.timed_commands {
            commands.push(CommandTimes { start: self.tick(), end: self.tick() });
        }
        let end = self.tick();
        let mut waited = what.wait.iter().zip(&wait_generations).take(what.dependencies);
        let spread = waited.find_map(|(event, generation)| match event.status() {
            (EventStatus::Failed(error), now) if now == *generation => Some(error),
            _ => None,
        });
        let failure = lost.or(failure).or(spread).or_else(|| self.fail_next.take());
        let profile = what.profiled.then_some(EventProfile { submitted, start, end, commands });
        what.event.complete(failure.map_or(Ok(()), Err), profile);
        what.notification
    }
}

fn holds_back(earlier: &Enqueue, later: &Enqueue) -> bool {
    (later.in_order && earlier.queue == later.queue)
        || (later.buffer.is_some() && earlier.buffer == later.buffer)
}

fn tell(notification: Option<Notification>) {
    if let Some(notification) = notification {
        notification.target.notify(notification.token);
    }
}

//! Pending work of a fake device, which of it may complete next, and the events that it signals.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::options::{FakeOptions, FakeTiming};
use crate::support::errors;
use crate::{
    CommandBufferId, CommandTimes, Error, ErrorKind, EventProfile, EventStatus, Notification, Result,
};

/// The pending work of one device and its faults. Decides under one lock, and calls notifications
/// outside it.
pub(super) struct FakeSchedule {
    manual: bool,
    notifies: bool,
    timing: Option<FakeTiming>,
    name: String,
    polls: AtomicU64,
    /// The calls that the device has heard, if it logs them.
    calls: Option<Mutex<Vec<String>>>,
    state: Mutex<FakeScheduleState>,
}

#[derive(Default)]
struct FakeScheduleState {
    pending: VecDeque<PendingEnqueue>,
    clock: u64,
    lost: bool,
    /// Whether work may go on after that.
    may_still_run: bool,
    fail_next: Option<Error>,
    /// Number of further enqueues before one panics.
    panic_after: Option<usize>,
    /// The next enqueue is refused with this error.
    refuse_next: Option<Error>,
    /// The next append, finalize or update is refused with this error.
    refuse_change: Option<Error>,
    /// Notifications that are kept back, if they are.
    held: Option<Vec<Notification>>,
}

/// One enqueue, as the queue passes it on.
pub(super) struct FakeEnqueue {
    pub(super) queue: u64,
    pub(super) in_order: bool,
    pub(super) buffer: Option<CommandBufferId>,
    pub(super) wait: Vec<Arc<FakeCompletion>>,
    /// Number of events of `wait`, from the front, that are dependencies; the others only set the order.
    pub(super) dependencies: usize,
    pub(super) event: Arc<FakeCompletion>,
    pub(super) notification: Option<Notification>,
    pub(super) profiled: bool,
    pub(super) timed_commands: usize,
    /// Why it fails in its turn.
    pub(super) failure: Option<Error>,
}

struct PendingEnqueue {
    enqueue: FakeEnqueue,
    /// For each event in the wait list, the generation of the use that is waited for.
    wait_generations: Vec<u64>,
    generation: u64,
    submitted: u64,
    /// The failure of a dependency that had failed before the enqueue.
    failure: Option<Error>,
}

impl FakeSchedule {
    pub(super) fn new(options: &FakeOptions) -> Self {
        let FakeOptions { manual, timing, name, capabilities, logs_calls, .. } = options.clone();
        let (notifies, calls) = (capabilities.notifies, logs_calls.then(Mutex::default));
        Self { manual, notifies, timing, name, polls: AtomicU64::new(0), calls, state: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pending(&self) -> usize {
        self.state.lock().pending.len()
    }

    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Logs a call, if the device logs calls.
    pub(super) fn log(&self, call: impl FnOnce() -> String) {
        if let Some(calls) = &self.calls {
            calls.lock().push(call());
        }
    }

    pub(super) fn take_calls(&self) -> Vec<String> {
        self.calls.as_ref().map(|calls| std::mem::take(&mut *calls.lock())).unwrap_or_default()
    }

    /// Completes the oldest enqueue (of this queue) that nothing holds back. Returns false when
    /// there is none.
    pub(super) fn complete_next(&self, queue: Option<u64>) -> bool {
        let mut state = self.state.lock();
        let Some(index) = state.next_ready(queue) else { return false };
        let notification = state.complete(index, None);
        drop(state);
        notification.into_iter().for_each(notify);
        true
    }

    pub(super) fn complete_all(&self) -> usize {
        let mut count = 0;
        while self.complete_next(None) {
            count += 1;
        }
        count
    }

    pub(super) fn hold_notifications(&self, hold: bool) {
        let mut state = self.state.lock();
        let held = std::mem::replace(&mut state.held, hold.then(Vec::new));
        drop(state);
        held.into_iter().flatten().rev().for_each(notify);
    }

    pub(super) fn fail_next(&self, error: Error) {
        self.state.lock().fail_next = Some(error);
    }

    /// Makes an enqueue panic: the one after this many more.
    pub(super) fn panic_after(&self, enqueues: usize) {
        self.state.lock().panic_after = Some(enqueues);
    }

    pub(super) fn fail_newest(&self, error: Error) -> bool {
        let mut state = self.state.lock();
        let Some(newest) = state.pending.len().checked_sub(1) else { return false };
        let notification = state.fail_at_once(newest, error);
        drop(state);
        notification.into_iter().for_each(notify);
        true
    }

    pub(super) fn lose_device(&self) {
        let mut notifications = Vec::new();
        let mut state = self.state.lock();
        state.lost = true;
        while !state.pending.is_empty() {
            notifications.extend(state.complete(0, Some(self.lost())));
        }
        drop(state);
        notifications.into_iter().for_each(notify);
    }

    pub(super) fn may_run(&self, event: &Arc<FakeCompletion>) -> bool {
        let state = self.state.lock();
        state.position(event).is_some_and(|index| state.is_ready(index, &state.pending[index]))
    }

    pub(super) fn fail(&self, event: &Arc<FakeCompletion>, error: Error) -> bool {
        let mut state = self.state.lock();
        let Some(index) = state.position(event) else { return false };
        let notification = state.fail_at_once(index, error);
        drop(state);
        notification.into_iter().for_each(notify);
        true
    }

    pub(super) fn refuse_next(&self, error: Error) {
        self.state.lock().refuse_next = Some(error);
    }

    pub(super) fn refuse_change(&self, error: Error) {
        self.state.lock().refuse_change = Some(error);
    }

    /// # Errors
    /// The one with which a change of a command-buffer is to be refused.
    pub(super) fn change(&self) -> Result<()> {
        self.state.lock().refuse_change.take().map_or(Ok(()), Err)
    }

    pub(super) fn give_up(&self) {
        self.state.lock().may_still_run = true;
        self.lose_device();
    }

    pub(super) fn may_still_run(&self) -> bool {
        self.state.lock().may_still_run
    }

    pub(super) fn status(&self) -> Result<()> {
        if self.state.lock().lost { Err(self.lost()) } else { Ok(()) }
    }

    pub(super) fn timestamp(&self) -> u64 {
        self.state.lock().advance_clock()
    }

    pub(super) fn enqueue(&self, mut enqueue: FakeEnqueue) -> Result<()> {
        if !self.notifies {
            enqueue.notification = None;
        }
        let start = Instant::now();
        let mut failure = enqueue.failure.take();
        let mut state = self.state.lock();
        if state.lost {
            return Err(self.lost());
        }
        state.count_down_to_panic();
        state.refuse_next.take().map_or(Ok(()), Err)?;
        let mut wait_generations = Vec::with_capacity(enqueue.wait.len());
        for (index, event) in enqueue.wait.iter().enumerate() {
            let (status, generation) = event.status();
            wait_generations.push(generation);
            match status {
                EventStatus::Failed(error) if index < enqueue.dependencies => {
                    failure = failure.or(Some(error));
                }
                EventStatus::Idle => return Err(errors::idle_wait()),
                EventStatus::Pending | EventStatus::Complete | EventStatus::Failed(_) => {}
            }
        }
        let due = self.timing.map(|timing| state.start_of(&enqueue) + timing.work);
        let generation = enqueue.event.begin(due)?;
        let submitted = state.advance_clock();
        let pending = PendingEnqueue { enqueue, wait_generations, generation, submitted, failure };
        state.pending.push_back(pending);
        drop(state);
        if !self.manual {
            self.complete_all();
        }
        if let Some(timing) = self.timing {
            spend(start, timing.enqueue);
        }
        Ok(())
    }

    /// The status of an event. Completes first what has ended by the clock, and takes the time that
    /// a poll costs.
    pub(super) fn poll(&self, event: &FakeCompletion) -> EventStatus {
        self.polls.fetch_add(1, Ordering::Relaxed);
        if let Some(timing) = self.timing {
            let start = Instant::now();
            let due = event.due();
            if due.is_some_and(|due| start < due) {
                spend(start, timing.pending_status);
            } else {
                if due.is_some() {
                    self.complete_due();
                }
                if event.take_first_final_poll(start) {
                    spend(start, timing.final_status);
                }
            }
        }
        event.status().0
    }

    fn complete_due(&self) {
        let now = Instant::now();
        loop {
            let mut state = self.state.lock();
            let is_due = |pending: &PendingEnqueue| pending.enqueue.event.due().is_some_and(|due| due <= now);
            let mut all = state.pending.iter().enumerate();
            let next = all.find(|(index, pending)| is_due(pending) && state.is_ready(*index, pending));
            let Some(index) = next.map(|(index, _)| index) else { return };
            state.complete(index, None);
        }
    }

    /// Blocks while a use of an event, the current one or the one of `generation`, is pending, at
    /// most for `timeout`.
    pub(super) fn wait(
        &self,
        event: &FakeCompletion,
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

    /// The events that the queue has to signal, each with the generation of the pending use.
    pub(super) fn pending_events(&self, queue: u64) -> Vec<(Arc<FakeCompletion>, u64)> {
        let state = self.state.lock();
        let of_queue = state.pending.iter().filter(|pending| pending.enqueue.queue == queue);
        of_queue.map(|pending| (Arc::clone(&pending.enqueue.event), pending.generation)).collect()
    }

    fn lost(&self) -> Error {
        Error::new(ErrorKind::DeviceLost, "the device is gone").on_device(&self.name)
    }
}

impl Debug for FakeSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeSchedule").field("pending", &self.pending()).finish_non_exhaustive()
    }
}

impl FakeScheduleState {
    fn advance_clock(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn position(&self, event: &Arc<FakeCompletion>) -> Option<usize> {
        self.pending.iter().position(|pending| Arc::ptr_eq(&pending.enqueue.event, event))
    }

    fn count_down_to_panic(&mut self) {
        let left = self.panic_after.take();
        assert!(left != Some(0), "on purpose");
        self.panic_after = left.map(|left| left - 1);
    }

    /// Time by the clock at which nothing holds back this enqueue any more.
    fn start_of(&self, enqueue: &FakeEnqueue) -> Instant {
        let before = self.pending.iter().filter(|pending| holds_back(&pending.enqueue, enqueue));
        let before = before.map(|pending| &pending.enqueue.event).chain(&enqueue.wait);
        before.filter_map(|event| event.due()).fold(Instant::now(), Instant::max)
    }

    fn next_ready(&self, queue: Option<u64>) -> Option<usize> {
        let wanted = |pending: &PendingEnqueue| queue.is_none_or(|queue| pending.enqueue.queue == queue);
        let mut all = self.pending.iter().enumerate();
        all.find(|(index, pending)| wanted(pending) && self.is_ready(*index, pending)).map(|(index, _)| index)
    }

    fn is_ready(&self, index: usize, pending: &PendingEnqueue) -> bool {
        self.awaited(index, pending).all(|(event, generation)| event.is_over(generation))
    }

    /// The uses of events that a pending enqueue waits for. A wait for an earlier use of an event has ended:
    /// otherwise the event could not have become pending.
    fn awaited<'a>(
        &'a self,
        index: usize,
        pending: &'a PendingEnqueue,
    ) -> impl Iterator<Item = (&'a Arc<FakeCompletion>, u64)> {
        let listed = pending.enqueue.wait.iter().zip(pending.wait_generations.iter().copied());
        let before = self.pending.range(..index);
        let before = before.filter(move |earlier| holds_back(&earlier.enqueue, &pending.enqueue));
        listed.chain(before.map(|earlier| (&earlier.enqueue.event, earlier.generation)))
    }

    /// Fails a pending enqueue before its turn. What waits for it still comes after what it waits for.
    fn fail_at_once(&mut self, index: usize, error: Error) -> Option<Notification> {
        let pending = self.pending.get(index)?;
        let awaited = self.awaited(index, pending).map(|(event, generation)| (event.clone(), generation));
        pending.enqueue.event.set_still_awaited(awaited.collect());
        self.complete(index, Some(error))
    }

    /// Makes the event of a pending enqueue final. Returns the notification, to be called without
    /// the lock, unless it is kept back.
    fn complete(&mut self, index: usize, lost: Option<Error>) -> Option<Notification> {
        let PendingEnqueue { enqueue, wait_generations, submitted, failure, .. } =
            self.pending.remove(index)?;
        let start = self.advance_clock();
        let mut commands = Vec::with_capacity(enqueue.timed_commands);
        for _ in 0..enqueue.timed_commands {
            commands.push(CommandTimes { start: self.advance_clock(), end: self.advance_clock() });
        }
        let end = self.advance_clock();
        let mut waited = enqueue.wait.iter().zip(&wait_generations).take(enqueue.dependencies);
        let spread = waited.find_map(|(event, generation)| match event.status() {
            (EventStatus::Failed(error), now) if now == *generation => Some(error),
            _ => None,
        });
        let failure = lost.or(failure).or(spread).or_else(|| self.fail_next.take());
        let profile = enqueue.profiled.then_some(EventProfile { submitted, start, end, commands });
        enqueue.event.complete(failure.map_or(Ok(()), Err), profile);
        match &mut self.held {
            Some(held) => {
                held.extend(enqueue.notification);
                None
            }
            None => enqueue.notification,
        }
    }
}

/// The state of an event, over all its uses.
#[derive(Debug)]
pub(super) struct FakeCompletion {
    state: Mutex<FakeCompletionState>,
    changed: Condvar,
}

#[derive(Debug)]
struct FakeCompletionState {
    /// Number of times the event became pending.
    generation: u64,
    status: EventStatus,
    /// Time at which the current use ends by the clock.
    due: Option<Instant>,
    /// How the last use ended; kept while the event is pending again.
    last_outcome: EventStatus,
    profile: Option<EventProfile>,
    /// Uses of events that the last use waited for when it failed before its turn.
    still_awaited: Vec<(Arc<FakeCompletion>, u64)>,
}

impl FakeCompletion {
    pub(super) fn new() -> Self {
        let state = FakeCompletionState {
            generation: 0,
            status: EventStatus::Idle,
            due: None,
            last_outcome: EventStatus::Idle,
            profile: None,
            still_awaited: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Makes the event pending, until `due` if it completes by the clock. Returns the generation of
    /// this use.
    pub(super) fn begin(&self, due: Option<Instant>) -> Result<u64> {
        let mut state = self.state.lock();
        if matches!(state.status, EventStatus::Pending) {
            return Err(errors::pending_signal());
        }
        state.status = EventStatus::Pending;
        state.due = due;
        state.profile = None;
        state.still_awaited.clear();
        state.generation += 1;
        Ok(state.generation)
    }

    /// Makes the event final and wakes the threads that block on it.
    pub(super) fn complete(&self, outcome: Result<()>, profile: Option<EventProfile>) {
        let mut state = self.state.lock();
        state.profile = profile;
        state.status = match outcome {
            Ok(()) => EventStatus::Complete,
            Err(error) => EventStatus::Failed(error),
        };
        state.last_outcome = state.status.clone();
        self.changed.notify_all();
    }

    /// The last use has failed before these.
    pub(super) fn set_still_awaited(&self, uses: Vec<(Arc<Self>, u64)>) {
        self.state.lock().still_awaited = uses;
    }

    /// Whether the use of this generation has ended, and all that it came after.
    pub(super) fn is_over(&self, generation: u64) -> bool {
        let state = self.state.lock();
        if state.generation != generation {
            return true;
        }
        let awaited = state.still_awaited.clone();
        let is_final = state.status.is_final();
        drop(state);
        is_final && awaited.iter().all(|(event, generation)| event.is_over(*generation))
    }

    /// The status, and the generation of the use that it belongs to.
    pub(super) fn status(&self) -> (EventStatus, u64) {
        let state = self.state.lock();
        (state.status.clone(), state.generation)
    }

    /// Time at which the pending use ends by the clock.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.due.filter(|_| matches!(state.status, EventStatus::Pending))
    }

    /// True once per use: for the first poll after the end by the clock.
    pub(super) fn take_first_final_poll(&self, now: Instant) -> bool {
        self.state.lock().due.take_if(|due| *due <= now).is_some()
    }

    /// Blocks while the use of this generation (the current one if `None`) is pending, at most for
    /// `timeout`.
    pub(super) fn wait(&self, generation: Option<u64>, timeout: Option<Duration>) -> EventStatus {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state.lock();
        let generation = generation.unwrap_or(state.generation);
        while matches!(state.status, EventStatus::Pending) && state.generation == generation {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) if self.changed.wait_until(&mut state, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        // If the event was signalled again, this use, or a later one, ended with the last outcome.
        if state.generation == generation { state.status.clone() } else { state.last_outcome.clone() }
    }

    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) when the event is not complete or
    /// has no times.
    pub(super) fn profile(&self) -> Result<EventProfile> {
        let state = self.state.lock();
        match (&state.status, &state.profile) {
            (EventStatus::Complete, Some(profile)) => Ok(profile.clone()),
            (EventStatus::Complete, None) => Err(errors::no_times()),
            _ => Err(errors::times_before_completion()),
        }
    }
}

fn holds_back(earlier: &FakeEnqueue, later: &FakeEnqueue) -> bool {
    (later.in_order && earlier.queue == later.queue)
        || (later.buffer.is_some() && earlier.buffer == later.buffer)
}

fn notify(notification: Notification) {
    notification.target.notify(notification.token);
}

/// Keeps the thread busy until the call that began at `start` has taken this time.
fn spend(start: Instant, time: Duration) {
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_one_use_is_not_held_by_the_next() {
        let completion = FakeCompletion::new();
        let broken = || Err(Error::new(ErrorKind::Driver, "broken"));
        for fails in [false, true] {
            let generation = completion.begin(None).unwrap();
            completion.complete(if fails { broken() } else { Ok(()) }, None);
            completion.begin(None).unwrap();
            match completion.wait(Some(generation), None) {
                EventStatus::Complete => assert!(!fails),
                EventStatus::Failed(error) => assert!(fails && error.message() == "broken"),
                other => panic!("{other:?}"),
            }
            completion.complete(Ok(()), None);
        }
    }
}

//! The inbox, the poller and the sleep of the reactor's thread in miniature, in the model of loom.
//! Two entries on one queue are complete when they are polled. The thread sleeps until it is woken,
//! because a model has no timers. Beside it, the submission queue in miniature: what is left to the thread
//! has ended at once. `scripts/loom.sh` runs it.

use std::collections::VecDeque;
use std::sync::Arc;

use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;

use crate::runtime::completion::latch::Latch;

/// Time at which an entry is due that is left to its submission.
const LATER: u64 = 1;

struct ModelReactor {
    poller: Mutex<VecDeque<usize>>,
    inbox: Mutex<ModelInbox>,
    has_changed: AtomicBool,
    asleep_until: AtomicU64,
    changed: Condvar,
    /// Whether there is a submitter.
    has_submitter: AtomicBool,
    left: Mutex<Vec<usize>>,
    /// Whether the thread has to be woken to see what was left.
    asleep: AtomicBool,
    runs: [ModelRun; 2],
}

#[derive(Default)]
struct ModelInbox {
    added: Vec<usize>,
    is_closed: bool,
}

struct ModelRun {
    done: Latch,
    has_poller: AtomicBool,
}

impl ModelReactor {
    fn new(has_poller: [bool; 2]) -> Arc<Self> {
        let run = |has_poller| ModelRun { done: Latch::new(), has_poller: AtomicBool::new(has_poller) };
        Arc::new(Self {
            poller: Mutex::default(),
            inbox: Mutex::default(),
            has_changed: AtomicBool::new(false),
            asleep_until: AtomicU64::new(0),
            changed: Condvar::new(),
            has_submitter: AtomicBool::new(false),
            left: Mutex::default(),
            asleep: AtomicBool::new(false),
            runs: has_poller.map(run),
        })
    }

    fn inbox(&self) -> MutexGuard<'_, ModelInbox> {
        self.inbox.lock().unwrap()
    }

    /// As `Schedule::next_for_host`.
    fn next_for_host(&self, entries: &VecDeque<usize>) -> Option<u64> {
        let oldest = &self.runs[*entries.front()?];
        Some(if oldest.has_poller.load(Ordering::Relaxed) { LATER } else { 0 })
    }

    /// As `Poller::turn`: returns the entry that it has found complete.
    fn drive(&self, entries: &mut VecDeque<usize>, is_host: bool) -> Option<usize> {
        if self.has_changed.load(Ordering::Relaxed) && self.has_changed.swap(false, Ordering::Acquire) {
            entries.extend(self.inbox().added.drain(..));
        }
        let is_due = !is_host || self.next_for_host(entries) == Some(0);
        if is_due { entries.pop_front() } else { None }
    }

    /// As `ReactorInner::watch`.
    fn watch(&self, run: usize) {
        let left_until = if self.runs[run].has_poller.load(Ordering::Relaxed) { LATER } else { 0 };
        let mut inbox = self.inbox();
        inbox.added.push(run);
        self.has_changed.store(true, Ordering::Release);
        self.wake_before(&inbox, left_until);
    }

    /// As `ReactorInner::wake_before`.
    fn wake_before(&self, _inbox: &MutexGuard<'_, ModelInbox>, time: u64) {
        if time < self.asleep_until.load(Ordering::Relaxed) {
            self.asleep_until.store(0, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// As `Reactor::turn`, which a submission calls that spins.
    fn turn(&self) {
        let Ok(mut entries) = self.poller.try_lock() else { return };
        let found = self.drive(&mut entries, false);
        if found.is_some()
            && let Some(next) = self.next_for_host(&entries)
            && next < self.asleep_until.load(Ordering::Relaxed)
        {
            self.wake_before(&self.inbox(), next);
        }
        drop(entries);
        found.into_iter().for_each(|run| self.runs[run].done.set());
    }

    /// As `Run::stop_polling` and `Reactor::poll_instead`.
    fn stop_polling(&self, run: usize) {
        self.runs[run].has_poller.store(false, Ordering::Relaxed);
        let inbox = self.inbox();
        self.has_changed.store(true, Ordering::Release);
        self.wake_before(&inbox, 0);
    }

    /// As `ReactorInner::run_thread` and `take_turn`, without a task.
    fn host(&self) {
        loop {
            if self.has_submitter.load(Ordering::Acquire) {
                let left = std::mem::take(&mut *self.left.lock().unwrap());
                left.into_iter().for_each(|run| self.runs[run].done.set());
            }
            let mut entries = self.poller.lock().unwrap();
            if let Some(run) = self.drive(&mut entries, true) {
                drop(entries);
                self.runs[run].done.set();
                continue;
            }
            let next = self.next_for_host(&entries);
            if next == Some(0) {
                continue;
            }
            let inbox = self.inbox();
            if self.has_changed.load(Ordering::Acquire) {
                continue;
            }
            if inbox.is_closed && entries.is_empty() {
                return;
            }
            self.asleep_until.store(next.unwrap_or(u64::MAX), Ordering::Relaxed);
            drop(entries);
            let _inbox = self.sleep(inbox);
            self.asleep_until.store(0, Ordering::Relaxed);
        }
    }

    /// As `ReactorInner::sleep` and `SubmissionQueue::fall_asleep`.
    fn sleep<'a>(&self, inbox: MutexGuard<'a, ModelInbox>) -> MutexGuard<'a, ModelInbox> {
        let has_submitter = self.has_submitter.load(Ordering::Acquire);
        if has_submitter {
            self.asleep.store(true, Ordering::SeqCst);
            if !self.left.lock().unwrap().is_empty() {
                self.asleep.store(false, Ordering::SeqCst);
                return inbox;
            }
        }
        let inbox = self.changed.wait(inbox).unwrap();
        if has_submitter {
            self.asleep.store(false, Ordering::SeqCst);
        }
        inbox
    }

    /// As `Reactor::set_submitter`.
    fn set_submitter(&self) {
        self.has_submitter.store(true, Ordering::Release);
        self.wake_thread();
    }

    /// As `SubmissionQueue::push`, by a submission.
    fn leave(&self, run: usize) {
        self.left.lock().unwrap().push(run);
        if self.asleep.load(Ordering::SeqCst) {
            self.wake_thread();
        }
    }

    /// As `Reactor::wake_thread`.
    fn wake_thread(&self) {
        drop(self.inbox());
        self.changed.notify_one();
    }

    /// As `Reactor::close`.
    fn close(&self) {
        let mut inbox = self.inbox();
        inbox.is_closed = true;
        self.wake_before(&inbox, 0);
    }
}

/// Runs the thread that hosts the reactor beside the rest of the model.
fn model(has_poller: [bool; 2], rest: fn(&Arc<ModelReactor>)) {
    loom::model(move || {
        let reactor = ModelReactor::new(has_poller);
        let hosted = reactor.clone();
        let host = thread::spawn(move || hosted.host());
        rest(&reactor);
        reactor.close();
        host.join().unwrap();
    });
}

#[test]
fn loom_an_entry_added_while_a_turn_ends_is_polled() {
    model([false; 2], |reactor| {
        reactor.watch(0);
        reactor.watch(1);
        block_on(reactor.runs[0].done.wait());
        block_on(reactor.runs[1].done.wait());
    });
}

#[test]
fn loom_what_a_spinning_submission_takes_over_is_polled() {
    model([true, false], |reactor| {
        reactor.watch(0);
        let spinning = reactor.clone();
        let spinning = thread::spawn(move || {
            while !spinning.runs[0].done.is_set() {
                spinning.turn();
                thread::yield_now();
            }
        });
        reactor.watch(1);
        block_on(reactor.runs[1].done.wait());
        spinning.join().unwrap();
    });
}

#[test]
fn loom_a_submission_that_stops_polling_leaves_its_run_to_the_thread() {
    model([true, false], |reactor| {
        reactor.watch(0);
        reactor.stop_polling(0);
        block_on(reactor.runs[0].done.wait());
    });
}

#[test]
fn loom_what_is_left_to_the_thread_is_submitted() {
    model([false; 2], |reactor| {
        reactor.set_submitter();
        reactor.leave(0);
        block_on(reactor.runs[0].done.wait());
    });
}

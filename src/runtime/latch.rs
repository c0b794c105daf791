//! A one-way flag that tasks can wait for.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Set once, waited for by any number of tasks. Waiters that come late see it set.
#[derive(Debug)]
pub(crate) struct Latch {
    set: AtomicBool,
    waiters: Mutex<Waiters>,
}

/// Slots, so that a waiter that polls again replaces its waker instead of adding one.
type Waiters = SmallVec<[Option<Waker>; 1]>;

/// A waiter's slot in one latch.
#[derive(Debug, Default)]
pub(crate) struct WaiterKey(Option<usize>);

impl Latch {
    pub(crate) fn new() -> Self {
        Self { set: AtomicBool::new(false), waiters: Mutex::new(Waiters::new()) }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Sets the flag and wakes everybody. Wakers run outside the lock.
    pub(crate) fn set(&self) {
        // The store is inside the lock's order: a waiter that registers afterwards sees the flag, one that registered
        // before is in the list.
        self.set.store(true, Ordering::Release);
        let mut waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.drain(..).flatten().for_each(Waker::wake);
    }

    /// Back to not set. The exclusive reference proves that nobody waits.
    pub(crate) fn reset(&mut self) {
        self.set = AtomicBool::new(false);
        self.waiters = Mutex::new(Waiters::new());
    }

    pub(crate) fn poll(&self, cx: &Context<'_>, key: &mut WaiterKey) -> Poll<()> {
        if self.is_set() {
            return Poll::Ready(());
        }
        let mut waiters = self.waiters.lock();
        // `set` may have emptied the list between the check above and the lock.
        if self.is_set() {
            return Poll::Ready(());
        }
        match key.0 {
            Some(slot) => match &mut waiters[slot] {
                Some(waker) => waker.clone_from(cx.waker()),
                empty => *empty = Some(cx.waker().clone()),
            },
            None => {
                key.0 = Some(waiters.len());
                waiters.push(Some(cx.waker().clone()));
            }
        }
        Poll::Pending
    }

    /// Forgets a waiter that stops waiting, so that it is not woken in vain.
    pub(crate) fn forget(&self, key: &WaiterKey) {
        if let Some(slot) = key.0
            && !self.is_set()
            && let Some(waiter) = self.waiters.lock().get_mut(slot)
        {
            *waiter = None;
        }
    }

    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { latch: self, key: WaiterKey::default() }
    }
}

/// Future of [`Latch::wait`]. Cancel safe: dropping it removes the waiter.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    latch: &'a Latch,
    key: WaiterKey,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.latch.poll(cx, &mut this.key)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.latch.forget(&self.key);
    }
}

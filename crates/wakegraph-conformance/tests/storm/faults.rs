//! What goes wrong on purpose: failures with numbers, values whose drop panics, wakers that panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;
use std::{fmt, thread};

use parking_lot::Mutex;

use crate::random::Random;
use crate::support::PANIC;

/// Random numbers that several threads share.
pub(crate) struct Dice(Mutex<Random>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Random::new(seed))))
    }

    pub(crate) fn chance(&self, one_in: usize) -> bool {
        self.0.lock().chance(one_in)
    }

    pub(crate) fn below(&self, bound: usize) -> usize {
        self.0.lock().below(bound)
    }
}

/// Counts values that closures capture: every one that was made has to be dropped exactly once.
#[derive(Default)]
pub(crate) struct Census {
    made: AtomicU64,
    dropped: AtomicU64,
}

impl Census {
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::SeqCst)
    }
}

/// What a captured value does when it is dropped.
pub(crate) type OnDrop = Box<dyn FnOnce() + Send + Sync>;

/// A value that a closure captures.
pub(crate) struct Captured {
    census: Arc<Census>,
    alive: bool,
    on_drop: Option<OnDrop>,
    /// What the next clone does when it is dropped.
    on_clone: Arc<dyn Fn() -> Option<OnDrop> + Send + Sync>,
}

impl Captured {
    pub(crate) fn new(
        census: &Arc<Census>,
        on_drop: Option<OnDrop>,
        on_clone: impl Fn() -> Option<OnDrop> + Send + Sync + 'static,
    ) -> Self {
        Self::made(census.clone(), on_drop, Arc::new(on_clone))
    }

    fn made(
        census: Arc<Census>,
        on_drop: Option<OnDrop>,
        on_clone: Arc<dyn Fn() -> Option<OnDrop> + Send + Sync>,
    ) -> Self {
        census.made.fetch_add(1, Ordering::SeqCst);
        Self { census, alive: true, on_drop, on_clone }
    }
}

impl Clone for Captured {
    fn clone(&self) -> Self {
        let on_drop = (self.on_clone)();
        Self::made(self.census.clone(), on_drop, self.on_clone.clone())
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        assert!(std::mem::take(&mut self.alive), "a captured value is dropped twice");
        self.census.dropped.fetch_add(1, Ordering::SeqCst);
        if let Some(act) = self.on_drop.take() {
            act();
        }
    }
}

/// Panics with the number of the failure, unless this thread panics already, which would end the process.
pub(crate) fn panic_with(number: u64) {
    if !thread::panicking() {
        panic!("{PANIC} #{number}");
    }
}

/// Panics with a payload whose own drop panics.
pub(crate) fn panic_with_bad_payload() -> ! {
    struct BadPayload;
    impl Drop for BadPayload {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("{PANIC} in the drop of a payload");
            }
        }
    }
    resume_unwind(Box::new(BadPayload))
}

/// An error of a user's with a number, and with something to do when it is dropped.
pub(crate) struct Failure {
    number: u64,
    on_drop: Option<OnDrop>,
}

impl Failure {
    pub(crate) fn new(number: u64, on_drop: Option<OnDrop>) -> Self {
        Self { number, on_drop }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a failure on purpose #{}", self.number)
    }
}

impl std::error::Error for Failure {}

impl Drop for Failure {
    fn drop(&mut self) {
        if let Some(act) = self.on_drop.take() {
            act();
        }
    }
}

/// A waker that panics when it wakes.
pub(crate) struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        if !thread::panicking() {
            panic!("{PANIC} in a waker");
        }
    }
}

/// Panics on purpose that came out of a call of the crate's, in the caller's thread.
pub(crate) static ESCAPED: AtomicU64 = AtomicU64::new(0);

/// Runs what may drop a value whose drop panics; a panic on purpose is counted, others go on.
pub(crate) fn calmly<R>(act: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => Some(result),
        Err(payload) => {
            let text = payload
                .downcast_ref::<String>()
                .map_or_else(|| payload.downcast_ref::<&str>().copied().unwrap_or_default(), String::as_str);
            if !text.starts_with(PANIC) {
                resume_unwind(payload);
            }
            ESCAPED.fetch_add(1, Ordering::SeqCst);
            None
        }
    }
}

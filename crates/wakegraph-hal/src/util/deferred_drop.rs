//! Drops values of users on threads of their own.
//!
//! The captures of closures and the sources of errors are the user's: their `Drop` may block, submit or
//! panic. They must not be dropped where the runtime holds a lock, nor on a thread that others need: a
//! device's, or the reactor's. [`drop_later`] may be called in all of these places. One thread
//! drops such values one after the other; where a value takes long, another thread goes on with
//! those behind it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Error;
use crate::util::panics::catch_and_log;

/// Drops `value` on another thread, soon.
pub fn drop_later(value: impl Send + 'static) {
    DROPS.add(Box::new(value));
}

thread_local! {
    static IS_DROPPING: Cell<bool> = const { Cell::new(false) };
}

/// Drops `value` on this thread, unless this thread is inside such a drop already. Where values own
/// each other in a chain of any length, one drop is never inside another.
pub fn drop_unless_nested(value: impl Send + 'static) {
    struct NotNested;

    impl Drop for NotNested {
        fn drop(&mut self) {
            let _ = IS_DROPPING.try_with(|is_dropping| is_dropping.set(false));
        }
    }

    // A thread that is ending has no flag any more.
    if IS_DROPPING.try_with(|is_dropping| is_dropping.replace(true)).unwrap_or(true) {
        return drop_later(value);
    }
    let _not_nested = NotNested;
    drop(value);
}

/// An error that the runtime or a backend keeps. Its [source](std::error::Error::source) may be a
/// value of the user's, so where the last reference to the error is dropped as a `Failure`, its
/// source is dropped later.
#[derive(Clone)]
pub struct Failure(Option<Error>);

impl Failure {
    /// A failure with this error.
    pub fn new(error: Error) -> Self {
        Self(Some(error))
    }

    /// The error, for the user.
    pub fn error(&self) -> Error {
        (**self).clone()
    }

    /// Adds to the error.
    #[must_use]
    pub fn map(mut self, add: impl FnOnce(Error) -> Error) -> Self {
        Self(self.0.take().map(add))
    }
}

impl Deref for Failure {
    type Target = Error;

    fn deref(&self) -> &Error {
        // Taken only by what consumes the failure.
        self.0.as_ref().expect("a failure has an error until it is dropped")
    }
}

impl Drop for Failure {
    fn drop(&mut self) {
        if let Some(source) = self.0.take().and_then(Error::into_source) {
            drop_later(source);
        }
    }
}

impl Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&**self, f)
    }
}

/// The values to be dropped, and the threads that do so. There is none while there is nothing to do for long.
struct Drops {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    values: VecDeque<Box<dyn Send>>,
    /// Number of threads that wait for values, or for one that takes long.
    waiting: usize,
    /// Since when the thread whose turn it is has been dropping a value.
    busy_since: Option<Instant>,
    /// Counts the values taken. A thread that comes back from a drop and finds another number has
    /// lost its turn.
    turn: u64,
}

static DROPS: Drops = Drops {
    state: Mutex::new(State { values: VecDeque::new(), waiting: 0, busy_since: None, turn: 0 }),
    changed: Condvar::new(),
};

/// After this time with one value another thread goes on with the next.
const LONG: Duration = Duration::from_millis(10);

/// A thread ends after this time without work.
const IDLE: Duration = Duration::from_secs(5);

impl Drops {
    fn add(&'static self, value: Box<dyn Send>) {
        let mut state = self.state.lock();
        state.values.push_back(value);
        let starts_thread = state.waiting == 0;
        state.waiting += usize::from(starts_thread);
        drop(state);
        if starts_thread {
            self.start_thread();
        } else {
            self.changed.notify_one();
        }
    }

    /// Starts a thread, which the caller has counted as one that waits.
    fn start_thread(&'static self) {
        let thread = thread::Builder::new().name("wakegraph-drop".into());
        if let Err(error) = thread.spawn(|| self.run()) {
            // The next value tries again.
            self.state.lock().waiting -= 1;
            tracing::error!(target: "wakegraph", %error, "could not start the thread that drops values");
        }
    }

    fn run(&'static self) {
        IS_DROPPING.set(true);
        let mut state = self.state.lock();
        loop {
            if state.values.is_empty() {
                let timed_out = self.changed.wait_for(&mut state, IDLE).timed_out();
                if timed_out && state.values.is_empty() {
                    state.waiting -= 1;
                    return;
                }
                continue;
            }
            let left = state.busy_since.map_or(Duration::ZERO, |since| LONG.saturating_sub(since.elapsed()));
            if !left.is_zero() {
                self.changed.wait_for(&mut state, left);
                continue;
            }
            let Some(value) = state.values.pop_front() else { continue };
            state.turn += 1;
            let turn = state.turn;
            state.busy_since = Some(Instant::now());
            // Another thread has to see if this takes long.
            let starts_thread = state.waiting == 1 && !state.values.is_empty();
            state.waiting -= usize::from(!starts_thread);
            drop(state);
            if starts_thread {
                self.start_thread();
            }
            catch_and_log("the drop of a value", || drop(value));
            state = self.state.lock();
            state.waiting += 1;
            if state.turn == turn {
                state.busy_since = None;
            }
        }
    }
}

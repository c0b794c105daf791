//! A hang becomes a failure.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

/// Far longer than any test takes, also on a machine that is busy with other things.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Runs a test on a thread of its own, and fails if it does not end.
#[track_caller]
pub(crate) fn must_end(test: impl FnOnce() + Send + 'static) {
    run(Builder::new(), test);
}

/// As [`must_end`], on a thread with a stack so small that recursion along a long chain aborts the process.
#[track_caller]
pub(crate) fn must_end_on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    run(Builder::new().stack_size(256 << 10), test);
}

#[track_caller]
fn run(thread: Builder, test: impl FnOnce() + Send + 'static) {
    let (send, ended) = channel();
    let work = move || {
        test();
        let _ = send.send(());
    };
    let thread = match thread.spawn(work) {
        Ok(thread) => thread,
        Err(error) => panic!("the test needs a thread: {error}"),
    };
    match ended.recv_timeout(TIME_LIMIT) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

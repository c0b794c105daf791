//! A hang becomes a failure.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Far longer than any test takes, also on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on a thread of its own, and fails if it does not end.
#[track_caller]
pub(crate) fn must_end(test: impl FnOnce() + Send + 'static) {
    let (send, ended) = channel();
    let thread = thread::spawn(move || {
        test();
        let _ = send.send(());
    });
    match ended.recv_timeout(PATIENCE) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

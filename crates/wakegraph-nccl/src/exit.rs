//! The threads that destroy communicators, and the end of the process.
#![expect(unsafe_code, reason = "registers a function for the process's exit")]

use std::ffi::c_int;
use std::mem;
use std::sync::Once;
use std::time::Duration;

use parking_lot::RwLock;

/// Held while communicators are destroyed, and for good when the process exits.
static CALLS: RwLock<()> = RwLock::new(());

/// The longest that the process's exit waits for communicators that are being destroyed: NCCL waits for the
/// last graph that has its kernels, which may never be dropped.
const LONGEST_EXIT: Duration = Duration::from_secs(5);

/// Calls `destroy` unless the process exits: the destructors of NCCL and of the driver run then, and a call
/// beside them ends in a fault.
pub(crate) fn unless_exiting(destroy: impl FnOnce()) {
    let _calls = CALLS.read();
    destroy();
}

/// Keeps communicators from being destroyed while the process exits. To be called when NCCL is initialised,
/// and so has registered its destructors: these run later.
pub(crate) fn stop_at_exit() {
    static REGISTERED: Once = Once::new();

    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    extern "C" fn stop() {
        mem::forget(CALLS.try_write_for(LONGEST_EXIT));
    }
    REGISTERED.call_once(|| {
        // SAFETY: C's function takes any function, which the process keeps.
        if unsafe { atexit(stop) } != 0 {
            tracing::debug!(target: "wakegraph", "there is no room for another function at exit");
        }
    });
}

//! Layer 0: processes that have been forked off one with open devices.
//!
//! A child has neither the threads of its parent nor the drivers' connections to the devices, so whatever it
//! submitted would never end. It gets an error instead.

use std::sync::atomic::{AtomicBool, Ordering};

use wakegraph_hal::{Error, ErrorKind, Result};

/// Whether this process was forked off one in which devices had been opened.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Refuses the children of this process from now on.
pub(crate) fn refuse_children() {
    handler::install();
}

/// Fails in such a child. Costs one load.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable), with the remedy.
#[inline]
pub(crate) fn check() -> Result<()> {
    if IS_CHILD.load(Ordering::Relaxed) { Err(refusal()) } else { Ok(()) }
}

#[cold]
fn refusal() -> Error {
    let why = "this process was forked off one that had opened devices, which do not work in a child";
    Error::new(ErrorKind::Unavailable, why)
        .help("fork before the first device is opened, or start the child with `std::process::Command`")
}

#[cfg(all(unix, not(miri)))]
#[expect(unsafe_code, reason = "calls the system's library")]
mod handler {
    use std::ffi::c_int;
    use std::sync::Once;

    use super::{IS_CHILD, Ordering};

    type Handler = Option<extern "C" fn()>;

    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }

    /// Runs in a child before `fork` returns, when only what is safe in a signal handler may be called.
    extern "C" fn mark_child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }

    pub(super) fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // SAFETY: the handler lives as long as the program, and stores one atomic.
            let failed = unsafe { pthread_atfork(None, None, Some(mark_child)) };
            if failed != 0 {
                tracing::warn!(target: "wakegraph", failed, "children of this process will not be refused");
            }
        });
    }
}

/// This system has no `fork`.
#[cfg(any(not(unix), miri))]
mod handler {
    pub(super) fn install() {}
}

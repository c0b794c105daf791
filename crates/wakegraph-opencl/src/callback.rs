//! Callbacks of the driver when an event is over.
#![expect(unsafe_code, reason = "calls the driver, which calls back")]

use std::ffi::c_void;
use std::thread;
use std::time::Duration;

use super::query;
use super::sys::{self, Core, OpenclFailure, call};

/// Calls `then` with the outcome of an event once it is over: 0, or an error code. It is called on the
/// driver's thread, inside this call, or on this thread after a wait if the driver refuses the callback.
/// Callers hold no lock. `then` keeps the event alive, and does not panic.
pub(super) fn when_over<F>(core: &Core, event: sys::cl_event, then: F)
where
    F: FnOnce(sys::cl_int) + Send + 'static,
{
    let (then, complete) = (Box::into_raw(Box::new(then)), sys::CL_COMPLETE as sys::cl_int);
    // SAFETY: the event is alive. The callback is called at most once, and takes the box then.
    let set = unsafe { call!(core, clSetEventCallback(event, complete, Some(on_event::<F>), then.cast())) };
    if let Err(OpenclFailure { call, code }) = set {
        tracing::warn!(target: "wakegraph::opencl", call, code, "a callback was refused");
        // SAFETY: made above; a refused callback is not called.
        let then = unsafe { Box::from_raw(then) };
        then(wait(core, event));
    }
}

/// Blocks until the event is over, and gives its outcome: 0, or an error code.
pub(super) fn wait(core: &Core, event: sys::cl_event) -> sys::cl_int {
    loop {
        // SAFETY: the event is alive.
        let waited = unsafe { call!(core, clWaitForEvents(1, &raw const event)) };
        if let Ok(Some(outcome)) = query::event_outcome(core, event) {
            return outcome;
        }
        // The driver could not wait, or not say how the event ended.
        if let Err(OpenclFailure { call, code }) = waited {
            tracing::debug!(target: "wakegraph::opencl", call, code, "a wait failed");
        }
        thread::sleep(BETWEEN_WAITS);
    }
}

/// The pause after a wait that has failed.
const BETWEEN_WAITS: Duration = Duration::from_micros(100);

/// The driver's callback.
unsafe extern "C" fn on_event<F: FnOnce(sys::cl_int)>(
    _: sys::cl_event,
    code: sys::cl_int,
    then: *mut c_void,
) {
    // SAFETY: the box that `when_over` gave to the driver, which gives it back once.
    let then = unsafe { Box::from_raw(then.cast::<F>()) };
    then(code.min(sys::CL_SUCCESS));
}

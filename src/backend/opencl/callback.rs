//! Callbacks of the driver when an event is over.
#![expect(unsafe_code, reason = "calls the driver, which calls back")]

use std::ffi::c_void;

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
        wait(core, event);
        then(query::event_status(core, event).unwrap_or_else(|failure| failure.code));
    }
}

/// Blocks until the event is over, successful or not.
pub(super) fn wait(core: &Core, event: sys::cl_event) {
    // SAFETY: the event is alive. An error says that it has failed, so it is over.
    let _ = unsafe { call!(core, clWaitForEvents(1, &raw const event)) };
}

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

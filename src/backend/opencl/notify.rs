//! Notifications: the driver's callbacks, on the runtimes where they are as fast as looking.
#![expect(unsafe_code, reason = "the driver calls back")]

use std::ffi::c_void;
use std::sync::Arc;

use super::signal::Signal;
use super::sys::{self, Core, Failure, call};
use crate::hal::Notification;
use crate::util::panics::catch_and_log;

/// What the driver carries to the callback.
struct Told {
    signal: Arc<Signal>,
    notification: Notification,
}

/// Notifies once what the signal stands for is over: from the driver's thread, or, where it is over
/// already, from here. Not for callers that hold a lock.
pub(super) fn when_over(core: &'static Core, signal: Arc<Signal>, notification: Notification) {
    let Some(event) = signal.event() else { return tell(Told { signal, notification }) };
    let told = Box::into_raw(Box::new(Told { signal, notification }));
    let complete = sys::CL_COMPLETE as sys::cl_int;
    // SAFETY: the event is alive, as `told` has its signal. The callback is called at most once,
    // and takes the box then.
    let outcome = unsafe { call!(core, clSetEventCallback(event, complete, Some(over), told.cast())) };
    if let Err(Failure { call, code }) = outcome {
        tracing::warn!(target: "wakegraph::opencl", call, code, "a callback was refused; waiting for the event instead");
        // SAFETY: made above; a refused callback is not called.
        let told = unsafe { Box::from_raw(told) };
        told.signal.wait();
        tell(*told);
    }
}

/// The driver's callback.
unsafe extern "C" fn over(_event: sys::cl_event, code: sys::cl_int, told: *mut c_void) {
    // SAFETY: what `when_over` gave to the driver, which gives it back once.
    let told = unsafe { Box::from_raw(told.cast::<Told>()) };
    told.signal.has_ended(code);
    tell(*told);
}

fn tell(Told { signal, notification }: Told) {
    // So that the event can use it again.
    drop(signal);
    // Wakers are others' code, and the driver's thread cannot be unwound.
    catch_and_log("a notification of the OpenCL backend", move || {
        notification.target.notify(notification.token);
        drop(notification);
    });
}

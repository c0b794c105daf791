//! Streams that are lent to the user's closures, and the capture of their work as a graph.
#![expect(unsafe_code, reason = "passes handles to the driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::context::ContextFailure;
use super::stream::{DriverStream, StreamContext, StreamHandle};
use crate::support::object::{ObjectKind, Owned};
use crate::{Error, ErrorKind, NativeCommand, NativeStream, Result};

/// A context whose streams capture work as graphs. For all calls the caller has bound the context.
pub trait CaptureContext: StreamContext {
    /// The driver's graphs.
    type GraphKind: ObjectKind<Handle = *mut Self::GraphKind, Owner = Arc<Self>>;
    /// The backend's name.
    const BACKEND: &'static str;

    /// What closures get beside a stream.
    fn native_context(&self) -> *mut c_void;

    /// Begins a capture, in a mode that does not restrict other threads.
    ///
    /// # Safety
    /// The stream is live, and only the caller uses it.
    unsafe fn begin_capture(&self, stream: StreamHandle<Self>) -> Result<(), ContextFailure<Self>>;

    /// Ends a capture, and writes its graph to the place, if there is one. An error says that the capture
    /// was invalid, and has ended it.
    ///
    /// # Safety
    /// The stream is live, and this thread has begun its capture.
    unsafe fn end_capture(
        &self,
        stream: StreamHandle<Self>,
        graph: &mut *mut Self::GraphKind,
    ) -> Result<(), ContextFailure<Self>>;

    /// # Safety
    /// The stream is live.
    unsafe fn is_capturing(&self, stream: StreamHandle<Self>) -> Result<bool, ContextFailure<Self>>;
}

impl<C: CaptureContext> DriverStream<C> {
    /// The stream as closures get it.
    ///
    /// # Safety
    /// The stream lives as long as the value.
    pub unsafe fn lent(&self) -> NativeStream<'_> {
        // SAFETY: the stream keeps the context; the caller promises the rest.
        unsafe { NativeStream::new(C::BACKEND, self.raw().cast(), self.context().native_context()) }
    }

    /// Ends the capture of the stream, if there is one: an event that is recorded there would never
    /// complete. Says whether there was one.
    pub fn end_open_capture(&self) -> Result<bool, ContextFailure<C>> {
        let context = self.context();
        // SAFETY: the stream is alive.
        if !unsafe { context.is_capturing(self.raw()) }? {
            return Ok(false);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the stream is alive, and captures.
        let _ = unsafe { context.end_capture(self.raw(), &mut raw) };
        drop(Owned::adopt(context, raw));
        Ok(true)
    }
}

/// Calls the closure with a stream that captures. The caller has bound the context.
///
/// # Errors
/// The closure's own or its panic; the driver's, where the work cannot be captured.
pub fn capture<C: CaptureContext>(context: &Arc<C>, native: &NativeCommand) -> Result<Owned<C::GraphKind>> {
    let stream = DriverStream::create(context)?;
    // SAFETY: the stream is alive, and nothing else uses it.
    unsafe { context.begin_capture(stream.raw()) }?;
    // SAFETY: the stream lives until the end of this function, and so does the value.
    let lent = unsafe { stream.lent() };
    // SAFETY: the stream captures, in the current context. The graph becomes part of a
    // command-buffer, which keeps the command with its memory; its enqueues promise the order.
    let called = unsafe { native.call(&lent) };
    // A library may have made another context current.
    let current = context.make_current();
    let mut raw = ptr::null_mut();
    // SAFETY: the stream is alive and its capture was begun on this thread.
    let ended = unsafe { context.end_capture(stream.raw(), &mut raw) };
    // Owned from here on, so that a graph is destroyed whatever went wrong.
    let graph = Owned::adopt(context, raw);
    called?;
    current?;
    let refused = |why: String| {
        let name = native.name();
        Error::new(ErrorKind::Driver, format!("native command '{name}' cannot be captured: {why}")).help(
            "enqueue on the stream that the closure is given, join what branches off it, and neither wait \
             nor allocate there",
        )
    };
    ended.map_err(|failure| {
        let error = Error::from(failure);
        match error.kind() {
            ErrorKind::DeviceLost => error,
            _ => refused(error.message().to_owned()),
        }
    })?;
    graph.ok_or_else(|| refused("the driver gave no graph".into()))
}

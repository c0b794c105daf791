//! Native commands: a stream of ours captures the work that the user enqueues on it, as a graph.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::device_inner::CudaDeviceInner;
use super::graph::CudaGraph;
use super::stream::CudaStream;
use super::sys::{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, call};
use crate::hal::{NativeCommand, NativeStream};
use crate::types::{Error, ErrorKind, Result};

/// Calls the closure with a stream that captures. The caller has bound the context.
///
/// # Errors
/// The closure's own or its panic; the driver's, where the work cannot be captured.
pub(super) fn capture(device: &CudaDeviceInner, native: &NativeCommand) -> Result<CudaGraph> {
    let context = &device.context;
    let driver = context.driver;
    let stream = CudaStream::create(context)?;
    // This mode does not restrict other threads.
    let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive, and nothing else uses it.
    unsafe { call!(driver, cuStreamBeginCapture(stream.raw(), mode)) }?;
    // SAFETY: stream and context live until the end of this function, and so does the value.
    let lent = unsafe { NativeStream::new("cuda", stream.raw().cast(), context.raw.cast()) };
    // SAFETY: the stream captures, in the current context. The graph becomes part of a
    // command-buffer, which keeps the command with its memory; its enqueues promise the order.
    let called = unsafe { native.call(&lent) };
    // A library may have made another context current.
    let current = context.make_current();
    let mut raw = ptr::null_mut();
    // SAFETY: the stream is alive and its capture was begun on this thread; the pointer is valid
    // for a pointer.
    let ended = unsafe { call!(driver, cuStreamEndCapture(stream.raw(), &raw mut raw)) };
    // Owned from here on, so that a graph is destroyed whatever went wrong.
    let graph = CudaGraph::adopt(context, raw);
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

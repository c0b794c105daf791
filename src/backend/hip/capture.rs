//! Native commands: a stream of ours captures the work that the user enqueues on it, as a graph.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::device_inner::HipDeviceInner;
use super::graph::HipGraph;
use super::stream::HipStream;
use super::sys::{call, hipStreamCaptureModeThreadLocal};
use crate::hal::{NativeCommand, NativeStream};
use crate::types::{Error, ErrorKind, Result};

/// Calls the closure with a stream that captures. The caller has bound the context.
///
/// # Errors
/// The closure's own or its panic; the driver's, where the work cannot be captured.
pub(super) fn capture(device: &HipDeviceInner, native: &NativeCommand) -> Result<HipGraph> {
    let context = &device.context;
    let driver = context.driver;
    let stream = HipStream::create(context)?;
    // This mode does not restrict other threads.
    let mode = hipStreamCaptureModeThreadLocal;
    // SAFETY: the stream is alive, and nothing else uses it.
    unsafe { call!(driver, hipStreamBeginCapture(stream.raw(), mode)) }?;
    // SAFETY: the stream lives until the end of this function, and so does the value.
    let lent = unsafe { NativeStream::new("hip", stream.raw().cast(), ptr::null_mut()) };
    // SAFETY: the stream captures, on the current device. The graph becomes part of a
    // command-buffer, which keeps the command with its memory; its enqueues promise the order.
    let called = unsafe { native.call(&lent) };
    // A library may have made another device current.
    let current = context.make_current();
    let mut raw = ptr::null_mut();
    // SAFETY: the stream is alive and its capture was begun on this thread; the pointer is valid
    // for a pointer.
    let ended = unsafe { call!(driver, hipStreamEndCapture(stream.raw(), &raw mut raw)) };
    // Owned from here on, so that a graph is destroyed whatever went wrong.
    let graph = HipGraph::adopt(context, raw);
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

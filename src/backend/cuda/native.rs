//! Native commands: what the user enqueues on a stream of ours is captured as a graph.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use super::device::Shared;
use super::graph::Graph;
use super::stream::Stream;
use super::sys::{CUstreamCaptureMode, call};
use crate::hal::{NativeCommand, NativeStream};
use crate::types::{Error, ErrorKind, Result};

/// Calls the closure on a stream that captures. The caller has bound the context.
///
/// # Errors
/// The closure's own or its panic; the driver's, where what it did cannot be captured.
pub(super) fn capture(shared: &Arc<Shared>, native: &NativeCommand) -> Result<Graph> {
    let context = &shared.context;
    let driver = context.driver;
    let stream = Stream::create(context)?;
    // What other threads do meanwhile is their own business.
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive, and nobody else's.
    unsafe { call!(driver, cuStreamBeginCapture(stream.raw(), mode)) }?;
    // SAFETY: stream and context are alive until the end of this function, which the value does not outlive.
    let lent = unsafe { NativeStream::new("cuda", stream.raw().cast(), context.raw().cast()) };
    // SAFETY: the stream captures, in the current context. The graph becomes part of a
    // command-buffer, which keeps the command with its memory; those who enqueue that vouch for the
    // order.
    let called = unsafe { native.call(&lent) };
    // A library may have made another context current.
    let current = context.make_current();
    let mut raw = ptr::null_mut();
    // SAFETY: the stream is alive and its capture was begun on this thread; the place is a pointer's.
    let ended = unsafe { call!(driver, cuStreamEndCapture(stream.raw(), &raw mut raw)) };
    // Whatever went wrong, a graph that is there is destroyed.
    let graph = Graph::adopt(context, raw);
    called?;
    current?;
    let refused = |why: String| {
        let name = native.name();
        Error::new(ErrorKind::Driver, format!("native command '{name}' cannot be captured: {why}")).help(
            "enqueue on the stream that the closure is given, join what branches off it, and neither wait nor allocate there",
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

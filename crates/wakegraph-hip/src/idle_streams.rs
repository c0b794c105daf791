//! Streams that nothing uses any more, kept for what needs one next.
//!
//! Each executable has a stream of its own. The driver waits for a stream when it destroys it, which happens
//! on another thread: a program that makes and drops executables faster than that would pile up streams.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;
use std::ptr;

use parking_lot::Mutex;

use super::release::ReleaseThread;
use super::sys::{Driver, HipFailure, call, hipStream_t};

/// How many are kept.
const MOST: usize = 16;

/// The streams of a device that are kept.
#[derive(Debug, Default)]
pub(super) struct IdleStreams(Mutex<Vec<IdleStream>>);

#[derive(Debug)]
struct IdleStream {
    stream: hipStream_t,
    /// The driver's number of its priority.
    priority: c_int,
}

// SAFETY: any thread may use a stream.
unsafe impl Send for IdleStream {}

impl IdleStreams {
    /// A stream with this priority, if there is one. It is the caller's from now on.
    pub(super) fn take(&self, priority: c_int) -> Option<hipStream_t> {
        let mut streams = self.0.lock();
        let index = streams.iter().position(|idle| idle.priority == priority)?;
        Some(streams.swap_remove(index).stream)
    }

    /// Keeps a stream, if everything on it is done and there is room. Otherwise it stays the caller's, who
    /// has bound the context.
    ///
    /// # Safety
    /// The stream is alive, and if it is kept, the caller does not use it any more.
    pub(super) unsafe fn keep(&self, driver: &Driver, stream: hipStream_t) -> Result<bool, HipFailure> {
        let mut priority = 0;
        // SAFETY: the stream is alive, the place valid.
        unsafe { call!(driver, hipStreamGetPriority(stream, &raw mut priority)) }?;
        // SAFETY: the stream is alive.
        if !HipFailure::check_ready("hipStreamQuery", unsafe { (driver.hipStreamQuery)(stream) })? {
            return Ok(false);
        }
        let mut streams = self.0.lock();
        let has_room = streams.len() < MOST;
        if has_room {
            streams.push(IdleStream { stream, priority });
        }
        Ok(has_room)
    }

    /// Has all of them destroyed.
    pub(super) fn destroy(&mut self, releases: &ReleaseThread) {
        for idle in self.0.get_mut().drain(..) {
            // SAFETY: the stream is alive, and nothing uses it any more.
            unsafe { destroy_later(releases, idle.stream) }
        }
    }
}

/// Has a stream destroyed where that may wait.
///
/// # Safety
/// The stream is alive, and the caller does not use it any more.
pub(super) unsafe fn destroy_later(releases: &ReleaseThread, stream: hipStream_t) {
    let stream = stream.expose_provenance();
    releases.later(move |driver| {
        // SAFETY: passed on to the caller.
        unsafe { call!(driver, hipStreamDestroy(ptr::with_exposed_provenance_mut(stream))) }
    });
}

//! Streams that nothing uses any more, kept for what needs one next.
//!
//! Each executable has a stream of its own. The driver waits for a stream when it destroys it, which happens
//! on another thread: a program that makes and drops executables faster than that would pile up streams.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::context::HipContext;
use super::release::ReleaseThread;
use super::sys::{HipFailure, call, hipStream_t, ihipStream_t};
use crate::hal::support::object::ObjectKind;
use crate::hal::support::streams::{DriverContext as _, StreamContext as _};

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
    /// A stream with this priority on which everything is done, if there is one.
    pub(super) fn take(&self, priority: c_int) -> Option<hipStream_t> {
        let mut streams = self.0.lock();
        let index = streams.iter().position(|idle| idle.priority == priority)?;
        Some(streams.swap_remove(index).stream)
    }

    /// Whether the stream is kept: if everything on it is done, and there is room.
    fn keeps(&self, context: &HipContext, stream: hipStream_t) -> Result<bool, HipFailure> {
        let mut priority = 0;
        // SAFETY: the stream is alive, the place valid.
        unsafe { call!(context.driver, hipStreamGetPriority(stream, &raw mut priority)) }?;
        // SAFETY: the stream is alive.
        if !unsafe { context.query_stream(stream) }? {
            return Ok(false);
        }
        let mut streams = self.0.lock();
        let has_room = streams.len() < MOST;
        if has_room {
            streams.push(IdleStream { stream, priority });
        }
        Ok(has_room)
    }

    /// Destroys all of them.
    pub(super) fn destroy(&mut self, releases: &ReleaseThread) {
        self.0.get_mut().drain(..).for_each(|idle| destroy(releases, idle.stream));
    }
}

fn destroy(releases: &ReleaseThread, stream: hipStream_t) {
    let stream = stream.expose_provenance();
    releases.later(move |driver| {
        // SAFETY: the stream is alive, and nothing uses it any more.
        unsafe { call!(driver, hipStreamDestroy(ptr::with_exposed_provenance_mut(stream))) }
    });
}

// SAFETY: any thread may use a stream.
unsafe impl ObjectKind for ihipStream_t {
    type Handle = hipStream_t;
    type Owner = Arc<HipContext>;

    /// Keeps the stream for another use, or has it destroyed where that may wait.
    unsafe fn destroy(context: &Arc<HipContext>, stream: hipStream_t) {
        let _bound = context.bind();
        if !matches!(context.idle_streams.keeps(context, stream), Ok(true)) {
            destroy(&context.releases, stream);
        }
    }
}

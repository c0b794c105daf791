//! Events of the driver. They come from pools, and go back to be used again.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use super::context::LevelZeroContext;
use super::event_pool::{DriverEventKind, EventPlace};
use super::sys::{self, Api, DriverResult, Event, Owned, call, get};

/// An event that is used by one owner, and goes back to its pool when it is dropped. By then
/// nothing is going to signal it, and nothing waits for it.
#[derive(Debug)]
pub(super) struct PooledEvent {
    event: Option<Owned<Event>>,
    kind: DriverEventKind,
    context: Arc<LevelZeroContext>,
}

impl PooledEvent {
    /// An event that is not signalled, unless it counts.
    pub(super) fn acquire(context: &Arc<LevelZeroContext>, kind: DriverEventKind) -> DriverResult<Self> {
        let (api, raw, device) = (context.api, context.raw(), context.device);
        let (event, is_used) = context.events.take(EventPlace { api, context: raw, device }, kind)?;
        let event = Self { event: Some(event), kind, context: Arc::clone(context) };
        if is_used {
            event.reset()?;
        }
        Ok(event)
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_event_handle_t {
        self.event.as_ref().map_or(ptr::null_mut(), Owned::raw)
    }

    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    fn api(&self) -> &'static Api {
        self.context.api
    }

    /// Makes it not signalled. Nothing is going to signal it, and nothing waits for it.
    pub(super) fn reset(&self) -> DriverResult {
        if self.kind == DriverEventKind::Counting {
            return Ok(());
        }
        // SAFETY: the event is alive.
        unsafe { call!(self.api(), zeEventHostReset(self.raw())) }
    }

    /// Signals it from the host.
    pub(super) fn signal(&self) -> DriverResult {
        // SAFETY: the event is alive.
        unsafe { call!(self.api(), zeEventHostSignal(self.raw())) }
    }

    /// Blocks until it is signalled, or this time has passed. Gives whether it is signalled.
    pub(super) fn wait(&self, nanoseconds: u64) -> DriverResult<bool> {
        // SAFETY: the event is alive.
        match unsafe { call!(self.api(), zeEventHostSynchronize(self.raw(), nanoseconds)) } {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == sys::ZE_RESULT_NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Whether it is signalled. Not by `zeEventQueryStatus`, which is to do the same: Intel's drivers without
    /// hardware answer only to this one.
    pub(super) fn is_signalled(&self) -> DriverResult<bool> {
        self.wait(0)
    }

    /// The times of the command that has signalled it.
    pub(super) fn times(&self) -> DriverResult<sys::ze_kernel_timestamp_result_t> {
        // SAFETY: the event is alive.
        unsafe { get!(self.api(), zeEventQueryKernelTimestamp(self.raw())) }
    }
}

impl Drop for PooledEvent {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.context.events.give_back(event, self.kind);
        }
    }
}

//! Events: each has the signal that tells of its current use.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::device_inner::CudaDeviceInner;
use super::signal::CudaSignal;
use super::sys::CudaFailure;
use crate::hal::support::{polling, refusal};
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Result};

/// An event. What depends on it holds its signal, so the event itself may be dropped.
#[derive(Debug)]
pub(super) struct CudaEvent {
    signal: Arc<CudaSignal>,
}

impl CudaEvent {
    pub(super) fn create(device: &Arc<CudaDeviceInner>, profiling: bool) -> Result<Self, CudaFailure> {
        Ok(Self { signal: Arc::new(CudaSignal::create(device, profiling)?) })
    }

    pub(super) fn signal(&self) -> &Arc<CudaSignal> {
        &self.signal
    }
}

impl Event for CudaEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.signal.device().info.id
    }

    fn status(&self) -> EventStatus {
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    /// The driver's own wait has no time limit, so this polls.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(outcome) = self.signal.outcome() else { return EventStatus::Idle };
        polling::wait(timeout, || {
            if !outcome.is_known() {
                self.signal.status();
            }
            outcome.status()
        })
    }

    fn profile(&self) -> Result<EventProfile> {
        // The event may be complete without having been polled.
        self.signal.status();
        let times = self.signal.times().ok_or_else(refusal::times_before_completion)?;
        let times = times.map_err(|failure| self.signal.device().context.error(failure))?;
        times.ok_or_else(refusal::no_times)
    }
}

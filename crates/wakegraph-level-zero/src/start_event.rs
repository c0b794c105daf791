//! The event that lets the lists of a recording begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::context::LevelZeroContext;
use super::driver_event::PooledEvent;
use super::event_pool::DriverEventKind;
use super::sys::{self, DriverResult};

/// The event that lets the lists of a recording begin.
///
/// With the lowering by execution it is signalled between two runs, so that the next may begin at
/// once. The host resets it for a run that has to wait, whose prefix signals it again. With the other
/// lowering the main list signals it, for the list of the copy engine, and resets it in the end.
#[derive(Debug)]
pub(super) struct StartEvent {
    event: PooledEvent,
    /// With the lowering by execution: whether it is signalled while no run is going on. Changed
    /// only under the lock of the command-buffer.
    is_open: AtomicBool,
}

impl StartEvent {
    pub(super) fn new(context: &Arc<LevelZeroContext>) -> DriverResult<Self> {
        Ok(Self {
            event: PooledEvent::acquire(context, DriverEventKind::Plain)?,
            is_open: AtomicBool::new(false),
        })
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_event_handle_t {
        self.event.raw()
    }

    /// Lets the next run begin at once. No run is going on.
    pub(super) fn open(&self) -> DriverResult {
        if !self.is_open.load(Ordering::Relaxed) {
            self.event.signal()?;
            self.is_open.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has the next run wait until something signals the event. No run is going on.
    pub(super) fn close(&self) -> DriverResult {
        if self.is_open.load(Ordering::Relaxed) {
            self.event.reset()?;
            self.is_open.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Says that the run that has been handed over signals the event.
    pub(super) fn opens_by_itself(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }
}

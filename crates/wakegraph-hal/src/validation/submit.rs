//! Wait lists and signals: what a command-buffer and a queue check alike before an enqueue.
//!
//! This is the hot path: comparisons and one call for each event, no allocation.

use std::ptr;
use std::sync::Arc;

use crate::{DeviceId, Error, ErrorKind, EventStatus, Result, Signal, WaitList};

/// Whether `what` can be enqueued on `device` with this wait list and signal.
///
/// Repeated events are fine. An event of another device is passed on: only the backend knows
/// whether it can wait for it.
pub(super) fn check(what: &str, device: DeviceId, wait: WaitList<'_>, signal: &Signal<'_>) -> Result<()> {
    let signalled = &**signal.event;
    if signalled.device() != device {
        return Err(foreign_signal(what, device, signalled.device()));
    }
    if matches!(signalled.status(), EventStatus::Pending) {
        return Err(pending_signal(what));
    }
    for (position, event) in wait.events().enumerate() {
        // Compared by address: a reusable event that waits for its own last use would wait for the
        // next one.
        if ptr::addr_eq(Arc::as_ptr(signal.event), ptr::from_ref(event)) {
            return Err(waits_for_itself(what, position));
        }
        if event.is_idle() {
            return Err(idle_wait(what, position, wait.events().count()));
        }
    }
    Ok(())
}

#[cold]
fn foreign_signal(what: &str, device: DeviceId, other: DeviceId) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("{what}: the event to signal belongs to {other}, the queue to {device}"),
    )
    .help("create the event on the queue's device")
}

#[cold]
fn pending_signal(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("{what}: the event to signal is still pending from an earlier enqueue"),
    )
    .help("wait until it is final, or signal another event")
}

#[cold]
fn waits_for_itself(what: &str, position: usize) -> Error {
    Error::new(
        ErrorKind::InvalidWaitList,
        format!("{what}: event {position} of the wait list is the event to signal"),
    )
    .help("signal another event")
}

#[cold]
fn idle_wait(what: &str, position: usize, events: usize) -> Error {
    Error::new(
        ErrorKind::InvalidWaitList,
        format!("{what}: event {position} of the {events} to wait for was never enqueued"),
    )
    .help("enqueue what signals it first")
}

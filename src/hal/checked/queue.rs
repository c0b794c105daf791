//! Commands outside command-buffers.
#![expect(unsafe_code, reason = "passes on an enqueue that the caller vouched for")]

use std::any::Any;
use std::sync::Arc;

use super::{command, submit};
use crate::hal::{Command, CommandBuffer, Device, Enqueued, Queue, QueueDesc, Signal, WaitList};
use crate::types::{DeviceId, Result};

#[derive(Debug)]
pub(super) struct CheckedQueue {
    inner: Arc<dyn Queue>,
    device: Arc<dyn Device>,
}

impl CheckedQueue {
    /// Wraps a queue of `device`, which is the unwrapped one.
    pub(super) fn new(inner: Arc<dyn Queue>, device: Arc<dyn Device>) -> Self {
        Self { inner, device }
    }
}

impl Queue for CheckedQueue {
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    fn device(&self) -> DeviceId {
        self.inner.device()
    }

    fn desc(&self) -> &QueueDesc {
        self.inner.desc()
    }

    unsafe fn enqueue(&self, command: &Command, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let here = &*self.device.info().selector;
        submit::check(command.kind().name(), self.inner.device(), wait, &signal)
            .and_then(|()| command::check(command, &*self.device))
            .map_err(|error| error.on_device(here))?;
        // SAFETY: the caller's promises are the inner queue's.
        unsafe { self.inner.enqueue(command, wait, signal) }
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        if let Err(error) = submit::check("batch", self.inner.device(), WaitList::NONE, &signal) {
            let error = error.on_device(&*self.device.info().selector);
            return Enqueued { count: 0, failure: Some(error) };
        }
        // SAFETY: the caller's promises are the inner queue's.
        unsafe { self.inner.enqueue_batch(buffers, signal) }
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn finish(&self) -> Result<()> {
        self.inner.finish()
    }
}

//! Commands outside command-buffers.
#![expect(unsafe_code, reason = "passes on an enqueue that the caller vouched for")]

use std::sync::Arc;

use super::{command, submit};
use crate::util::console;
use crate::{
    Command, Device, DeviceId, Error, ErrorKind, Queue, QueueDesc, QueueOrder, Result, Signal, WaitList,
};

/// A queue that validates each call before it passes it on to the backend's [`Queue`].
#[derive(Debug)]
pub struct ValidatedQueue {
    inner: Arc<dyn Queue>,
    device: Arc<dyn Device>,
    console: console::Resource,
}

impl ValidatedQueue {
    /// Wraps a queue of `device`.
    pub(super) fn new(inner: Arc<dyn Queue>, device: Arc<dyn Device>, console: console::Resource) -> Self {
        Self { inner, device, console }
    }

    /// The queue as tokio-console knows it.
    pub fn console(&self) -> &console::Resource {
        &self.console
    }

    /// The backend's queue.
    pub(super) fn inner(&self) -> &dyn Queue {
        &*self.inner
    }

    pub(super) fn here(&self, error: Error) -> Error {
        error.on_device(&*self.device.info().selector)
    }

    /// The device it belongs to.
    pub fn device(&self) -> DeviceId {
        self.inner.device()
    }

    /// How it was created.
    pub fn desc(&self) -> &QueueDesc {
        self.inner.desc()
    }

    /// Validates and enqueues one command: [`Queue::enqueue`].
    ///
    /// # Errors
    /// Those of validation and of the backend. Nothing was enqueued then.
    ///
    /// # Safety
    /// As for [`Queue::enqueue`].
    pub unsafe fn enqueue(
        &self,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        submit::check(command.kind().name(), self.device(), wait, &signal)
            .and_then(|()| self.check_stream_task(command))
            .and_then(|()| command::check(command, &*self.device))
            .map_err(|error| self.here(error))?;
        // SAFETY: the caller's promises are the inner queue's.
        unsafe { self.inner.enqueue(command, wait, signal) }
    }

    fn check_stream_task(&self, command: &Command) -> Result<()> {
        let Command::StreamTask(task) = command else { return Ok(()) };
        let refused = |why| {
            let why = format!("{}: {why}, and '{}' is to be enqueued", command.kind(), task.name());
            Err(Error::new(ErrorKind::FeatureNotSupported, why))
        };
        match (self.device.capabilities().stream_tasks, self.desc().order) {
            (false, _) => refused("the device has no stream to lend"),
            (true, QueueOrder::OutOfOrder) => refused("only in-order queues have a stream to lend"),
            (true, QueueOrder::InOrder) => Ok(()),
        }
    }

    /// Hands everything enqueued so far to the device: [`Queue::flush`].
    ///
    /// # Errors
    /// The backend's.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    /// Blocks until everything enqueued so far is done: [`Queue::finish`].
    ///
    /// # Errors
    /// The backend's.
    pub fn finish(&self) -> Result<()> {
        self.inner.finish()
    }
}

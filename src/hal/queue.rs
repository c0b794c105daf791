//! Queues: where command-buffers, and commands outside graphs, are enqueued.
#![expect(unsafe_code, reason = "enqueued work is the caller's to order")]

use std::any::Any;
use std::fmt::Debug;

use super::{Command, Signal, WaitList};
use crate::types::{DeviceId, Result};

/// In which order a queue runs what it is given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueOrder {
    /// One after the other, in the order of the enqueues.
    InOrder,
    /// As soon as the wait list allows.
    OutOfOrder,
}

/// How to create a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueDesc {
    /// The order.
    pub order: QueueOrder,
    /// Whether events of this queue give times.
    pub profiling: bool,
}

/// A queue of a device.
pub trait Queue: Debug + Send + Sync + 'static {
    /// For a backend to recognise its own.
    fn as_any(&self) -> &dyn Any;

    /// The device it belongs to.
    fn device(&self) -> DeviceId;

    /// How it was created.
    fn desc(&self) -> &QueueDesc;

    /// Enqueues one command, outside any command-buffer.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported),
    /// [`InvalidWaitList`](crate::ErrorKind::InvalidWaitList), the driver's. Nothing was enqueued then.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](super::CommandBuffer::enqueue).
    unsafe fn enqueue(&self, command: &Command, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()>;

    /// Hands everything enqueued so far to the device, without waiting.
    ///
    /// # Errors
    /// The driver's.
    fn flush(&self) -> Result<()>;

    /// Blocks until everything enqueued so far is done, whether it succeeded or not. Not for async tasks.
    ///
    /// # Errors
    /// The driver's; [`DeviceLost`](crate::ErrorKind::DeviceLost).
    fn finish(&self) -> Result<()>;
}

//! Queues: where command-buffers, and commands outside graphs, are enqueued.
#![expect(unsafe_code, reason = "enqueued work is the caller's to order")]

use std::any::Any;
use std::fmt::Debug;

use super::{Command, CommandBuffer, Signal, WaitList};
use crate::types::{DeviceId, Error, ErrorKind, Result};

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

/// What a [batch](Queue::enqueue_batch) has come to.
#[derive(Debug)]
pub struct Enqueued {
    /// How many were enqueued, from the first on.
    pub count: usize,
    /// Why the next was not, if there is one.
    pub failure: Option<Error>,
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

    /// Enqueues command-buffers one after the other on an in-order queue, with one signal behind
    /// the last of them: for many short ones, each of which costs less than its signal and the
    /// looks at that.
    ///
    /// Where one cannot be enqueued, those behind it are not tried, and the signal is behind those
    /// before it; without any, the event is as it was. Where the signal cannot be enqueued, the
    /// event fails when they are over. Only for devices that say so in their
    /// [capabilities](super::Capabilities::batches); without a notification, and for
    /// command-buffers without profiling.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`], for each of them; the event is theirs.
    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let _ = (buffers, signal);
        let why = "the device does not enqueue batches";
        Enqueued { count: 0, failure: Some(Error::new(ErrorKind::FeatureNotSupported, why)) }
    }

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

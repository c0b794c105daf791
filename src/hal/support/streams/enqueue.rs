//! The contract's queue: single commands, command-buffers in batches, and waiting.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use super::capture::CaptureContext;
use super::context::DriverContext as _;
use super::device::StreamDevice;
use super::queue::StreamQueue;
use super::stream::DriverStream;
use crate::hal::{Command, CommandBuffer, Enqueued, Queue, QueueDesc, Signal, WaitList};
use crate::types::{DeviceId, Result};

/// A device whose queues launch commands.
pub(crate) trait LaunchDevice: StreamDevice<Context: CaptureContext> {
    /// Enqueues a command outside command-buffers.
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()>;

    /// Launches a command-buffer of this device as part of a batch, behind which an event is recorded. The
    /// caller has bound the context.
    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        stream: &Arc<DriverStream<Self::Context>>,
    ) -> Result<()>;
}

impl<D: LaunchDevice> Queue for StreamQueue<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        // Its event says all.
        if matches!(**command, Command::Empty) {
            return self.submit(None, None, wait, signal, |_, _| Ok(None));
        }
        if let Command::StreamTask(task) = &**command {
            return self.run_stream_task(task, wait, signal);
        }
        D::enqueue_single(self, command, wait, signal)
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        let outcome = self.submit(None, None, WaitList::NONE, signal, |stream, _| {
            for &buffer in buffers {
                if let Err(error) = D::launch_in_batch(&self.device, buffer, stream) {
                    failure = Some(self.device.context().error(error.clone()));
                    // With something on the stream, the event still tells of its end.
                    return if count == 0 { Err(error) } else { Ok(None) };
                }
                count += 1;
            }
            Ok(None)
        });
        Enqueued { count, failure: failure.or(outcome.err()) }
    }

    fn flush(&self) -> Result<()> {
        self.device.context().health().status()
    }

    fn finish(&self) -> Result<()> {
        let context = self.device.context();
        context.health().status()?;
        self.stream.synchronize().map_err(|failure| context.error(failure))
    }
}

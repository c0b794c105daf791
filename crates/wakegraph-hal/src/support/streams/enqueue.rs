//! The contract's queue: single commands, command-buffers in batches, and waiting.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use super::capture::CaptureContext;
use super::context::DriverContext as _;
use super::device::{Started, StreamDevice};
use super::queue::StreamQueue;
use super::stream::DriverStream;
use crate::{Command, CommandBuffer, DeviceId, Enqueued, Error, Queue, QueueDesc, Result, Signal, WaitList};

/// A device whose queues launch commands.
pub trait LaunchDevice: StreamDevice<Context: CaptureContext> {
    /// Enqueues a command outside command-buffers.
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()>;

    /// Launches a command-buffer of this device as part of a batch, behind which an event is recorded. Gives
    /// the failure of a part that could not be launched behind others. The caller has bound the context.
    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        stream: &Arc<DriverStream<Self::Context>>,
    ) -> Result<Option<Error>>;
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
            return self.submit(None, None, wait, signal, |_, _| Ok(Started::default()));
        }
        if let Command::StreamTask(task) = &**command {
            return self.run_stream_task(task, wait, signal);
        }
        D::enqueue_single(self, command, wait, signal)
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        let outcome = self.submit(None, None, WaitList::NONE, signal, |stream, _| {
            let mut started = Started::default();
            for &buffer in buffers {
                match D::launch_in_batch(&self.device, buffer, stream) {
                    // One event tells of all of them, so all fail with what was launched by half.
                    Ok(by_half) => started.failure = started.failure.or(by_half),
                    Err(error) => {
                        failure = Some(self.device.context().error(error.clone()));
                        // With something on the stream, the event still tells of its end.
                        return if count == 0 { Err(error) } else { Ok(started) };
                    }
                }
                count += 1;
            }
            Ok(started)
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

//! Queues. **Fill in:** the driver's stream or queue, and one call for each command.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::control::{Enqueue, NullControl};
use super::event::NullEvent;
use super::foreign;
use crate::hal::{
    Command, CommandBuffer, CommandBufferId, Enqueued, Event, Queue, QueueDesc, QueueOrder, Signal, WaitList,
};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// A queue that completes in order what the control completes.
#[derive(Debug)]
pub(super) struct NullQueue {
    id: u64,
    device: DeviceId,
    desc: QueueDesc,
    control: NullControl,
}

impl NullQueue {
    pub(super) fn new(device: DeviceId, desc: QueueDesc, control: NullControl) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), device, desc, control }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Enqueues this many commands, of a command-buffer if they are one's.
    pub(super) fn submit(
        &self,
        buffer: Option<CommandBufferId>,
        timed_commands: Option<usize>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let own = |event: &dyn Event| {
            let event = event.as_any().downcast_ref::<NullEvent>()?;
            (event.device() == self.device).then(|| event.completion().clone())
        };
        let event = own(&**signal.event).ok_or_else(|| foreign("event"))?;
        let dependencies = wait.dependencies.len();
        let wait = wait.events().map(|event| {
            own(event).ok_or_else(|| {
                Error::new(ErrorKind::InvalidWaitList, "the queue cannot wait for an event of another device")
                    .help("wait on the host first; `Device::can_wait_for` tells when that is needed")
            })
        });
        self.control.enqueue(Enqueue {
            queue: self.id,
            in_order: self.desc.order == QueueOrder::InOrder,
            buffer,
            wait: wait.collect::<Result<_>>()?,
            dependencies,
            event,
            notification: signal.notification,
            profiled: self.desc.profiling || timed_commands.is_some(),
            timed_commands: timed_commands.unwrap_or(0),
        })
    }
}

impl Queue for NullQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, _: &Command, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.submit(None, None, wait, signal)
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        for buffer in buffers {
            let own: Arc<dyn Event> = Arc::new(NullEvent::new(self.device, self.control.clone()));
            let signal = Signal { event: &own, notification: None, prompt: false };
            // SAFETY: the caller's promises are those of each enqueue.
            match unsafe { buffer.enqueue(self, WaitList::NONE, signal) } {
                Ok(()) => count += 1,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        if (count > 0 || failure.is_none())
            && let Err(error) = self.submit(None, None, WaitList::NONE, signal)
        {
            // The device has been lost meanwhile, and with it what was enqueued. **Fill in:** on a
            // device that goes on with that, the event has to fail when it is over.
            (count, failure) = (0, Some(error));
        }
        Enqueued { count, failure }
    }

    fn flush(&self) -> Result<()> {
        self.control.status()
    }

    fn finish(&self) -> Result<()> {
        for (event, generation) in self.control.pending_events(self.id) {
            self.control.wait(&event, Some(generation), None);
        }
        self.control.status()
    }
}

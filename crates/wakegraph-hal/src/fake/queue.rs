//! Queues of a fake device.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::event::FakeEvent;
use super::schedule::{FakeEnqueue, FakeSchedule};
use crate::null::call_stream_task;
use crate::support::refusal::{foreign, foreign_wait};
use crate::{
    Command, CommandBuffer, CommandBufferId, DeviceId, Enqueued, Error, Event, Queue, QueueDesc, QueueOrder,
    Result, Signal, WaitList,
};

/// A queue whose work the schedule completes.
#[derive(Debug)]
pub(super) struct FakeQueue {
    id: u64,
    device: DeviceId,
    desc: QueueDesc,
    schedule: Arc<FakeSchedule>,
    /// Whether it waits for other fake devices.
    peers: bool,
}

impl FakeQueue {
    pub(super) fn new(device: DeviceId, desc: QueueDesc, schedule: &Arc<FakeSchedule>, peers: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, device, desc, schedule: Arc::clone(schedule), peers }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Enqueues a command, or the commands of `buffer`; `timed_commands` is how many, where each
    /// one's times are wanted. Its event fails with `failure`, if there is one, in its turn.
    pub(super) fn submit(
        &self,
        buffer: Option<CommandBufferId>,
        timed_commands: Option<usize>,
        failure: Option<Error>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let known = |event: &dyn Event, any: bool| {
            let event = event.as_any().downcast_ref::<FakeEvent>()?;
            (any || event.device() == self.device).then(|| Arc::clone(event.completion()))
        };
        let event = known(&**signal.event, false).ok_or_else(|| foreign("event"))?;
        let dependencies = wait.dependencies.len();
        let wait = wait.events().map(|event| known(event, self.peers).ok_or_else(foreign_wait));
        self.schedule.enqueue(FakeEnqueue {
            queue: self.id,
            in_order: self.desc.order == QueueOrder::InOrder,
            buffer,
            wait: wait.collect::<Result<_>>()?,
            dependencies,
            event,
            notification: signal.notification,
            profiled: self.desc.profiling || signal.timed || timed_commands.is_some(),
            timed_commands: timed_commands.unwrap_or(0),
            failure,
        })
    }
}

impl Queue for FakeQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.schedule.status()?;
        self.submit(None, None, call_stream_task(command, wait), wait, signal)
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        for buffer in buffers {
            let own: Arc<dyn Event> = Arc::new(FakeEvent::new(self.device, &self.schedule));
            let signal = Signal::new(&own);
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
            && let Err(error) = self.submit(None, None, None, WaitList::NONE, signal)
        {
            // The device has been lost meanwhile, and with it what was enqueued.
            (count, failure) = (0, Some(error));
        }
        Enqueued { count, failure }
    }

    fn flush(&self) -> Result<()> {
        self.schedule.status()
    }

    fn finish(&self) -> Result<()> {
        for (event, generation) in self.schedule.pending_events(self.id) {
            self.schedule.wait(&event, Some(generation), None);
        }
        self.schedule.status()
    }
}

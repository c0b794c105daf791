//! Queues.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::refusal::{foreign, foreign_wait};
use wakegraph_hal::{Command, DeviceId, Event, Queue, QueueDesc, QueueOrder, Result, Signal, WaitList};

use super::event::HostEvent;
use super::program::EnqueuedCommands;
use super::thread_pool::{ChainId, Dependent, HostWait, PoolWork, QueueTag, ThreadPool};
use super::{HostOptions, interpreter};

/// A queue: a serial chain of runs if it is in order, else only a name for [`finish`](Queue::finish).
#[derive(Debug)]
pub(super) struct HostQueue {
    device: DeviceId,
    pool: Arc<ThreadPool>,
    desc: QueueDesc,
    tag: QueueTag,
    chain: Option<ChainId>,
    notifies: bool,
    peer_access: bool,
}

impl HostQueue {
    pub(super) fn new(
        device: DeviceId,
        pool: &Arc<ThreadPool>,
        desc: QueueDesc,
        options: &HostOptions,
    ) -> Self {
        Self {
            device,
            pool: Arc::clone(pool),
            desc,
            tag: pool.add_queue(),
            chain: (desc.order == QueueOrder::InOrder).then(|| pool.add_chain()),
            notifies: !options.polled,
            peer_access: options.peer_access,
        }
    }

    /// Enqueues commands, of the command-buffer with this serial chain if they are one's.
    pub(super) fn submit(
        &self,
        commands: EnqueuedCommands,
        profiled: bool,
        buffer: Option<ChainId>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let event = HostEvent::of(signal.event);
        let event = event.filter(|event| event.device() == self.device).ok_or_else(|| foreign("event"))?;
        let wait = self.wait_list(wait)?;
        let notification = signal.notification.filter(|_| self.notifies);
        let profiled = profiled || self.desc.profiling || signal.timed;
        let work = PoolWork::new(commands, event, notification, profiled);
        self.pool.enqueue(work, self.tag, [self.chain, buffer], &wait)
    }

    fn wait_list<'a>(&self, wait: WaitList<'a>) -> Result<SmallVec<[HostWait<'a>; 8]>> {
        if wait.dependencies.is_empty() && wait.order.is_empty() {
            return Ok(SmallVec::new());
        }
        let host_wait = |event: &'a dyn Event, needs_result: bool| {
            let event = event.as_any().downcast_ref::<HostEvent<Dependent>>();
            let event = event.filter(|event| self.peer_access || event.device() == self.device);
            let event = event.ok_or_else(foreign_wait)?;
            Ok(HostWait { event, needs_result })
        };
        let dependencies = wait.dependencies.iter().map(|&event| host_wait(event, true));
        dependencies.chain(wait.order.iter().map(|&event| host_wait(event, false))).collect()
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        if let Some(chain) = self.chain {
            self.pool.release_chain(chain);
        }
    }
}

impl Queue for HostQueue {
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
        interpreter::check(command)?;
        self.submit(EnqueuedCommands::One(Arc::clone(command)), false, None, wait, signal)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let nothing = EnqueuedCommands::One(Arc::new(Command::Empty));
        let marker = PoolWork::new(nothing, Arc::new(HostEvent::new(self.device)), None, false);
        self.pool.join(marker, self.tag);
        Ok(())
    }
}

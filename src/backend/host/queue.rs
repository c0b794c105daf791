//! Queues.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::completion::Completion;
use super::event::HostEvent;
use super::execute;
use super::pool::{Pool, Wait};
use super::program::Program;
use super::schedule::{LineId, QueueTag, Work};
use super::{HostOptions, foreign};
use crate::hal::{Command, Event, Queue, QueueDesc, QueueOrder, Signal, WaitList};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// A queue: a line of runs if it is in order, else only a name for [`finish`](Queue::finish).
#[derive(Debug)]
pub(super) struct HostQueue {
    device: DeviceId,
    pool: Arc<Pool>,
    desc: QueueDesc,
    tag: QueueTag,
    line: Option<LineId>,
    notifies: bool,
    peer_access: bool,
}

impl HostQueue {
    pub(super) fn new(device: DeviceId, pool: &Arc<Pool>, desc: QueueDesc, options: &HostOptions) -> Self {
        Self {
            device,
            pool: Arc::clone(pool),
            desc,
            tag: pool.add_queue(),
            line: (desc.order == QueueOrder::InOrder).then(|| pool.add_line()),
            notifies: !options.polled,
            peer_access: options.peer_access,
        }
    }

    /// Enqueues a program, of the command-buffer with this line if any.
    pub(super) fn submit(
        &self,
        program: &Arc<Program>,
        profiled: bool,
        buffer: Option<LineId>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let event = signal.event.as_any().downcast_ref::<HostEvent>();
        let event = event.filter(|event| event.device() == self.device).ok_or_else(|| foreign("event"))?;
        let wait = self.wait_list(wait)?;
        let work = Work {
            program: Arc::clone(program),
            event: Arc::clone(event.completion()),
            notification: signal.notification.filter(|_| self.notifies),
            profiled: profiled || self.desc.profiling,
            submitted: 0,
            started: 0,
            failure: None,
        };
        self.pool.scheduler().enqueue(work, self.tag, [self.line, buffer], &wait)
    }

    fn wait_list<'a>(&self, wait: WaitList<'a>) -> Result<SmallVec<[Wait<'a>; 8]>> {
        let completion = |event: &'a dyn Event, needed: bool| {
            let event = event.as_any().downcast_ref::<HostEvent>();
            match event.filter(|event| self.peer_access || event.device() == self.device) {
                Some(event) => Ok(Wait { event: event.completion(), needed }),
                None => Err(Error::new(
                    ErrorKind::InvalidWaitList,
                    "the queue cannot wait for an event of this other device",
                )
                .help("wait on the host first; `Device::can_wait_for` tells when that is needed")),
            }
        };
        let dependencies = wait.dependencies.iter().map(|&event| completion(event, true));
        dependencies.chain(wait.order.iter().map(|&event| completion(event, false))).collect()
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        if let Some(line) = self.line {
            self.pool.disown_line(line);
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

    unsafe fn enqueue(&self, command: &Command, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        execute::check(command)?;
        let program = Program::new(vec![command.clone()], &[smallvec![]], true, false);
        self.submit(&Arc::new(program), false, None, wait, signal)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let marker = Work {
            program: Arc::new(Program::new(Vec::new(), &[], true, false)),
            event: Arc::new(Completion::new()),
            notification: None,
            profiled: false,
            submitted: 0,
            started: 0,
            failure: None,
        };
        self.pool.scheduler().join(marker, self.tag);
        Ok(())
    }
}

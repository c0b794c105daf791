//! Command-buffers of a fake device: the null backend's, enqueued on fake queues.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;

use super::queue::FakeQueue;
use crate::support::refusal::{enqueue_before_finalize, foreign};
use crate::{
    Appended, Command, CommandBuffer, CommandBufferInfo, CommandBufferState, CommandUpdate, Queue, Result,
    Signal, SyncPoint, WaitList,
};

#[derive(Debug)]
pub(super) struct FakeCommandBuffer(Box<dyn CommandBuffer>);

impl FakeCommandBuffer {
    pub(super) fn new(null: Box<dyn CommandBuffer>) -> Self {
        Self(null)
    }
}

impl CommandBuffer for FakeCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        self.0.info()
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        self.0.append(command, after)
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.0.command(index)
    }

    fn finalize(&mut self) -> Result<()> {
        self.0.finalize()
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let info = self.info();
        if info.state != CommandBufferState::Executable {
            return Err(enqueue_before_finalize());
        }
        let queue = queue.as_any().downcast_ref::<FakeQueue>();
        let queue = queue.filter(|queue| queue.device() == info.device).ok_or_else(|| foreign("queue"))?;
        let timed_commands = info.desc.profiling.then_some(info.commands);
        queue.submit(Some(info.id), timed_commands, None, wait, signal)
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        self.0.update(updates)
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let other = other.as_any().downcast_ref::<Self>().ok_or_else(|| foreign("command-buffer"))?;
        self.0.update_from(&*other.0)
    }
}

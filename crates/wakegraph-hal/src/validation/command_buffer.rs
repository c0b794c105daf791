//! States, sync-points and handles of a command-buffer.
#![expect(unsafe_code, reason = "passes on an enqueue that the caller vouched for")]

use std::sync::Arc;

use smallvec::SmallVec;

use super::queue::ValidatedQueue;
use super::update::UpdateRules;
use super::{command, kernel, submit};
use crate::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo, CommandKind,
    CommandUpdate, Device, DeviceId, Enqueued, Error, ErrorKind, Result, Signal, SyncPoint, WaitList,
};

/// A command-buffer that validates each call before it passes it on to the backend's
/// [`CommandBuffer`].
#[derive(Debug)]
pub struct ValidatedCommandBuffer {
    inner: Box<dyn CommandBuffer>,
    device: Arc<dyn Device>,
    device_id: DeviceId,
    id: CommandBufferId,
    desc: CommandBufferDesc,
    appended: usize,
    finalized: bool,
    /// Stays empty in a buffer that is not updatable.
    rules: Box<UpdateRules>,
}

impl ValidatedCommandBuffer {
    /// Wraps an empty command-buffer of `device`.
    pub(super) fn new(
        inner: Box<dyn CommandBuffer>,
        device: Arc<dyn Device>,
        desc: CommandBufferDesc,
    ) -> Self {
        let id = inner.info().id;
        let device_id = device.info().id;
        let rules = Box::new(UpdateRules::new(id));
        Self { inner, device, device_id, id, desc, appended: 0, finalized: false, rules }
    }

    fn check_append(&self, command: &Command, after: &[SyncPoint]) -> Result<()> {
        let kind = command.kind();
        if self.finalized {
            return Err(invalid_operation(format!("{kind}: appended after finalize"))
                .help("append before finalize, or record a new command-buffer"));
        }
        command::check_supported(command, self.device.capabilities().commands)?;
        self.check_sync_points(kind, after)?;
        command::check(command, &*self.device)?;
        if let Command::Kernel(launch) = command {
            kernel::check_alternatives(launch)?;
        }
        Ok(())
    }

    fn check_sync_points(&self, kind: CommandKind, after: &[SyncPoint]) -> Result<()> {
        for point in after {
            let SyncPoint { buffer, index } = *point;
            let why = if buffer != self.id {
                format!("{kind}: sync-point {index} belongs to {buffer:?}, not to {:?}", self.id)
            } else if index as usize >= self.appended {
                format!("{kind}: sync-point {index} does not exist: {} commands were appended", self.appended)
            } else {
                continue;
            };
            return Err(Error::new(ErrorKind::InvalidSyncPoint, why)
                .help("pass sync-points that earlier appends to this command-buffer returned"));
        }
        Ok(())
    }

    fn check_enqueue(&self, queue: &ValidatedQueue, wait: WaitList<'_>, signal: &Signal<'_>) -> Result<()> {
        self.check_ready(queue)?;
        submit::check("command-buffer", self.device_id, wait, signal)
    }

    /// Whether its commands can be enqueued on this queue.
    fn check_ready(&self, queue: &ValidatedQueue) -> Result<()> {
        if !self.finalized {
            return Err(invalid_operation("command-buffer: enqueued before finalize".into())
                .help("finalize the command-buffer first"));
        }
        if queue.device() != self.device_id {
            let (theirs, ours) = (queue.device(), self.device_id);
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("command-buffer: the queue belongs to {theirs}, the command-buffer to {ours}"),
            )
            .help("enqueue it on a queue of its own device"));
        }
        Ok(())
    }

    fn check_updatable(&self) -> Result<()> {
        if !self.desc.updatable {
            return Err(invalid_operation("command-buffer: updated, but not created as updatable".into())
                .help("create the command-buffer with `updatable`"));
        }
        if !self.finalized {
            return Err(invalid_operation("command-buffer: updated before finalize".into())
                .help("finalize the command-buffer first, or append the command as it should be"));
        }
        Ok(())
    }

    /// Whether this could be updated from `other`.
    fn check_other(&self, other: &Self) -> Result<()> {
        let refused = |why: String| {
            let error = Error::new(ErrorKind::InvalidArgument, format!("update from another buffer: {why}"));
            error.help("record it on this device, with the same properties")
        };
        if other.device_id != self.device_id {
            let (theirs, ours) = (other.device_id, self.device_id);
            return Err(refused(format!("it belongs to {theirs}, this one to {ours}")));
        }
        // The low-latency hint may differ.
        if (CommandBufferDesc { low_latency: self.desc.low_latency, ..other.desc }) != self.desc {
            let (theirs, ours) = (other.desc, self.desc);
            return Err(refused(format!("it was created as {theirs:?}, this one as {ours:?}")));
        }
        self.rules.check_same(&other.rules)
    }

    fn here(&self, error: Error) -> Error {
        error.on_device(&*self.device.info().selector)
    }
}

/// The contract's methods, as [`CommandBuffer`] documents them. Their errors are those of
/// validation and of the backend.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
impl ValidatedCommandBuffer {
    /// What it is and holds: [`CommandBuffer::info`].
    pub fn info(&self) -> CommandBufferInfo {
        self.inner.info()
    }

    /// Appends a command that runs after all commands in `after`: [`CommandBuffer::append`].
    pub fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        self.check_append(command, after).map_err(|error| self.here(error))?;
        let appended = self.inner.append(command, after)?;
        self.appended += 1;
        if self.desc.updatable {
            self.rules.record(command, after, appended.handle);
        }
        Ok(appended)
    }

    /// Ends recording: [`CommandBuffer::finalize`].
    pub fn finalize(&mut self) -> Result<()> {
        if self.finalized {
            return Err(self.here(invalid_operation("command-buffer: finalized twice".into())));
        }
        self.inner.finalize()?;
        self.finalized = true;
        Ok(())
    }

    /// Enqueues all commands on `queue`: [`CommandBuffer::enqueue`].
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`].
    pub unsafe fn enqueue(
        &self,
        queue: &ValidatedQueue,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        self.check_enqueue(queue, wait, &signal).map_err(|error| self.here(error))?;
        // SAFETY: the caller's promises are the inner command-buffer's.
        unsafe { self.inner.enqueue(queue.inner(), wait, signal) }
    }

    /// Changes commands: [`CommandBuffer::update`].
    pub fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let checked =
            self.check_updatable().and_then(|()| self.rules.check(updates, &*self.inner, &*self.device));
        checked.map_err(|error| self.here(error))?;
        self.inner.update(updates)
    }

    /// Makes every command what the same one of `other` is: [`CommandBuffer::update_from`].
    pub fn update_from(&mut self, other: &Self) -> Result<()> {
        self.check_updatable().and_then(|()| self.check_other(other)).map_err(|error| self.here(error))?;
        self.inner.update_from(&*other.inner)?;
        self.rules.become_like(&other.rules);
        Ok(())
    }
}

impl ValidatedQueue {
    /// Validates the command-buffers and the signal, and enqueues command-buffers one after the other:
    /// [`Queue::enqueue_batch`](crate::Queue::enqueue_batch).
    ///
    /// # Safety
    /// As for [`Queue::enqueue_batch`](crate::Queue::enqueue_batch).
    pub unsafe fn enqueue_batch(&self, buffers: &[&ValidatedCommandBuffer], signal: Signal<'_>) -> Enqueued {
        if let Err(error) = submit::check("batch", self.device(), WaitList::NONE, &signal) {
            return Enqueued { count: 0, failure: Some(self.here(error)) };
        }
        let mut ready = SmallVec::<[&dyn CommandBuffer; 16]>::new();
        let mut refused = None;
        for buffer in buffers {
            if let Err(error) = buffer.check_ready(self) {
                refused = Some(self.here(error));
                break;
            }
            ready.push(&*buffer.inner);
        }
        if ready.is_empty() && refused.is_some() {
            return Enqueued { count: 0, failure: refused };
        }
        // SAFETY: the caller's promises are the inner queue's.
        let Enqueued { count, failure } = unsafe { self.inner().enqueue_batch(&ready, signal) };
        let is_all_ready = count == ready.len();
        Enqueued { count, failure: failure.or(refused.filter(|_| is_all_ready)) }
    }
}

#[cold]
fn invalid_operation(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

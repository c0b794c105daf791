//! States, sync-points and handles of a command-buffer.
#![expect(unsafe_code, reason = "passes on an enqueue that the caller vouched for")]

use std::any::Any;
use std::sync::Arc;

use super::update::Launches;
use super::{command, control, kernel, submit};
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo, Device,
    KernelUpdate, Queue, Signal, SyncPoint, WaitList,
};
use crate::types::{CommandKind, DeviceId, Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct CheckedCommandBuffer {
    inner: Box<dyn CommandBuffer>,
    device: Arc<dyn Device>,
    device_id: DeviceId,
    id: CommandBufferId,
    desc: CommandBufferDesc,
    appended: usize,
    finalized: bool,
    /// Stays empty in a buffer that is not updatable.
    launches: Launches,
}

impl CheckedCommandBuffer {
    /// Wraps an empty command-buffer of `device`, which is the unwrapped one.
    pub(super) fn new(
        inner: Box<dyn CommandBuffer>,
        device: Arc<dyn Device>,
        desc: CommandBufferDesc,
    ) -> Self {
        let id = inner.info().id;
        let device_id = device.info().id;
        let launches = Launches::new(id);
        Self { inner, device, device_id, id, desc, appended: 0, finalized: false, launches }
    }

    fn check_append(&self, command: &Command, after: &[SyncPoint]) -> Result<()> {
        let kind = command.kind();
        if self.finalized {
            return Err(invalid_operation(format!("{kind}: appended after finalize"))
                .help("append before finalize, or record a new command-buffer"));
        }
        control::check_supported(command, self.device.capabilities().commands)?;
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

    fn check_enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: &Signal<'_>) -> Result<()> {
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
        submit::check("command-buffer", self.device_id, wait, signal)
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

    fn here(&self, error: Error) -> Error {
        error.on_device(&*self.device.info().selector)
    }
}

impl CommandBuffer for CheckedCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    fn info(&self) -> CommandBufferInfo {
        self.inner.info()
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        self.check_append(command, after).map_err(|error| self.here(error))?;
        let appended = self.inner.append(command, after)?;
        self.appended += 1;
        if let (true, Command::Kernel(launch), Some(handle)) = (self.desc.updatable, command, appended.handle)
        {
            self.launches.record(handle, launch);
        }
        Ok(appended)
    }

    fn finalize(&mut self) -> Result<()> {
        if self.finalized {
            return Err(self.here(invalid_operation("command-buffer: finalized twice".into())));
        }
        self.inner.finalize()?;
        self.finalized = true;
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.check_enqueue(queue, wait, &signal).map_err(|error| self.here(error))?;
        // SAFETY: the caller's promises are the inner command-buffer's.
        unsafe { self.inner.enqueue(queue, wait, signal) }
    }

    fn update(&mut self, updates: &[KernelUpdate]) -> Result<()> {
        self.check_updatable().map_err(|error| self.here(error))?;
        let staged = self.launches.stage(updates, &*self.device, self.appended);
        let staged = staged.map_err(|error| self.here(error))?;
        self.inner.update(updates)?;
        self.launches.commit(staged);
        Ok(())
    }
}

#[cold]
fn invalid_operation(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

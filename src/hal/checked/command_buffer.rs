//! States, sync-points and handles of a command-buffer.
#![expect(unsafe_code, reason = "passes on an enqueue that the caller vouched for")]

use std::any::Any;
use std::sync::Arc;

use super::update::Commands;
use super::{command, control, kernel, submit};
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo, CommandUpdate,
    Device, Queue, Signal, SyncPoint, WaitList,
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
    commands: Commands,
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
        let commands = Commands::new(id);
        Self { inner, device, device_id, id, desc, appended: 0, finalized: false, commands }
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

    /// What this is to be updated from, if it could be.
    fn check_other<'a>(&self, other: &'a dyn CommandBuffer) -> Result<&'a Self> {
        let refused = |why: String| {
            let error = Error::new(ErrorKind::InvalidArgument, format!("update from another buffer: {why}"));
            error.help("record it on this device, with the same properties")
        };
        let Some(other) = other.as_checked().and_then(<dyn Any>::downcast_ref::<Self>) else {
            return Err(refused("it is not of a checked device".into()));
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
        self.commands.check_same(&other.commands).map(|()| other)
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
        if self.desc.updatable {
            self.commands.record(command, after, appended.handle);
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

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        self.check_updatable().map_err(|error| self.here(error))?;
        let staged = self.commands.stage(updates, &*self.device);
        let staged = staged.map_err(|error| self.here(error))?;
        self.inner.update(updates)?;
        self.commands.commit(staged);
        Ok(())
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        self.check_updatable().map_err(|error| self.here(error))?;
        let other = self.check_other(other).map_err(|error| self.here(error))?;
        self.inner.update_from(&*other.inner)?;
        self.commands.become_like(&other.commands);
        Ok(())
    }

    fn as_checked(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

#[cold]
fn invalid_operation(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

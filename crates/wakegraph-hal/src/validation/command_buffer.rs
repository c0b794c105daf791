//! Queues and command-buffers: states, sync-points, handles, wait lists and signals.
#![expect(unsafe_code, reason = "passes on enqueues that the caller vouched for")]

use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::update::UpdateRules;
use super::{command, kernel};
use crate::util::console;
use crate::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo, CommandKind,
    CommandUpdate, Device, DeviceId, Enqueued, Error, ErrorKind, EventStatus, Queue, QueueDesc, QueueOrder,
    Result, Signal, SyncPoint, WaitList,
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
        check_enqueue("command-buffer", self.device_id, wait, signal)
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
    /// Properties and state of the command-buffer: [`CommandBuffer::info`].
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

    /// Makes room for commands: [`CommandBuffer::reserve`].
    pub fn reserve(&mut self, commands: usize) {
        self.inner.reserve(commands);
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
        unsafe { self.inner.enqueue(&*queue.inner, wait, signal) }
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

#[cold]
fn invalid_operation(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// A queue that validates each call before it passes it on to the backend's [`Queue`].
#[derive(Debug)]
pub struct ValidatedQueue {
    inner: Arc<dyn Queue>,
    device: Arc<dyn Device>,
    console: console::Resource,
}

impl ValidatedQueue {
    /// Wraps a queue of `device`.
    pub(super) fn new(inner: Arc<dyn Queue>, device: Arc<dyn Device>, console: console::Resource) -> Self {
        Self { inner, device, console }
    }

    /// The queue as tokio-console knows it.
    pub fn console(&self) -> &console::Resource {
        &self.console
    }

    fn here(&self, error: Error) -> Error {
        error.on_device(&*self.device.info().selector)
    }

    /// The device it belongs to.
    pub fn device(&self) -> DeviceId {
        self.inner.device()
    }

    /// Descriptor that it was created with.
    pub fn desc(&self) -> &QueueDesc {
        self.inner.desc()
    }

    /// Validates and enqueues one command: [`Queue::enqueue`].
    ///
    /// # Errors
    /// The errors of validation and of the backend. Nothing was enqueued then.
    ///
    /// # Safety
    /// As for [`Queue::enqueue`].
    pub unsafe fn enqueue(
        &self,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        check_enqueue(command.kind().name(), self.device(), wait, &signal)
            .and_then(|()| self.check_stream_task(command))
            .and_then(|()| command::check(command, &*self.device))
            .map_err(|error| self.here(error))?;
        // SAFETY: the caller's promises are the inner queue's.
        unsafe { self.inner.enqueue(command, wait, signal) }
    }

    /// Validates the command-buffers and the signal, and enqueues command-buffers one after the other:
    /// [`Queue::enqueue_batch`].
    ///
    /// # Safety
    /// As for [`Queue::enqueue_batch`].
    pub unsafe fn enqueue_batch(&self, buffers: &[&ValidatedCommandBuffer], signal: Signal<'_>) -> Enqueued {
        if let Err(error) = check_enqueue("batch", self.device(), WaitList::NONE, &signal) {
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
        let Enqueued { count, failure } = unsafe { self.inner.enqueue_batch(&ready, signal) };
        let is_all_ready = count == ready.len();
        Enqueued { count, failure: failure.or(refused.filter(|_| is_all_ready)) }
    }

    fn check_stream_task(&self, command: &Command) -> Result<()> {
        let Command::StreamTask(task) = command else { return Ok(()) };
        let refused = |why| {
            let why = format!("{}: {why}, and '{}' is to be enqueued", command.kind(), task.name());
            Err(Error::new(ErrorKind::FeatureNotSupported, why))
        };
        match (self.device.capabilities().stream_tasks, self.desc().order) {
            (false, _) => refused("the device has no stream to lend"),
            (true, QueueOrder::OutOfOrder) => refused("only in-order queues have a stream to lend"),
            (true, QueueOrder::InOrder) => Ok(()),
        }
    }

    /// Hands everything enqueued so far to the device: [`Queue::flush`].
    ///
    /// # Errors
    /// The backend's.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    /// Blocks until everything enqueued so far is done: [`Queue::finish`].
    ///
    /// # Errors
    /// The backend's.
    pub fn finish(&self) -> Result<()> {
        self.inner.finish()
    }
}

/// Whether `what` can be enqueued on `device` with this wait list and signal.
///
/// Repeated events are fine. An event of another device is passed on: only the backend knows
/// whether it can wait for it.
fn check_enqueue(what: &str, device: DeviceId, wait: WaitList<'_>, signal: &Signal<'_>) -> Result<()> {
    let signalled = &**signal.event;
    if signalled.device() != device {
        return Err(foreign_signal(what, device, signalled.device()));
    }
    if matches!(signalled.status(), EventStatus::Pending) {
        return Err(pending_signal(what));
    }
    for (position, event) in wait.events().enumerate() {
        // Compared by address: a reusable event that waits for its own last use would wait for the
        // next one.
        if ptr::addr_eq(Arc::as_ptr(signal.event), ptr::from_ref(event)) {
            return Err(waits_for_itself(what, position));
        }
        if event.is_idle() {
            return Err(idle_wait(what, position, wait.events().count()));
        }
    }
    Ok(())
}

#[cold]
fn foreign_signal(what: &str, device: DeviceId, other: DeviceId) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("{what}: the event to signal belongs to {other}, the queue to {device}"),
    )
    .help("create the event on the queue's device")
}

#[cold]
fn pending_signal(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("{what}: the event to signal is still pending from an earlier enqueue"),
    )
    .help("wait until it is final, or signal another event")
}

#[cold]
fn waits_for_itself(what: &str, position: usize) -> Error {
    Error::new(
        ErrorKind::InvalidWaitList,
        format!("{what}: event {position} of the wait list is the event to signal"),
    )
    .help("signal another event")
}

#[cold]
fn idle_wait(what: &str, position: usize, events: usize) -> Error {
    Error::new(
        ErrorKind::InvalidWaitList,
        format!("{what}: event {position} of the {events} to wait for was never enqueued"),
    )
    .help("enqueue what signals it first")
}

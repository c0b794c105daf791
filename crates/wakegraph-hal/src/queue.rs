//! Queues, and the command-buffers that are enqueued on them. Each of the two traits refers to the other.
//! A command-buffer is described by its properties, identity and state; its commands have handles.
#![expect(unsafe_code, reason = "enqueued work is the caller's to order")]

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::{
    Command, CommandBufferId, CommandHandle, CommandUpdate, DeviceId, Error, ErrorKind, Result, Signal,
    SyncPoint, WaitList,
};

/// The order in which a queue runs what is enqueued on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueOrder {
    /// One after the other, in the order of the enqueues.
    InOrder,
    /// Commands start as soon as their wait lists allow.
    OutOfOrder,
}

/// The engine of a device that a queue should use. A hint: a device without such an engine uses
/// another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EngineKind {
    /// An engine that runs every command.
    #[default]
    Compute,
    /// An engine for copies, which can run beside the compute engine.
    Copy,
}

/// Urgency of a request among those that wait, or of work among what else runs on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// Goes before all others.
    High,
    /// The default.
    #[default]
    Normal,
    /// Goes when nothing else waits.
    Low,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        })
    }
}

/// Options for creating a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueDesc {
    /// The order of execution.
    pub order: QueueOrder,
    /// Whether the events of this queue have times.
    pub profiling: bool,
    /// The preferred engine.
    pub engine: EngineKind,
    /// Urgency of its work, on a device that [has priorities](crate::Capabilities::queue_priorities).
    pub priority: Priority,
}

impl QueueDesc {
    /// A queue of normal priority without profiling on the compute engine.
    pub const fn new(order: QueueOrder) -> Self {
        Self { order, profiling: false, engine: EngineKind::Compute, priority: Priority::Normal }
    }
}

setters! { const QueueDesc { profiling: bool, engine: EngineKind, priority: Priority } }

/// The result of a [batch](Queue::enqueue_batch).
#[derive(Debug)]
pub struct Enqueued {
    /// Number of command-buffers enqueued, from the first on.
    pub count: usize,
    /// The reason why the next one was not enqueued.
    pub failure: Option<Error>,
}

impl Enqueued {
    /// The first `count` were enqueued; `failure` is of the next one, if there is one.
    pub fn new(count: usize, failure: Option<Error>) -> Self {
        Self { count, failure }
    }
}

/// A queue of a device.
pub trait Queue: Any + Debug + Send + Sync {
    /// The device it belongs to.
    fn device(&self) -> DeviceId;

    /// Properties that the queue was created with.
    fn desc(&self) -> &QueueDesc;

    /// Enqueues one command, outside any command-buffer. A queue that reads the command later keeps a
    /// reference to it.
    ///
    /// The closure of a [stream task](Command::StreamTask) is called once, inside this call or later on a
    /// thread of the device, unless a dependency is known to have failed by then. It finds a stream on which
    /// its work comes after the wait list and before the signal. If it fails, so does the event, once what is
    /// on the stream is done: the closure may have enqueued something.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported),
    /// [`InvalidWaitList`](ErrorKind::InvalidWaitList), the driver's. Nothing was enqueued then.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](crate::CommandBuffer::enqueue).
    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()>;

    /// Enqueues command-buffers one after the other on an in-order queue, with one signal behind
    /// the last of them: for many short ones, each of which costs less than its signal and
    /// the polls of it.
    ///
    /// Where one cannot be enqueued, those behind it are not tried, and the signal is behind those
    /// before it; without any, the event is as it was. Where the signal cannot be enqueued, the
    /// event fails when they have ended. Only for devices that say so in their
    /// [capabilities](crate::Capabilities::batches); without a notification, and for
    /// command-buffers without profiling.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`], for each of them; the event is theirs.
    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let _ = (buffers, signal);
        let why = "the device does not enqueue batches";
        Enqueued { count: 0, failure: Some(Error::new(ErrorKind::FeatureNotSupported, why)) }
    }

    /// Hands everything enqueued so far to the device, without waiting.
    ///
    /// # Errors
    /// The driver's.
    fn flush(&self) -> Result<()>;

    /// Blocks until everything enqueued so far is done, whether it succeeded or not. Not for async
    /// tasks.
    ///
    /// # Errors
    /// The driver's; [`DeviceLost`](ErrorKind::DeviceLost).
    fn finish(&self) -> Result<()>;
}

downcast!(Queue);

/// Commands recorded once and enqueued many times.
///
/// Enqueues of one command-buffer never overlap: the second starts after the first has completed,
/// on whatever queue. A command-buffer keeps alive what its commands use.
pub trait CommandBuffer: Any + Debug + Send + Sync {
    /// Properties and state of the command-buffer.
    fn info(&self) -> CommandBufferInfo;

    /// Appends a command that runs after all commands in `after` (`urCommandBufferAppend*Exp`).
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) after finalize;
    /// [`InvalidSyncPoint`](ErrorKind::InvalidSyncPoint) for a sync-point of another buffer;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) with the command's name;
    /// [`InvalidSize`](ErrorKind::InvalidSize) and [`InvalidArgument`](ErrorKind::InvalidArgument)
    /// for the operands. The buffer is unchanged then.
    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended>;

    /// Makes room for so many more commands. Optional: appends make room themselves.
    fn reserve(&mut self, commands: usize) {
        let _ = commands;
    }

    /// The command with this number in the order of the appends, as updates have left it. Of a buffer
    /// that is not updatable, it need not be known.
    fn command(&self, index: usize) -> Option<&Command>;

    /// Ends recording and makes the buffer ready to enqueue (`urCommandBufferFinalizeExp`).
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) the second time; the driver's.
    fn finalize(&mut self) -> Result<()>;

    /// Enqueues all commands on `queue`, after the events in `wait` (`urCommandBufferEnqueueExp`).
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) before finalize;
    /// [`InvalidWaitList`](ErrorKind::InvalidWaitList) for an event that this queue cannot wait for
    /// or that was never enqueued; [`InvalidArgument`](ErrorKind::InvalidArgument) for a queue or
    /// signal of another device; [`DeviceLost`](ErrorKind::DeviceLost) and the driver's. Nothing
    /// was enqueued then, and nothing is notified.
    ///
    /// # Safety
    /// Until the signalled event is final, nothing else accesses the memory that the commands use
    /// in a conflicting way, unless `wait`, the queue's order or this buffer's own earlier enqueues
    /// put it before or after. Until then, too, the caller keeps this buffer, the queue, the event
    /// and the operands: a backend need not defer a drop. Raw [`UsmPointer`](crate::UsmPointer)s
    /// and [`MemoryView`](crate::MemoryView)s of other devices stay valid. The kernels' device code
    /// keeps to its arguments, over the ranges it is launched with.
    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()>;

    /// Changes commands, all that are named or, on an error, none
    /// (`urCommandBufferUpdateKernelLaunchExp`).
    ///
    /// Applies to later enqueues; those already made run with the old values. Does not wait for
    /// them. Kernels that it replaces are kept while those may run them; memory that it replaces is
    /// the caller's to keep, as [`enqueue`](Self::enqueue) asks. May allocate, where the driver
    /// cannot change what is running.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) before finalize or when not updatable;
    /// [`InvalidCommandHandle`](ErrorKind::InvalidCommandHandle) for a handle of another buffer, or
    /// a change that only kernels have of another command;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for an index out of range, an argument of
    /// the wrong kind, an unregistered kernel, or a fill or copy of another kind;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for a missing capability bit.
    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()>;

    /// Makes every command what the same one of `other` is: kernel, operands, whether it is
    /// enabled, alternatives. Or, on an error, none.
    ///
    /// `other` was created on the same device with the same
    /// [`CommandBufferDesc`](crate::CommandBufferDesc) (but for the low-latency hint, which stays
    /// this buffer's own), and has the same topology: as many commands, of the same kinds, with the
    /// same sync-points in the same order. Whether it is finalized does not matter; it stays as it
    /// is, and what it uses is kept alive by this buffer, too. Order and earlier enqueues as for
    /// [`update`](Self::update). No capability bit is needed but that the buffer could be created.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) before finalize or when not updatable;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for another device's buffer or another
    /// topology, with the index of the first command that differs; the driver's.
    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()>;
}

downcast!(CommandBuffer);

/// Options for creating a command-buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommandBufferDesc {
    /// Whether commands can be changed after finalize.
    pub updatable: bool,
    /// Whether commands run in the order of their appends, so that sync-points may be ignored.
    pub in_order: bool,
    /// Whether the events of its enqueues have the times of each command.
    pub profiling: bool,
    /// The end of each enqueue should be seen as early as possible: the device may do a little more
    /// work for that. A hint.
    pub low_latency: bool,
}

impl CommandBufferDesc {
    /// A command-buffer without any of the properties.
    pub const fn new() -> Self {
        Self { updatable: false, in_order: false, profiling: false, low_latency: false }
    }
}

setters! { const CommandBufferDesc { updatable: bool, in_order: bool, profiling: bool, low_latency: bool } }

/// The result of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The point that later commands can wait for.
    pub sync_point: SyncPoint,
    /// Handle for updates, in updatable buffers, for each command that [can be
    /// updated](Command::can_be_updated).
    pub handle: Option<CommandHandle>,
}

impl Appended {
    /// The result of append number `index`, for backends.
    pub fn new(buffer: CommandBufferId, index: u32, command: &Command, desc: &CommandBufferDesc) -> Self {
        let updatable = desc.updatable && command.can_be_updated();
        Self {
            sync_point: SyncPoint { buffer, index },
            handle: updatable.then_some(CommandHandle { buffer, index }),
        }
    }
}

/// State of a command-buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommandBufferState {
    /// Commands can be appended.
    Recording,
    /// The command-buffer can be enqueued and, if it is updatable, updated.
    Executable,
}

/// Properties and state of a command-buffer. (The specification's reference count is `Arc`'s business
/// here.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandBufferInfo {
    /// Identity of the command-buffer.
    pub id: CommandBufferId,
    /// The device it was created on.
    pub device: DeviceId,
    /// Properties that it was created with.
    pub desc: CommandBufferDesc,
    /// Current state.
    pub state: CommandBufferState,
    /// Number of commands appended so far.
    pub commands: usize,
    /// Name of the backend's form, such as "CUDA graph" or "replayed enqueues".
    pub lowering: &'static str,
    /// Reason for that form, for people; empty where it has no choice.
    pub reason: &'static str,
}

impl CommandBufferInfo {
    /// A recording command-buffer without commands, for backends.
    pub fn new(
        id: CommandBufferId,
        device: DeviceId,
        desc: CommandBufferDesc,
        lowering: &'static str,
    ) -> Self {
        Self { id, device, desc, state: CommandBufferState::Recording, commands: 0, lowering, reason: "" }
    }
}

setters! { CommandBufferInfo { state: CommandBufferState, commands: usize, reason: &'static str } }

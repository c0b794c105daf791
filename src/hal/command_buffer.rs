//! Command-buffers: commands recorded once and enqueued many times.
#![expect(unsafe_code, reason = "enqueued work is the caller's to order")]

use std::any::Any;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Command, CommandUpdate, Queue, Signal, WaitList};
use crate::types::{DeviceId, Result};

/// How to create a command-buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommandBufferDesc {
    /// Commands can be changed after finalize.
    pub updatable: bool,
    /// Commands run in the order of their appends; sync-points may be ignored.
    pub in_order: bool,
    /// Events of its enqueues give each command's times.
    pub profiling: bool,
    /// The end of each enqueue should be seen as early as possible: the device may do a little more
    /// work for that. A hint.
    pub low_latency: bool,
}

/// Identity of a command-buffer; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandBufferId(u64);

impl CommandBufferId {
    /// A fresh id. Backends call it when they create a command-buffer.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A command inside a command-buffer, used to order later commands of the same buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SyncPoint {
    /// The buffer it is a point of.
    pub buffer: CommandBufferId,
    /// Which append it came from, counting from 0.
    pub index: u32,
}

/// A command that can be updated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandHandle {
    /// The buffer it is a command of.
    pub buffer: CommandBufferId,
    /// Which append it came from, counting from 0.
    pub index: u32,
}

/// What an append gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// For later commands to wait for.
    pub sync_point: SyncPoint,
    /// For updates: there, in updatable buffers, for each command that [can be
    /// disabled](Command::can_be_disabled).
    pub handle: Option<CommandHandle>,
}

impl Appended {
    /// What the append that came as number `index` gives back, for backends.
    pub fn new(buffer: CommandBufferId, index: u32, command: &Command, desc: &CommandBufferDesc) -> Self {
        let updatable = desc.updatable && command.can_be_disabled();
        Self {
            sync_point: SyncPoint { buffer, index },
            handle: updatable.then_some(CommandHandle { buffer, index }),
        }
    }
}

/// Life of a command-buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommandBufferState {
    /// Takes appends.
    Recording,
    /// Can be enqueued and, if updatable, updated.
    Executable,
}

/// What a command-buffer is and holds. (The specification's reference count is `Arc`'s business here.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandBufferInfo {
    /// Its identity.
    pub id: CommandBufferId,
    /// The device it was created on.
    pub device: DeviceId,
    /// How it was created.
    pub desc: CommandBufferDesc,
    /// Its state.
    pub state: CommandBufferState,
    /// Commands appended so far.
    pub commands: usize,
    /// What the backend made of it, such as "CUDA graph" or "replayed enqueues".
    pub lowering: &'static str,
}

/// Commands recorded once and enqueued many times.
///
/// Enqueues of one command-buffer never overlap: the second starts after the first has completed,
/// on whatever queue. A command-buffer keeps alive what its commands use.
pub trait CommandBuffer: Debug + Send + Sync + 'static {
    /// For a backend to recognise its own.
    fn as_any(&self) -> &dyn Any;

    /// What it is and holds.
    fn info(&self) -> CommandBufferInfo;

    /// Appends a command that runs after all commands in `after` (`urCommandBufferAppend*Exp`).
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) after finalize;
    /// [`InvalidSyncPoint`](crate::ErrorKind::InvalidSyncPoint) for a sync-point of another buffer;
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) with the command's name;
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for
    /// the operands. The buffer is unchanged then.
    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended>;

    /// Ends recording and makes the buffer ready to enqueue (`urCommandBufferFinalizeExp`).
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) the second time; the driver's.
    fn finalize(&mut self) -> Result<()>;

    /// Enqueues all commands on `queue`, after the events in `wait` (`urCommandBufferEnqueueExp`).
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize;
    /// [`InvalidWaitList`](crate::ErrorKind::InvalidWaitList) for an event that this queue cannot wait for or that was
    /// never enqueued; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a queue or signal
    /// of another device; [`DeviceLost`](crate::ErrorKind::DeviceLost) and the driver's. Nothing
    /// was enqueued then, and nobody is notified.
    ///
    /// # Safety
    /// Until the signalled event is final, nothing else accesses the memory that the commands use
    /// in a conflicting way, unless `wait`, the queue's order or this buffer's own earlier enqueues
    /// put it before or after. Until then, too, the caller keeps this buffer, the queue, the event
    /// and the operands: a backend need not defer a drop. Raw [`UsmPointer`](super::UsmPointer)s
    /// and [`MemoryView`](super::MemoryView)s of other devices stay valid. The kernels' device code
    /// keeps to its arguments, over the ranges it is launched with.
    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()>;

    /// Changes commands, all that are named or, on an error, none (`urCommandBufferUpdateKernelLaunchExp`).
    ///
    /// Applies to later enqueues; those already made run with the old values. Does not wait for
    /// them. Kernels that it replaces are kept while those may run them; memory that it replaces is
    /// the caller's to keep, as [`enqueue`](Self::enqueue) asks. May allocate, where the driver
    /// cannot change what is running.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize or when not updatable;
    /// [`InvalidCommandHandle`](crate::ErrorKind::InvalidCommandHandle) for a handle of another buffer, or a change that
    /// only kernels have of another command; [`InvalidArgument`](crate::ErrorKind::InvalidArgument)
    /// for an index out of range, an argument of the wrong kind or an unregistered kernel;
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) for a missing capability bit.
    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()>;

    /// Makes every command what the same one of `other` is: kernel, operands, whether it is
    /// enabled, alternatives. Or, on an error, none.
    ///
    /// `other` was created on the same device with the same [`CommandBufferDesc`] (but for the
    /// low-latency hint, which stays this buffer's own), and has the same topology: as many commands, of the same kinds, with the same sync-points in the same order.
    /// Whether it is finalized does not matter; it stays as it is, and what it uses is kept alive
    /// by this buffer, too. Order and earlier enqueues as for [`update`](Self::update). No
    /// capability bit is needed but that the buffer could be created.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize or when not updatable;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for another device's buffer or another topology, with the
    /// index of the first command that differs; the driver's.
    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()>;
}

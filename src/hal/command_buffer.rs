//! Command-buffers: commands recorded once and enqueued many times.
#![expect(unsafe_code, reason = "enqueued work is the caller's to order")]

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Command, Kernel, KernelArg, KernelLaunch, Queue, Signal, WaitList};
use crate::types::{DeviceId, Error, ErrorKind, Range, Result};

/// How to create a command-buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommandBufferDesc {
    /// Kernel commands can be changed after finalize.
    pub updatable: bool,
    /// Commands run in the order of their appends; sync-points may be ignored.
    pub in_order: bool,
    /// Events of its enqueues give each command's times.
    pub profiling: bool,
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

/// A kernel command that can be updated.
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
    /// For updates: there for kernel launches in updatable buffers.
    pub handle: Option<CommandHandle>,
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

/// New values for a kernel command. What is `None` or not named stays.
#[derive(Clone, Debug)]
pub struct KernelUpdate {
    /// Which command.
    pub handle: CommandHandle,
    /// Another kernel, out of the alternatives registered at append.
    pub kernel: Option<Arc<dyn Kernel>>,
    /// New arguments by index.
    pub args: Vec<(usize, KernelArg)>,
    /// A new global size, with the dimensions of the old one (unused ones are 1).
    pub global_size: Option<[usize; 3]>,
    /// A new work-group size; `Some(None)` leaves it to the device.
    pub local_size: Option<Option<[usize; 3]>>,
    /// A new global offset.
    pub global_offset: Option<[usize; 3]>,
}

impl KernelUpdate {
    /// An update of this command that changes nothing yet.
    pub fn new(handle: CommandHandle) -> Self {
        Self {
            handle,
            kernel: None,
            args: Vec::new(),
            global_size: None,
            local_size: None,
            global_offset: None,
        }
    }

    /// Changes a launch to what the update makes of it.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for an argument that the launch does not have; it may have been
    /// changed in part.
    pub fn apply_to(&self, launch: &mut KernelLaunch) -> Result<()> {
        if let Some(kernel) = &self.kernel {
            launch.kernel = Arc::clone(kernel);
        }
        for (index, arg) in &self.args {
            let Some(slot) = launch.args.get_mut(*index) else {
                let why = format!("the kernel has no parameter {index}");
                return Err(Error::new(ErrorKind::InvalidArgument, why));
            };
            *slot = arg.clone();
        }
        let old = launch.range;
        let global = self.global_size.unwrap_or(old.global_size());
        let new = match old.dimensions() {
            1 => Range::linear(global[0]),
            2 => Range::new([global[0], global[1]]),
            _ => Range::new(global),
        };
        let new = new.offset(self.global_offset.unwrap_or(old.global_offset()));
        launch.range = match self.local_size.unwrap_or(old.local_size()) {
            Some(local) => new.local(local),
            None => new,
        };
        Ok(())
    }
}

/// Commands recorded once and enqueued many times.
///
/// Enqueues of one command-buffer never overlap: the second starts after the first has completed, on whatever queue.
/// A command-buffer keeps alive what its commands use.
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
    /// never enqueued; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a queue or signal of another device;
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) and the driver's. Nothing was enqueued then, and nobody is notified.
    ///
    /// # Safety
    /// Until the signalled event is final, nothing else accesses the memory that the commands use in a conflicting way,
    /// unless `wait`, the queue's order or this buffer's own earlier enqueues put it before or after. Until then, too, the
    /// caller keeps this buffer, the queue, the event and the operands: a backend need not defer a drop. Raw
    /// [`UsmPointer`](super::UsmPointer)s and [`MemoryView`](super::MemoryView)s of other devices stay valid. The kernels'
    /// device code keeps to its arguments, over the ranges it is launched with.
    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()>;

    /// Changes kernel commands, all of them or, on an error, none (`urCommandBufferUpdateKernelLaunchExp`).
    ///
    /// Applies to later enqueues; those already made run with the old values. May allocate, where the driver cannot change
    /// what is running.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize or when not updatable;
    /// [`InvalidCommandHandle`](crate::ErrorKind::InvalidCommandHandle) for a handle of another buffer;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an index out of range, an argument of the wrong kind
    /// or an unregistered kernel; [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) for a missing
    /// capability bit.
    fn update(&mut self, updates: &[KernelUpdate]) -> Result<()>;
}

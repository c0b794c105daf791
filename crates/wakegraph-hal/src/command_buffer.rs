//! What a command-buffer is: properties, identity, state, and the handles of its commands. What it
//! does is the trait [`CommandBuffer`](super::CommandBuffer).

use std::sync::atomic::{AtomicU64, Ordering};

use super::Command;
use super::builder::setters;
use crate::DeviceId;

/// How to create a command-buffer.
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

/// Identity of a command-buffer; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandBufferId(u64);

impl CommandBufferId {
    /// Returns a new id, for a backend that creates a command-buffer.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A command inside a command-buffer, used to order later commands of the same buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SyncPoint {
    /// The command-buffer that the command is in.
    pub buffer: CommandBufferId,
    /// The command's number in the order of the appends, starting at 0.
    pub index: u32,
}

/// A command that can be updated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandHandle {
    /// The command-buffer that the command is in.
    pub buffer: CommandBufferId,
    /// The command's number in the order of the appends, starting at 0.
    pub index: u32,
}

/// The result of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The point that later commands can wait for.
    pub sync_point: SyncPoint,
    /// For updates: there, in updatable buffers, for each command that [can be
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

/// What a command-buffer is and holds. (The specification's reference count is `Arc`'s business
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
    /// How the backend implements it, such as "CUDA graph" or "replayed enqueues".
    pub lowering: &'static str,
    /// Why the backend has chosen that, for people; empty where it has no choice.
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

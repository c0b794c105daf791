//! The commands that can be appended to a command-buffer or enqueued on a queue.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Body, Kernel, KernelArg, MemoryView, NativeCommand, UsmPointer};
use crate::types::{CommandKind, Pitch, Range, Rect};

/// How unified shared memory will be used. A device that has no use for the hint ignores it, but
/// keeps the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Advice {
    /// Back to the device's own judgement.
    Default,
    /// Mostly read.
    ReadMostly,
    /// Best kept on the device.
    PreferDevice,
    /// Best kept on the host.
    PreferHost,
}

/// A kernel with its arguments and index space.
#[derive(Clone, Debug)]
pub struct KernelLaunch {
    /// The kernel.
    pub kernel: Arc<dyn Kernel>,
    /// One for each parameter, in order.
    pub args: Vec<KernelArg>,
    /// The index space.
    pub range: Range,
    /// Kernels that an update may put in its place.
    pub alternatives: Vec<Arc<dyn Kernel>>,
}

/// One command with its operands, which it keeps alive.
///
/// The variants are the append functions of the specification. Operands named `host` are memory of
/// [`MemoryKind::Host`](super::MemoryKind::Host).
#[derive(Clone, Debug)]
pub enum Command {
    /// A kernel launch.
    Kernel(Box<KernelLaunch>),
    /// Copies `len` bytes between pointers that must not overlap.
    UsmCopy {
        /// From.
        src: UsmPointer,
        /// To.
        dst: UsmPointer,
        /// Bytes.
        len: usize,
    },
    /// Repeats `pattern` over `dst`, whose length is a multiple of the pattern's.
    UsmFill {
        /// Where.
        dst: UsmPointer,
        /// What.
        pattern: SmallVec<[u8; 16]>,
    },
    /// Copies from device memory to device memory; same length, no overlap.
    BufferCopy {
        /// From.
        src: MemoryView,
        /// To.
        dst: MemoryView,
    },
    /// Copies a rectangle from device memory to device memory; the pitches' offsets are relative to
    /// the views.
    BufferCopyRect {
        /// From.
        src: MemoryView,
        /// To.
        dst: MemoryView,
        /// How much.
        rect: Rect,
        /// Where in `src`.
        src_pitch: Pitch,
        /// Where in `dst`.
        dst_pitch: Pitch,
    },
    /// Copies from device memory to host memory; same length.
    BufferRead {
        /// From.
        src: MemoryView,
        /// To.
        host: MemoryView,
    },
    /// Copies a rectangle from device memory to host memory.
    BufferReadRect {
        /// From.
        src: MemoryView,
        /// To.
        host: MemoryView,
        /// How much.
        rect: Rect,
        /// Where in `src`.
        src_pitch: Pitch,
        /// Where in `host`.
        host_pitch: Pitch,
    },
    /// Copies from host memory to device memory; same length.
    BufferWrite {
        /// From.
        host: MemoryView,
        /// To.
        dst: MemoryView,
    },
    /// Copies a rectangle from host memory to device memory.
    BufferWriteRect {
        /// From.
        host: MemoryView,
        /// To.
        dst: MemoryView,
        /// How much.
        rect: Rect,
        /// Where in `host`.
        host_pitch: Pitch,
        /// Where in `dst`.
        dst_pitch: Pitch,
    },
    /// Repeats `pattern` over `dst`, whose length is a multiple of the pattern's.
    BufferFill {
        /// Where.
        dst: MemoryView,
        /// What: any length of at least 1 byte.
        pattern: SmallVec<[u8; 16]>,
    },
    /// A hint that the memory will soon be used on the device.
    UsmPrefetch {
        /// Which.
        memory: UsmPointer,
    },
    /// A hint on how the memory will be used.
    UsmAdvise {
        /// Which.
        memory: UsmPointer,
        /// How.
        advice: Advice,
    },
    /// Nothing; a point that others wait for.
    Empty,
    /// All commands of the body, as if they stood here.
    Child(Arc<Body>),
    /// One body or the other, as `condition`, a `u32`, is when the command's turn comes: not 0, or 0.
    If {
        /// 4 bytes that the device can read, at a multiple of 4.
        condition: MemoryView,
        /// Runs if it is not 0.
        then: Arc<Body>,
        /// Runs if it is 0.
        otherwise: Option<Arc<Body>>,
    },
    /// The body again and again, as long as `condition`, a `u32`, is not 0; it is read before each
    /// time, the first one included.
    While {
        /// 4 bytes that the device can read, at a multiple of 4.
        condition: MemoryView,
        /// What to repeat. It, or somebody before it, has to make the condition 0: nothing else
        /// ends the loop.
        body: Arc<Body>,
    },
    /// The user's own work on the backend's stream.
    Native(NativeCommand),
}

impl Command {
    /// Whether an update can disable it: kernels, fills and copies. What only orders or hints
    /// cannot be, nor what has a body.
    pub fn can_be_disabled(&self) -> bool {
        match self {
            Self::Kernel(_)
            | Self::UsmCopy { .. }
            | Self::UsmFill { .. }
            | Self::BufferCopy { .. }
            | Self::BufferCopyRect { .. }
            | Self::BufferRead { .. }
            | Self::BufferReadRect { .. }
            | Self::BufferWrite { .. }
            | Self::BufferWriteRect { .. }
            | Self::BufferFill { .. } => true,
            Self::UsmPrefetch { .. }
            | Self::UsmAdvise { .. }
            | Self::Child(_)
            | Self::If { .. }
            | Self::While { .. }
            | Self::Native(_)
            | Self::Empty => false,
        }
    }

    /// What the command does, without its operands.
    pub fn kind(&self) -> CommandKind {
        match self {
            Self::Kernel(_) => CommandKind::Kernel,
            Self::UsmCopy { .. } => CommandKind::UsmCopy,
            Self::UsmFill { .. } => CommandKind::UsmFill,
            Self::BufferCopy { .. } => CommandKind::BufferCopy,
            Self::BufferCopyRect { .. } => CommandKind::BufferCopyRect,
            Self::BufferRead { .. } => CommandKind::BufferRead,
            Self::BufferReadRect { .. } => CommandKind::BufferReadRect,
            Self::BufferWrite { .. } => CommandKind::BufferWrite,
            Self::BufferWriteRect { .. } => CommandKind::BufferWriteRect,
            Self::BufferFill { .. } => CommandKind::BufferFill,
            Self::UsmPrefetch { .. } => CommandKind::UsmPrefetch,
            Self::UsmAdvise { .. } => CommandKind::UsmAdvise,
            Self::Empty => CommandKind::Empty,
            Self::Child(_) => CommandKind::Child,
            Self::If { .. } => CommandKind::If,
            Self::While { .. } => CommandKind::While,
            Self::Native(_) => CommandKind::Native,
        }
    }

    /// The bodies that it holds.
    pub fn bodies(&self) -> impl Iterator<Item = &Arc<Body>> {
        let [first, second] = match self {
            Self::Child(body) | Self::While { body, .. } => [Some(body), None],
            Self::If { then, otherwise, .. } => [Some(then), otherwise.as_ref()],
            _ => [None, None],
        };
        first.into_iter().chain(second)
    }
}

//! The commands that can be appended to a command-buffer or enqueued on a queue, and bodies of
//! commands for those that hold others.

use std::fmt::{self, Debug};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    CommandKind, CommandKinds, Error, ErrorKind, Kernel, KernelArg, KindPlace, MemoryView, NativeCommand,
    Pitch, Range, Rect, Result, UsmPointer,
};

/// Hint on the use of unified shared memory. A device that has no use for the hint ignores it, but
/// keeps the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Advice {
    /// No advice: the device decides.
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
    /// One argument for each parameter, in order.
    pub args: Vec<KernelArg>,
    /// The index space.
    pub range: Range,
    /// Kernels that an update may use instead.
    pub alternatives: Vec<Arc<dyn Kernel>>,
}

impl KernelLaunch {
    /// A launch without alternatives.
    pub fn new(kernel: Arc<dyn Kernel>, args: Vec<KernelArg>, range: Range) -> Self {
        Self { kernel, args, range, alternatives: Vec::new() }
    }
}

setters! { KernelLaunch { alternatives: Vec<Arc<dyn Kernel>> } }

/// One command with its operands, which it keeps alive.
///
/// The variants are the append functions of the specification. Operands named `host` are memory of
/// [`MemoryKind::Host`](crate::MemoryKind::Host).
#[derive(Clone, Debug)]
pub enum Command {
    /// A kernel launch. A command-buffer that keeps it shares it with its caller.
    Kernel(Arc<KernelLaunch>),
    /// Copies `len` bytes between pointers that must not overlap.
    UsmCopy {
        /// Source.
        src: UsmPointer,
        /// Destination.
        dst: UsmPointer,
        /// Length in bytes.
        len: usize,
    },
    /// Repeats `pattern` over `dst`, whose length is a multiple of the pattern's.
    UsmFill {
        /// Destination.
        dst: UsmPointer,
        /// Bytes to repeat, at least 1.
        pattern: SmallVec<[u8; 16]>,
    },
    /// Copies from device memory to device memory; same length, no overlap.
    BufferCopy {
        /// Source.
        src: MemoryView,
        /// Destination.
        dst: MemoryView,
    },
    /// Copies a rectangle from device memory to device memory; the pitches' offsets are relative to
    /// the views.
    BufferCopyRect {
        /// Source.
        src: MemoryView,
        /// Destination.
        dst: MemoryView,
        /// Size of the rectangle.
        rect: Rect,
        /// Layout of the rectangle in `src`.
        src_pitch: Pitch,
        /// Layout of the rectangle in `dst`.
        dst_pitch: Pitch,
    },
    /// Copies from device memory to host memory; same length.
    BufferRead {
        /// Source.
        src: MemoryView,
        /// Destination.
        host: MemoryView,
    },
    /// Copies a rectangle from device memory to host memory.
    BufferReadRect {
        /// Source.
        src: MemoryView,
        /// Destination.
        host: MemoryView,
        /// Size of the rectangle.
        rect: Rect,
        /// Layout of the rectangle in `src`.
        src_pitch: Pitch,
        /// Layout of the rectangle in `host`.
        host_pitch: Pitch,
    },
    /// Copies from host memory to device memory; same length.
    BufferWrite {
        /// Source.
        host: MemoryView,
        /// Destination.
        dst: MemoryView,
    },
    /// Copies a rectangle from host memory to device memory.
    BufferWriteRect {
        /// Source.
        host: MemoryView,
        /// Destination.
        dst: MemoryView,
        /// Size of the rectangle.
        rect: Rect,
        /// Layout of the rectangle in `host`.
        host_pitch: Pitch,
        /// Layout of the rectangle in `dst`.
        dst_pitch: Pitch,
    },
    /// Repeats `pattern` over `dst`, whose length is a multiple of the pattern's.
    BufferFill {
        /// Destination.
        dst: MemoryView,
        /// Bytes to repeat, at least 1.
        pattern: SmallVec<[u8; 16]>,
    },
    /// A hint that the memory will soon be used on the device.
    UsmPrefetch {
        /// The memory.
        memory: UsmPointer,
    },
    /// A hint on how the memory will be used.
    UsmAdvise {
        /// The memory.
        memory: UsmPointer,
        /// The expected use.
        advice: Advice,
    },
    /// No operation: a point in the order that other commands can wait for.
    Empty,
    /// One of two bodies. `condition`, a `u32`, is read when the command starts.
    If {
        /// 4 bytes that the device can read, at a multiple of 4.
        condition: MemoryView,
        /// Runs if the condition is not 0.
        then: Arc<Body>,
        /// Runs if the condition is 0.
        otherwise: Option<Arc<Body>>,
    },
    /// The body repeatedly, as long as `condition`, a `u32`, is not 0. It is read before each
    /// iteration, including the first.
    While {
        /// 4 bytes that the device can read, at a multiple of 4.
        condition: MemoryView,
        /// The commands to repeat. The loop ends only when the body, or something before it, makes the
        /// condition 0.
        body: Arc<Body>,
    },
    /// The body whose number is `index`, a `u32` that is read when the command starts. Nothing if there is
    /// none.
    Switch {
        /// 4 bytes that the device can read, at a multiple of 4.
        index: MemoryView,
        /// The bodies, counted from 0.
        bodies: Vec<Arc<Body>>,
    },
    /// The user's own work on the backend's stream, recorded.
    Native(NativeCommand),
    /// The user's own calls, in each enqueue. Only for in-order queues, never inside a command-buffer or a
    /// body.
    StreamTask(NativeCommand),
}

impl Command {
    /// Whether an update can change the command: kernels, fills, copies, conditionals, switches and
    /// loops.
    pub fn can_be_updated(&self) -> bool {
        let row = self.kind().row();
        row.can_be_disabled || row.place == KindPlace::DeviceOrHost
    }

    /// Whether an update can disable the command: kernels, fills and copies can be disabled.
    pub fn can_be_disabled(&self) -> bool {
        self.kind().row().can_be_disabled
    }

    /// The kind of the command, without its operands.
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
            Self::If { .. } => CommandKind::If,
            Self::While { .. } => CommandKind::While,
            Self::Switch { .. } => CommandKind::Switch,
            Self::Native(_) => CommandKind::Native,
            Self::StreamTask(_) => CommandKind::StreamTask,
        }
    }

    /// Source and destination of a copy between views of memory; `None` for other commands.
    pub fn copy_sides(&self) -> Option<[&MemoryView; 2]> {
        match self {
            Self::BufferCopy { src, dst }
            | Self::BufferRead { src, host: dst }
            | Self::BufferWrite { host: src, dst }
            | Self::BufferCopyRect { src, dst, .. }
            | Self::BufferReadRect { src, host: dst, .. }
            | Self::BufferWriteRect { host: src, dst, .. } => Some([src, dst]),
            _ => None,
        }
    }

    /// The views of memory among the operands. Those of the commands in its bodies are left out.
    pub fn views(&self) -> impl Iterator<Item = &MemoryView> {
        let (args, views, one): (&[KernelArg], &[MemoryView], _) = match self {
            Self::Kernel(launch) => (&launch.args, &[], None),
            Self::Native(native) | Self::StreamTask(native) => (&[], native.memory(), None),
            Self::BufferFill { dst: view, .. }
            | Self::If { condition: view, .. }
            | Self::While { condition: view, .. }
            | Self::Switch { index: view, .. } => (&[], &[], Some(view)),
            _ => (&[], &[], None),
        };
        let args = args.iter().filter_map(|arg| match arg {
            KernelArg::Memory(view) => Some(view),
            KernelArg::Value(_) | KernelArg::Usm(_) | KernelArg::Local(_) => None,
        });
        args.chain(views).chain(one).chain(self.copy_sides().into_iter().flatten())
    }

    /// Mutable form of [`views`](Self::views), without the memory that closures have declared.
    pub fn views_mut(&mut self) -> impl Iterator<Item = &mut MemoryView> {
        let (args, first, second): (&mut [KernelArg], _, _) = match self {
            Self::Kernel(launch) => (&mut Arc::make_mut(launch).args, None, None),
            Self::BufferFill { dst: view, .. }
            | Self::If { condition: view, .. }
            | Self::While { condition: view, .. }
            | Self::Switch { index: view, .. } => (&mut [], Some(view), None),
            Self::BufferCopy { src, dst }
            | Self::BufferRead { src, host: dst }
            | Self::BufferWrite { host: src, dst }
            | Self::BufferCopyRect { src, dst, .. }
            | Self::BufferReadRect { src, host: dst, .. }
            | Self::BufferWriteRect { host: src, dst, .. } => (&mut [], Some(src), Some(dst)),
            _ => (&mut [], None, None),
        };
        let args = args.iter_mut().filter_map(|arg| match arg {
            KernelArg::Memory(view) => Some(view),
            KernelArg::Value(_) | KernelArg::Usm(_) | KernelArg::Local(_) => None,
        });
        args.chain(first).chain(second)
    }

    /// The bodies that the command holds.
    pub fn bodies(&self) -> impl Iterator<Item = &Arc<Body>> {
        let (first, others) = match self {
            Self::While { body, .. } => (Some(body), &[][..]),
            Self::If { then, otherwise, .. } => (Some(then), otherwise.as_slice()),
            Self::Switch { bodies, .. } => (None, &bodies[..]),
            _ => (None, &[][..]),
        };
        first.into_iter().chain(others)
    }
}

/// Commands with their order, for commands that hold others. Built once, then shared and never
/// changed.
///
/// Kernels in it have no handles and cannot be updated; their alternatives mean nothing.
///
/// ```
/// use wakegraph_hal::{Body, Command};
/// let mut body = Body::new();
/// let first = body.push(Command::Empty, &[])?;
/// body.push(Command::Empty, &[first])?;
/// assert_eq!(body.len(), 2);
/// # Ok::<(), wakegraph_hal::Error>(())
/// ```
pub struct Body {
    commands: Vec<(Command, After)>,
    kinds: CommandKinds,
    depth: usize,
    total: usize,
}

type After = SmallVec<[u32; 2]>;

impl Body {
    /// Largest depth of bodies within bodies. They are walked recursively.
    pub const MAX_DEPTH: usize = 64;

    /// Largest number of commands in a body. The commands of a body within it count each time it is
    /// used, because a backend may copy them.
    pub const MAX_COMMANDS: usize = 1 << 24;

    /// An empty body.
    pub fn new() -> Self {
        Self { commands: Vec::new(), kinds: CommandKinds::empty(), depth: 1, total: 0 }
    }

    /// Adds a command that runs after the commands with these indices. Returns its own index,
    /// counting from 0.
    ///
    /// # Errors
    /// [`InvalidSyncPoint`](ErrorKind::InvalidSyncPoint) for an index that no earlier command has;
    /// [`InvalidSize`](ErrorKind::InvalidSize) beyond [`MAX_COMMANDS`](Self::MAX_COMMANDS) or
    /// [`MAX_DEPTH`](Self::MAX_DEPTH). The body is unchanged then.
    pub fn push(&mut self, command: Command, after: &[u32]) -> Result<u32> {
        let index = self.commands.len();
        if let Some(wrong) = after.iter().find(|&&earlier| earlier as usize >= index) {
            let why = format!("command {wrong} of the body does not exist: {index} commands were added");
            return Err(Error::new(ErrorKind::InvalidSyncPoint, why)
                .help("pass indices that earlier additions to this body returned"));
        }
        let inner = || command.bodies();
        let depth = inner().map(|body| body.depth + 1).max().unwrap_or(1);
        let total = inner().fold(self.total + 1, |total, body| total.saturating_add(body.total));
        if depth > Self::MAX_DEPTH || total > Self::MAX_COMMANDS {
            let (depth, total) = (Self::MAX_DEPTH, Self::MAX_COMMANDS);
            let why = format!("a body may hold {total} commands, and bodies {depth} deep");
            return Err(Error::new(ErrorKind::InvalidSize, why).help("split the graph"));
        }
        self.kinds |= inner().fold(command.kind().as_set(), |kinds, body| kinds | body.kinds);
        self.depth = self.depth.max(depth);
        self.total = total;
        self.commands.push((command, after.into()));
        Ok(index as u32)
    }

    /// The commands in the order of their additions, each with those that it runs after.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (&Command, &[u32])> {
        self.commands.iter().map(|(command, after)| (command, &after[..]))
    }

    /// Number of commands, without those of the bodies in it.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether the body has no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The kinds of its commands, including those of the bodies in it.
    pub fn kinds(&self) -> CommandKinds {
        self.kinds
    }

    /// Depth of bodies within it; 1 without any.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::new()
    }
}

impl Debug for Body {
    /// Abbreviated, because bodies are large and nested.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.commands.iter().map(|(command, _)| command.kind());
        const SHOWN: usize = 8;
        let mut list = f.debug_list();
        list.entries(kinds.take(SHOWN).map(CommandKind::name));
        if self.len() > SHOWN {
            list.entry(&format_args!("{} more", self.len() - SHOWN));
        }
        list.finish()
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "lends memory of the test's own")]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::{DeviceId, PlainMemory, UserMemory};

    #[test]
    fn an_order_names_earlier_commands_only() {
        let mut body = Body::new();
        assert_eq!(body.push(Command::Empty, &[0]).unwrap_err().kind(), ErrorKind::InvalidSyncPoint);
        assert!(body.is_empty());
        assert_eq!(body.push(Command::Empty, &[]).unwrap(), 0);
        assert_eq!(body.push(Command::Empty, &[0]).unwrap(), 1);
        assert_eq!(body.push(Command::Empty, &[2]).unwrap_err().kind(), ErrorKind::InvalidSyncPoint);
        assert_eq!(body.commands().map(|(_, after)| after.to_vec()).collect::<Vec<_>>(), [vec![], vec![0]]);
    }

    fn if_nonzero(then: Arc<Body>) -> Command {
        // A vector may move with what it owns borrowed by address, a box may not.
        let mut owner = vec![0_u32; 1];
        let start = NonNull::new(owner.as_mut_ptr().cast()).unwrap();
        // SAFETY: the bytes live as long as their owner.
        let word = unsafe { UserMemory::new(start, 4, false, Box::new(owner)) };
        let condition = MemoryView::whole(Arc::new(PlainMemory::new(DeviceId::from_raw(0), word, true)));
        Command::If { condition, then, otherwise: None }
    }

    #[test]
    fn bodies_lie_so_deep_and_no_deeper() {
        let mut body = Body::new();
        for depth in 1..Body::MAX_DEPTH {
            assert_eq!(body.depth(), depth);
            let mut outer = Body::new();
            outer.push(if_nonzero(Arc::new(body)), &[]).unwrap();
            body = outer;
        }
        let error = Body::new().push(if_nonzero(Arc::new(body)), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize);
    }

    #[test]
    fn bodies_that_name_each_other_often_are_too_large() {
        let mut body = Arc::new(Body::new());
        for _ in 0..40 {
            let mut outer = Body::new();
            let pushed = [0, 1].map(|_| outer.push(if_nonzero(Arc::clone(&body)), &[]));
            if let Some(error) = pushed.into_iter().find_map(Result::err) {
                assert_eq!(error.kind(), ErrorKind::InvalidSize);
                return;
            }
            body = Arc::new(outer);
        }
        panic!("2^40 commands fit");
    }

    #[test]
    fn kinds_are_those_of_all_bodies() {
        let mut inner = Body::new();
        inner.push(Command::Empty, &[]).unwrap();
        let mut outer = Body::new();
        outer.push(if_nonzero(Arc::new(inner)), &[]).unwrap();
        assert_eq!(outer.kinds(), CommandKinds::IF | CommandKinds::EMPTY);
        assert_eq!(format!("{outer:?}"), "[\"conditional\"]");
    }
}

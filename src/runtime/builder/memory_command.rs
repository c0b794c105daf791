//! The device commands of copies, fills and hints, for nodes of graphs and for commands of queues.

use bytemuck::Pod;
use smallvec::{SmallVec, smallvec};
use wakegraph_hal::{
    self as hal, AccessMode, Advice, CommandKind, Error, ErrorKind, MemoryKind, Pitch, Rect, Result,
};

use crate::runtime::resource::allocation::View;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::memory_arg::{CopySource, MemoryArg, Operand};
use crate::runtime::resource::rect::RectCopy;
use crate::runtime::resource::scratch::{self, ScratchMemory};

/// A copy, fill or hint, or why there cannot be one, and what it uses.
///
/// One of no bytes keeps its kind, its accesses and so its place in the order. Its command is empty.
#[derive(Clone)]
pub(crate) struct MemoryCommand {
    pub(crate) kind: CommandKind,
    pub(crate) command: Result<hal::Command>,
    pub(crate) uses: SmallVec<[(View, AccessMode); 2]>,
}

/// Path of a copy from its source to its destination.
#[derive(Clone)]
pub(crate) enum Transfer {
    /// In one command.
    Direct(MemoryCommand),
    /// Through the host, between devices that cannot reach each other's memory.
    Staged(StagedCopy),
}

/// A copy between devices that cannot reach each other's memory.
#[derive(Clone)]
pub(crate) struct StagedCopy {
    pub(crate) src: View,
    pub(crate) dst: View,
    shape: CopyShape,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    OnDevice,
    ToHost,
    FromHost,
}

#[derive(Clone, Copy)]
enum CopyShape {
    Linear,
    Rect { rect: Rect, src_pitch: Pitch, dst_pitch: Pitch },
}

impl CopyShape {
    /// Whether a copy from all of `src` has nothing to copy.
    fn is_empty(self, src: &View) -> bool {
        match self {
            Self::Linear => src.is_empty(),
            Self::Rect { rect, .. } => rect.is_empty(),
        }
    }

    fn kind(self, direction: Direction) -> CommandKind {
        match (self, direction) {
            (Self::Linear, Direction::OnDevice) => CommandKind::BufferCopy,
            (Self::Linear, Direction::ToHost) => CommandKind::BufferRead,
            (Self::Linear, Direction::FromHost) => CommandKind::BufferWrite,
            (Self::Rect { .. }, Direction::OnDevice) => CommandKind::BufferCopyRect,
            (Self::Rect { .. }, Direction::ToHost) => CommandKind::BufferReadRect,
            (Self::Rect { .. }, Direction::FromHost) => CommandKind::BufferWriteRect,
        }
    }

    fn command(self, direction: Direction, src: hal::MemoryView, dst: hal::MemoryView) -> hal::Command {
        use hal::Command;
        match (self, direction) {
            (Self::Linear, Direction::OnDevice) => Command::BufferCopy { src, dst },
            (Self::Linear, Direction::ToHost) => Command::BufferRead { src, host: dst },
            (Self::Linear, Direction::FromHost) => Command::BufferWrite { host: src, dst },
            (Self::Rect { rect, src_pitch, dst_pitch }, Direction::OnDevice) => {
                Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
            }
            (Self::Rect { rect, src_pitch, dst_pitch }, Direction::ToHost) => {
                Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
            }
            (Self::Rect { rect, src_pitch, dst_pitch }, Direction::FromHost) => {
                Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch }
            }
        }
    }
}

impl Transfer {
    /// A copy of all of `src` to all of `dst`.
    pub(crate) fn copy<T: Pod>(src: impl CopySource<T>, dst: impl MemoryArg<T>) -> Self {
        let (Operand(src), Operand(dst)) = (src.operand(), dst.operand());
        if src.len != dst.len {
            let (from, to) = (src.len / size_of::<T>(), dst.len / size_of::<T>());
            let why = format!("cannot copy {from} elements to a buffer of {to}");
            let error = Error::new(ErrorKind::InvalidSize, why).help("copy between slices of equal length");
            return Self::refused(CommandKind::BufferCopy, error);
        }
        Self::new(src, dst, CopyShape::Linear)
    }

    /// A rectangular copy.
    pub(crate) fn rect<T: Pod>(src: impl CopySource<T>, dst: impl MemoryArg<T>, copy: RectCopy) -> Self {
        let (Operand(src), Operand(dst)) = (src.operand(), dst.operand());
        let bytes = match copy.to_bytes(size_of::<T>()) {
            Ok(bytes) => bytes,
            Err(error) => return Self::refused(CommandKind::BufferCopyRect, error),
        };
        let (rect, src_pitch, dst_pitch) = (bytes.rect, bytes.src, bytes.dst);
        // A rectangle without bytes fits everywhere.
        for (side, view, pitch) in [("source", &src, &src_pitch), ("destination", &dst, &dst_pitch)] {
            if !rect.is_empty()
                && let Err(error) = rect.end_within(pitch, view.len)
            {
                let error = Error::new(error.kind(), format!("in the {side}, {}", error.message()));
                return Self::refused(CommandKind::BufferCopyRect, error);
            }
        }
        Self::new(src, dst, CopyShape::Rect { rect, src_pitch, dst_pitch })
    }

    fn refused(kind: CommandKind, error: Error) -> Self {
        Self::Direct(MemoryCommand::refused(kind, error))
    }

    fn new(src: View, dst: View, shape: CopyShape) -> Self {
        if let Err(error) = dst.check_mode(AccessMode::Write) {
            return Self::refused(CommandKind::BufferCopy, error);
        }
        let direction = match (src.kind(), dst.kind()) {
            (MemoryKind::Device, MemoryKind::Device) => Direction::OnDevice,
            (MemoryKind::Device, MemoryKind::Host) => Direction::ToHost,
            (MemoryKind::Host, MemoryKind::Device) => Direction::FromHost,
            (MemoryKind::Host, MemoryKind::Host) => {
                let error = Error::new(ErrorKind::InvalidArgument, "both sides of the copy are host buffers");
                return Self::refused(CommandKind::BufferCopy, error.help("copy them in a host task"));
            }
        };
        if direction == Direction::OnDevice {
            match reachable(&src, &dst) {
                Ok(true) => {}
                Ok(false) => return Self::Staged(StagedCopy { src, dst, shape }),
                Err(error) => return Self::refused(CommandKind::BufferCopy, error),
            }
        }
        Self::Direct(MemoryCommand::copy(src, dst, direction, shape))
    }
}

impl StagedCopy {
    /// The two halves of the copy, through `staging`, which has the layout of the source, so that a
    /// rectangle keeps its pitches.
    pub(crate) fn halves(self, staging: &View) -> [MemoryCommand; 2] {
        let Self { src, dst, shape } = self;
        [
            MemoryCommand::copy(src, staging.clone(), Direction::ToHost, CopyShape::Linear),
            MemoryCommand::copy(staging.clone(), dst, Direction::FromHost, shape),
        ]
    }
}

impl MemoryCommand {
    pub(crate) fn refused(kind: CommandKind, error: Error) -> Self {
        Self { kind, command: Err(error), uses: SmallVec::new() }
    }

    fn copy(src: View, dst: View, direction: Direction, shape: CopyShape) -> Self {
        let is_raw = src.is_raw() || dst.is_raw();
        let command = match is_raw {
            _ if shape.is_empty(&src) => Ok(hal::Command::Empty),
            true => copy_of_pointers(&src, &dst, shape),
            false => src.to_hal().and_then(|src| Ok(shape.command(direction, src, dst.to_hal()?))),
        };
        let has_address = has_only_address(&src) || has_only_address(&dst);
        let kind = if has_address { CommandKind::UsmCopy } else { shape.kind(direction) };
        Self { kind, command, uses: smallvec![(src, AccessMode::Read), (dst, AccessMode::Write)] }
    }

    /// A fill of all of `dst` with a pattern.
    pub(crate) fn fill<T: Pod>(dst: &Buffer<T>, pattern: &[T]) -> Self {
        let (view, bytes) = (dst.view().clone(), bytemuck::cast_slice::<T, u8>(pattern));
        let command = match bytes.is_empty() || !view.len.is_multiple_of(bytes.len()) {
            true => {
                let (pattern, len) = (pattern.len(), dst.len());
                let why = format!("a pattern of {pattern} elements does not divide a buffer of {len}");
                Err(Error::new(ErrorKind::InvalidSize, why))
            }
            false => fill_of(&view, SmallVec::from_slice(bytes)),
        };
        let kind = if has_only_address(&view) { CommandKind::UsmFill } else { CommandKind::BufferFill };
        Self { kind, command, uses: smallvec![(view, AccessMode::Write)] }
    }

    /// A fill of all of `dst` with zeros.
    pub(crate) fn zero<T: Pod>(dst: &Buffer<T>) -> Self {
        let view = dst.view().clone();
        let command = fill_of(&view, smallvec![0]);
        Self { kind: CommandKind::BufferFill, command, uses: smallvec![(view, AccessMode::Write)] }
    }

    /// A hint that `buffer` will soon be used.
    pub(crate) fn prefetch<T: Pod>(buffer: &Buffer<T>) -> Self {
        Self::hint(CommandKind::UsmPrefetch, buffer.view(), |memory| hal::Command::UsmPrefetch { memory })
    }

    /// A hint on how `buffer` will be used.
    pub(crate) fn advise<T: Pod>(buffer: &Buffer<T>, advice: Advice) -> Self {
        let make = |memory| hal::Command::UsmAdvise { memory, advice };
        Self::hint(CommandKind::UsmAdvise, buffer.view(), make)
    }

    /// The hint that `make` makes of the view's pointer. Where the memory has none, the device has no
    /// use for a hint.
    fn hint(kind: CommandKind, view: &View, make: impl FnOnce(hal::UsmPointer) -> hal::Command) -> Self {
        let command = match ScratchMemory::of(&view.allocation) {
            Some(_) => {
                let why = "hints are not for scratch buffers, which have memory only while the graph runs";
                Err(Error::new(ErrorKind::InvalidArgument, why).help("leave the hint out"))
            }
            None => Ok(view.pointer().filter(|_| !view.is_empty()).map_or(hal::Command::Empty, make)),
        };
        Self { kind, command, uses: smallvec![(view.clone(), AccessMode::Read)] }
    }

    /// The device where it runs best: where it writes device memory, else where it reads some.
    pub(crate) fn preferred_device(&self) -> Option<&Device> {
        let on_device = |view: &View| view.kind() == MemoryKind::Device;
        let written = self.uses.iter().find(|(view, mode)| mode.writes() && on_device(view));
        let used = written.or_else(|| self.uses.iter().find(|(view, _)| on_device(view)));
        used.map(|(view, _)| view.allocation.device())
    }
}

/// Whether the device of `dst` can copy from `src` directly.
fn reachable(src: &View, dst: &View) -> Result<bool> {
    let device = dst.allocation.device();
    match ScratchMemory::of(&src.allocation) {
        None if src.is_raw() => Ok(src.allocation.device() == device),
        Some(_) => scratch::is_reachable(src.allocation.device(), device),
        None => Ok(device.hal().can_access(&**src.allocation.memory())),
    }
}

/// Whether a fill or copy names the memory by its address. Null has none, and nothing to fill or copy.
fn has_only_address(view: &View) -> bool {
    view.is_raw() && view.pointer().is_some_and(|pointer| pointer.address() != 0)
}

/// The view's pointer.
///
/// # Errors
/// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for memory that has none.
pub(super) fn usm(view: &View) -> Result<hal::UsmPointer> {
    view.pointer().ok_or_else(|| {
        Error::new(ErrorKind::FeatureNotSupported, "the device's memory has no unified-shared-memory pointer")
    })
}

/// A copy from or to memory that is known by its address.
fn copy_of_pointers(src: &View, dst: &View, shape: CopyShape) -> Result<hal::Command> {
    match shape {
        CopyShape::Linear => Ok(hal::Command::UsmCopy { src: usm(src)?, dst: usm(dst)?, len: src.len }),
        CopyShape::Rect { .. } => {
            let why = "rectangles of memory that is known by its address cannot be copied";
            Err(Error::new(ErrorKind::FeatureNotSupported, why).help("copy its rows, or use a buffer"))
        }
    }
}

fn fill_of(dst: &View, pattern: SmallVec<[u8; 16]>) -> Result<hal::Command> {
    Ok(match dst.is_raw() {
        _ if dst.is_empty() => hal::Command::Empty,
        true => hal::Command::UsmFill { dst: usm(dst)?, pattern },
        false => hal::Command::BufferFill { dst: dst.to_hal()?, pattern },
    })
}

//! Copies, fills and hints.

use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;

use crate::hal::{self, Advice, MemoryKind};
use crate::runtime::builder::Graph;
use crate::runtime::builder::command::{Command, accesses};
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::memory_arg::{MemoryArg, Operand};
use crate::runtime::resource::rect::RectCopy;
use crate::runtime::resource::scratch::{self, ScratchMemory};
use crate::types::{AccessMode, CommandKind, Error, ErrorKind, Result};

impl Graph {
    /// Adds a copy of all of `src` to all of `dst`, which has the same length: between buffers, or
    /// from or to a [`HostBuffer`] (a buffer write or read). Between devices without a direct path
    /// it goes through the host.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](ErrorKind::InvalidSize) when the lengths differ;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the two overlap, or are both on the host.
    #[track_caller]
    pub fn copy<T: Pod>(&mut self, src: impl MemoryArg<T>, dst: impl MemoryArg<T>) -> NodeBuilder<'_> {
        let (Operand(src), Operand(dst)) = (src.operand(), dst.operand());
        if src.len != dst.len {
            let (from, to) = (src.len / size_of::<T>(), dst.len / size_of::<T>());
            let error = Error::new(
                ErrorKind::InvalidSize,
                format!("cannot copy {from} elements to a buffer of {to}"),
            );
            return self.refuse(CommandKind::BufferCopy, error.help("copy between slices of equal length"));
        }
        self.transfer(src, dst, |direction, src, dst| match direction {
            Direction::OnDevice => hal::Command::BufferCopy { src, dst },
            Direction::ToHost => hal::Command::BufferRead { src, host: dst },
            Direction::FromHost => hal::Command::BufferWrite { host: src, dst },
        })
    }

    /// Adds a rectangular copy; see [`RectCopy`]. Operands as for [`copy`](Self::copy), without the
    /// condition on lengths.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](ErrorKind::InvalidSize) when a rectangle is empty, overlaps
    /// itself or is not inside its buffer; those of [`copy`](Self::copy).
    #[track_caller]
    pub fn copy_rect<T: Pod>(
        &mut self,
        src: impl MemoryArg<T>,
        dst: impl MemoryArg<T>,
        copy: RectCopy,
    ) -> NodeBuilder<'_> {
        let (Operand(src), Operand(dst)) = (src.operand(), dst.operand());
        let bytes = match copy.to_bytes(size_of::<T>()) {
            Ok(bytes) => bytes,
            Err(error) => return self.refuse(CommandKind::BufferCopyRect, error),
        };
        let (rect, src_pitch, dst_pitch) = (bytes.rect, bytes.src, bytes.dst);
        for (side, view, pitch) in [("source", &src, &src_pitch), ("destination", &dst, &dst_pitch)] {
            if let Err(error) = rect.end_within(pitch, view.len) {
                let error = Error::new(error.kind(), format!("in the {side}, {}", error.message()));
                return self.refuse(CommandKind::BufferCopyRect, error);
            }
        }
        self.transfer(src, dst, |direction, src, dst| match direction {
            Direction::OnDevice => hal::Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch },
            Direction::ToHost => {
                hal::Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
            }
            Direction::FromHost => {
                hal::Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch }
            }
        })
    }

    /// Adds a write of `elements`, which the graph keeps a copy of, to all of `dst`.
    ///
    /// # Errors
    /// At finalize: those of [`copy`](Self::copy), and [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn write<T: Pod>(&mut self, dst: &Buffer<T>, elements: &[T]) -> NodeBuilder<'_> {
        match dst.device().host_buffer_from(elements) {
            Ok(staging) => self.copy(&staging, dst),
            Err(error) => self.refuse(CommandKind::BufferWrite, error),
        }
    }

    /// Adds a fill of all of `dst` with `value`.
    #[track_caller]
    pub fn fill<T: Pod>(&mut self, dst: &Buffer<T>, value: T) -> NodeBuilder<'_> {
        self.fill_pattern(dst, &[value])
    }

    /// Adds a fill of all of `dst` with a pattern of any number of elements, repeated.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](ErrorKind::InvalidSize) when the pattern is empty or does not
    /// divide the buffer.
    #[track_caller]
    pub fn fill_pattern<T: Pod>(&mut self, dst: &Buffer<T>, pattern: &[T]) -> NodeBuilder<'_> {
        let (view, bytes) = (dst.view().clone(), bytemuck::cast_slice::<T, u8>(pattern));
        if bytes.is_empty() || !view.len.is_multiple_of(bytes.len()) {
            let error = Error::new(
                ErrorKind::InvalidSize,
                format!("a pattern of {} elements does not divide a buffer of {}", pattern.len(), dst.len()),
            );
            return self.refuse(CommandKind::BufferFill, error);
        }
        let pattern = SmallVec::from_slice(bytes);
        let command = view.to_hal().map(|dst| hal::Command::BufferFill { dst, pattern });
        self.memory_command(CommandKind::BufferFill, command, [(view, AccessMode::Write)])
    }

    /// Adds a hint that `buffer` will soon be used. A device without use for it keeps the order only.
    #[track_caller]
    pub fn prefetch<T: Pod>(&mut self, buffer: &Buffer<T>) -> NodeBuilder<'_> {
        let view = buffer.view().clone();
        let command = hint(&view, |memory| hal::Command::UsmPrefetch { memory });
        self.memory_command(CommandKind::UsmPrefetch, command, [(view, AccessMode::Read)])
    }

    /// Adds a hint on how `buffer` will be used. A device without use for it keeps the order only.
    #[track_caller]
    pub fn advise<T: Pod>(&mut self, buffer: &Buffer<T>, advice: Advice) -> NodeBuilder<'_> {
        let view = buffer.view().clone();
        let command = hint(&view, |memory| hal::Command::UsmAdvise { memory, advice });
        self.memory_command(CommandKind::UsmAdvise, command, [(view, AccessMode::Read)])
    }

    #[track_caller]
    pub(super) fn memory_command<const N: usize>(
        &mut self,
        kind: CommandKind,
        command: Result<hal::Command>,
        uses: [(View, AccessMode); N],
    ) -> NodeBuilder<'_> {
        let owned = scratch::check_owner(uses.iter().map(|(view, _)| view), self.scratch_owner.as_ref());
        let command = match owned.and(command) {
            Ok(command) => Arc::new(command),
            Err(error) => return self.refuse(kind, error),
        };
        let device = preferred_device(&uses);
        let accesses = accesses(&uses);
        let mut views = uses.into_iter().map(|(view, _)| view);
        let uses = [views.next(), views.next()];
        self.add(kind, device, Ok(accesses), || Command::Memory { command, uses })
    }

    /// Adds a copy whose command `make` builds for the direction, through the host where there is
    /// no direct path.
    #[track_caller]
    fn transfer(
        &mut self,
        src: View,
        dst: View,
        make: impl Fn(Direction, hal::MemoryView, hal::MemoryView) -> hal::Command,
    ) -> NodeBuilder<'_> {
        let uses = [(src, AccessMode::Read), (dst, AccessMode::Write)];
        let [(src, _), (dst, _)] = &uses;
        let direction = match (src.kind(), dst.kind()) {
            (MemoryKind::Device, MemoryKind::Device) => Direction::OnDevice,
            (MemoryKind::Device, MemoryKind::Host) => Direction::ToHost,
            (MemoryKind::Host, MemoryKind::Device) => Direction::FromHost,
            (MemoryKind::Host, MemoryKind::Host) => {
                let error = Error::new(ErrorKind::InvalidArgument, "both sides of the copy are host buffers");
                return self.refuse(CommandKind::UsmCopy, error.help("copy them in a host task"));
            }
        };
        if direction == Direction::OnDevice {
            match reachable(src, dst) {
                Ok(true) => {}
                Ok(false) => return self.staged(src.clone(), dst.clone(), make),
                Err(error) => return self.refuse(CommandKind::BufferCopy, error),
            }
        }
        let command = src.to_hal().and_then(|src| Ok(make(direction, src, dst.to_hal()?)));
        let kind = command.as_ref().map_or(CommandKind::BufferCopy, hal::Command::kind);
        self.memory_command(kind, command, uses)
    }

    /// Between devices that cannot reach each other's memory: a read on the one and a write on the
    /// other, as a sub-graph.
    #[track_caller]
    fn staged(
        &mut self,
        src: View,
        dst: View,
        make: impl Fn(Direction, hal::MemoryView, hal::MemoryView) -> hal::Command,
    ) -> NodeBuilder<'_> {
        // The staging memory has the layout of the source, so that a rectangle keeps its pitches.
        let (from, to) = (src.allocation.device().clone(), dst.allocation.device().clone());
        let staging = match HostBuffer::<u8>::allocate(&from, src.len) {
            Ok(staging) => staging.view().clone(),
            Err(error) => return self.refuse(CommandKind::BufferCopy, error),
        };
        let mut child = Graph::new(&from);
        child.scratch_owner = self.scratch_owner.clone();
        let whole = |view: &View, mode| (view.clone(), mode);
        let read = src.to_hal().and_then(|src| Ok(hal::Command::BufferRead { src, host: staging.to_hal()? }));
        child
            .memory_command(
                CommandKind::BufferRead,
                read,
                [whole(&src, AccessMode::Read), whole(&staging, AccessMode::Write)],
            )
            .on(&from);
        let write = staging.to_hal().and_then(|host| Ok(make(Direction::FromHost, host, dst.to_hal()?)));
        let kind = write.as_ref().map_or(CommandKind::BufferWrite, hal::Command::kind);
        child
            .memory_command(kind, write, [whole(&staging, AccessMode::Read), whole(&dst, AccessMode::Write)])
            .on(&to);
        self.sub_graph(&child).name("staged copy").staged()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    OnDevice,
    ToHost,
    FromHost,
}

/// Whether the device of `dst` can copy from `src` directly.
fn reachable(src: &View, dst: &View) -> Result<bool> {
    let device = dst.allocation.device();
    match ScratchMemory::of(&src.allocation) {
        Some(_) => scratch::is_reachable(src.allocation.device(), device),
        None => Ok(device.hal().can_access(&**src.allocation.memory())),
    }
}

/// Where a command runs best: where it writes device memory, else where it reads some.
fn preferred_device(uses: &[(View, AccessMode)]) -> Option<Device> {
    let on_device = |view: &View| view.kind() == MemoryKind::Device;
    let written = uses.iter().find(|(view, mode)| mode.writes() && on_device(view));
    let used = written.or_else(|| uses.iter().find(|(view, _)| on_device(view)));
    used.map(|(view, _)| view.allocation.device().clone())
}

/// The hint that `make` makes of the view's pointer; where the memory has none, the device has no
/// use for a hint.
fn hint(view: &View, make: impl FnOnce(hal::UsmPointer) -> hal::Command) -> Result<hal::Command> {
    if ScratchMemory::of(&view.allocation).is_some() {
        let why = "hints are not for scratch buffers, which have memory only while the graph runs";
        return Err(Error::new(ErrorKind::InvalidArgument, why).help("leave the hint out"));
    }
    Ok(pointer(view).map_or(hal::Command::Empty, make))
}

/// The view's pointer.
///
/// # Errors
/// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for memory that has none.
pub(super) fn usm(view: &View) -> Result<hal::UsmPointer> {
    pointer(view).ok_or_else(|| {
        Error::new(ErrorKind::FeatureNotSupported, "the device's memory has no unified-shared-memory pointer")
    })
}

#[expect(unsafe_code, reason = "narrows a pointer that the device vouches for")]
fn pointer(view: &View) -> Option<hal::UsmPointer> {
    let whole = view.allocation.memory().usm()?;
    // SAFETY: the view lies inside the allocation, which the node keeps alive.
    Some(unsafe { hal::UsmPointer::new(whole.address() + view.offset, view.len) })
}

//! Commands that have nothing to do: launches without work-items, fills and copies of no bytes, and commands
//! that are disabled. They keep their place in the order.
//!
//! No driver takes them. Where a command stays as it is, an empty one takes its place. Where an update may
//! give it something to do, a command of its kind stands in for it, which the device holds disabled.

use std::borrow::Cow;

use smallvec::{SmallVec, smallvec};
use wakegraph_hal::{
    self as hal, CommandHandle, CommandKind, CommandUpdate, MemoryDesc, MemoryKind, MemoryView, Pitch, Range,
    Rect, Result, UpdateCapabilities,
};

use crate::runtime::builder::command::Command;
use crate::runtime::resource::device::Device;

/// The range that a device holds for a launch: if there are no work-items, the smallest of its kind.
pub(crate) fn range_on_device(range: &Range) -> Range {
    match range.is_empty() {
        true => range.resized(range.local_size().unwrap_or([1; 3])),
        false => *range,
    }
}

/// The command, or an empty one in the place of an idle one, which has to be one that the device could run.
///
/// # Errors
/// Those of the command's operands.
pub(crate) fn unless<'c>(
    is_idle: bool,
    recorded: Cow<'c, hal::Command>,
    device: &Device,
) -> Result<Cow<'c, hal::Command>> {
    if !is_idle {
        return Ok(recorded);
    }
    device.hal().check_command(&recorded)?;
    Ok(Cow::Owned(hal::Command::Empty))
}

/// The command that stands in for an idle one, `recorded`, of a node of this kind. None where the command has
/// to stay idle.
///
/// # Errors
/// Those of allocating memory.
pub(super) fn stand_in(
    kind: CommandKind,
    command: &Command,
    recorded: &hal::Command,
    device: &Device,
) -> Result<Option<hal::Command>> {
    let can_be_switched = device.capabilities().update.contains(UpdateCapabilities::ENABLED);
    match command {
        _ if !can_be_switched => Ok(None),
        Command::Kernel { .. } => Ok(Some(recorded.clone())),
        Command::Memory { .. } => memory_stand_in(kind, device),
        _ => Ok(None),
    }
}

/// A fill or copy of memory that nothing else uses. None for a kind that has addresses only, which would not
/// keep that memory.
pub(crate) fn memory_stand_in(kind: CommandKind, device: &Device) -> Result<Option<hal::Command>> {
    use hal::Command;
    let memory = |kind| device.hal().allocate(&MemoryDesc::new(1, kind)).map(MemoryView::whole);
    let (on_device, on_host) = (|| memory(MemoryKind::Device), || memory(MemoryKind::Host));
    let rect = Rect { width: 1, height: 1, depth: 1 };
    let pitch = Pitch { offset: 0, row: 1, slice: 1 };
    let (src_pitch, dst_pitch, host_pitch) = (pitch, pitch, pitch);
    Ok(Some(match kind {
        CommandKind::BufferCopy => Command::BufferCopy { src: on_device()?, dst: on_device()? },
        CommandKind::BufferRead => Command::BufferRead { src: on_device()?, host: on_host()? },
        CommandKind::BufferWrite => Command::BufferWrite { host: on_host()?, dst: on_device()? },
        CommandKind::BufferCopyRect => {
            Command::BufferCopyRect { src: on_device()?, dst: on_device()?, rect, src_pitch, dst_pitch }
        }
        CommandKind::BufferReadRect => {
            Command::BufferReadRect { src: on_device()?, host: on_host()?, rect, src_pitch, host_pitch }
        }
        CommandKind::BufferWriteRect => {
            Command::BufferWriteRect { host: on_host()?, dst: on_device()?, rect, host_pitch, dst_pitch }
        }
        CommandKind::BufferFill => Command::BufferFill { dst: on_device()?, pattern: smallvec![0] },
        _ => return Ok(None),
    }))
}

/// A command-buffer as it was recorded, and the commands of it that stand in for idle ones.
pub(crate) struct RecordedBuffer {
    pub(super) buffer: hal::ValidatedCommandBuffer,
    pub(super) stand_ins: SmallVec<[CommandHandle; 2]>,
}

impl RecordedBuffer {
    /// The command-buffer, ready to be enqueued.
    pub(crate) fn finalize(mut self, device: &Device) -> Result<hal::ValidatedCommandBuffer> {
        device.observe(self.buffer.finalize())?;
        if !self.stand_ins.is_empty() {
            let disable = |handle: &CommandHandle| CommandUpdate::new(*handle).enabled(Some(false));
            let switches: Vec<_> = self.stand_ins.iter().map(disable).collect();
            self.buffer.update(&switches)?;
        }
        Ok(self.buffer)
    }

    /// The command-buffer for others to be [updated from](hal::ValidatedCommandBuffer::update_from).
    pub(crate) fn into_source(self, device: &Device) -> Result<hal::ValidatedCommandBuffer> {
        match self.stand_ins.is_empty() {
            true => Ok(self.buffer),
            false => self.finalize(device),
        }
    }
}

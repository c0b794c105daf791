//! Commands become operations of the driver: one each where possible, several where not.

use std::sync::Arc;

use smallvec::smallvec;
use wakegraph_hal::support::list_update::UpdateBackend;
use wakegraph_hal::support::lowering::{LoweredCommand, Operations, StagedMemory};
use wakegraph_hal::support::transfer::rect_pieces;
use wakegraph_hal::{Command, Error, ErrorKind, KernelLaunch, MemoryView, Pitch, Rect, Result};

use super::context::LevelZeroContext;
use super::kernel::{LaunchInstance, LevelZeroKernel};
use super::list::RegionPlace;
use super::memory::{LevelZeroMemory, copy_address};
use super::operation::LevelZeroOperation;
use super::sys;

/// The operations for a command that has passed [validation](wakegraph_hal::ValidatedDevice).
pub(super) fn lower(
    context: &Arc<LevelZeroContext>,
    command: &Command,
) -> Result<LoweredCommand<LevelZeroOperation>> {
    let lower = |command: &Command, staged: &mut _| LevelZeroLowering { context, staged }.operations(command);
    LoweredCommand::of(command, lower).map_err(|error| context.error(error))
}

impl UpdateBackend for LevelZeroContext {
    type Operation = LevelZeroOperation;

    /// A command takes its place mostly in a list that is changed in place: the instance of a launch is left
    /// to the next recording.
    fn lower(self: &Arc<Self>, command: &Command) -> Result<LoweredCommand<LevelZeroOperation>> {
        match command {
            Command::Kernel(launch) => {
                check_kernels(self, launch)?;
                Ok(LoweredCommand::of_one(LevelZeroOperation::Kernel(LaunchInstance::default())))
            }
            _ => lower(self, command),
        }
    }
}

/// Checks that the device can launch a launch's kernels.
fn check_kernels(context: &LevelZeroContext, launch: &KernelLaunch) -> Result<()> {
    let others = launch.alternatives.iter();
    others.chain([&launch.kernel]).try_for_each(|kernel| LevelZeroKernel::of(&**kernel, context).map(drop))
}

/// The work of lowering one command without a body.
struct LevelZeroLowering<'a> {
    context: &'a Arc<LevelZeroContext>,
    staged: &'a mut StagedMemory,
}

impl LevelZeroLowering<'_> {
    fn operations(&mut self, command: &Command) -> Result<Operations<LevelZeroOperation>> {
        Ok(match command {
            Command::Kernel(launch) => smallvec![self.launch(launch)?],
            Command::UsmCopy { src, dst, len } => {
                smallvec![LevelZeroOperation::Copy { from: src.address(), to: dst.address(), len: *len }]
            }
            Command::UsmFill { dst, pattern } => self.fill(dst.address(), dst.len(), pattern)?,
            Command::BufferCopy { src, dst }
            | Command::BufferRead { src, host: dst }
            | Command::BufferWrite { host: src, dst } => {
                let [from, to] = [self.address(src)?, self.address(dst)?];
                smallvec![LevelZeroOperation::Copy { from, to, len: src.len() }]
            }
            Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
            | Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
            | Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch } => {
                copy_rect((self.address(src)?, *src_pitch), (self.address(dst)?, *dst_pitch), *rect)
            }
            Command::BufferFill { dst, pattern } => self.fill(self.address(dst)?, dst.len(), pattern)?,
            Command::UsmPrefetch { memory } if !memory.is_empty() => {
                between_barriers(LevelZeroOperation::Prefetch {
                    address: memory.address(),
                    len: memory.len(),
                })
            }
            Command::UsmAdvise { memory, advice } if !memory.is_empty() => {
                let (address, len) = (memory.address(), memory.len());
                between_barriers(LevelZeroOperation::Advise { address, len, advice: *advice })
            }
            Command::Empty | Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } => {
                smallvec![LevelZeroOperation::Barrier]
            }
            Command::Native(native) => between_barriers(LevelZeroOperation::Native(native.clone())),
            Command::Child(_) | Command::If { .. } | Command::While { .. } | Command::StreamTask(_) => {
                let why = format!("a Level Zero list cannot hold a {}", command.kind());
                return Err(Error::new(ErrorKind::FeatureNotSupported, why));
            }
        })
    }

    fn launch(&self, launch: &KernelLaunch) -> Result<LevelZeroOperation> {
        check_kernels(self.context, launch)?;
        let kernel = LevelZeroKernel::of(&*launch.kernel, self.context)?;
        let instance = kernel.instance(&launch.args, &launch.range)?;
        Ok(LevelZeroOperation::Kernel(LaunchInstance::new(instance)))
    }

    fn address(&self, view: &MemoryView) -> Result<usize> {
        copy_address(self.context, view)
    }

    fn fill(&mut self, address: usize, len: usize, pattern: &[u8]) -> Result<Operations<LevelZeroOperation>> {
        let longest = self.context.features.compute.longest_pattern;
        self.staged.fill(
            (pattern, address as u64, len),
            longest,
            |desc| LevelZeroMemory::allocate(self.context, desc),
            |element| LevelZeroOperation::Fill { address, len, pattern: element.into() },
            |source, at, len| {
                let from = source.map_or(address, |source| source.address());
                Ok(LevelZeroOperation::Copy { from, to: address + at, len })
            },
        )
    }
}

/// An operation that takes no events, with a barrier before it that waits, and one behind it.
fn between_barriers(operation: LevelZeroOperation) -> Operations<LevelZeroOperation> {
    [LevelZeroOperation::Barrier, operation, LevelZeroOperation::Barrier].into_iter().collect()
}

/// The copy of a rectangle: in pieces where the driver cannot count that far.
fn copy_rect(src: (usize, Pitch), dst: (usize, Pitch), rect: Rect) -> Operations<LevelZeroOperation> {
    let ((src, from), (dst, to)) = (src, dst);
    let whole = |rect: Rect, from: Pitch, to: Pitch| {
        let [width, height, depth] = [rect.width, rect.height, rect.depth].map(|n| u32::try_from(n).ok());
        let region = sys::ze_copy_region_t {
            width: width?,
            height: height?,
            depth: depth?,
            originX: 0,
            originY: 0,
            originZ: 0,
        };
        let (from, to) = (region_place(src, from, rect)?, region_place(dst, to, rect)?);
        Some(LevelZeroOperation::CopyRegion { region, from, to })
    };
    let row = |from, to, len| LevelZeroOperation::Copy { from: src + from, to: dst + to, len };
    rect_pieces(rect, from, to, &whole, &row).into()
}

/// A place of a rectangle as the driver counts it, if it can be expressed: rows fit their pitch, and slices
/// theirs.
fn region_place(start: usize, pitch: Pitch, rect: Rect) -> Option<RegionPlace> {
    let rows = pitch.row.checked_mul(rect.height)?;
    // The pitch of an only slice is free to choose.
    let slice = if rect.depth == 1 { rows } else { pitch.slice };
    if pitch.row < rect.width || slice < rows {
        return None;
    }
    let (row, slice) = (u32::try_from(pitch.row).ok()?, u32::try_from(slice).ok()?);
    Some(RegionPlace { address: start + pitch.offset, row, slice })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECT: Rect = Rect { width: 3, height: 2, depth: 2 };

    fn copied(src: Pitch, dst: Pitch) -> (usize, usize) {
        let operations = copy_rect((1 << 50, src), (1 << 51, dst), RECT);
        let rows = operations.iter().filter(|one| matches!(one, LevelZeroOperation::Copy { .. })).count();
        (operations.len() - rows, rows)
    }

    #[test]
    fn a_rectangle_is_one_region_where_the_driver_can_count_so_far() {
        let small = Pitch { offset: 7, row: 4, slice: 9 };
        assert_eq!(copied(small, Pitch { offset: usize::pow(2, 40), ..small }), (1, 0));
        let far_slices = Pitch { slice: 1 << 33, ..small };
        assert_eq!(copied(small, far_slices), (2, 0), "a region a slice");
        let far_rows = Pitch { row: 1 << 33, slice: 1 << 35, ..small };
        assert_eq!(copied(far_rows, small), (0, 4), "a copy a row");
        let interleaved = Pitch { slice: 5, row: 10, ..small };
        assert_eq!(copied(small, interleaved), (2, 0), "slices begin between the rows of others");
    }

    #[test]
    fn places_hold_the_offset_in_their_address() {
        let pitch = Pitch { offset: 5, row: 4, slice: 100 };
        let place = region_place(1000, pitch, RECT).unwrap();
        assert_eq!(place, RegionPlace { address: 1005, row: 4, slice: 100 });
        let flat = Rect { depth: 1, ..RECT };
        assert_eq!(region_place(1000, pitch, flat).unwrap().slice, 8);
        assert!(region_place(1000, Pitch { row: 2, ..pitch }, RECT).is_none(), "rows overlap");
    }
}

//! Commands become operations of the driver: one each where possible, several where not.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::context::LevelZeroContext;
use super::kernel::LevelZeroKernel;
use super::list::RegionPlace;
use super::memory::{LevelZeroMemory, copy_address};
use super::operation::Operation;
use super::sys;
use crate::hal::support::transfer::{doublings, fill_element, rect_pieces};
use crate::hal::{Body, Command, KernelLaunch, Memory as _, MemoryDesc, MemoryKind, MemoryView};
use crate::types::{Error, ErrorKind, Pitch, Rect, Result};

/// Indices of earlier commands, or of earlier operations of a command.
pub(super) type After = SmallVec<[u32; 2]>;

/// Operations that run one after the other.
type Operations = SmallVec<[Operation; 1]>;

/// The operations that a command becomes.
#[derive(Debug, Default)]
pub(super) struct LoweredCommand {
    /// At least one, in an order in which they can run. The last follows all others.
    pub(super) operations: SmallVec<[OrderedOperation; 1]>,
    /// Memory of the backend that the operations use.
    pub(super) staged: SmallVec<[Arc<LevelZeroMemory>; 1]>,
}

#[derive(Debug)]
pub(super) struct OrderedOperation {
    pub(super) operation: Operation,
    /// The earlier operations of the command that it follows. Without any it follows what the
    /// command follows.
    pub(super) after: After,
}

/// The operations for a command that has passed [validation](crate::hal::ValidatedDevice).
pub(super) fn lower(context: &Arc<LevelZeroContext>, command: &Command) -> Result<LoweredCommand> {
    let mut lowering = CommandLowering { context, lowered: LoweredCommand::default() };
    lowering.command(command, After::new())?;
    Ok(lowering.lowered)
}

/// The work of lowering one command and those in its body.
struct CommandLowering<'a> {
    context: &'a Arc<LevelZeroContext>,
    lowered: LoweredCommand,
}

impl CommandLowering<'_> {
    /// Adds the operations of a command. Gives the index of the last.
    fn command(&mut self, command: &Command, after: After) -> Result<u32> {
        if let Command::Child(body) = command {
            return self.body(body, after);
        }
        let operations: Operations = match command {
            Command::Kernel(launch) => smallvec![self.launch(launch)?],
            Command::UsmCopy { src, dst, len } => {
                smallvec![Operation::Copy { from: src.address(), to: dst.address(), len: *len }]
            }
            Command::UsmFill { dst, pattern } => self.fill(dst.address(), dst.len(), pattern)?,
            Command::BufferCopy { src, dst }
            | Command::BufferRead { src, host: dst }
            | Command::BufferWrite { host: src, dst } => {
                let [from, to] = [self.address(src)?, self.address(dst)?];
                smallvec![Operation::Copy { from, to, len: src.len() }]
            }
            Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
            | Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
            | Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch } => {
                copy_rect((self.address(src)?, *src_pitch), (self.address(dst)?, *dst_pitch), *rect)
            }
            Command::BufferFill { dst, pattern } => self.fill(self.address(dst)?, dst.len(), pattern)?,
            Command::UsmPrefetch { memory } if !memory.is_empty() => {
                between_barriers(Operation::Prefetch { address: memory.address(), len: memory.len() })
            }
            Command::UsmAdvise { memory, advice } if !memory.is_empty() => {
                let (address, len) = (memory.address(), memory.len());
                between_barriers(Operation::Advise { address, len, advice: *advice })
            }
            Command::Empty | Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } => {
                smallvec![Operation::Barrier]
            }
            Command::Native(native) => between_barriers(Operation::Native(native.clone())),
            Command::Child(_) | Command::If { .. } | Command::While { .. } | Command::StreamTask(_) => {
                let why = format!("a Level Zero list cannot hold a {}", command.kind());
                return Err(Error::new(ErrorKind::FeatureNotSupported, why));
            }
        };
        let mut after = Some(after);
        for operation in operations {
            let previous = self.lowered.operations.len().checked_sub(1).map(|last| last as u32);
            let after = after.take().unwrap_or_else(|| previous.into_iter().collect());
            self.lowered.operations.push(OrderedOperation { operation, after });
        }
        Ok(self.lowered.operations.len() as u32 - 1)
    }

    /// Adds the operations of a child's commands. The recursion is bounded by `Body::MAX_DEPTH`.
    fn body(&mut self, body: &Body, after: After) -> Result<u32> {
        let mut ends: Vec<u32> = Vec::with_capacity(body.len());
        let mut is_leaf = vec![true; body.len()];
        for (command, befores) in body.commands() {
            let mut behind = after.clone();
            if !befores.is_empty() {
                behind = befores.iter().map(|&before| ends[before as usize]).collect();
                befores.iter().for_each(|&before| is_leaf[before as usize] = false);
            }
            ends.push(self.command(command, behind)?);
        }
        let leaves: After =
            ends.into_iter().zip(is_leaf).filter_map(|(end, leaf)| leaf.then_some(end)).collect();
        if let [leaf] = leaves[..] {
            // The operation that ends the only leaf was added last.
            return Ok(leaf);
        }
        self.command(&Command::Empty, if leaves.is_empty() { after } else { leaves })
    }

    fn launch(&self, launch: &KernelLaunch) -> Result<Operation> {
        for kernel in &launch.alternatives {
            LevelZeroKernel::of(&**kernel, self.context)?;
        }
        let kernel = LevelZeroKernel::of(&*launch.kernel, self.context)?;
        Ok(Operation::Kernel(Arc::new(kernel.instance(&launch.args, &launch.range)?)))
    }

    fn address(&self, view: &MemoryView) -> Result<usize> {
        copy_address(self.context, view)
    }

    /// A fill by the driver, if it takes the pattern, else by copies that double what is filled.
    fn fill(&mut self, address: usize, len: usize, pattern: &[u8]) -> Result<Operations> {
        let longest = self.context.features.compute.longest_pattern;
        if let Some(element) = fill_element(pattern, address as u64, len, longest) {
            return Ok(smallvec![Operation::Fill { address, len, pattern: element.into() }]);
        }
        let source = self.stage_pattern(pattern, len)?;
        let first = source.len().min(len);
        let copy = |from, to, len| Operation::Copy { from, to, len };
        let mut operations = smallvec![copy(source.address(), address, first)];
        operations.extend(doublings(first, len).map(|(at, more)| copy(address, address + at, more)));
        Ok(operations)
    }

    /// Memory of the backend that starts with whole patterns.
    #[expect(unsafe_code, reason = "writes memory that nothing else knows")]
    fn stage_pattern(&mut self, pattern: &[u8], len: usize) -> Result<Arc<LevelZeroMemory>> {
        /// So that a long fill is a few large copies.
        const BYTES: usize = 4096;
        let bytes = pattern.repeat((BYTES.min(len) / pattern.len()).max(1));
        let desc = MemoryDesc { len: bytes.len(), kind: MemoryKind::Device };
        let staged = Arc::new(LevelZeroMemory::allocate(self.context, &desc)?);
        // SAFETY: nothing else knows the memory yet.
        unsafe { staged.write(0, &bytes) }?;
        self.lowered.staged.push(Arc::clone(&staged));
        Ok(staged)
    }
}

/// An operation that takes no events, with a barrier before it that waits, and one behind it.
fn between_barriers(operation: Operation) -> Operations {
    [Operation::Barrier, operation, Operation::Barrier].into_iter().collect()
}

/// The copy of a rectangle: in pieces where the driver cannot count that far.
fn copy_rect(src: (usize, Pitch), dst: (usize, Pitch), rect: Rect) -> Operations {
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
        Some(Operation::CopyRegion { region, from, to })
    };
    let row = |from, to, len| Operation::Copy { from: src + from, to: dst + to, len };
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
        let rows = operations.iter().filter(|one| matches!(one, Operation::Copy { .. })).count();
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

//! Commands become operations, each of which is one call of the driver that appends to a list.
#![expect(unsafe_code, reason = "records commands on the caller's memory")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use wakegraph_hal::support::command_list::UpdateBackend;
use wakegraph_hal::support::command_list::{DriverOperation, LoweredCommand, Operations, StagedMemory};
use wakegraph_hal::support::errors;
use wakegraph_hal::support::memory::rect_pieces;
use wakegraph_hal::{
    Advice, Command, Error, ErrorKind, KernelLaunch, MemoryView, NativeCommand, NativeStream, Pitch, Rect,
    Result,
};

use super::context::LevelZeroContext;
use super::driver::EngineGroup;
use super::kernel::{LaunchInstance, LevelZeroKernel};
use super::memory::{LevelZeroMemory, copy_address};
use super::sys::{self, Api, CommandList, DriverResult, Owned, call};

/// The operations for a command that has passed [validation](wakegraph_hal::ValidatedDevice).
pub(super) fn lower(
    context: &Arc<LevelZeroContext>,
    command: &Command,
) -> Result<LoweredCommand<LevelZeroOperation>> {
    let mut lowering = LevelZeroLowering { context, staged: StagedMemory::default() };
    let operations = lowering.operations(command).map_err(|error| context.error(error))?;
    Ok(LoweredCommand { operations, staged: lowering.staged })
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

/// The work of lowering one command.
struct LevelZeroLowering<'a> {
    context: &'a Arc<LevelZeroContext>,
    staged: StagedMemory,
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
            Command::If { .. } | Command::While { .. } | Command::Switch { .. } | Command::StreamTask(_) => {
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

/// One call of the driver.
#[derive(Debug)]
pub(super) enum LevelZeroOperation {
    Kernel(LaunchInstance),
    Copy {
        from: usize,
        to: usize,
        len: usize,
    },
    CopyRegion {
        region: sys::ze_copy_region_t,
        from: RegionPlace,
        to: RegionPlace,
    },
    Fill {
        address: usize,
        len: usize,
        pattern: Pattern,
    },
    /// A hint, which never fails.
    Prefetch {
        address: usize,
        len: usize,
    },
    /// A hint, which never fails.
    Advise {
        address: usize,
        len: usize,
        advice: Advice,
    },
    Native(NativeCommand),
    /// Does nothing, in its place in the order.
    Barrier,
}

impl DriverOperation for LevelZeroOperation {
    const NOTHING: &'static Self = &Self::Barrier;
}

/// The bytes that a fill repeats: as many as a power of two.
type Pattern = SmallVec<[u8; 16]>;

impl LevelZeroOperation {
    /// Whether its call takes events. The others have to be between barriers.
    pub(super) fn takes_events(&self) -> bool {
        !matches!(self, Self::Prefetch { .. } | Self::Advise { .. } | Self::Native(_))
    }

    /// Whether an engine that only copies can run it.
    pub(super) fn can_be_copied_by(&self, group: &EngineGroup) -> bool {
        match self {
            Self::Copy { .. } | Self::CopyRegion { .. } => true,
            Self::Fill { pattern, .. } => pattern.len() <= group.longest_pattern,
            _ => false,
        }
    }

    /// Appends it to a list. An operation that takes no events is given none.
    ///
    /// # Safety
    /// The memory that the operation names is valid, and nothing else touches it in a conflicting way, when
    /// the list runs. The list is of the engine that can run it.
    pub(super) unsafe fn append(
        &self,
        context: &LevelZeroContext,
        list: &mut DriverList,
        order: CommandEvents<'_>,
    ) -> Result<()> {
        let appended = match self {
            Self::Kernel(instance) => match instance.get() {
                Some(instance) => list.launch(instance.raw(), &instance.groups, order),
                None => return Err(errors::enqueue_before_finalize()),
            },
            // SAFETY: passed on to the caller.
            Self::Copy { from, to, len } => unsafe { list.copy([*from, *to], *len, order) },
            // SAFETY: passed on to the caller.
            Self::CopyRegion { region, from, to } => unsafe { list.copy_region(region, *from, *to, order) },
            // SAFETY: passed on to the caller.
            Self::Fill { address, len, pattern } => unsafe { list.fill(*address, *len, pattern, order) },
            Self::Prefetch { address, len } => ignore_refusal(list.prefetch(*address, *len)),
            Self::Advise { address, len, advice } => {
                let advice = match advice {
                    Advice::ReadMostly => sys::ZE_MEMORY_ADVICE_SET_READ_MOSTLY,
                    Advice::PreferDevice => sys::ZE_MEMORY_ADVICE_SET_PREFERRED_LOCATION,
                    Advice::PreferHost => sys::ZE_MEMORY_ADVICE_SET_SYSTEM_MEMORY_PREFERRED_LOCATION,
                    _ => sys::ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY,
                };
                ignore_refusal(list.advise(*address, *len, advice))
            }
            Self::Native(native) => {
                // SAFETY: list and context live as long as the call.
                let lent =
                    unsafe { NativeStream::new("level_zero", list.raw().cast(), context.raw().cast()) };
                // SAFETY: the list is recorded and runs later, in the order of the command.
                return unsafe { native.call(&lent) };
            }
            Self::Barrier => list.barrier(order),
        };
        Ok(appended?)
    }
}

/// A hint that the driver refuses is none.
fn ignore_refusal(hint: sys::DriverResult) -> sys::DriverResult {
    if let Err(sys::LevelZeroFailure { call, code }) = hint {
        tracing::debug!(target: "wakegraph::level_zero", call, code, "a hint was refused");
    }
    Ok(())
}

/// A list of commands. The driver takes one call at a time for it.
#[derive(Debug)]
pub(super) struct DriverList {
    raw: Owned<CommandList>,
    context: Arc<LevelZeroContext>,
}

/// The events that a command waits for, and the one that it signals, or null.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandEvents<'a> {
    pub(super) after: &'a [sys::ze_event_handle_t],
    pub(super) signal: sys::ze_event_handle_t,
}

impl CommandEvents<'static> {
    /// Waits for no event and signals none.
    pub(super) const NONE: Self = Self { after: &[], signal: ptr::null_mut() };
}

impl CommandEvents<'_> {
    /// As the driver takes it: the event to signal, and the number and place of those to wait for.
    pub(super) fn parts(self) -> (sys::ze_event_handle_t, u32, *mut sys::ze_event_handle_t) {
        // The driver only reads the handles.
        let place = if self.after.is_empty() { ptr::null_mut() } else { self.after.as_ptr().cast_mut() };
        (self.signal, self.after.len() as u32, place)
    }
}

impl DriverList {
    /// A list that is recorded, for a group of engines. One that is in order needs no events and no
    /// barriers inside.
    pub(super) fn new(
        context: &Arc<LevelZeroContext>,
        group: &EngineGroup,
        in_order: bool,
        mutable: bool,
    ) -> DriverResult<Self> {
        Ok(Self { raw: context.create_list(group, in_order, mutable)?, context: Arc::clone(context) })
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_command_list_handle_t {
        self.raw.raw()
    }

    fn api(&self) -> &'static Api {
        self.context.api
    }

    /// Ends the recording, or an update.
    pub(super) fn close(&mut self) -> DriverResult {
        // SAFETY: the list is alive, and this thread alone uses it.
        unsafe { call!(self.api(), zeCommandListClose(self.raw())) }
    }

    /// Empties the list, which can be recorded then. It is not in use.
    pub(super) fn reset(&mut self) -> DriverResult {
        // SAFETY: the list is alive, and this thread alone uses it.
        unsafe { call!(self.api(), zeCommandListReset(self.raw())) }
    }

    /// Appends a barrier. Without events to wait for, it waits for everything before it; with some, only
    /// for those. Everything behind it in the list waits for it.
    pub(super) fn barrier(&mut self, order: CommandEvents<'_>) -> DriverResult {
        let (signal, waits, after) = order.parts();
        // SAFETY: list and events are alive, and this thread alone uses the list.
        unsafe { call!(self.api(), zeCommandListAppendBarrier(self.raw(), signal, waits, after)) }
    }

    /// Appends the reset of an event.
    pub(super) fn reset_event(&mut self, event: sys::ze_event_handle_t) -> DriverResult {
        // SAFETY: list and event are alive, and this thread alone uses the list.
        unsafe { call!(self.api(), zeCommandListAppendEventReset(self.raw(), event)) }
    }

    /// Appends a launch. The driver takes the arguments as they are now.
    pub(super) fn launch(
        &mut self,
        kernel: sys::ze_kernel_handle_t,
        groups: &sys::ze_group_count_t,
        order: CommandEvents<'_>,
    ) -> DriverResult {
        let ((signal, waits, after), groups) = (order.parts(), ptr::from_ref(groups));
        let (api, list) = (self.api(), self.raw());
        // SAFETY: list, kernel and events are alive, and this thread alone uses the list and the kernel.
        unsafe { call!(api, zeCommandListAppendLaunchKernel(list, kernel, groups, signal, waits, after)) }
    }

    /// Appends a copy of consecutive bytes.
    ///
    /// # Safety
    /// The bytes are valid, and nothing else uses them in a conflicting way, when the command runs.
    pub(super) unsafe fn copy(
        &mut self,
        [from, to]: [usize; 2],
        len: usize,
        order: CommandEvents<'_>,
    ) -> DriverResult {
        let ((signal, waits, after), (api, list)) = (order.parts(), (self.api(), self.raw()));
        let (from, to) = (place(from).cast_const(), place(to));
        // SAFETY: list and events are alive; passed on to the caller.
        unsafe { call!(api, zeCommandListAppendMemoryCopy(list, to, from, len, signal, waits, after)) }
    }

    /// Appends a copy of a rectangle.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    unsafe fn copy_region(
        &mut self,
        region: &sys::ze_copy_region_t,
        from: RegionPlace,
        to: RegionPlace,
        order: CommandEvents<'_>,
    ) -> DriverResult {
        let ((signal, waits, after), (api, list)) = (order.parts(), (self.api(), self.raw()));
        let (region, src, dst) = (ptr::from_ref(region), place(from.address).cast_const(), place(to.address));
        // SAFETY: list and events are alive; passed on to the caller.
        unsafe {
            call!(
                api,
                zeCommandListAppendMemoryCopyRegion(
                    list, dst, region, to.row, to.slice, src, region, from.row, from.slice, signal, waits,
                    after
                )
            )
        }
    }

    /// Appends a fill with a pattern that is as long as a power of two.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    pub(super) unsafe fn fill(
        &mut self,
        address: usize,
        len: usize,
        pattern: &[u8],
        order: CommandEvents<'_>,
    ) -> DriverResult {
        let ((signal, waits, after), (api, list)) = (order.parts(), (self.api(), self.raw()));
        let (to, from, size) = (place(address), pattern.as_ptr().cast(), pattern.len());
        // SAFETY: list and events are alive; the driver copies the pattern; else passed on to the caller.
        unsafe { call!(api, zeCommandListAppendMemoryFill(list, to, from, size, len, signal, waits, after)) }
    }

    /// Appends a prefetch to the device.
    fn prefetch(&mut self, address: usize, len: usize) -> DriverResult {
        let (start, list) = (place(address).cast_const(), self.raw());
        // SAFETY: the list is alive, and this thread alone uses it. The hint accesses nothing.
        unsafe { call!(self.api(), zeCommandListAppendMemoryPrefetch(list, start, len)) }
    }

    /// Appends an advice.
    fn advise(&mut self, address: usize, len: usize, advice: sys::ze_memory_advice_t) -> DriverResult {
        let (start, list, device) = (place(address).cast_const(), self.raw(), self.context.device);
        // SAFETY: the list is alive, and this thread alone uses it. The hint accesses nothing.
        unsafe { call!(self.api(), zeCommandListAppendMemAdvise(list, device, start, len, advice)) }
    }

    /// Appends commands that write the times of the commands that have signalled these events to memory, one
    /// [`ze_kernel_timestamp_result_t`](sys::ze_kernel_timestamp_result_t) each.
    ///
    /// # Safety
    /// The memory has room for them when the commands run.
    pub(super) unsafe fn query_times(
        &mut self,
        events: &[sys::ze_event_handle_t],
        to: usize,
    ) -> DriverResult {
        let (api, list, none, nothing) = (self.api(), self.raw(), ptr::null(), ptr::null_mut());
        let (count, events, to) = (events.len() as u32, events.as_ptr().cast_mut(), place(to));
        let signal = ptr::null_mut();
        // SAFETY: list and events are alive; passed on to the caller.
        unsafe {
            call!(
                api,
                zeCommandListAppendQueryKernelTimestamps(list, count, events, to, none, signal, 0, nothing)
            )
        }
    }
}

/// Place where a rectangle begins, and how far apart its rows and slices are, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegionPlace {
    pub(super) address: usize,
    row: u32,
    pub(super) slice: u32,
}

/// The address as the driver takes it.
fn place(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
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

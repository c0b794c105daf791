//! Lists of the driver that are recorded, closed, and run as often as they are handed over.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::Priority;

use super::context::LevelZeroContext;
use super::features::EngineGroup;
use super::sys::{self, Api, CommandList, DriverResult, Owned, call, get};

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

/// The description of a queue or an immediate list.
pub(super) fn queue_desc(
    group: &EngineGroup,
    in_order: bool,
    priority: Priority,
) -> sys::ze_command_queue_desc_t {
    sys::ze_command_queue_desc_t {
        ordinal: group.ordinal,
        flags: if in_order { sys::ZE_COMMAND_QUEUE_FLAG_IN_ORDER } else { 0 },
        mode: sys::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
        priority: match priority {
            Priority::High => sys::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
            Priority::Normal => sys::ZE_COMMAND_QUEUE_PRIORITY_NORMAL,
            Priority::Low => sys::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW,
        },
        ..sys::ze_command_queue_desc_t::new()
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
        let mutability = sys::ze_mutable_command_list_exp_desc_t::new();
        let desc = sys::ze_command_list_desc_t {
            pNext: if mutable { (&raw const mutability).cast() } else { ptr::null() },
            commandQueueGroupOrdinal: group.ordinal,
            flags: if in_order { sys::ZE_COMMAND_LIST_FLAG_IN_ORDER } else { 0 },
            ..sys::ze_command_list_desc_t::new()
        };
        let (api, raw, device) = (context.api, context.raw(), context.device);
        // SAFETY: context and device are alive, and the structures say what they are.
        let list = unsafe { get!(api, zeCommandListCreate(raw, device, &raw const desc)) }?;
        // SAFETY: the driver has just created the list for this object.
        Ok(Self { raw: unsafe { Owned::new(api, list) }, context: Arc::clone(context) })
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
    pub(super) unsafe fn copy_region(
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
    pub(super) fn prefetch(&mut self, address: usize, len: usize) -> DriverResult {
        let (start, list) = (place(address).cast_const(), self.raw());
        // SAFETY: the list is alive, and this thread alone uses it. The hint accesses nothing.
        unsafe { call!(self.api(), zeCommandListAppendMemoryPrefetch(list, start, len)) }
    }

    /// Appends an advice.
    pub(super) fn advise(
        &mut self,
        address: usize,
        len: usize,
        advice: sys::ze_memory_advice_t,
    ) -> DriverResult {
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

/// Where a rectangle begins, and how far apart its rows and slices are, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegionPlace {
    pub(super) address: usize,
    pub(super) row: u32,
    pub(super) slice: u32,
}

/// The address as the driver takes it.
fn place(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

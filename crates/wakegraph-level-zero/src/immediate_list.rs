//! Immediate lists of the driver, which run closed lists at once.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use wakegraph_hal::{QueueDesc, QueueOrder};

use super::context::LevelZeroContext;
use super::features::EngineGroup;
use super::immediate_pool::ImmediateKind;
use super::list::{CommandEvents, queue_desc};
use super::sys::{self, CommandList, DriverResult, Owned, call, get};

/// An immediate list that one queue uses. The driver takes one call at a time for it. It goes back to
/// its pool when it is dropped.
#[derive(Debug)]
pub(super) struct ImmediateList {
    raw: Option<Owned<CommandList>>,
    kind: ImmediateKind,
    context: Arc<LevelZeroContext>,
}

impl ImmediateList {
    pub(super) fn acquire(
        context: &Arc<LevelZeroContext>,
        group: &EngineGroup,
        desc: QueueDesc,
    ) -> DriverResult<Self> {
        let in_order = desc.order == QueueOrder::InOrder;
        let kind = ImmediateKind { ordinal: group.ordinal, in_order, priority: desc.priority };
        let list = match context.immediate_lists.take(kind) {
            Some(list) => list,
            None => create(context, &queue_desc(group, in_order, desc.priority))?,
        };
        Ok(Self { raw: Some(list), kind, context: Arc::clone(context) })
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_command_list_handle_t {
        self.raw.as_ref().map_or(ptr::null_mut(), Owned::raw)
    }

    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    /// Hands over closed lists.
    ///
    /// # Safety
    /// The lists are closed and not in use. What they access is valid, and nothing else uses it in
    /// a conflicting way, until they are done.
    pub(super) unsafe fn append_lists(
        &mut self,
        lists: &[sys::ze_command_list_handle_t],
        order: CommandEvents<'_>,
    ) -> DriverResult {
        let ((signal, waits, after), (api, list)) = (order.parts(), (self.context.api, self.raw()));
        let (count, lists, none) = (lists.len() as u32, lists.as_ptr().cast_mut(), ptr::null());
        if self.context.features.append_with_parameters {
            // SAFETY: lists and events are alive; passed on to the caller.
            return unsafe {
                call!(
                    api,
                    zeCommandListImmediateAppendCommandListsWithParameters(
                        list, count, lists, none, signal, waits, after
                    )
                )
            };
        }
        // SAFETY: as above.
        unsafe {
            call!(api, zeCommandListImmediateAppendCommandListsExp(list, count, lists, signal, waits, after))
        }
    }
}

impl Drop for ImmediateList {
    fn drop(&mut self) {
        if let Some(list) = self.raw.take() {
            self.context.immediate_lists.give_back(self.kind, list);
        }
    }
}

fn create(
    context: &LevelZeroContext,
    desc: &sys::ze_command_queue_desc_t,
) -> DriverResult<Owned<CommandList>> {
    let (api, raw, device) = (context.api, context.raw(), context.device);
    // SAFETY: context and device are alive, and the structure says what it is.
    let list = unsafe { get!(api, zeCommandListCreateImmediate(raw, device, ptr::from_ref(desc))) }?;
    // SAFETY: the driver has just created the list for this object.
    Ok(unsafe { Owned::new(api, list) })
}

//! The kinds of objects of the driver.

use wakegraph_hal::support::object::ObjectKind;

use super::types::*;
use super::{Api, DriverResult, LevelZeroFailure, call};

/// Says so if an object could not be destroyed.
fn report(destroyed: DriverResult) {
    if let Err(LevelZeroFailure { call, code }) = destroyed {
        let code = format_args!("{code:#x}");
        tracing::warn!(target: "wakegraph::level_zero", call, %code, "an object could not be destroyed");
    }
}

macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident = $object:ident: $destroy:ident),+ $(,)?) => {$(
        $(#[$attribute])*
        pub(in crate) type $kind = $object;

        // SAFETY: the driver's objects may be used and destroyed on any thread. Where the driver takes one
        // call at a time, as for lists, kernels and pools, their owners see to it.
        unsafe impl ObjectKind for $object {
            type Handle = *mut Self;
            type Owner = &'static Api;

            unsafe fn destroy(api: &&'static Api, object: *mut Self) {
                // SAFETY: passed on to the caller.
                report(unsafe { call!(api, $destroy(object)) });
            }
        }
    )+};
}

kinds! {
    /// What memory, events and lists belong to.
    Context = _ze_context_handle: zeContextDestroy,
    /// A queue that executes closed lists.
    CommandQueue = _ze_command_queue_handle: zeCommandQueueDestroy,
    /// A list of commands, closed or immediate.
    CommandList = _ze_command_list_handle: zeCommandListDestroy,
    /// A pool of events.
    EventPool = _ze_event_pool_handle: zeEventPoolDestroy,
    /// An event.
    Event = _ze_event_handle: zeEventDestroy,
    /// A compiled program.
    Module = _ze_module_handle: zeModuleDestroy,
    /// The messages of a compilation.
    BuildLog = _ze_module_build_log_handle: zeModuleBuildLogDestroy,
    /// A kernel with its arguments.
    Kernel = _ze_kernel_handle: zeKernelDestroy,
}

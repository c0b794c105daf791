//! Objects of the driver, destroyed when dropped.

use super::types::*;
use super::{Api, outcome};

/// What the driver's handles of a kind of object point to.
pub(in crate::backend::level_zero) trait ObjectKind: 'static {
    /// The function that destroys an object, and that function's name.
    fn destroy(api: &Api) -> (unsafe extern "C" fn(*mut Self) -> ze_result_t, &'static str);
}

/// An object of the driver. Its owner sees to it that nothing uses the object any more when it is
/// dropped, and that its context is still there.
#[derive(Debug)]
pub(in crate::backend::level_zero) struct Owned<K: ObjectKind> {
    raw: *mut K,
    api: &'static Api,
}

// SAFETY: the driver's objects may be used and destroyed on any thread. Where the driver takes one
// call at a time, as for lists, kernels and pools, their owners see to it.
unsafe impl<K: ObjectKind> Send for Owned<K> {}
// SAFETY: as for `Send`.
unsafe impl<K: ObjectKind> Sync for Owned<K> {}

impl<K: ObjectKind> Owned<K> {
    /// Takes over an object.
    ///
    /// # Safety
    /// `raw` is a live object, which nothing else destroys.
    pub(in crate::backend::level_zero) unsafe fn new(api: &'static Api, raw: *mut K) -> Self {
        Self { raw, api }
    }

    /// The object, for calls. It is valid while `self` lives.
    pub(in crate::backend::level_zero) fn raw(&self) -> *mut K {
        self.raw
    }
}

impl<K: ObjectKind> Drop for Owned<K> {
    fn drop(&mut self) {
        let (destroy, call) = K::destroy(self.api);
        // SAFETY: this object owns the driver's, which is destroyed once.
        if let Err(failure) = outcome(call, unsafe { destroy(self.raw) }) {
            let code = format_args!("{:#x}", failure.code);
            tracing::warn!(target: "wakegraph::level_zero", call, %code, "an object could not be destroyed");
        }
    }
}

macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident = $object:ident: $destroy:ident),+ $(,)?) => {$(
        $(#[$attribute])*
        pub(in crate::backend::level_zero) type $kind = $object;

        impl ObjectKind for $object {
            fn destroy(api: &Api) -> (unsafe extern "C" fn(*mut Self) -> ze_result_t, &'static str) {
                (api.$destroy, stringify!($destroy))
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

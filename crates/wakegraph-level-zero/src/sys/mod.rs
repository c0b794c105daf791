//! The vendor's types, and the functions of its loader and of its offline compiler: the only place that
//! names them.
//!
//! The loader's functions of version 1.0 are required. The optional ones are newer, and the driver behind the
//! loader may be too old for a function that the loader has: whether one may be called is decided by what
//! the driver reports (`driver.rs`). One that the loader does not have answers that it is not supported.
#![expect(unsafe_code, reason = "loads the libraries and calls them")]
#![allow(non_snake_case, reason = "the vendor's names")]

mod types;

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

pub(super) use types::*;
pub(super) use wakegraph_hal::support::library::Owned;
use wakegraph_hal::support::library::{ObjectKind, open_named};

/// Calls a function of the table: `Ok` where it returned success. Everything else is a failure,
/// which includes [`ZE_RESULT_NOT_READY`].
///
/// Expands to one unsafe operation.
macro_rules! call {
    ($api:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::sys::outcome(stringify!($function), ($api.$function)($($argument),*))
    };
}

/// Calls a function of the table that writes its result, such as a handle, to the place that its
/// last argument names: the result where it returned success.
///
/// Expands to one unsafe operation. The place is valid.
macro_rules! get {
    ($api:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let mut result = bytemuck::Zeroable::zeroed();
        $crate::sys::call!($api, $function($($argument,)* &raw mut result))
            .map(|()| result)
    }};
}

/// Calls a function of the table that fills a structure, which the last argument names and which
/// says what it is: the structure where it returned success.
///
/// Expands to one unsafe operation. The place is valid.
macro_rules! fill {
    ($api:expr, $function:ident($($argument:expr),* $(,)?), $structure:expr) => {{
        let mut result = $structure;
        $crate::sys::call!($api, $function($($argument,)* &raw mut result))
            .map(|()| result)
    }};
}

pub(super) use call;
pub(super) use fill;
pub(super) use get;

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LevelZeroFailure {
    /// The function.
    pub(super) call: &'static str,
    /// The code that it returned.
    pub(super) code: ze_result_t,
}

pub(super) type DriverResult<T = ()> = Result<T, LevelZeroFailure>;

pub(super) fn outcome(call: &'static str, code: ze_result_t) -> DriverResult {
    if code == ZE_RESULT_SUCCESS { Ok(()) } else { Err(LevelZeroFailure { call, code }) }
}

/// Declares the table, and how to fill it from a library.
macro_rules! table {
    (
        required: { $($function:ident($($argument:ty),* $(,)?);)+ }
        optional: { $($newer:ident($($newer_argument:ty),* $(,)?);)+ }
    ) => {
        /// The functions of the loader.
        pub(crate) struct Api {
            $(pub(in crate) $function:
                unsafe extern "C" fn($($argument),*) -> ze_result_t,)+
            $(pub(in crate) $newer:
                unsafe extern "C" fn($($newer_argument),*) -> ze_result_t,)+
            /// The optional functions that the loader does not have.
            missing: Vec<&'static str>,
        }

        impl Api {
            /// The library stays loaded for good. The error is the name of a function that it does
            /// not have.
            pub(super) fn fill(library: libloading::Library) -> Result<Self, &'static str> {
                let mut missing = Vec::new();
                $(unsafe extern "C" fn $newer($(_: $newer_argument),*) -> ze_result_t {
                    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                })+
                let table = Self {
                    $($function: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> ze_result_t>(
                                stringify!($function)
                            )
                        };
                        *found.map_err(|_| stringify!($function))?
                    },)+
                    $($newer: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($newer_argument),*) -> ze_result_t>(
                                stringify!($newer)
                            )
                        };
                        found.map_or_else(
                            |_| {
                                missing.push(stringify!($newer));
                                $newer as unsafe extern "C" fn($($newer_argument),*) -> ze_result_t
                            },
                            |function| *function,
                        )
                    },)+
                    missing,
                };
                // The functions are used for as long as the process lives.
                std::mem::forget(library);
                Ok(table)
            }
        }

        /// Each function with its arguments.
        #[cfg(test)]
        pub(super) const DECLARATIONS: &[(&str, &[&str])] = &[
            $((stringify!($function), &[$(stringify!($argument)),*]),)+
            $((stringify!($newer), &[$(stringify!($newer_argument)),*]),)+
        ];
    };
}

table! {
    required: {
    zeInit(ze_init_flags_t);
    zeDriverGet(*mut u32, *mut ze_driver_handle_t);
    zeDriverGetApiVersion(ze_driver_handle_t, *mut ze_api_version_t);
    zeDriverGetProperties(ze_driver_handle_t, *mut ze_driver_properties_t);
    zeDriverGetExtensionProperties(ze_driver_handle_t, *mut u32, *mut ze_driver_extension_properties_t);
    zeDeviceGet(ze_driver_handle_t, *mut u32, *mut ze_device_handle_t);
    zeDeviceGetSubDevices(ze_device_handle_t, *mut u32, *mut ze_device_handle_t);
    zeDeviceGetProperties(ze_device_handle_t, *mut ze_device_properties_t);
    zeDeviceGetComputeProperties(ze_device_handle_t, *mut ze_device_compute_properties_t);
    zeDeviceGetCommandQueueGroupProperties(
        ze_device_handle_t, *mut u32, *mut ze_command_queue_group_properties_t
    );
    zeDeviceGetMemoryProperties(ze_device_handle_t, *mut u32, *mut ze_device_memory_properties_t);
    zeDeviceCanAccessPeer(ze_device_handle_t, ze_device_handle_t, *mut ze_bool_t);
    zeDeviceGetStatus(ze_device_handle_t);
    zeDeviceGetGlobalTimestamps(ze_device_handle_t, *mut u64, *mut u64);
    zeContextCreate(ze_driver_handle_t, *const ze_context_desc_t, *mut ze_context_handle_t);
    zeContextDestroy(ze_context_handle_t);
    zeMemAllocDevice(
        ze_context_handle_t, *const ze_device_mem_alloc_desc_t, usize, usize, ze_device_handle_t,
        *mut *mut c_void
    );
    zeMemAllocHost(ze_context_handle_t, *const ze_host_mem_alloc_desc_t, usize, usize, *mut *mut c_void);
    zeMemFree(ze_context_handle_t, *mut c_void);
    zeMemGetAllocProperties(
        ze_context_handle_t, *const c_void, *mut ze_memory_allocation_properties_t,
        *mut ze_device_handle_t
    );
    zeMemGetAddressRange(ze_context_handle_t, *const c_void, *mut *mut c_void, *mut usize);
    zeModuleCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_module_desc_t, *mut ze_module_handle_t,
        *mut ze_module_build_log_handle_t
    );
    zeModuleDestroy(ze_module_handle_t);
    zeModuleBuildLogDestroy(ze_module_build_log_handle_t);
    zeModuleBuildLogGetString(ze_module_build_log_handle_t, *mut usize, *mut c_char);
    zeModuleGetKernelNames(ze_module_handle_t, *mut u32, *mut *const c_char);
    zeKernelCreate(ze_module_handle_t, *const ze_kernel_desc_t, *mut ze_kernel_handle_t);
    zeKernelDestroy(ze_kernel_handle_t);
    zeKernelSetGroupSize(ze_kernel_handle_t, u32, u32, u32);
    zeKernelSetArgumentValue(ze_kernel_handle_t, u32, usize, *const c_void);
    zeKernelSetIndirectAccess(ze_kernel_handle_t, ze_kernel_indirect_access_flags_t);
    zeKernelGetProperties(ze_kernel_handle_t, *mut ze_kernel_properties_t);
    zeCommandQueueCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_command_queue_desc_t,
        *mut ze_command_queue_handle_t
    );
    zeCommandQueueDestroy(ze_command_queue_handle_t);
    zeCommandQueueExecuteCommandLists(
        ze_command_queue_handle_t, u32, *mut ze_command_list_handle_t, ze_fence_handle_t
    );
    zeCommandQueueSynchronize(ze_command_queue_handle_t, u64);
    zeCommandListCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_command_list_desc_t,
        *mut ze_command_list_handle_t
    );
    zeCommandListCreateImmediate(
        ze_context_handle_t, ze_device_handle_t, *const ze_command_queue_desc_t,
        *mut ze_command_list_handle_t
    );
    zeCommandListDestroy(ze_command_list_handle_t);
    zeCommandListClose(ze_command_list_handle_t);
    zeCommandListReset(ze_command_list_handle_t);
    zeCommandListAppendLaunchKernel(
        ze_command_list_handle_t, ze_kernel_handle_t, *const ze_group_count_t, ze_event_handle_t,
        u32, *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryCopy(
        ze_command_list_handle_t, *mut c_void, *const c_void, usize, ze_event_handle_t, u32,
        *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryCopyRegion(
        ze_command_list_handle_t, *mut c_void, *const ze_copy_region_t, u32, u32, *const c_void,
        *const ze_copy_region_t, u32, u32, ze_event_handle_t, u32, *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryFill(
        ze_command_list_handle_t, *mut c_void, *const c_void, usize, usize, ze_event_handle_t,
        u32, *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryPrefetch(ze_command_list_handle_t, *const c_void, usize);
    zeCommandListAppendMemAdvise(
        ze_command_list_handle_t, ze_device_handle_t, *const c_void, usize, ze_memory_advice_t
    );
    zeCommandListAppendBarrier(ze_command_list_handle_t, ze_event_handle_t, u32, *mut ze_event_handle_t);
    zeCommandListAppendEventReset(ze_command_list_handle_t, ze_event_handle_t);
    zeCommandListAppendQueryKernelTimestamps(
        ze_command_list_handle_t, u32, *mut ze_event_handle_t, *mut c_void, *const usize,
        ze_event_handle_t, u32, *mut ze_event_handle_t
    );
    zeEventPoolCreate(
        ze_context_handle_t, *const ze_event_pool_desc_t, u32, *mut ze_device_handle_t,
        *mut ze_event_pool_handle_t
    );
    zeEventPoolDestroy(ze_event_pool_handle_t);
    zeEventCreate(ze_event_pool_handle_t, *const ze_event_desc_t, *mut ze_event_handle_t);
    zeEventDestroy(ze_event_handle_t);
    zeEventHostSignal(ze_event_handle_t);
    zeEventHostSynchronize(ze_event_handle_t, u64);
    zeEventHostReset(ze_event_handle_t);
    zeEventQueryKernelTimestamp(ze_event_handle_t, *mut ze_kernel_timestamp_result_t);
    }
    optional: {
    zeInitDrivers(*mut u32, *mut ze_driver_handle_t, *mut ze_init_driver_type_desc_t);
    zeMemFreeExt(ze_context_handle_t, *const ze_memory_free_ext_desc_t, *mut c_void);
    zeKernelSetGlobalOffsetExp(ze_kernel_handle_t, u32, u32, u32);
    zeCommandListHostSynchronize(ze_command_list_handle_t, u64);
    zeCommandListImmediateAppendCommandListsExp(
        ze_command_list_handle_t, u32, *mut ze_command_list_handle_t, ze_event_handle_t, u32,
        *mut ze_event_handle_t
    );
    zeCommandListImmediateAppendCommandListsWithParameters(
        ze_command_list_handle_t, u32, *mut ze_command_list_handle_t, *const c_void,
        ze_event_handle_t, u32, *mut ze_event_handle_t
    );
    zeCommandListGetNextCommandIdExp(
        ze_command_list_handle_t, *const ze_mutable_command_id_exp_desc_t, *mut u64
    );
    zeCommandListGetNextCommandIdWithKernelsExp(
        ze_command_list_handle_t, *const ze_mutable_command_id_exp_desc_t, u32,
        *mut ze_kernel_handle_t, *mut u64
    );
    zeCommandListUpdateMutableCommandsExp(ze_command_list_handle_t, *const ze_mutable_commands_exp_desc_t);
    zeCommandListUpdateMutableCommandKernelsExp(
        ze_command_list_handle_t, u32, *mut u64, *mut ze_kernel_handle_t
    );
    zeEventCounterBasedCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_event_counter_based_desc_t,
        *mut ze_event_handle_t
    );
    }
}

impl Api {
    /// Whether the loader has this optional function. The driver may be too old for it
    /// nevertheless.
    pub(crate) fn has(&self, function: &str) -> bool {
        !self.missing.contains(&function)
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("missing", &self.missing).finish_non_exhaustive()
    }
}

/// Names another library than the system's loader.
const LOADER_VARIABLE: &str = "WAKEGRAPH_LEVEL_ZERO_LIBRARY";

#[cfg(windows)]
const LOADER: &[&str] = &["ze_loader.dll"];
#[cfg(not(windows))]
const LOADER: &[&str] = &["libze_loader.so.1", "libze_loader.so"];

/// Why there is no table.
#[derive(Debug)]
pub(crate) enum NoLibrary {
    /// The library cannot be loaded, for these reasons.
    NotLoaded(String),
    /// The library has no function of this name.
    Lacks(&'static str),
}

/// The functions of the loader, which the first call loads. It is never unloaded: drivers leave
/// threads behind.
///
/// # Errors
/// Why they cannot be had.
pub(crate) fn api() -> Result<&'static Api, &'static NoLibrary> {
    static API: OnceLock<Result<Api, NoLibrary>> = OnceLock::new();
    let load = || {
        let library = open_named(LOADER_VARIABLE, LOADER).map_err(NoLibrary::NotLoaded)?;
        Api::fill(library).map_err(NoLibrary::Lacks)
    };
    API.get_or_init(load).as_ref()
}

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
        pub(crate) type $kind = $object;

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
    /// The owner of memory, events and lists.
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

/// The compiler's functions.
#[derive(Debug)]
pub(crate) struct Ocloc {
    /// Runs the compiler with a command line, and with files in memory: sources and headers, each as
    /// a number, contents, lengths and names. The outputs come in the same form.
    pub(crate) oclocInvoke: unsafe extern "C" fn(
        u32,
        *const *const c_char,
        u32,
        *const *const u8,
        *const u64,
        *const *const c_char,
        u32,
        *const *const u8,
        *const u64,
        *const *const c_char,
        *mut u32,
        *mut *mut *mut u8,
        *mut *mut u64,
        *mut *mut *mut c_char,
    ) -> c_int,
    /// Frees the outputs.
    pub(crate) oclocFreeOutput:
        unsafe extern "C" fn(*mut u32, *mut *mut *mut u8, *mut *mut u64, *mut *mut *mut c_char) -> c_int,
}

/// Names another library than the system's compiler.
const OCLOC_VARIABLE: &str = "WAKEGRAPH_OCLOC_LIBRARY";

const OCLOC: &[&str] = if cfg!(windows) { &["ocloc64.dll"] } else { &["libocloc.so", "libocloc.so.1"] };

/// The compiler, loaded by the first call; the error says what could not be.
pub(crate) fn ocloc() -> Result<&'static Ocloc, &'static str> {
    static COMPILER: OnceLock<Result<Ocloc, String>> = OnceLock::new();
    COMPILER.get_or_init(load_ocloc).as_ref().map_err(String::as_str)
}

fn load_ocloc() -> Result<Ocloc, String> {
    let library = open_named(OCLOC_VARIABLE, OCLOC)?;
    let lacks = |error: libloading::Error| format!("it is too old: {error}");
    // SAFETY: this is how the vendor's header declares the function.
    let invoke = unsafe { library.get("oclocInvoke") }.map(|function| *function).map_err(lacks)?;
    // SAFETY: as above.
    let free = unsafe { library.get("oclocFreeOutput") }.map(|function| *function).map_err(lacks)?;
    // The functions are used for as long as the process lives.
    std::mem::forget(library);
    Ok(Ocloc { oclocInvoke: invoke, oclocFreeOutput: free })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_the_functions_is_an_error_that_names_one() {
        let library = open_named("WAKEGRAPH_NO_SUCH_VARIABLE", &["libc.so.6"]).unwrap();
        assert_eq!(Api::fill(library).err(), Some("zeInit"));
    }
}

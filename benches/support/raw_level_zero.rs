//! The hand-written base of the Level Zero benchmarks: loops of driver calls as one writes them without
//! this crate.
#![allow(dead_code, unreachable_pub, reason = "every benchmark uses a part of it")]
#![expect(unsafe_code, reason = "calls the driver")]

#[path = "../../crates/wakegraph-level-zero/src/sys/types.rs"]
mod types;

use std::ffi::{CStr, OsString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libloading::Library;
use types::*;

/// Calls a function of the driver with arguments of the types that it declares, which has to succeed.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        let function = function::<unsafe extern "C" fn($($type),*) -> ze_result_t>(&$library, stringify!($name));
        // SAFETY: this is how the vendor's headers declare the function, and the arguments are valid.
        let result = unsafe { function($($argument),*) };
        assert_eq!(result, ZE_RESULT_SUCCESS, stringify!($name));
    }};
}

fn function<F: Copy>(library: &Library, name: &str) -> F {
    // SAFETY: the callers name the function with its own type.
    *unsafe { library.get::<F>(name) }.expect("a function of the driver")
}

type Lists = *mut ze_command_list_handle_t;
type Append = unsafe extern "C" fn(
    ze_command_list_handle_t,
    u32,
    Lists,
    ze_event_handle_t,
    u32,
    *mut ze_event_handle_t,
) -> ze_result_t;
type Execute = unsafe extern "C" fn(ze_command_queue_handle_t, u32, Lists, ze_fence_handle_t) -> ze_result_t;
type Wait = unsafe extern "C" fn(ze_event_handle_t, u64) -> ze_result_t;
type Reset = unsafe extern "C" fn(ze_event_handle_t) -> ze_result_t;
type Update =
    unsafe extern "C" fn(ze_command_list_handle_t, *const ze_mutable_commands_exp_desc_t) -> ze_result_t;
type Close = unsafe extern "C" fn(ze_command_list_handle_t) -> ze_result_t;

/// The first device with a module of the kernel `add(u32 n, global u32 *x)`, and a small buffer.
pub struct RawDevice {
    append: Append,
    execute: Execute,
    wait: Wait,
    reset: Reset,
    update: Update,
    close: Close,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    module: ze_module_handle_t,
    memory: *mut c_void,
    elements: u32,
    // Last: the functions are in it.
    library: Library,
}

// SAFETY: the driver's objects may be used on any thread; one loop uses them at a time.
unsafe impl Send for RawDevice {}
// SAFETY: as above.
unsafe impl Sync for RawDevice {}

impl RawDevice {
    pub fn open(code: &[u8], elements: usize) -> Arc<Self> {
        let named = std::env::var_os("WAKEGRAPH_LEVEL_ZERO_LIBRARY");
        // SAFETY: the loader, which the backend has loaded already.
        let library = unsafe { Library::new(named.unwrap_or_else(|| OsString::from("libze_loader.so.1"))) };
        let library = library.expect("a loader");
        let (mut count, mut driver, mut device) = (1, null_mut(), null_mut());
        call!(library, zeInit(0 => u32));
        call!(library, zeDriverGet(&raw mut count => *mut u32, &raw mut driver => *mut ze_driver_handle_t));
        call!(library, zeDeviceGet(
            driver => ze_driver_handle_t, &raw mut count => *mut u32, &raw mut device => *mut ze_device_handle_t,
        ));
        let (desc, mut context) = (ze_context_desc_t::new(), null_mut());
        call!(library, zeContextCreate(
            driver => ze_driver_handle_t, &raw const desc => *const ze_context_desc_t,
            &raw mut context => *mut ze_context_handle_t,
        ));
        let mut module = null_mut();
        let desc = ze_module_desc_t {
            format: ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: code.len(),
            pInputModule: code.as_ptr(),
            ..ze_module_desc_t::new()
        };
        call!(library, zeModuleCreate(
            context => ze_context_handle_t, device => ze_device_handle_t, &raw const desc => *const ze_module_desc_t,
            &raw mut module => *mut ze_module_handle_t, null_mut() => *mut ze_module_build_log_handle_t,
        ));
        let (desc, mut memory) = (ze_device_mem_alloc_desc_t::new(), null_mut());
        call!(library, zeMemAllocDevice(
            context => ze_context_handle_t, &raw const desc => *const ze_device_mem_alloc_desc_t,
            4 * elements => usize, 64 => usize, device => ze_device_handle_t, &raw mut memory => *mut *mut c_void,
        ));
        Arc::new(Self {
            append: function(&library, "zeCommandListImmediateAppendCommandListsExp"),
            execute: function(&library, "zeCommandQueueExecuteCommandLists"),
            wait: function(&library, "zeEventHostSynchronize"),
            reset: function(&library, "zeEventHostReset"),
            update: function(&library, "zeCommandListUpdateMutableCommandsExp"),
            close: function(&library, "zeCommandListClose"),
            context,
            device,
            module,
            memory,
            elements: u32::try_from(elements).expect("few elements"),
            library,
        })
    }

    /// A kernel with its arguments: a command's own, as arguments belong to the handle.
    fn kernel(&self, name: &CStr) -> ze_kernel_handle_t {
        let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..ze_kernel_desc_t::new() };
        let mut kernel = null_mut();
        call!(self.library, zeKernelCreate(
            self.module => ze_module_handle_t, &raw const desc => *const ze_kernel_desc_t,
            &raw mut kernel => *mut ze_kernel_handle_t,
        ));
        let (n, memory) = (1u32, self.memory);
        call!(self.library, zeKernelSetArgumentValue(
            kernel => ze_kernel_handle_t, 0 => u32, 4 => usize, (&raw const n).cast() => *const c_void,
        ));
        call!(self.library, zeKernelSetArgumentValue(
            kernel => ze_kernel_handle_t, 1 => u32, size_of::<*mut c_void>() => usize,
            (&raw const memory).cast() => *const c_void,
        ));
        call!(self.library, zeKernelSetGroupSize(
            kernel => ze_kernel_handle_t, self.elements => u32, 1 => u32, 1 => u32,
        ));
        kernel
    }

    /// An event from a pool of its own, or one that counts, for in-order immediate lists.
    fn event(&self, counts: bool) -> (ze_event_handle_t, ze_event_pool_handle_t) {
        let (mut event, mut pool) = (null_mut(), null_mut());
        let scope = ZE_EVENT_SCOPE_FLAG_HOST;
        if counts {
            let flags = ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE;
            let new = ze_event_counter_based_desc_t::new();
            let desc = ze_event_counter_based_desc_t { flags, signal: scope, wait: scope, ..new };
            call!(self.library, zeEventCounterBasedCreate(
                self.context => ze_context_handle_t, self.device => ze_device_handle_t,
                &raw const desc => *const ze_event_counter_based_desc_t, &raw mut event => *mut ze_event_handle_t,
            ));
        } else {
            let flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
            let desc = ze_event_pool_desc_t { flags, count: 1, ..ze_event_pool_desc_t::new() };
            call!(self.library, zeEventPoolCreate(
                self.context => ze_context_handle_t, &raw const desc => *const ze_event_pool_desc_t, 0 => u32,
                null_mut() => *mut ze_device_handle_t, &raw mut pool => *mut ze_event_pool_handle_t,
            ));
            let desc = ze_event_desc_t { signal: scope, wait: scope, ..ze_event_desc_t::new() };
            call!(self.library, zeEventCreate(
                pool => ze_event_pool_handle_t, &raw const desc => *const ze_event_desc_t,
                &raw mut event => *mut ze_event_handle_t,
            ));
        }
        (event, pool)
    }
}

/// How a loop learns that a run is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// `zeEventHostSynchronize` without a limit.
    Event,
    /// The same with a timeout of 0, again and again, with a yield in between.
    Spin,
}

/// How a chain is handed to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handover {
    /// A closed list is appended to an in-order immediate list, with an event that counts.
    Append,
    /// A queue executes a closed list that signals an event, which the host resets.
    Execute,
}

/// Kernels in a chain, as a closed list, and where it runs.
pub struct Chain {
    device: Arc<RawDevice>,
    list: ze_command_list_handle_t,
    kernels: Vec<ze_kernel_handle_t>,
    immediate: ze_command_list_handle_t,
    queue: ze_command_queue_handle_t,
    event: ze_event_handle_t,
    pool: ze_event_pool_handle_t,
    /// The number of the first kernel, for updates.
    command: u64,
    handover: Handover,
    waiting: Waiting,
}

// SAFETY: as for the device.
unsafe impl Send for Chain {}

impl Chain {
    pub fn new(
        raw: &Arc<RawDevice>,
        length: usize,
        is_mutable: bool,
        handover: Handover,
        waiting: Waiting,
    ) -> Self {
        let counts = handover == Handover::Append;
        let ((event, pool), library) = (raw.event(counts), &raw.library);
        let desc = ze_command_queue_desc_t {
            mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..ze_command_queue_desc_t::new()
        };
        let (mut immediate, mut queue) = (null_mut(), null_mut());
        if counts {
            let desc = ze_command_queue_desc_t { flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER, ..desc };
            call!(library, zeCommandListCreateImmediate(
                raw.context => ze_context_handle_t, raw.device => ze_device_handle_t,
                &raw const desc => *const ze_command_queue_desc_t, &raw mut immediate => Lists,
            ));
        } else {
            call!(library, zeCommandQueueCreate(
                raw.context => ze_context_handle_t, raw.device => ze_device_handle_t,
                &raw const desc => *const ze_command_queue_desc_t, &raw mut queue => *mut ze_command_queue_handle_t,
            ));
        }
        let kernels = (0..length).map(|_| raw.kernel(c"add")).collect();
        let mut chain = Self {
            device: raw.clone(),
            list: null_mut(),
            kernels,
            immediate,
            queue,
            event,
            pool,
            command: 0,
            handover,
            waiting,
        };
        chain.record(is_mutable);
        chain
    }

    /// Records the list anew.
    pub fn record(&mut self, is_mutable: bool) {
        self.drop_list();
        let (raw, library) = (&self.device, &self.device.library);
        let mutability = ze_mutable_command_list_exp_desc_t::new();
        let desc = ze_command_list_desc_t {
            pNext: if is_mutable { (&raw const mutability).cast() } else { null() },
            flags: ZE_COMMAND_LIST_FLAG_IN_ORDER,
            ..ze_command_list_desc_t::new()
        };
        call!(library, zeCommandListCreate(
            raw.context => ze_context_handle_t, raw.device => ze_device_handle_t,
            &raw const desc => *const ze_command_list_desc_t, &raw mut self.list => Lists,
        ));
        if is_mutable {
            let flags = ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS;
            let desc = ze_mutable_command_id_exp_desc_t { flags, ..ze_mutable_command_id_exp_desc_t::new() };
            call!(library, zeCommandListGetNextCommandIdExp(
                self.list => ze_command_list_handle_t, &raw const desc => *const ze_mutable_command_id_exp_desc_t,
                &raw mut self.command => *mut u64,
            ));
        }
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        for (index, &kernel) in self.kernels.iter().enumerate() {
            let is_last = index + 1 == self.kernels.len() && self.handover == Handover::Execute;
            let signal = if is_last { self.event } else { null_mut() };
            call!(library, zeCommandListAppendLaunchKernel(
                self.list => ze_command_list_handle_t, kernel => ze_kernel_handle_t,
                &raw const groups => *const ze_group_count_t, signal => ze_event_handle_t, 0 => u32,
                null_mut() => *mut ze_event_handle_t,
            ));
        }
        call!(library, zeCommandListClose(self.list => ze_command_list_handle_t));
    }

    /// Hands the chain over.
    pub fn enqueue(&mut self) {
        let (raw, lists) = (&self.device, &raw mut self.list);
        let result = match self.handover {
            // SAFETY: the list is closed, and its last run is over.
            Handover::Append => unsafe { (raw.append)(self.immediate, 1, lists, self.event, 0, null_mut()) },
            Handover::Execute => {
                // SAFETY: nothing waits for the event, and nothing is going to signal it.
                assert_eq!(unsafe { (raw.reset)(self.event) }, ZE_RESULT_SUCCESS);
                // SAFETY: as for the other way.
                unsafe { (raw.execute)(self.queue, 1, lists, null_mut()) }
            }
        };
        assert_eq!(result, ZE_RESULT_SUCCESS);
    }

    pub fn wait(&self) {
        // SAFETY: the event is alive.
        let wait = |timeout| unsafe { (self.device.wait)(self.event, timeout) };
        if self.waiting == Waiting::Event {
            assert_eq!(wait(u64::MAX), ZE_RESULT_SUCCESS);
        } else {
            while wait(0) != ZE_RESULT_SUCCESS {
                std::thread::yield_now();
            }
        }
    }

    /// Hands the chain over once and waits for it.
    pub fn run(&mut self) {
        self.enqueue();
        self.wait();
    }

    /// Gives the first kernel another value, in place.
    pub fn set_value(&mut self, value: u32) {
        let argument = ze_mutable_kernel_argument_exp_desc_t {
            commandId: self.command,
            argSize: 4,
            pArgValue: (&raw const value).cast(),
            ..ze_mutable_kernel_argument_exp_desc_t::new()
        };
        let desc = ze_mutable_commands_exp_desc_t {
            pNext: (&raw const argument).cast(),
            ..ze_mutable_commands_exp_desc_t::new()
        };
        // SAFETY: the list is idle, and the structures live until the end of the call.
        let updated = unsafe { (self.device.update)(self.list, &raw const desc) };
        // SAFETY: as above.
        let closed = unsafe { (self.device.close)(self.list) };
        assert_eq!([updated, closed], [ZE_RESULT_SUCCESS; 2]);
    }

    fn drop_list(&mut self) {
        if !self.list.is_null() {
            call!(self.device.library, zeCommandListDestroy(self.list => ze_command_list_handle_t));
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.drop_list();
        let library = &self.device.library;
        for &kernel in &self.kernels {
            call!(library, zeKernelDestroy(kernel => ze_kernel_handle_t));
        }
        call!(library, zeEventDestroy(self.event => ze_event_handle_t));
        if self.handover == Handover::Append {
            call!(library, zeCommandListDestroy(self.immediate => ze_command_list_handle_t));
        } else {
            call!(library, zeEventPoolDestroy(self.pool => ze_event_pool_handle_t));
            call!(library, zeCommandQueueDestroy(self.queue => ze_command_queue_handle_t));
        }
    }
}

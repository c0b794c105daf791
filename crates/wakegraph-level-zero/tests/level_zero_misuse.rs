//! The test driver of `tests/level_zero_driver` itself: each misuse that it has to end the process for, in a
//! process of its own, and the same calls in the right order.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(unsafe_code, reason = "loads the driver and calls it")]

#[path = "../../../tests/spirv/mod.rs"]
mod spirv;
#[path = "../src/sys/types.rs"]
mod types;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::ptr::{null, null_mut, with_exposed_provenance_mut};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use types::*;

/// Names the misuse for a process that this test starts.
const CHILD: &str = "WAKEGRAPH_TEST_MISUSE";

/// The device that the test driver plays: the newest, with an engine for copies. Its engine groups.
const PRESET: &str = "copy-engine";
const COMPUTE: u32 = 0;
const COPIES: u32 = 1;

/// The driver's functions, by their names.
struct Driver(libloading::Library);

/// Calls a function of the driver with arguments of the types that it declares.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr => $type:ty),*)) => {{
        // SAFETY: this is how the vendor's headers declare the function.
        let function = unsafe {
            $driver.0.get::<unsafe extern "C" fn($($type),*) -> ze_result_t>(stringify!($name))
        };
        let function = function.unwrap();
        // SAFETY: pointers are valid; wrong handles are what the test is about.
        unsafe { function($($argument),*) }
    }};
}

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/liblevel_zero_driver.so")
}

/// A device with what most misuses need.
struct Setup {
    driver: Driver,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
}

// SAFETY: handles are names, and the driver may be called on any thread.
unsafe impl Sync for Setup {}

impl Setup {
    /// Nothing where there is no OpenCL device for it.
    fn new() -> Option<Self> {
        // SAFETY: loading the driver runs nothing that does harm.
        let driver = Driver(unsafe { libloading::Library::new(library()) }.ok()?);
        if call!(driver, zeInit(0 => u32)) != ZE_RESULT_SUCCESS {
            return None;
        }
        let (mut count, mut handle) = (1, null_mut());
        let result = call!(driver, zeDriverGet(&raw mut count => *mut u32, &raw mut handle => *mut ze_driver_handle_t));
        assert_eq!((result, count), (0, 1));
        let (desc, mut context) = (ze_context_desc_t::new(), null_mut());
        let result = call!(driver, zeContextCreate(
            handle => ze_driver_handle_t, &raw const desc => *const ze_context_desc_t,
            &raw mut context => *mut ze_context_handle_t
        ));
        assert_eq!(result, 0);
        let mut device = null_mut();
        let result = call!(driver, zeDeviceGet(
            handle => ze_driver_handle_t, &raw mut count => *mut u32, &raw mut device => *mut ze_device_handle_t
        ));
        assert_eq!((result, count), (0, 1));
        Some(Self { driver, context, device })
    }

    fn list(&self) -> ze_command_list_handle_t {
        self.list_of(COMPUTE)
    }

    /// A list for a group of engines.
    fn list_of(&self, group: u32) -> ze_command_list_handle_t {
        let desc =
            ze_command_list_desc_t { commandQueueGroupOrdinal: group, ..ze_command_list_desc_t::new() };
        let mut list = null_mut();
        assert_eq!(self.create(&desc, "zeCommandListCreate", &mut list), 0);
        list
    }

    fn queue(&self) -> ze_command_queue_handle_t {
        let (desc, mut queue) = (ze_command_queue_desc_t::new(), null_mut());
        assert_eq!(self.create(&desc, "zeCommandQueueCreate", &mut queue), 0);
        queue
    }

    /// A function that makes something of a context and a device.
    fn create<D, H>(&self, desc: &D, name: &str, to: &mut H) -> ze_result_t {
        type Create<D, H> =
            unsafe extern "C" fn(ze_context_handle_t, ze_device_handle_t, *const D, *mut H) -> ze_result_t;
        // SAFETY: this is how the vendor's headers declare these functions.
        let function = unsafe { self.driver.0.get::<Create<D, H>>(name) }.unwrap();
        // SAFETY: the structure and the place are valid.
        unsafe { function(self.context, self.device, desc, to) }
    }

    /// An event, and its pool.
    fn event(&self) -> (ze_event_handle_t, ze_event_pool_handle_t) {
        let flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
        let desc = ze_event_pool_desc_t { flags, count: 1, ..ze_event_pool_desc_t::new() };
        let (mut pool, mut event) = (null_mut(), null_mut());
        let result = call!(self.driver, zeEventPoolCreate(
            self.context => ze_context_handle_t, &raw const desc => *const ze_event_pool_desc_t, 0 => u32,
            null_mut() => *mut ze_device_handle_t, &raw mut pool => *mut ze_event_pool_handle_t
        ));
        assert_eq!(result, 0);
        let desc = ze_event_desc_t { signal: ZE_EVENT_SCOPE_FLAG_HOST, ..ze_event_desc_t::new() };
        let result = call!(self.driver, zeEventCreate(
            pool => ze_event_pool_handle_t, &raw const desc => *const ze_event_desc_t,
            &raw mut event => *mut ze_event_handle_t
        ));
        assert_eq!(result, 0);
        (event, pool)
    }

    fn memory(&self) -> *mut std::ffi::c_void {
        let (desc, mut memory) = (ze_device_mem_alloc_desc_t::new(), null_mut());
        let result = call!(self.driver, zeMemAllocDevice(
            self.context => ze_context_handle_t, &raw const desc => *const ze_device_mem_alloc_desc_t,
            64 => usize, 8 => usize, self.device => ze_device_handle_t,
            &raw mut memory => *mut *mut std::ffi::c_void
        ));
        assert_eq!(result, 0);
        memory
    }

    fn free(&self, memory: *mut std::ffi::c_void) {
        let result = call!(self.driver, zeMemFree(
            self.context => ze_context_handle_t, memory => *mut std::ffi::c_void
        ));
        assert_eq!(result, 0);
    }

    /// A fill of eight bytes with a pattern of this size.
    fn fill(&self, list: ze_command_list_handle_t, memory: *mut std::ffi::c_void, size: usize) {
        let pattern = [7u8; 256];
        let result = call!(self.driver, zeCommandListAppendMemoryFill(
            list => ze_command_list_handle_t, memory => *mut std::ffi::c_void, pattern.as_ptr() => *const u8,
            size => usize, 2 * size => usize, null_mut() => ze_event_handle_t, 0 => u32,
            null_mut() => *mut ze_event_handle_t
        ));
        assert_eq!(result, 0);
    }

    fn barrier(&self, list: ze_command_list_handle_t, mut event: ze_event_handle_t) {
        let count = u32::from(!event.is_null());
        let result = call!(self.driver, zeCommandListAppendBarrier(
            list => ze_command_list_handle_t, null_mut() => ze_event_handle_t, count => u32,
            &raw mut event => *mut ze_event_handle_t
        ));
        assert_eq!(result, 0);
    }

    /// Appends a launch of a kernel in one group, without arguments.
    fn launch(&self, list: ze_command_list_handle_t) {
        let (code, mut module) = (spirv::add(), null_mut());
        let desc = ze_module_desc_t {
            format: ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: code.len(),
            pInputModule: code.as_ptr(),
            ..ze_module_desc_t::new()
        };
        let result = call!(self.driver, zeModuleCreate(
            self.context => ze_context_handle_t, self.device => ze_device_handle_t,
            &raw const desc => *const ze_module_desc_t, &raw mut module => *mut ze_module_handle_t,
            null_mut() => *mut ze_module_build_log_handle_t
        ));
        assert_eq!(result, 0);
        let desc = ze_kernel_desc_t { pKernelName: c"add".as_ptr(), ..ze_kernel_desc_t::new() };
        let mut kernel = null_mut();
        let result = call!(self.driver, zeKernelCreate(
            module => ze_module_handle_t, &raw const desc => *const ze_kernel_desc_t,
            &raw mut kernel => *mut ze_kernel_handle_t
        ));
        assert_eq!(result, 0);
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        call!(self.driver, zeCommandListAppendLaunchKernel(
            list => ze_command_list_handle_t, kernel => ze_kernel_handle_t,
            &raw const groups => *const ze_group_count_t, null_mut() => ze_event_handle_t, 0 => u32,
            null_mut() => *mut ze_event_handle_t
        ));
    }

    fn close(&self, list: ze_command_list_handle_t) {
        assert_eq!(call!(self.driver, zeCommandListClose(list => ze_command_list_handle_t)), 0);
    }

    fn execute(&self, queue: ze_command_queue_handle_t, mut list: ze_command_list_handle_t) {
        let result = call!(self.driver, zeCommandQueueExecuteCommandLists(
            queue => ze_command_queue_handle_t, 1 => u32, &raw mut list => *mut ze_command_list_handle_t,
            null() => *const u8
        ));
        assert_eq!(result, 0);
    }

    /// A list in flight that waits for an event, which nothing signals.
    fn pending(&self) -> (ze_command_list_handle_t, ze_command_queue_handle_t, ze_event_handle_t) {
        let (list, queue, (event, _)) = (self.list(), self.queue(), self.event());
        self.barrier(list, event);
        self.close(list);
        self.execute(queue, list);
        (list, queue, event)
    }

    fn event_call(&self, name: &str, event: ze_event_handle_t) -> ze_result_t {
        // SAFETY: this is how the vendor's headers declare these functions.
        let function =
            unsafe { self.driver.0.get::<unsafe extern "C" fn(ze_event_handle_t) -> ze_result_t>(name) };
        let function = function.unwrap();
        // SAFETY: wrong handles are what the test is about.
        unsafe { function(event) }
    }
}

/// A misuse's name, the call that has to be named, and what leads to it.
type Misuse = (&'static str, &'static str, fn(&Setup));

const MISUSES: [Misuse; 19] = [
    ("an_event_is_used_after_its_end", "zeEventHostSignal", |s| {
        let (event, _) = s.event();
        assert_eq!(s.event_call("zeEventDestroy", event), 0);
        s.event_call("zeEventHostSignal", event);
    }),
    ("an_event_is_destroyed_in_use", "zeEventDestroy", |s| {
        let (_, _, event) = s.pending();
        s.event_call("zeEventDestroy", event);
    }),
    ("a_pending_event_is_reset", "zeEventHostReset", |s| {
        let (_, _, event) = s.pending();
        s.event_call("zeEventHostReset", event);
    }),
    ("a_pool_is_destroyed_before_its_events", "zeEventPoolDestroy", |s| {
        let (_, pool) = s.event();
        call!(s.driver, zeEventPoolDestroy(pool => ze_event_pool_handle_t));
    }),
    ("a_closed_list_is_appended_to", "zeCommandListAppendBarrier", |s| {
        let list = s.list();
        s.close(list);
        s.barrier(list, null_mut());
    }),
    ("an_open_list_is_executed", "zeCommandQueueExecuteCommandLists", |s| s.execute(s.queue(), s.list())),
    ("a_running_list_is_executed", "zeCommandQueueExecuteCommandLists", |s| {
        let (list, queue, _) = s.pending();
        s.execute(queue, list);
    }),
    ("a_running_list_is_reset", "zeCommandListReset", |s| {
        let (list, ..) = s.pending();
        call!(s.driver, zeCommandListReset(list => ze_command_list_handle_t));
    }),
    ("a_running_list_is_destroyed", "zeCommandListDestroy", |s| {
        let (list, ..) = s.pending();
        call!(s.driver, zeCommandListDestroy(list => ze_command_list_handle_t));
    }),
    ("a_running_list_is_updated", "zeCommandListUpdateMutableCommandsExp", |s| {
        let ((list, ..), desc) = (s.pending(), ze_mutable_commands_exp_desc_t::new());
        call!(s.driver, zeCommandListUpdateMutableCommandsExp(
            list => ze_command_list_handle_t, &raw const desc => *const ze_mutable_commands_exp_desc_t
        ));
    }),
    ("a_busy_queue_is_destroyed", "zeCommandQueueDestroy", |s| {
        let (_, queue, _) = s.pending();
        call!(s.driver, zeCommandQueueDestroy(queue => ze_command_queue_handle_t));
    }),
    ("memory_is_used_after_its_end", "zeCommandListAppendMemoryFill", |s| {
        let memory = s.memory();
        s.free(memory);
        s.fill(s.list(), memory, 4);
    }),
    ("memory_is_freed_twice", "zeMemFree", |s| {
        let memory = s.memory();
        s.free(memory);
        s.free(memory);
    }),
    ("memory_is_freed_in_use", "zeMemFree", |s| {
        let (list, queue, (event, _), memory) = (s.list(), s.queue(), s.event(), s.memory());
        s.barrier(list, event);
        s.fill(list, memory, 4);
        s.close(list);
        s.execute(queue, list);
        s.free(memory);
    }),
    ("two_threads_use_a_list", "zeCommandListAppendBarrier", |s| {
        let list = s.list().expose_provenance();
        // Until the two are in the driver at the same time.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    loop {
                        s.barrier(with_exposed_provenance_mut(list), null_mut());
                    }
                });
            }
        });
    }),
    ("an_argument_is_missing", "zeCommandListAppendLaunchKernel", |s| s.launch(s.list())),
    ("a_kernel_is_on_a_copy_list", "zeCommandListAppendLaunchKernel", |s| s.launch(s.list_of(COPIES))),
    ("a_copy_list_is_on_a_compute_queue", "zeCommandQueueExecuteCommandLists", |s| {
        let list = s.list_of(COPIES);
        s.close(list);
        s.execute(s.queue(), list);
    }),
    ("a_pattern_is_too_long", "zeCommandListAppendMemoryFill", |s| s.fill(s.list(), s.memory(), 256)),
];

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CHILD) {
        let (.., misuse) = MISUSES.iter().find(|(misuse, ..)| *misuse == name).unwrap();
        misuse(&Setup::new().unwrap());
        return ExitCode::SUCCESS;
    }
    let mut trials = vec![Trial::ignorable_test("right_calls_work", || with_setup(right_calls_work))];
    for (name, call, _) in MISUSES {
        trials.push(Trial::ignorable_test(name, move || with_setup(|_| ends(name, call))));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn with_setup(test: impl FnOnce(&Setup)) -> Result<Completion, Failed> {
    match Setup::new() {
        Some(setup) => test(&setup),
        None => return Ok(Completion::ignored_with("no OpenCL device for CPUs takes SPIR-V")),
    }
    Ok(Completion::Completed)
}

/// The process of a misuse does not come to its end, and names the call.
fn ends(name: &str, call: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.env(CHILD, name).env("WAKEGRAPH_LZ_DEVICES", PRESET).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the process goes on: {said}");
    assert!(said.contains(&format!("level_zero_driver: {call}: ")), "{said}");
}

/// The calls of the misuses, as they should be: a list that waits for an event and then fills memory, twice.
fn right_calls_work(s: &Setup) {
    let (list, queue, (event, pool), memory) = (s.list(), s.queue(), s.event(), s.memory());
    s.barrier(list, event);
    s.fill(list, memory, 4);
    s.close(list);
    for _ in 0..2 {
        s.execute(queue, list);
        assert_eq!(s.event_call("zeEventHostSignal", event), 0);
        assert_eq!(
            call!(s.driver, zeCommandQueueSynchronize(queue => ze_command_queue_handle_t, u64::MAX => u64)),
            0
        );
        assert_eq!(s.event_call("zeEventHostReset", event), 0);
    }
    // SAFETY: the fill is over, and the memory is plain memory.
    assert_eq!(unsafe { memory.cast::<[u8; 9]>().read() }, [7, 7, 7, 7, 7, 7, 7, 7, 0xcd]);
    assert_eq!(s.event_call("zeEventDestroy", event), 0);
    assert_eq!(call!(s.driver, zeEventPoolDestroy(pool => ze_event_pool_handle_t)), 0);
    assert_eq!(call!(s.driver, zeCommandListDestroy(list => ze_command_list_handle_t)), 0);
    assert_eq!(call!(s.driver, zeCommandQueueDestroy(queue => ze_command_queue_handle_t)), 0);
    s.free(memory);
    assert_eq!(call!(s.driver, zeContextDestroy(s.context => ze_context_handle_t)), 0);
}

//! What the HIP backend does when a call of AMD's libraries fails: each call in turn, once, with both
//! versions, over the HSA runtime of `tests/hsa_runtime`, which a library stands in front of that makes calls
//! fail. The error names the call, and the code as HIP does; and what failed works on the same objects when
//! it is done again. `scripts/hip.sh` fetches the versions; where they are absent, each test is ignored by
//! name.
//!
//! All calls of a version fail in one process, which is a copy of this program, one after the other: the
//! start of the runtime takes longer than all that is done here.
#![expect(unsafe_code, reason = "reads memory that nothing else uses, and calls the libraries")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/support/hip_stack.rs"]
mod hip_stack;

use std::ffi::{CString, c_char, c_int, c_void};
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use common::IN_ORDER;
use hip_stack::{HipStack, InFront, VERSIONS};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::backend::hip::HipBackend;
use wakegraph::hal::{
    AccessMode, Backend as _, Command, CommandBuffer, CommandBufferDesc, CommandUpdate, Device, Event,
    EventDesc, EventStatus, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind,
    MemoryView, NativeCommand, NativeStream, Param, ParamKind, Pitch, Priority, QueueDesc, QueueOrder, Rect,
    Signal, UserMemory, WaitList,
};
use wakegraph::{Error, ErrorKind, Range, Result, backend};

/// Names what a process is to do.
const CHILD: &str = "WAKEGRAPH_HIP_FAULTS";

/// The calls without which the backend is unavailable, for good.
const STARTS: [&str; 2] = ["hipDriverGetVersion", "hipInit"];

/// Calls whose failure the caller learns of.
const CALLS: &[&str] = &[
    "hipGetDeviceCount",
    "hipGetDevice",
    "hipDeviceGetName",
    "hipDeviceTotalMem",
    "hipDeviceGetAttribute",
    "hipDeviceGetStreamPriorityRange",
    "hipThreadExchangeStreamCaptureMode",
    "hipGetDevicePropertiesR0600",
    "hipHostMalloc",
    "hipHostGetDevicePointer",
    "hipPointerGetAttribute",
    "hipMemcpyAsync",
    "hipMemsetAsync",
    "hipModuleLoadData",
    "hipModuleGetFunction",
    "hipFuncGetAttribute",
    "hipStreamCreateWithFlags",
    "hipStreamCreateWithPriority",
    "hipStreamBeginCapture",
    "hipStreamEndCapture",
    "hipStreamIsCapturing",
    "hipStreamQuery",
    "hipEventCreateWithFlags",
    "hipEventElapsedTime",
    "hipGraphAddMemcpyNode",
    "hipGraphAddMemcpyNode1D",
    "hipGraphAddMemsetNode",
    "hipGraphAddEventRecordNode",
    "hipGraphAddChildGraphNode",
    "hipGraphGetNodes",
    "hipGraphNodeGetType",
    "hipGraphUpload",
    "hipGraphExecEventRecordNodeSetEvent",
];

/// Those that only one of the versions makes: the older one has no pools.
const CALLS_OF_POOLS: &[&str] =
    &["hipMemPoolCreate", "hipMemPoolSetAttribute", "hipMemPoolTrimTo", "hipMallocFromPoolAsync"];
const CALLS_WITHOUT_POOLS: &[&str] = &["hipMalloc"];

/// Calls of the run-time compiler, which has codes of its own.
const COMPILER_CALLS: &[&str] =
    &["hiprtcCreateProgram", "hiprtcCompileProgram", "hiprtcGetCodeSize", "hiprtcGetCode"];

/// Calls that the backend makes first where it makes up for them: when it tries whether updates change
/// launches in flight.
const LATER_CALLS: &[&str] = &[
    "hipStreamSynchronize",
    "hipStreamWaitEvent",
    "hipEventRecord",
    "hipGraphCreate",
    "hipGraphAddKernelNode",
    "hipGraphInstantiateWithFlags",
    "hipGraphLaunch",
    "hipGraphExecKernelNodeSetParams",
    "hipGraphNodeSetEnabled",
];

/// A call that two threads make first: the failure is made up for on one of them.
const SET_DEVICE: &str = "hipSetDevice";

/// Calls that the backend makes up for: a query of an event is made again, an update becomes a new instance,
/// memory is not registered, and peers are asked about again.
const OPTIONAL_CALLS: &[&str] = &[
    "hipEventQuery",
    "hipHostRegister",
    "hipGraphExecUpdate",
    "hipDeviceCanAccessPeer",
    "hipDeviceEnablePeerAccess",
    "hipModuleLaunchKernel",
];
const OPTIONAL_CALLS_OF_POOLS: &[&str] = &["hipMemPoolSetAccess"];

/// Calls that free something, after which nobody waits for an outcome.
const RELEASES: &[&str] = &[
    "hipDeviceSynchronize",
    "hipHostFree",
    "hipHostUnregister",
    "hipModuleUnload",
    "hipStreamDestroy",
    "hipEventDestroy",
    "hipGraphDestroy",
    "hipGraphExecDestroy",
];
const RELEASES_OF_POOLS: &[&str] = &["hipFreeAsync", "hipMemPoolDestroy"];
const RELEASES_WITHOUT_POOLS: &[&str] = &["hipFree"];

/// What the failure of a call comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// An error that names the call and this code.
    Error(&'static str),
    /// None.
    Nothing,
}

const UNKNOWN: Outcome = Outcome::Error("hipErrorUnknown (999)");
const INTERNAL: Outcome = Outcome::Error("HIPRTC_ERROR_INTERNAL_ERROR (11)");

/// When a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    AtFirst,
    /// Once the devices are open, and updates have been tried.
    Later,
}

/// The calls of a version, when they fail, and what that comes to.
fn calls(version: &str) -> Vec<(&'static str, When, Outcome)> {
    let has_pools = !version.starts_with("5.");
    let pools = |with: &'static [&'static str], without| if has_pools { with } else { without };
    let lists: [(&[&str], Outcome); 9] = [
        (CALLS, UNKNOWN),
        (pools(CALLS_OF_POOLS, CALLS_WITHOUT_POOLS), UNKNOWN),
        (COMPILER_CALLS, INTERNAL),
        (OPTIONAL_CALLS, Outcome::Nothing),
        (LATER_CALLS, Outcome::Nothing),
        (pools(OPTIONAL_CALLS_OF_POOLS, &[]), Outcome::Nothing),
        (RELEASES, Outcome::Nothing),
        (pools(RELEASES_OF_POOLS, RELEASES_WITHOUT_POOLS), Outcome::Nothing),
        (&["hiprtcDestroyProgram"], Outcome::Nothing),
    ];
    let at_first = lists.into_iter();
    let at_first =
        at_first.flat_map(|(all, outcome)| all.iter().map(move |call| (*call, When::AtFirst, outcome)));
    at_first
        .chain(LATER_CALLS.iter().chain([&SET_DEVICE]).map(|call| (*call, When::Later, UNKNOWN)))
        .collect()
}

fn main() -> ExitCode {
    if let Ok(what) = std::env::var(CHILD) {
        match STARTS.contains(&&*what) {
            true => println!("{}", backend::open("hip:0").map(drop).unwrap_err()),
            false => calls(&what).into_iter().for_each(|(call, when, _)| fail(call, when)),
        }
        return ExitCode::SUCCESS;
    }
    let mut trials = Vec::new();
    for version in VERSIONS {
        let stack = HipStack::prepare_with(version, InFront::Calls).map(Arc::new);
        let said = Arc::new(LazyLock::new({
            let stack = stack.clone();
            move || stack.and_then(|stack| run(&stack, version))
        }));
        for (call, when, outcome) in calls(version) {
            let (stack, said) = (stack.clone(), Arc::clone(&said));
            let name = match when {
                When::AtFirst => format!("{version}/{call}_fails_once"),
                When::Later => format!("{version}/{call}_fails_once_later"),
            };
            trials.push(Trial::ignorable_test(name, move || {
                if let Err(why) = stack {
                    return Ok(Completion::ignored_with(why));
                }
                check(call, when, outcome, said.as_deref()?).map(|()| Completion::Completed)
            }));
        }
        for call in STARTS {
            let stack = stack.clone();
            let name = format!("{version}/without_{call}_the_backend_is_unavailable");
            trials.push(Trial::ignorable_test(name, move || match stack {
                Ok(stack) => unavailable(&stack, call).map(|()| Completion::Completed),
                Err(why) => Ok(Completion::ignored_with(why)),
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// What a process says in which calls fail.
fn run(stack: &HipStack, what: &str) -> std::result::Result<String, String> {
    let mut process = stack.command();
    process.env(CHILD, what).env("WAKEGRAPH_HSA_GPUS", "2");
    if STARTS.contains(&what) {
        process.env("WAKEGRAPH_HSA_FAIL", format!("{what}:1"));
    }
    let output = process.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

fn unavailable(stack: &HipStack, call: &str) -> std::result::Result<(), Failed> {
    let said = run(stack, call)?;
    let is_right =
        said.contains(&format!("{call} failed with hipErrorUnknown (999)")) && said.contains("rocminfo");
    if is_right { Ok(()) } else { Err(said.into()) }
}

/// Compares what was said of one call.
fn check(call: &str, when: When, outcome: Outcome, said: &str) -> std::result::Result<(), Failed> {
    let mut own = said.lines().skip_while(|line| *line != format!("call: {call} {when:?}")).skip(1);
    let own: Vec<_> = own.by_ref().take_while(|line| !line.starts_with("call: ")).collect();
    if own.last() != Some(&"right") {
        return Err(format!("it did not end well: {own:?}").into());
    }
    let errors: Vec<_> = own.iter().filter(|line| line.starts_with("error: ")).collect();
    match (outcome, &errors[..]) {
        (Outcome::Nothing, []) => Ok(()),
        (Outcome::Error(code), [error]) if error.contains(call) && error.contains(code) => Ok(()),
        _ => Err(format!("{errors:?}").into()),
    }
}

/// The libraries in front of HIP's and of its compiler.
static IN_FRONT: LazyLock<[libloading::Library; 2]> = LazyLock::new(|| {
    ["libamdhip64.so", "libhiprtc.so"].map(|name| {
        // SAFETY: the libraries have no initialization.
        unsafe { libloading::Library::new(name) }.unwrap()
    })
});

/// A function of each of these libraries.
fn functions<F: Copy>(name: &str) -> [F; 2] {
    IN_FRONT.each_ref().map(|library| {
        // SAFETY: the callers name the function with its own type.
        *unsafe { library.get::<F>(name.as_bytes()) }.unwrap()
    })
}

/// A function of HIP's.
fn function<F: Copy>(name: &str) -> F {
    // SAFETY: the callers name the function with its own type.
    *unsafe { IN_FRONT[0].get::<F>(name.as_bytes()) }.unwrap()
}

/// Has the call fail once while everything is done.
fn fail(call: &str, when: When) {
    println!("call: {call} {when:?}");
    let name = CString::new(call).unwrap();
    let [of_hip, of_compiler] = functions::<extern "C" fn(*const c_char)>("wakegraph_fail_next");
    let is_of_compiler = call.starts_with("hiprtc");
    let arm = || if is_of_compiler { of_compiler(name.as_ptr()) } else { of_hip(name.as_ptr()) };
    // The compiler is asked for sources that it has not seen.
    let source = if is_of_compiler { call } else { "" };
    let outcome = match when {
        When::AtFirst => {
            arm();
            everything(source)
        }
        When::Later => open_before().and_then(|_open| {
            arm();
            everything(source)
        }),
    };
    match outcome {
        Ok(()) if !was_called() => println!("it was not called"),
        Ok(()) => println!("right"),
        Err(error) => println!("failed again: {error}"),
    }
}

/// The devices, with all that happens only once.
fn open_before() -> Result<[Arc<dyn Device>; 2]> {
    let devices = [backend::open("hip:0")?, backend::open("hip:1")?];
    devices[0].create_command_buffer(&CommandBufferDesc::new().updatable(true))?;
    Ok(devices)
}

/// Whether the call has failed. What was dropped is freed on threads of the devices, a little later.
fn was_called() -> bool {
    let is_to_fail = || functions::<extern "C" fn() -> bool>("wakegraph_is_to_fail").iter().any(|ask| ask());
    let limit = Instant::now() + Duration::from_secs(20);
    while is_to_fail() && Instant::now() < limit {
        thread::yield_now();
    }
    !is_to_fail()
}

/// Makes a step again that failed, once.
fn again<T>(mut step: impl FnMut() -> Result<T>) -> Result<T> {
    step().or_else(|error| {
        println!("error: {}", format!("{error:?} {error}").replace('\n', " "));
        step()
    })
}

fn buffer_param(name: &'static str) -> Param {
    let kind = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
    Param { name: name.into(), kind }
}

fn value(n: u32) -> KernelArg {
    KernelArg::Value(n.to_ne_bytes()[..].into())
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

fn wrong(what: impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Driver, format!("wrong numbers: {what:?}"))
}

/// A memset of HIP's, which a stream captures or runs.
fn set(stream: &NativeStream<'_>, to: usize) -> Result<()> {
    type Set = extern "C" fn(*mut c_void, c_int, usize, *mut c_void) -> c_int;
    let code = function::<Set>("hipMemsetAsync")(to as *mut c_void, 0, 4, stream.stream());
    let failed = || Error::new(ErrorKind::Driver, format!("hipMemsetAsync: hipErrorUnknown ({code})"));
    if code == 0 { Ok(()) } else { Err(failed()) }
}

/// An event of another library's, which was not recorded.
fn raw_event() -> *mut c_void {
    type Create = extern "C" fn(*mut *mut c_void, u32) -> c_int;
    let mut event = std::ptr::null_mut();
    assert_eq!(function::<Create>("hipEventCreateWithFlags")(&mut event, 0), 0);
    event
}

/// Enqueues, and waits for the end. What fails is enqueued again.
fn run_to_end(event: &Arc<dyn Event>, mut enqueue: impl FnMut() -> Result<()>) -> Result<()> {
    again(|| {
        enqueue()?;
        match event.wait(None) {
            EventStatus::Failed(error) => Err(error),
            _ => Ok(()),
        }
    })
}

/// Every object, and everything that is done with them. What a run does begins anew each time, as one that
/// has failed may have run.
fn everything(source: &str) -> Result<()> {
    again(|| HipBackend.device_names())?;
    let device = again(|| backend::open("hip:0"))?;
    let other = again(|| backend::open("hip:1"))?;
    let allocate = |device: &dyn Device, kind| again(|| device.allocate(&MemoryDesc::new(64, kind)));
    let (x, y) = (allocate(&*device, MemoryKind::Device)?, allocate(&*device, MemoryKind::Device)?);
    let (host, far) = (allocate(&*device, MemoryKind::Host)?, allocate(&*other, MemoryKind::Device)?);
    let registered = again(|| {
        let start = NonNull::from(Box::leak(Box::new([7_u8; 64]))).cast();
        // SAFETY: the bytes are there for good.
        device.register(unsafe { UserMemory::new(start, 64, false, Box::new(())) })
    });
    drop(registered?);
    let address = x.usm().unwrap().address();
    again(|| device.check_address(address, 64))?;

    let text = format!(
        "extern \"C\" __global__ void add(unsigned n, unsigned *x) {{ x[threadIdx.x] += n; }} // {source}"
    );
    let params = [Param { name: "n".into(), kind: ParamKind::Value { size: 4 } }, buffer_param("x")];
    let sources = KernelSources::new().hip_c(text);
    let kernel = again(|| device.create_kernel(&KernelDesc::new("add", &params, &sources)))?;

    let queue =
        |priority| again(|| device.create_queue(&QueueDesc::new(QueueOrder::InOrder).priority(priority)));
    let (queue, urgent) = (queue(Priority::Normal)?, queue(Priority::High)?);
    let event = |profiling| again(|| device.create_event(&EventDesc::new().profiling(profiling)));
    let (done, before) = (event(true)?, event(false)?);

    // A set, a fill by a kernel, a kernel, a row, a box, work of the caller's.
    let all = MemoryView::whole;
    let record = |desc: CommandBufferDesc, n: u32| -> Result<_> {
        let mut buffer = again(|| device.create_command_buffer(&desc))?;
        let mut handle = None;
        let args = vec![value(n), KernelArg::Memory(all(x.clone()))];
        let pitch = Pitch { offset: 0, row: 8, slice: 64 };
        let (rect, src, dst) = (Rect { width: 4, height: 8, depth: 1 }, all(x.clone()), all(y.clone()));
        // SAFETY: the closure sets the first number of `y`, which the command keeps.
        let native = unsafe {
            let to = y.usm().unwrap().address();
            NativeCommand::new("mine", vec![all(y.clone())], move |stream| set(stream, to))
        };
        let commands = [
            Command::BufferFill { dst: all(y.clone()), pattern: [1, 2, 3, 4, 5, 6, 7, 8][..].into() },
            Command::BufferFill { dst: all(x.clone()), pattern: 7_u32.to_ne_bytes()[..].into() },
            Command::Kernel(Arc::new(KernelLaunch::new(kernel.clone(), args, Range::linear(16)))),
            Command::BufferCopyRect { src, dst, rect, src_pitch: pitch, dst_pitch: pitch },
            Command::Native(native),
            Command::BufferRead { src: all(y.clone()), host: all(host.clone()) },
        ];
        for command in &commands {
            let appended = again(|| buffer.append(command, &[]))?;
            handle = handle.or(appended.handle.filter(|_| matches!(command, Command::Kernel(_))));
        }
        again(|| buffer.finalize())?;
        Ok((buffer, handle))
    };
    let run = |buffer: &dyn CommandBuffer, n: u32| -> Result<()> {
        // On one queue behind another one, so that streams wait for each other.
        for (first, second) in [(&queue, &urgent), (&urgent, &queue)] {
            let (empty, wait) = (Arc::new(Command::Empty), [&*before]);
            run_to_end(&done, || {
                // If what came behind it has failed, it may still run.
                before.wait(None);
                // SAFETY: nothing else uses the memory.
                unsafe { first.enqueue(&empty, WaitList::NONE, Signal::new(&before)) }?;
                let signal = Signal::new(&done).timed(true);
                // SAFETY: as above.
                unsafe { buffer.enqueue(&**second, WaitList::dependencies(&wait), signal) }
            })?;
            again(|| done.profile())?;
            again(|| second.finish())?;
        }
        let mut bytes = [0; 64];
        // SAFETY: everything that was enqueued is over.
        again(|| unsafe { y.read(0, &mut bytes) })?;
        let odd = u32::from_ne_bytes([5, 6, 7, 8]);
        let expected: Vec<_> = [7 + n, odd].repeat(8);
        let numbers = words(&bytes);
        match numbers[0] == 0 && numbers[1..] == expected[1..] {
            true => Ok(()),
            false => Err(wrong(numbers)),
        }
    };
    let updatable = CommandBufferDesc::new().updatable(true).in_order(true);
    let (mut buffer, handle) = record(updatable, 5)?;
    run(&*buffer, 5)?;
    let (profiled, _) = record(CommandBufferDesc::new().profiling(true).in_order(true), 6)?;
    run(&*profiled, 6)?;
    let handle = handle.unwrap();
    let mut update = CommandUpdate::new(handle);
    update.args.push((0, value(8)));
    again(|| buffer.update(std::slice::from_ref(&update)))?;
    run(&*buffer, 8)?;
    for (enabled, n) in [(false, 0), (true, 8)] {
        let mut update = CommandUpdate::new(handle);
        update.enabled = Some(enabled);
        again(|| buffer.update(std::slice::from_ref(&update)))?;
        run(&*buffer, n)?;
    }
    let (like, _) = record(IN_ORDER, 9)?;
    again(|| buffer.update_from(&*like))?;
    run(&*buffer, 9)?;

    // The driver compares graphs without captured parts.
    let filled = |desc: CommandBufferDesc, byte: u8| -> Result<_> {
        let mut buffer = device.create_command_buffer(&desc)?;
        again(|| {
            buffer.append(&Command::BufferFill { dst: all(x.clone()), pattern: [byte][..].into() }, &[])
        })?;
        again(|| buffer.finalize())?;
        Ok(buffer)
    };
    let (mut ones, twos) = (filled(updatable, 1)?, filled(IN_ORDER, 2)?);
    again(|| ones.update_from(&*twos))?;
    // SAFETY: nothing else uses the memory.
    run_to_end(&done, || unsafe { ones.enqueue(&*queue, WaitList::NONE, Signal::new(&done)) })?;
    let mut bytes = [0; 64];
    // SAFETY: everything that was enqueued is over.
    again(|| unsafe { x.read(0, &mut bytes) })?;
    if bytes != [2; 64] {
        return Err(wrong(bytes));
    }

    // Events of another library: the second one finds the stream of the first.
    for _ in 0..2 {
        let raw = raw_event();
        // SAFETY: the event is live.
        let imported = again(|| unsafe { device.import_event(raw) })?;
        assert!(matches!(imported.wait(None), EventStatus::Complete));
    }

    // A closure that is called for each enqueue, and a command outside command-buffers.
    let to = address;
    // SAFETY: the closure sets the first number of `x`, which the command keeps.
    let task = unsafe { NativeCommand::new("task", vec![all(x.clone())], move |stream| set(stream, to)) };
    let task = Arc::new(Command::StreamTask(task));
    // SAFETY: nothing else uses the memory.
    run_to_end(&done, || unsafe { queue.enqueue(&task, WaitList::NONE, Signal::new(&done)) })?;
    // The first answer may be no.
    again(|| Ok(device.can_access(&*far)))?;
    assert!(device.can_access(&*far), "the GPUs are peers");
    let copy = Arc::new(Command::BufferCopy { src: all(x.clone()), dst: all(far.clone()) });
    // SAFETY: as above.
    run_to_end(&done, || unsafe { queue.enqueue(&copy, WaitList::NONE, Signal::new(&done)) })?;
    let mut bytes = [0; 64];
    // SAFETY: everything that was enqueued is over.
    again(|| unsafe { far.read(0, &mut bytes) })?;
    if words(&bytes)[..2] != [0, 0x0202_0202] {
        return Err(wrong(words(&bytes)));
    }
    again(|| device.trim())
}

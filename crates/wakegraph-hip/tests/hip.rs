//! What the HIP backend refuses, with the remedy, and how a process ends in which a kernel faults: on
//! AMD's own libraries over the HSA runtime of `tests/hsa_runtime`. `scripts/hip.sh` fetches them;
//! where they are absent, each test is ignored by name.
//!
//! Each test runs in a process of its own, which is a copy of this program.
#![expect(unsafe_code, reason = "calls the run-time compiler")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/support/hip_stack.rs"]
mod hip_stack;

use std::ffi::{CString, c_char, c_int, c_void};
use std::process::{Command as Process, ExitCode};
use std::sync::Arc;

use common::IN_ORDER;
use hip_stack::{HipStack, InFront, VERSIONS};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::hal::{
    AccessMode, Body, Command, Device, EventDesc, Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources,
    MemoryDesc, MemoryKind, MemoryView, NativeCommand, Param, ParamKind, QueueDesc, QueueOrder,
};
use wakegraph::kernel::RawKernel;
use wakegraph::{
    Buffer, Error, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, NodeId, Queue, Range,
    Result, backend,
};

/// Names the test that a process is to run.
const CHILD: &str = "WAKEGRAPH_HIP_TEST";

/// What the parent process asks of the child's.
#[derive(Clone, Copy)]
enum End {
    Well,
    /// By a signal, after the runtime has printed this.
    Aborts(&'static str),
    /// Well, and none of the calls that may wait for the device was made on a worker of tokio's.
    WithoutWaitsOnWorkers,
    /// Well, after fewer calls of this function.
    WithFewer(&'static str, usize),
}

type Test = (&'static str, InFront, &'static [(&'static str, &'static str)], End, fn());

const LITTLE_MEMORY: (&str, &str) = ("WAKEGRAPH_HSA_MEMORY", "67108864");
const TWO_DEVICES: &[(&str, &str)] = &[("WAKEGRAPH_HSA_GPUS", "2"), ("WAKEGRAPH_HSA_DELAY_US", "300")];
const OLD_VERSION: (&str, &str) = ("WAKEGRAPH_HSA_HIP_VERSION", "50221153");
const NO_COMPILER: &str = "without_hiprtc_only_code_objects_are_taken";

const ALL: &[Test] = &[
    (
        "without_a_device_the_backend_is_unavailable",
        InFront::Kernels,
        &[("WAKEGRAPH_HSA_GPUS", "0")],
        End::Well,
        no_device,
    ),
    ("amds_own_runtime_finds_no_device", InFront::Nothing, &[], End::Well, no_device),
    ("old_versions_are_unavailable", InFront::Calls, &[OLD_VERSION], End::Well, old_version),
    (NO_COMPILER, InFront::NoCompiler, &[], End::Well, no_compiler),
    (
        "no_worker_waits_for_the_device",
        InFront::Calls,
        &[("WAKEGRAPH_HSA_TRACE", "1")],
        End::WithoutWaitsOnWorkers,
        work_on_workers,
    ),
    (
        "streams_are_used_again",
        InFront::Calls,
        &[("WAKEGRAPH_HSA_TRACE", "1")],
        End::WithFewer("hipStreamCreateWithFlags", QUEUES / 2),
        queues_one_after_the_other,
    ),
    ("refusals_have_a_remedy", InFront::Kernels, &[], End::Well, || {
        REFUSALS.iter().for_each(|refusal| refusal());
    }),
    (
        "frees_of_host_memory_spare_what_others_allocate",
        InFront::Kernels,
        TWO_DEVICES,
        End::Well,
        frees_beside_allocations,
    ),
    ("memory_is_refused_and_there_again", InFront::Kernels, &[LITTLE_MEMORY], End::Well, little_memory),
    (
        "faulting_kernels_end_the_process",
        InFront::Kernels,
        &[("WAKEGRAPH_HSA_FAULT", "1")],
        End::Aborts("aborting with error"),
        faulting_kernel,
    ),
];

/// In one process, as each start of the runtime takes long.
const REFUSALS: &[fn()] = &[
    no_such_index,
    build_error,
    other_architecture,
    no_code,
    no_such_kernel,
    large_group,
    much_local_memory,
    large_range,
    control_flow,
    captured_allocation,
];

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CHILD) {
        match ALL.iter().find(|(test, ..)| *test == name) {
            Some((.., test)) => test(),
            None => no_library(),
        }
        return ExitCode::SUCCESS;
    }
    let mut trials =
        vec![Trial::ignorable_test(
            "without_the_library_the_backend_is_unavailable",
            || match backend::open("hip:0") {
                Ok(_) => Ok(Completion::ignored_with("there is a device")),
                Err(_) => ended(Process::new(std::env::current_exe()?).env(CHILD, "no_library"), End::Well),
            },
        )];
    for version in VERSIONS {
        let kinds = [InFront::Kernels, InFront::Calls, InFront::NoCompiler, InFront::Nothing];
        let stacks = kinds.map(|kind| (kind, HipStack::prepare_with(version, kind).map(Arc::new)));
        for &(name, in_front, environment, end, _) in ALL {
            let stack = stacks.iter().find(|(kind, _)| *kind == in_front).unwrap().1.clone();
            let has_compiler = name == NO_COMPILER && version.starts_with("5.");
            let stack = match has_compiler {
                true => Err("up to version 5, the compiler is a part of HIP's library".to_owned()),
                false => stack,
            };
            trials.push(Trial::ignorable_test(format!("{version}/{name}"), move || match &stack {
                Ok(stack) => ended(stack.command().env(CHILD, name).envs(environment.iter().copied()), end),
                Err(reason) => Ok(Completion::ignored_with(reason.clone())),
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn ended(process: &mut Process, end: End) -> std::result::Result<Completion, Failed> {
    let output = process.output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let as_expected = match end {
        End::Well => output.status.success(),
        End::WithoutWaitsOnWorkers => {
            let is_made = |call: &str, on: &str| printed.lines().any(|line| line == format!("[{on}] {call}"));
            let waits: Vec<_> = WAITS.iter().filter(|call| is_made(call, WORKER)).collect();
            if !waits.is_empty() {
                return Err(format!("made on a worker: {waits:?}").into());
            }
            output.status.success() && is_made("hipGraphLaunch", WORKER) && is_made("hipHostFree", FREES)
        }
        End::WithFewer(call, limit) => {
            let calls = printed.lines().filter(|line| line.ends_with(&format!("] {call}"))).count();
            output.status.success() && (1..limit).contains(&calls)
        }
        End::Aborts(text) => output.status.code().is_none() && printed.contains(text),
    };
    match as_expected {
        true => Ok(Completion::Completed),
        false => {
            let end = printed.len().saturating_sub(4000);
            let end = printed.get(end..).unwrap_or(&printed);
            Err(format!("{}\n{end}", output.status).into())
        }
    }
}

/// Calls that wait until the device is done with something.
const WAITS: [&str; 4] = ["hipFree", "hipHostFree", "hipStreamSynchronize", "hipModuleUnload"];
/// Names of threads: tokio's workers here, and the thread of the device that frees what is dropped.
const WORKER: &str = "tokio-worker";
const FREES: &str = "hip:0 frees";

/// Allocates, submits, updates, reads, writes and drops on workers, some of it with work in flight. Graphs
/// are finalized elsewhere: that tries how updates behave.
fn work_on_workers() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).thread_name(WORKER).enable_all().build().unwrap();
    let device = wakegraph::Device::open("hip:0").unwrap();
    for round in 0..4 {
        let kernel = RawKernel::new("add").value::<u32>("n").writes::<u32>("x");
        let source = format!("KERNEL(add, (u32 n, SLICE(u32, x))) {{ x[GLOBAL_ID(0)] += n; }} // {round}");
        // SAFETY: a work-item changes the element with its index, and ranges are as long as the slice.
        let kernel = unsafe { kernel.with_sources(KernelSources::new().c(source)) }.build();
        let (x, host) = (device.buffer::<u32>(4096).unwrap(), device.host_buffer::<u32>(4096).unwrap());
        let mut graph = Graph::new(&device);
        let node = graph.launch(kernel.call().value(1_u32).memory(&x), Range::linear(4096)).id();
        graph.copy(&x, &host);
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let queue = device.queue().unwrap();
        let uses = Uses { exec, node, queue, kernel, x, host };
        let all_done = runtime.spawn(use_and_drop(uses, round % 2 == 0));
        runtime.block_on(all_done).unwrap();
    }
    drop((device, runtime));
    // The thread ends once everything is freed.
    while has_thread(FREES) {
        std::thread::yield_now();
    }
}

fn has_thread(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|comm| comm.trim_end() == name)
}

struct Uses {
    exec: ExecutableGraph,
    node: NodeId,
    queue: Queue,
    kernel: Arc<RawKernel>,
    x: Buffer<u32>,
    host: HostBuffer<u32>,
}

async fn use_and_drop(Uses { exec, node, queue, kernel, x, host }: Uses, waits: bool) {
    x.write(&[0; 4096]).await.unwrap();
    for _ in 0..20 {
        exec.submit().await.unwrap();
    }
    exec.update().launch(node, kernel.call().value(2_u32).memory(&x)).apply().await.unwrap();
    exec.submit().await.unwrap();
    assert_eq!(x.to_vec().await.unwrap(), [22; 4096]);
    assert_eq!(host.read().await[0], 22);
    queue.fill(&x, 1).await.unwrap();
    let y = x.device().buffer::<u32>(4096).unwrap();
    queue.copy(&x, &y);
    drop(x.device().buffer::<u32>(1 << 20).unwrap());
    assert_eq!(y.to_vec().await.unwrap(), [1; 4096]);
    // What is dropped with a run in flight goes when that is over.
    let runs: Vec<_> = (0..4).map(|_| exec.submit()).collect();
    drop((exec, x, y, host, kernel, queue));
    if waits {
        for run in runs {
            run.await.unwrap();
        }
    }
}

const QUEUES: usize = 30;

fn queues_one_after_the_other() {
    let device = device();
    (0..QUEUES).for_each(|_| drop(device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap()));
}

/// Checks an error's kind and its words.
fn check(error: &Error, kind: ErrorKind, words: &[&str]) {
    let said = error.to_string();
    assert_eq!(error.kind(), kind, "{said}");
    for word in words {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
}

fn device() -> Arc<dyn Device> {
    backend::open("hip:0").unwrap()
}

fn no_library() {
    let error = backend::open("hip:0").map(|_| ()).unwrap_err();
    check(&error, ErrorKind::Unavailable, &["libamdhip64"]);
}

fn no_device() {
    let error = backend::open("hip:0").map(|_| ()).unwrap_err();
    check(&error, ErrorKind::Unavailable, &["there is no device", "rocminfo", "render"]);
}

fn old_version() {
    let error = backend::open("hip:0").map(|_| ()).unwrap_err();
    check(&error, ErrorKind::Unavailable, &["too old", "version 5.2", "ROCm 5.5 or newer"]);
}

fn no_compiler() {
    let device = device();
    let error = kernel(&*device, &KernelSources::new().hip_c(EMPTY)).map(|_| ()).unwrap_err();
    check(
        &error,
        ErrorKind::Unavailable,
        &["kernel 'k'", "hipRTC cannot be loaded", "code object for gfx1030", "libhiprtc.so"],
    );
    // A pattern that no memset takes is repeated by copies.
    let memory = device.allocate(&MemoryDesc::new(60, MemoryKind::Device)).unwrap();
    let dst = MemoryView::whole(memory.clone());
    let fill = Command::BufferFill { dst, pattern: [1, 2, 3][..].into() };
    let queue = common::queue(&*device, QueueOrder::InOrder);
    common::run_command(&*device, &*queue, &fill);
    assert_eq!(common::read(&*memory), [1, 2, 3].repeat(20));
}

fn no_such_index() {
    let error = backend::open("hip:7").map(|_| ()).unwrap_err();
    check(&error, ErrorKind::Unavailable, &["no HIP device 7", "there are 1", "HIP_VISIBLE_DEVICES"]);
}

/// The kernel `k` of these sources, which takes one slice of numbers and local memory.
fn kernel(device: &dyn Device, sources: &KernelSources) -> Result<Arc<dyn Kernel>> {
    let param = |name: &'static str, kind| Param { name: name.into(), kind };
    let params = [
        param("x", ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 }),
        param("tile", ParamKind::Local { element_size: 4 }),
    ];
    device.create_kernel(&KernelDesc::new("k", &params, sources))
}

fn refused(sources: KernelSources) -> Error {
    kernel(&*device(), &sources).map(|_| ()).unwrap_err()
}

fn build_error() {
    let error = refused(KernelSources::new().hip_c("extern \"C\" __global__ void k() { undeclared(); }"));
    check(
        &error,
        ErrorKind::Driver,
        &["kernel 'k' does not compile", "gfx1030", "k.hip:1", "undeclared", "hip:0"],
    );
}

const EMPTY: &str = "extern \"C\" __global__ void k(unsigned *x, unsigned tile) {}";

fn other_architecture() {
    let error = refused(KernelSources::new().code_object(compile(EMPTY, "gfx90a")));
    check(
        &error,
        ErrorKind::Driver,
        &["kernel 'k' cannot be loaded", "give a code object for gfx1030", "hip_c:"],
    );
    let code = compile(EMPTY, "gfx1030");
    assert_eq!(kernel(&*device(), &KernelSources::new().code_object(code)).unwrap().name(), "k");
}

fn no_code() {
    let error = refused(KernelSources::new().code_object(&b"this is text, and no code object at all"[..]));
    check(&error, ErrorKind::Driver, &["kernel 'k' cannot be loaded", "give a code object for gfx1030"]);
}

fn no_such_kernel() {
    let error = refused(KernelSources::new().hip_c("extern \"C\" __global__ void other() {}"));
    check(&error, ErrorKind::Driver, &["the code has no kernel 'k'", "extern \"C\""]);
}

/// Appends a launch of a kernel with so much local memory.
fn append(device: &dyn Device, source: &'static str, range: Range, local: usize) -> Result<()> {
    let kernel = kernel(device, &KernelSources::new().hip_c(source))?;
    let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device))?;
    let args = vec![KernelArg::Memory(MemoryView::whole(memory)), KernelArg::Local(local)];
    let launch = Command::Kernel(Arc::new(KernelLaunch::new(kernel, args, range)));
    device.create_command_buffer(&IN_ORDER)?.append(&launch, &[]).map(drop)
}

fn large_group() {
    let source =
        "extern \"C\" __global__ __launch_bounds__(64) void k(unsigned *x, unsigned tile) { *x = tile; }";
    let device = device();
    let loaded = kernel(&*device, &KernelSources::new().hip_c(source)).unwrap();
    assert_eq!(loaded.max_work_group_size(), 64);
    append(&*device, source, Range::linear(128).local([64]), 4).unwrap();
    // The size that the device chooses is within the limit, too.
    append(&*device, source, Range::linear(1000), 4).unwrap();
    let error = append(&*device, source, Range::linear(128).local([128]), 4).unwrap_err();
    // The contract's validation says so before; the driver refuses it, too, and loses nothing.
    check(&error, ErrorKind::Driver, &["hipGraphAddKernelNode", "hip:0"]);
    append(&*device, source, Range::linear(64), 4).unwrap();
}

fn much_local_memory() {
    let source = "extern \"C\" __global__ void k(unsigned *x, unsigned tile) {
        __shared__ unsigned own[8192];
        own[threadIdx.x] = *x;
        __syncthreads();
        *x = own[tile];
    }";
    let device = device();
    append(&*device, source, Range::linear(64), 16 << 10).unwrap();
    let error = append(&*device, source, Range::linear(64), 40 << 10).unwrap_err();
    check(&error, ErrorKind::InvalidSize, &["kernel 'k' needs 73728 bytes of local memory", "65536"]);
}

fn large_range() {
    let device = device();
    let error = append(&*device, EMPTY, Range::linear(1 << 32), 4).unwrap_err();
    check(&error, ErrorKind::InvalidSize, &["work-groups in dimension 0", "launch the kernel over parts"]);
    append(&*device, EMPTY, Range::linear(1 << 31), 4).unwrap();
}

fn control_flow() {
    let device = device();
    let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
    let condition = || MemoryView::whole(memory.clone());
    let branch = Command::If { condition: condition(), then: Arc::new(Body::new()), otherwise: None };
    let repeat = Command::While { condition: condition(), body: Arc::new(Body::new()) };
    for (command, name) in [(branch, "conditional"), (repeat, "loop")] {
        let mut buffer = device.create_command_buffer(&IN_ORDER).unwrap();
        let error = buffer.append(&command, &[]).map(drop).unwrap_err();
        check(&error, ErrorKind::FeatureNotSupported, &[name, "no conditional nodes"]);
    }
}

/// Work that a native command captures, and that allocates.
fn captured_allocation() {
    type Stream = *mut c_void;
    let names = ["libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.5"];
    // SAFETY: AMD's library, which is loaded already.
    let library = names.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok()).unwrap();
    let library: &libloading::Library = Box::leak(Box::new(library));
    type Allocate = extern "C" fn(*mut *mut c_void, usize, Stream) -> c_int;
    // SAFETY: this is how the vendor's headers declare the function.
    let allocate = *unsafe { library.get::<Allocate>("hipMallocAsync") }.unwrap();
    // SAFETY: as above.
    let free = *unsafe { library.get::<extern "C" fn(Stream, Stream) -> c_int>("hipFreeAsync") }.unwrap();
    // SAFETY: it uses no memory but its own.
    let native = unsafe {
        NativeCommand::new("mine", Vec::new(), move |stream| {
            let mut memory = std::ptr::null_mut();
            let codes = [allocate(&mut memory, 64, stream.stream()), free(memory, stream.stream())];
            assert_eq!(codes, [0; 2]);
            Ok(())
        })
    };
    let mut buffer = device().create_command_buffer(&IN_ORDER).unwrap();
    let error = buffer.append(&Command::Native(native), &[]).map(drop).unwrap_err();
    check(&error, ErrorKind::FeatureNotSupported, &["'mine' allocates memory", "stream_task"]);
    // SAFETY: it does nothing.
    let native = unsafe { NativeCommand::new("other", Vec::new(), |_| Ok(())) };
    buffer.append(&Command::Native(native), &[]).unwrap();
    buffer.finalize().unwrap();
}

fn little_memory() {
    let device = device();
    let allocate = |len| device.allocate(&MemoryDesc::new(len, MemoryKind::Device)).map(drop);
    let error = allocate(128 << 20).unwrap_err();
    check(&error, ErrorKind::OutOfMemory, &["hip:0"]);
    // What is dropped is freed on another thread, and yet there for the next allocation.
    (0..3).for_each(|_| allocate(40 << 20).unwrap());
}

/// The system gives addresses that one thread frees to others at once. With two devices, the driver frees
/// host memory once for each.
fn frees_beside_allocations() {
    let device = device();
    let work = |kind: MemoryKind, number: u8| {
        for round in 0..400_usize {
            // Sizes of all kinds, so that pools need other memory, too.
            let bytes = vec![number ^ round as u8; 1 + round * 7 % 150];
            let memory = device.allocate(&MemoryDesc::new(bytes.len(), kind)).unwrap();
            let mut read = vec![0; bytes.len()];
            // SAFETY: nothing else knows the memory.
            unsafe { memory.write(0, &bytes) }.unwrap();
            // SAFETY: as above.
            unsafe { memory.read(0, &mut read) }.unwrap();
            assert_eq!(read, bytes, "round {round}");
        }
    };
    std::thread::scope(|scope| {
        for number in 1..4 {
            scope.spawn(move || work(MemoryKind::Device, number));
            scope.spawn(move || work(MemoryKind::Host, number));
        }
    });
}

fn faulting_kernel() {
    let device = device();
    let kernel = kernel(&*device, &KernelSources::new().hip_c(EMPTY)).unwrap();
    let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
    let args = vec![KernelArg::Memory(MemoryView::whole(memory)), KernelArg::Local(4)];
    let launch = KernelLaunch::new(kernel, args, Range::linear(1));
    let mut buffer = device.create_command_buffer(&IN_ORDER).unwrap();
    buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap();
    buffer.finalize().unwrap();
    let queue = device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap();
    let done = device.create_event(&EventDesc::new()).unwrap();
    common::enqueue(&*buffer, &*queue, &[], &done, None).unwrap();
    let status = done.wait(None);
    panic!("the process goes on: {status:?}");
}

/// A code object for an architecture, by hipRTC itself.
fn compile(source: &str, architecture: &str) -> Vec<u8> {
    type Create = extern "C" fn(
        *mut usize,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int;
    type Compile = extern "C" fn(usize, c_int, *const *const c_char) -> c_int;
    type CodeSize = extern "C" fn(usize, *mut usize) -> c_int;
    type Code = extern "C" fn(usize, *mut u8) -> c_int;
    // SAFETY: AMD's library, or the one in front of it.
    let library = unsafe { libloading::Library::new("libhiprtc.so") }.unwrap();
    let library = Box::leak(Box::new(library));
    // SAFETY: this is how the vendor's headers declare the function.
    let create = unsafe { library.get::<Create>("hiprtcCreateProgram") }.unwrap();
    // SAFETY: as above.
    let compile = unsafe { library.get::<Compile>("hiprtcCompileProgram") }.unwrap();
    // SAFETY: as above.
    let code_size = unsafe { library.get::<CodeSize>("hiprtcGetCodeSize") }.unwrap();
    // SAFETY: as above.
    let code_of = unsafe { library.get::<Code>("hiprtcGetCode") }.unwrap();
    let (source, option) = (CString::new(source).unwrap(), format!("--offload-arch={architecture}"));
    let (none, option) = (std::ptr::null(), CString::new(option).unwrap());
    let (mut program, mut len) = (0, 0);
    assert_eq!(create(&mut program, source.as_ptr(), c"k.hip".as_ptr(), 0, none, none), 0);
    assert_eq!(compile(program, 1, &option.as_ptr()), 0);
    assert_eq!(code_size(program, &mut len), 0);
    let mut code = vec![0; len];
    assert_eq!(code_of(program, code.as_mut_ptr()), 0);
    code
}

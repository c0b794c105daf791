//! What the HIP backend refuses, with the remedy, and how a process ends in which a kernel faults: on
//! AMD's own libraries over the HSA runtime of `tests/hsa_runtime`. `scripts/hip.sh` fetches them;
//! where they are absent, each test is ignored by name.
//!
//! Each test runs in a process of its own, which is a copy of this program.
#![expect(unsafe_code, reason = "calls the run-time compiler")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "support/hip_stack.rs"]
mod hip_stack;

use std::ffi::{CString, c_char, c_int};
use std::process::{Command as Process, ExitCode};
use std::sync::Arc;

use common::IN_ORDER;
use hip_stack::{HipStack, VERSIONS};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::hal::{
    Command, Device, EventDesc, Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc,
    MemoryKind, MemoryView, Param, ParamKind, QueueDesc, QueueOrder,
};
use wakegraph::{AccessMode, Error, ErrorKind, Range, Result, backend};

/// Names the test that a process is to run.
const CHILD: &str = "WAKEGRAPH_HIP_TEST";

/// What the parent process asks of the child's.
#[derive(Clone, Copy)]
enum End {
    Well,
    /// By a signal, after the runtime has printed this.
    Aborts(&'static str),
}

type Test = (&'static str, &'static [(&'static str, &'static str)], End, fn());

const LITTLE_MEMORY: (&str, &str) = ("WAKEGRAPH_HSA_MEMORY", "67108864");

const ALL: &[Test] = &[
    ("without_a_device_the_backend_is_unavailable", &[("WAKEGRAPH_HSA_GPUS", "0")], End::Well, no_device),
    ("refusals_have_a_remedy", &[], End::Well, || REFUSALS.iter().for_each(|refusal| refusal())),
    ("memory_is_refused_and_there_again", &[LITTLE_MEMORY], End::Well, little_memory),
    (
        "faulting_kernels_end_the_process",
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
        let stack = HipStack::prepare(version).map(Arc::new);
        for &(name, environment, end, _) in ALL {
            let stack = stack.clone();
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
        End::Aborts(text) => output.status.code().is_none() && printed.contains(text),
    };
    match as_expected {
        true => Ok(Completion::Completed),
        false => Err(format!("{}\n{printed}", output.status).into()),
    }
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
    let launch = Command::Kernel(Box::new(KernelLaunch::new(kernel, args, range)));
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

fn little_memory() {
    let device = device();
    let allocate = |len| device.allocate(&MemoryDesc::new(len, MemoryKind::Device)).map(drop);
    let error = allocate(128 << 20).unwrap_err();
    check(&error, ErrorKind::OutOfMemory, &["hip:0"]);
    // What is dropped is freed on another thread, and yet there for the next allocation.
    (0..3).for_each(|_| allocate(40 << 20).unwrap());
}

fn faulting_kernel() {
    let device = device();
    let kernel = kernel(&*device, &KernelSources::new().hip_c(EMPTY)).unwrap();
    let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
    let args = vec![KernelArg::Memory(MemoryView::whole(memory)), KernelArg::Local(4)];
    let launch = KernelLaunch::new(kernel, args, Range::linear(1));
    let mut buffer = device.create_command_buffer(&IN_ORDER).unwrap();
    buffer.append(&Command::Kernel(Box::new(launch)), &[]).unwrap();
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

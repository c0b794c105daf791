//! On CUDA, what no capture takes: allocations, modules, waits.
#![expect(unsafe_code, reason = "calls the driver, and vouches for stream tasks")]

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{self, CUresult};
use wakegraph::interop::{NativeMemory, NativeStream};
use wakegraph::{Error, ErrorKind, Graph, Range, Result};

use super::super::native::raw::{self, Branch};
use super::calls::{pointer, set};
use super::{buffer, task};
use crate::kernels::add;
use crate::suite::{Need, Setup, tests};

tests!("graph/stream_tasks/cuda": &[Need::Cuda] => [may_allocate, may_load_modules, may_synchronise, streams_may_branch,
    the_context_is_current, a_capture_that_is_left_open, a_capture_of_its_own]);

fn check(call: &str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Error::new(ErrorKind::Driver, format!("{call} failed with {code:?}"))),
    }
}

/// A graph that adds 1 to the words of a buffer, calls a closure that is to set them to 5, and adds 10.
#[track_caller]
fn sets_five(
    setup: &Setup,
    closure: impl Fn(&NativeStream<'_>, NativeMemory<'_>) -> Result<()> + Send + Sync + 'static,
) {
    let device = setup.device();
    let x = buffer(device, [0; 1000]);
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(1000));
    task(&mut graph, &x, closure);
    graph.launch(add(10, &x), Range::linear(1000));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let submissions = [(); 20].map(|()| exec.submit());
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [15; 1000]);
    });
}

fn address(memory: NativeMemory<'_>) -> u64 {
    memory.address().unwrap() as u64
}

// A workspace of its own in each run, as libraries allocate it.
fn may_allocate(setup: &Setup) {
    sets_five(setup, |stream, x| {
        let workspace = raw::allocate(stream.stream(), x.len())?;
        raw::set(stream.stream(), workspace, 5)?;
        raw::copy(stream.stream(), workspace, pointer(x))?;
        raw::free(stream.stream(), workspace)
    });
}

const PTX: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry five(.param .u64 x)
{
    .reg .u32 %r<5>;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r2, 5;
    st.global.u32 [%rd3], %r2;
    ret;
}
\0";

fn may_load_modules(setup: &Setup) {
    sets_five(setup, |stream, x| {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the source ends in NUL; the place is a pointer's.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, PTX.as_ptr().cast()) })?;
        let name = c"five".as_ptr();
        // SAFETY: the module has been loaded; the place is a pointer's.
        let found = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name) };
        check("cuModuleGetFunction", found)?;
        let (mut x, words) = (address(x), x.len() as u32 / 4);
        let mut params = [(&raw mut x).cast::<c_void>()];
        let (queue, params, none) = (stream.stream().cast(), params.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the function has one parameter, which is an address with a word for each block.
        let launched = unsafe { sys::cuLaunchKernel(function, words, 1, 1, 1, 1, 1, 0, queue, params, none) };
        check("cuLaunchKernel", launched)?;
        // The module is unloaded behind the kernel.
        raw::synchronize(stream.stream())?;
        // SAFETY: nothing runs its code any more.
        check("cuModuleUnload", unsafe { sys::cuModuleUnload(module) })
    });
}

// It should not, but no capture breaks.
fn may_synchronise(setup: &Setup) {
    sets_five(setup, |stream, x| {
        set(stream, x, 5)?;
        raw::synchronize(stream.stream())
    });
}

fn streams_may_branch(setup: &Setup) {
    let branch = Branch::new();
    sets_five(setup, move |stream, x| {
        branch.branch_off(stream)?;
        // SAFETY: so many words are there, and both streams are ordered around this.
        let set = unsafe { sys::cuMemsetD32Async(address(x), 5, x.len() / 4, branch.stream().cast()) };
        check("cuMemsetD32Async", set)?;
        branch.join(stream)
    });
}

fn the_context_is_current(setup: &Setup) {
    sets_five(setup, |stream, x| {
        assert_eq!(raw::current(), stream.context());
        set(stream, x, 5)?;
        raw::forget_current();
        Ok(())
    });
}

// An event that is recorded in a capture never completes.
fn a_capture_that_is_left_open(setup: &Setup) {
    let device = setup.device();
    let x = buffer(device, [0; 10]);
    let mut graph = Graph::new(device);
    task(&mut graph, &x, |stream, x| {
        begin(stream)?;
        set(stream, x, 1)
    });
    graph.launch(add(1, &x), Range::linear(10));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            let error = exec.submit().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOperation, "{error}");
            assert!(error.message().contains("'mine'") && error.message().contains("capture"), "{error}");
        }
        assert_eq!(x.to_vec().await.unwrap(), [0; 10]);
    });
}

fn begin(stream: &NativeStream<'_>) -> Result<()> {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.stream().cast(), mode) })
}

// It captures work of its own, and launches that.
fn a_capture_of_its_own(setup: &Setup) {
    sets_five(setup, |stream, x| {
        let (queue, mut graph, mut exec) = (stream.stream().cast(), ptr::null_mut(), ptr::null_mut());
        begin(stream)?;
        set(stream, x, 5)?;
        // SAFETY: the stream captures; the place is a pointer's.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(queue, &raw mut graph) })?;
        // SAFETY: the graph is that of the capture; the place is a pointer's.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) };
        check("cuGraphInstantiateWithFlags", made)?;
        // SAFETY: the graph has just been made.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(exec, queue) })?;
        // SAFETY: destroyed once; what has been launched runs to its end.
        check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(exec) })?;
        // SAFETY: destroyed once.
        check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })
    });
}

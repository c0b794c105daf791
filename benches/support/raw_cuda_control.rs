//! A loop and a switch of CUDA's own: conditional nodes by hand. The loop's kernel decides by the flag alone,
//! so nothing can stop it.
#![expect(unsafe_code, reason = "calls the driver")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the base is a C program"
)]

use std::ffi::{CStr, c_void};
use std::{mem, ptr};

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUcontext, CUfunction, CUgraph, CUgraphConditionalNodeType, CUgraphExec,
    CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUresult, CUstream,
};

/// `decide` sets a handle to whether a word is not 0, `choose` to the word. `count_down` takes 1 from a word,
/// `turn` adds 1 modulo a number.
const KERNELS: &CStr = c"
.version 7.0
.target sm_52
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry decide(.param .u64 handle, .param .u64 word)
{
    .reg .pred %holds;
    .reg .b32 %word, %value;
    .reg .b64 %handle, %at;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %at, [word];
    cvta.to.global.u64 %at, %at;
    ld.volatile.global.u32 %word, [%at];
    setp.ne.u32 %holds, %word, 0;
    selp.u32 %value, 1, 0, %holds;
    {
        .param .b64 to;
        .param .b32 as;
        st.param.b64 [to], %handle;
        st.param.b32 [as], %value;
        call.uni cudaGraphSetConditional, (to, as);
    }
    ret;
}
.visible .entry choose(.param .u64 handle, .param .u64 word)
{
    .reg .b32 %word;
    .reg .b64 %handle, %at;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %at, [word];
    cvta.to.global.u64 %at, %at;
    ld.volatile.global.u32 %word, [%at];
    {
        .param .b64 to;
        .param .b32 as;
        st.param.b64 [to], %handle;
        st.param.b32 [as], %word;
        call.uni cudaGraphSetConditional, (to, as);
    }
    ret;
}
.visible .entry turn(.param .u64 word, .param .u64 numbers)
{
    .reg .pred %last;
    .reg .b32 %word, %count;
    .reg .b64 %at, %numbers;
    ld.param.u64 %at, [word];
    ld.param.u64 %numbers, [numbers];
    cvt.u32.u64 %count, %numbers;
    cvta.to.global.u64 %at, %at;
    ld.global.u32 %word, [%at];
    add.u32 %word, %word, 1;
    setp.ge.u32 %last, %word, %count;
    selp.u32 %word, 0, %word, %last;
    st.global.u32 [%at], %word;
    ret;
}
.visible .entry count_down(.param .u64 word)
{
    .reg .b32 %word;
    .reg .b64 %at;
    ld.param.u64 %at, [word];
    cvta.to.global.u64 %at, %at;
    ld.global.u32 %word, [%at];
    sub.u32 %word, %word, 1;
    st.global.u32 [%at], %word;
    ret;
}
";

fn check(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS, "a raw driver call failed");
}

/// A graph with a conditional node that decides by a word in memory of the first device.
pub(crate) struct RawControl {
    context: CUcontext,
    exec: CUgraphExec,
    stream: CUstream,
    word: u64,
}

unsafe impl Send for RawControl {}

impl RawControl {
    /// A loop that takes 1 from the word, of the primary context's memory, until that is 0.
    pub(crate) fn counting(word: u64) -> Self {
        Self::build(word, CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE, 1)
    }

    /// A switch by the word, whose bodies each make the word the number of the next one.
    pub(crate) fn turning(word: u64, bodies: u32) -> Self {
        Self::build(word, CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH, bodies)
    }

    fn build(word: u64, kind: CUgraphConditionalNodeType, bodies: u32) -> Self {
        unsafe {
            let (mut context, mut module) = (ptr::null_mut(), ptr::null_mut());
            check(sys::cuDevicePrimaryCtxRetain(&mut context, 0));
            check(sys::cuCtxSetCurrent(context));
            check(sys::cuModuleLoadData(&mut module, KERNELS.as_ptr().cast()));
            let [decide, choose, count_down, turn] =
                [c"decide", c"choose", c"count_down", c"turn"].map(|name| {
                    let mut function = ptr::null_mut();
                    check(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()));
                    function
                });
            let is_loop = kind == CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
            let (mut graph, mut handle, mut node) = (ptr::null_mut(), 0, ptr::null_mut());
            check(sys::cuGraphCreate(&mut graph, 0));
            check(sys::cuGraphConditionalHandleCreate(&mut handle, graph, context, 0, 0));
            let first = add(graph, if is_loop { decide } else { choose }, &mut [handle, word], &[]);
            let mut params: CUgraphNodeParams = mem::zeroed();
            params.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
            let conditional = &mut params.__bindgen_anon_1.conditional;
            conditional.handle = handle;
            conditional.type_ = kind;
            conditional.size = bodies;
            conditional.ctx = context;
            check(sys::cuGraphAddNode_v2(&mut node, graph, &first, ptr::null(), 1, &mut params));
            let places = params.__bindgen_anon_1.conditional.phGraph_out;
            for number in 0..bodies as usize {
                let body = places.add(number).read();
                if is_loop {
                    let counted = add(body, count_down, &mut [word], &[]);
                    add(body, decide, &mut [handle, word], &[counted]);
                } else {
                    add(body, turn, &mut [word, bodies.into()], &[]);
                }
            }
            let (mut exec, mut stream) = (ptr::null_mut(), ptr::null_mut());
            check(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            check(sys::cuStreamCreate(&mut stream, 1));
            Self { context, exec, stream, word }
        }
    }

    /// Sets the word, runs the graph, and waits for its end.
    pub(crate) fn run_from(&self, word: u32) {
        unsafe {
            // Any worker may be the first to call.
            check(sys::cuCtxSetCurrent(self.context));
            check(sys::cuMemsetD32Async(self.word, word, 1, self.stream));
        }
        self.run();
    }

    /// Runs the graph, and waits for its end.
    pub(crate) fn run(&self) {
        unsafe {
            check(sys::cuCtxSetCurrent(self.context));
            check(sys::cuGraphLaunch(self.exec, self.stream));
            check(sys::cuStreamSynchronize(self.stream));
        }
    }
}

/// Adds a kernel of one work-item.
unsafe fn add(graph: CUgraph, function: CUfunction, args: &mut [u64], after: &[CUgraphNode]) -> CUgraphNode {
    let mut pointers: Vec<*mut c_void> = args.iter_mut().map(|arg| ptr::from_mut(arg).cast()).collect();
    let mut node = ptr::null_mut();
    unsafe {
        let mut params: CUDA_KERNEL_NODE_PARAMS = mem::zeroed();
        params.func = function;
        (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
        (params.blockDimX, params.blockDimY, params.blockDimZ) = (1, 1, 1);
        params.kernelParams = pointers.as_mut_ptr();
        check(sys::cuGraphAddKernelNode_v2(&mut node, graph, after.as_ptr(), after.len(), &params));
    }
    node
}

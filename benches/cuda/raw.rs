//! The base: the loops of driver calls that one would write by hand, on the primary context that
//! ours uses, too.
#![expect(unsafe_code, reason = "calls the driver")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the base is a C program"
)]

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream,
};

use wakegraph::{Buffer, Device};

use crate::memory_of;

fn check(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS, "a raw driver call failed");
}

/// Bytes that a graph's kernels use.
const BYTES: usize = 64;

/// The primary context and the kernels.
#[derive(Clone)]
pub(crate) struct Raw {
    device: Device,
    context: CUcontext,
    bump: CUfunction,
    busy: CUfunction,
    scale: CUfunction,
}

/// A graph with a stream, an event, and the memory that its kernels use.
pub(crate) struct RawGraph {
    raw: Raw,
    graph: CUgraph,
    exec: CUgraphExec,
    stream: Arc<RawStream>,
    event: CUevent,
    nodes: Vec<CUgraphNode>,
    memory: u64,
    /// Of the pool that ours is of: where memory lies makes kernels differ that are the same.
    _owner: Buffer<u32>,
}

unsafe impl Send for Raw {}
unsafe impl Sync for Raw {}
unsafe impl Send for RawGraph {}
unsafe impl Sync for RawGraph {}

impl Raw {
    /// Loads the kernels into the context that `device` uses.
    pub(crate) fn open(device: &Device) -> Self {
        unsafe {
            check(sys::cuInit(0));
            let number = device.selector().rsplit(':').next().and_then(|number| number.parse().ok());
            let (mut index, mut context) = (0, ptr::null_mut());
            check(sys::cuDeviceGet(&mut index, number.expect("a selector such as cuda:0")));
            check(sys::cuDevicePrimaryCtxRetain(&mut context, index));
            check(sys::cuCtxSetCurrent(context));
            let text = CString::new(include_str!("kernels.ptx")).expect("no NUL");
            let mut module = ptr::null_mut();
            check(sys::cuModuleLoadData(&mut module, text.as_ptr().cast()));
            let function = |name: &std::ffi::CStr| {
                let mut function = ptr::null_mut();
                check(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()));
                function
            };
            let [bump, busy, scale] = [c"bump", c"busy", c"scale"].map(function);
            Self { device: device.clone(), context, bump, busy, scale }
        }
    }

    /// Makes the context current on this thread, or none.
    pub(crate) fn make_current(&self, is_current: bool) {
        unsafe { check(sys::cuCtxSetCurrent(if is_current { self.context } else { ptr::null_mut() })) }
    }

    /// Any worker may be the first to call.
    pub(crate) fn bind(&self) {
        unsafe { check(sys::cuCtxSetCurrent(self.context)) };
    }

    /// Bytes of device memory that are in use.
    pub(crate) fn memory_in_use(&self) -> f64 {
        self.bind();
        let (mut free, mut total) = (0, 0);
        unsafe { check(sys::cuMemGetInfo_v2(&mut free, &mut total)) };
        (total - free) as f64
    }

    pub(crate) fn chain(&self, len: usize) -> RawGraph {
        self.chain_on(len, &memory_of(&self.device))
    }

    /// A chain on this memory. How near its part of the cache is to the processor that runs a chain decides
    /// over a tenth of the time, so contenders share their memory.
    pub(crate) fn chain_on(&self, len: usize, memory: &Buffer<u32>) -> RawGraph {
        self.graph(len, self.bump, (1, 1), None, memory.clone())
    }

    /// A chain of kernels that each change all elements of this memory.
    pub(crate) fn scale_chain_on(&self, len: usize, memory: &Buffer<u32>) -> RawGraph {
        let items = memory.len() as u32;
        self.graph(len, self.scale, (items.into(), items), None, memory.clone())
    }

    /// As many chains of one kernel on one stream, each of which has run.
    pub(crate) fn on_one_stream(&self, count: usize) -> Vec<RawGraph> {
        let (memory, stream) = (memory_of(&self.device), RawStream::create(self));
        let graphs = (0..count).map(|_| {
            let graph = self.graph_on(stream.clone(), 1, self.bump, (1, 1), None, memory.clone());
            graph.launch();
            graph.synchronize();
            graph
        });
        graphs.collect()
    }

    /// One kernel, after a copy of this memory to its own.
    pub(crate) fn copied_from(&self, source: &RawGraph) -> RawGraph {
        self.graph(1, self.bump, (1, 1), Some(source.memory), memory_of(&self.device))
    }

    pub(crate) fn busy(&self, nanoseconds: u64) -> RawGraph {
        self.busy_on(nanoseconds, &memory_of(&self.device))
    }

    /// One kernel that takes so long, on this memory.
    pub(crate) fn busy_on(&self, nanoseconds: u64, memory: &Buffer<u32>) -> RawGraph {
        self.graph(1, self.busy, (nanoseconds, 1), None, memory.clone())
    }

    /// Has the device keep what is freed, as anybody does who allocates often.
    pub(crate) fn keep_freed_memory(&self) {
        self.bind();
        unsafe {
            let (mut index, mut pool, mut all) = (0, ptr::null_mut(), u64::MAX);
            check(sys::cuCtxGetDevice(&mut index));
            check(sys::cuDeviceGetDefaultMemPool(&mut pool, index));
            let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            check(sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast()));
        }
    }

    fn graph(
        &self,
        len: usize,
        function: CUfunction,
        (value, items): (u64, u32),
        source: Option<u64>,
        owner: Buffer<u32>,
    ) -> RawGraph {
        self.graph_on(RawStream::create(self), len, function, (value, items), source, owner)
    }

    fn graph_on(
        &self,
        stream: Arc<RawStream>,
        len: usize,
        function: CUfunction,
        (value, items): (u64, u32),
        source: Option<u64>,
        owner: Buffer<u32>,
    ) -> RawGraph {
        let memory = owner.address().expect("an address") as u64;
        self.bind();
        unsafe {
            let (mut graph, mut event) = (ptr::null_mut(), ptr::null_mut());
            check(sys::cuGraphCreate(&mut graph, 0));
            check(sys::cuEventCreate(&mut event, 2));
            let mut nodes: Vec<CUgraphNode> = Vec::new();
            let mut before = None;
            if let Some(source) = source {
                let (mut node, copy) = (ptr::null_mut(), copy_params(source, memory));
                check(sys::cuGraphAddMemcpyNode(&mut node, graph, ptr::null(), 0, &copy, self.context));
                before = Some(node);
            }
            for _ in 0..len {
                let mut node = ptr::null_mut();
                with_params(function, value, memory, items, |params| {
                    let (list, count) =
                        (before.as_ref().map_or(ptr::null(), ptr::from_ref), usize::from(before.is_some()));
                    check(sys::cuGraphAddKernelNode_v2(&mut node, graph, list, count, params));
                });
                nodes.push(node);
                before = Some(node);
            }
            let mut exec = ptr::null_mut();
            check(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            check(sys::cuGraphUpload(exec, stream.0));
            check(sys::cuStreamSynchronize(stream.0));
            RawGraph { raw: self.clone(), graph, exec, stream, event, nodes, memory, _owner: owner }
        }
    }
}

/// A stream, which its graphs may share.
struct RawStream(CUstream);

unsafe impl Send for RawStream {}
unsafe impl Sync for RawStream {}

impl RawStream {
    fn create(raw: &Raw) -> Arc<Self> {
        raw.bind();
        let mut stream = ptr::null_mut();
        unsafe { check(sys::cuStreamCreate(&mut stream, 1)) };
        Arc::new(Self(stream))
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        unsafe { check(sys::cuStreamDestroy_v2(self.0)) };
    }
}

/// Host memory that the driver has pinned.
pub(crate) struct PinnedMemory {
    raw: Raw,
    memory: *mut c_void,
}

unsafe impl Send for PinnedMemory {}
unsafe impl Sync for PinnedMemory {}

impl Raw {
    pub(crate) fn pinned(&self, bytes: usize) -> PinnedMemory {
        self.bind();
        let mut memory = ptr::null_mut();
        unsafe {
            check(sys::cuMemHostAlloc(&mut memory, bytes, 0));
            memory.write_bytes(7, bytes);
        }
        PinnedMemory { raw: self.clone(), memory }
    }

    /// A copy between any two addresses, on a stream of its own. It keeps `owner`, which has the
    /// memory.
    pub(crate) fn copy(&self, from: u64, to: u64, bytes: usize, owner: impl Send + 'static) -> RawCopy {
        self.bind();
        let mut stream = ptr::null_mut();
        unsafe { check(sys::cuStreamCreate(&mut stream, 1)) };
        RawCopy { raw: self.clone(), from, to, bytes, stream, _owner: Box::new(owner) }
    }

    /// A copy of pinned memory to `memory`, a kernel on it, and a copy back to the same pinned memory.
    pub(crate) fn round_trip(&self, memory: &Buffer<u32>) -> RawRoundTrip {
        let bytes = memory.len() * size_of::<u32>();
        let (pinned, address) = (Arc::new(self.pinned(bytes)), memory.address().expect("an address") as u64);
        let to = self.copy(pinned.address(), address, bytes, pinned.clone());
        let from = self.copy(address, pinned.address(), bytes, pinned);
        RawRoundTrip { to, from, graph: self.chain_on(1, memory) }
    }
}

/// A copy to the device, a kernel, and a copy back, by three calls on a stream.
pub(crate) struct RawRoundTrip {
    to: RawCopy,
    from: RawCopy,
    graph: RawGraph,
}

impl RawRoundTrip {
    /// As [`start`](Self::start), with the kernel before and behind it as well.
    pub(crate) fn start_between_kernels(&self) {
        self.to.raw.bind();
        self.graph.launch();
        self.start();
        self.graph.launch();
    }

    /// As [`start`](Self::start), with another copy to the device before.
    pub(crate) fn start_with_two_uploads(&self) {
        let Self { to, graph, .. } = self;
        to.raw.bind();
        unsafe { check(sys::cuMemcpyAsync(to.to, to.from, to.bytes, graph.stream.0)) };
        self.start();
    }

    pub(crate) fn start(&self) {
        let Self { to, from, graph } = self;
        to.raw.bind();
        unsafe {
            check(sys::cuMemcpyAsync(to.to, to.from, to.bytes, graph.stream.0));
            check(sys::cuGraphLaunch(graph.exec, graph.stream.0));
            check(sys::cuMemcpyAsync(from.to, from.from, from.bytes, graph.stream.0));
        }
    }

    pub(crate) fn synchronize(&self) {
        self.graph.synchronize();
    }
}

impl PinnedMemory {
    pub(crate) fn address(&self) -> u64 {
        self.memory as u64
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.raw.bind();
        unsafe { check(sys::cuMemFreeHost(self.memory)) };
    }
}

/// A copy, started as often as wanted.
pub(crate) struct RawCopy {
    raw: Raw,
    from: u64,
    to: u64,
    bytes: usize,
    stream: CUstream,
    _owner: Box<dyn Send>,
}

unsafe impl Send for RawCopy {}

impl RawCopy {
    pub(crate) fn start(&self) {
        self.raw.bind();
        unsafe { check(sys::cuMemcpyAsync(self.to, self.from, self.bytes, self.stream)) };
    }

    pub(crate) fn synchronize(&self) {
        unsafe { check(sys::cuStreamSynchronize(self.stream)) };
    }
}

impl Drop for RawCopy {
    fn drop(&mut self) {
        self.raw.bind();
        unsafe { check(sys::cuStreamDestroy_v2(self.stream)) };
    }
}

/// Allocates on the stream, fills if asked to, and frees.
pub(crate) fn passing_memory(stream: *mut c_void, bytes: usize, zeroed: bool) {
    unsafe {
        let (stream, mut memory) = (stream.cast(), 0);
        check(sys::cuMemAllocAsync(&mut memory, bytes, stream));
        if zeroed {
            check(sys::cuMemsetD8Async(memory, 0, bytes, stream));
        }
        check(sys::cuMemFreeAsync(memory, stream));
    }
}

/// Allocates on the stream, fills, copies to the address, and frees.
pub(crate) fn workspace(stream: *mut c_void, address: u64, bytes: usize) {
    unsafe {
        let (stream, mut memory) = (stream.cast(), 0);
        check(sys::cuMemAllocAsync(&mut memory, bytes, stream));
        check(sys::cuMemsetD8Async(memory, 7, bytes, stream));
        check(sys::cuMemcpyDtoDAsync_v2(address, memory, bytes, stream));
        check(sys::cuMemFreeAsync(memory, stream));
    }
}

/// All of a graph's memory, from and to wherever the addresses are.
fn copy_params(from: u64, to: u64) -> sys::CUDA_MEMCPY3D_st {
    sys::CUDA_MEMCPY3D_st {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        srcHost: ptr::null(),
        srcDevice: from,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: BYTES,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstHost: ptr::null_mut(),
        dstDevice: to,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: BYTES,
        dstHeight: 1,
        WidthInBytes: BYTES,
        Height: 1,
        Depth: 1,
    }
}

fn with_params(
    function: CUfunction,
    mut value: u64,
    mut memory: u64,
    items: u32,
    use_them: impl FnOnce(&sys::CUDA_KERNEL_NODE_PARAMS_v2_st),
) {
    let mut params: [*mut c_void; 2] = [(&raw mut value).cast(), (&raw mut memory).cast()];
    use_them(&sys::CUDA_KERNEL_NODE_PARAMS_v2_st {
        func: function,
        gridDimX: items.div_ceil(256),
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: items.min(256),
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: params.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    });
}

impl RawGraph {
    pub(crate) fn bind(&self) {
        self.raw.bind();
    }

    pub(crate) fn launch(&self) {
        unsafe { check(sys::cuGraphLaunch(self.exec, self.stream.0)) };
    }

    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream.0.cast()
    }

    /// Launches on the stream of another graph of the same device.
    pub(crate) fn launch_on(&self, on: &Self) {
        unsafe { check(sys::cuGraphLaunch(self.exec, on.stream.0)) };
    }

    /// Launches on the stream of another graph of the same device, after `before`, and records the
    /// event behind it.
    pub(crate) fn relay(&self, on: &Self, before: Option<&Self>) {
        unsafe {
            if let Some(before) = before {
                check(sys::cuStreamWaitEvent(on.stream.0, before.event, 0));
            }
            check(sys::cuGraphLaunch(self.exec, on.stream.0));
            check(sys::cuEventRecord(self.event, on.stream.0));
        }
    }

    pub(crate) fn record(&self) {
        unsafe { check(sys::cuEventRecord(self.event, self.stream.0)) };
    }

    pub(crate) fn is_complete(&self) -> bool {
        unsafe { sys::cuEventQuery(self.event) == CUresult::CUDA_SUCCESS }
    }

    pub(crate) fn synchronize(&self) {
        unsafe { check(sys::cuStreamSynchronize(self.stream.0)) };
    }

    /// Lets all nodes add another number from the next launch on.
    pub(crate) fn update(&self, value: u32) {
        for &node in &self.nodes {
            with_params(self.raw.bump, u64::from(value), self.memory, 1, |params| unsafe {
                check(sys::cuGraphExecKernelNodeSetParams_v2(self.exec, node, params));
            });
        }
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        self.bind();
        unsafe {
            check(sys::cuStreamSynchronize(self.stream.0));
            check(sys::cuGraphExecDestroy(self.exec));
            check(sys::cuGraphDestroy(self.graph));
            check(sys::cuEventDestroy_v2(self.event));
        }
    }
}

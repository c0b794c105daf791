//! A fake driver: a table of functions that succeed unless a test says otherwise, for the failures
//! that a real driver does not have on request. It does no work, and everything enqueued is over at
//! once unless [`hold`] is in force.
//!
//! Its state belongs to the thread: tests run beside each other.
#![expect(unsafe_code, reason = "implements the driver's functions")]

use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::super::sys::*;

/// What the driver answers while a capture of another thread forbids a call.
const CAPTURE_UNSUPPORTED: Code = 900;

/// Calls that the driver refuses, and that invalidate the capture, while another thread captures in
/// the global mode and this one is not relaxed (measured on an H200 with driver 580).
const DISTURBING: &[&str] = &[
    "cuEventQuery",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuGraphInstantiateWithFlags",
];

#[derive(Default)]
struct State {
    /// Functions that fail: how often they succeed before, how often they fail, and with what.
    failing: Vec<Failing>,
    calls: HashMap<&'static str, usize>,
    /// The compute capability that code is for, if not the newest.
    capability: Option<c_int>,
    /// Devices have no memory pools.
    no_pools: bool,
    /// Queries answer that nothing is over.
    held: bool,
    /// The status of each stream's capture.
    capture_status: CUstreamCaptureStatus,
    /// The kinds of the nodes that captures record.
    captured: Vec<CUgraphNodeType>,
    /// The graphs in conditional nodes, which live as long as the node; here longer.
    bodies: Vec<Vec<CUgraph>>,
    /// The calls that have invalidated another thread's capture, while there is one.
    capture: Option<Vec<&'static str>>,
    /// This thread's capture mode.
    mode: c_uint,
    /// The contexts that are current on the thread, the last one in fact.
    contexts: Vec<usize>,
    /// The context that was current when a function was called last.
    context_at: HashMap<&'static str, usize>,
    /// What `cuPointerGetAttributes` knows.
    memory: Vec<FakeMemory>,
    /// The arguments of the last `cuStreamWaitEvent`: stream and event.
    last_wait: [usize; 2],
    /// The limits of dynamic shared memory that functions have been given.
    shared: HashMap<usize, usize>,
    /// The functions of the kernel that decides about conditional nodes.
    deciding: Vec<usize>,
    /// The arguments of the nodes that launch it.
    decisions: Vec<[u64; 5]>,
    /// The stream of each launch of a graph.
    launches: Vec<usize>,
    /// The memory types of source and destination of the last copy node.
    last_copy: [CUmemorytype; 2],
    /// Address and value of each memset of one word.
    words_set: Vec<(CUdeviceptr, c_uint)>,
    /// The green contexts that there are.
    green: Vec<usize>,
    /// An identity of this thread's multiprocessors, so that no other thread finds its green contexts idle.
    multiprocessors: Option<usize>,
    /// Kernel nodes as they were last set in an instance, by node, if a test wants to know.
    kernels: Option<HashMap<usize, FakeKernelNode>>,
}

/// What a kernel node was set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FakeKernelNode {
    pub(super) function: usize,
    pub(super) groups: [c_uint; 3],
    pub(super) items: [c_uint; 3],
    /// The words of the first two arguments.
    pub(super) args: [u64; 2],
}

/// Memory that the driver knows.
#[derive(Clone, Copy)]
pub(super) struct FakeMemory {
    pub(super) start: u64,
    pub(super) len: usize,
    pub(super) kind: CUmemorytype,
    pub(super) device: CUdevice,
    /// 0 for memory that is mapped in parts.
    pub(super) context: usize,
}

struct Failing {
    function: &'static str,
    skip: usize,
    times: usize,
    code: Code,
}

/// Addresses of host memory, which is never freed: leak checkers find it here.
static HOST_MEMORY: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<R>(use_it: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(use_it)
}

/// The fake driver's functions.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: LazyLock<Driver> = LazyLock::new(table);
    &DRIVER
}

/// The next `times` calls of the function fail with this code.
pub(crate) fn fail(function: &'static str, times: usize, code: Code) {
    fail_later(function, 0, times, code);
}

/// As [`fail`], after `skip` calls that succeed.
pub(super) fn fail_later(function: &'static str, skip: usize, times: usize, code: Code) {
    with(|state| state.failing.push(Failing { function, skip, times, code }));
}

/// The function succeeds from now on.
pub(super) fn succeed(function: &'static str) {
    with(|state| state.failing.retain(|failing| failing.function != function));
}

/// From now on, remembers what kernel nodes are set to. Their kernels have at least two parameters.
pub(super) fn watch_kernels() {
    with(|state| state.kernels = Some(HashMap::new()));
}

/// What has been set since then, by node.
pub(super) fn kernels() -> HashMap<usize, FakeKernelNode> {
    with(|state| state.kernels.clone().unwrap_or_default())
}

/// How often the function has been called.
pub(super) fn calls(function: &'static str) -> usize {
    with(|state| state.calls.get(function).copied().unwrap_or(0))
}

/// How often any function has been called.
pub(super) fn all_calls() -> usize {
    with(|state| state.calls.values().sum())
}

/// The green contexts that there are, oldest first.
pub(super) fn green() -> Vec<usize> {
    with(|state| state.green.clone())
}

/// A driver from before CUDA 12.4.
pub(super) fn without_green_contexts() -> &'static Driver {
    static DRIVER: LazyLock<Driver> = LazyLock::new(|| Driver { cuDeviceGetDevResource: None, ..table() });
    &DRIVER
}

/// From now on, queries answer that nothing is over; or that everything is.
pub(super) fn hold(held: bool) {
    with(|state| state.held = held);
}

/// The context that is current on this thread; 0 for none.
pub(super) fn current() -> usize {
    with(|state| state.contexts.last().copied().unwrap_or(0))
}

/// Makes a context current, as an application does; 0 for none.
pub(super) fn make_current(context: usize) {
    with(|state| state.contexts = [context].into_iter().filter(|&context| context != 0).collect());
}

/// The context that was current when the function was called last.
pub(super) fn current_at(function: &'static str) -> usize {
    with(|state| state.context_at.get(function).copied().unwrap_or(0))
}

/// The arguments of the kernels that decide about conditional nodes.
pub(super) fn decisions() -> Vec<[u64; 5]> {
    with(|state| state.decisions.clone())
}

/// The memory types of source and destination of the last copy node.
pub(super) fn last_copy() -> [CUmemorytype; 2] {
    with(|state| state.last_copy)
}

/// The values that memsets of one word have set at an address.
pub(super) fn set_at(address: CUdeviceptr) -> Vec<c_uint> {
    with(|state| state.words_set.iter().filter(|(at, _)| *at == address).map(|(_, value)| *value).collect())
}

/// Code that is loaded from now on is for devices of this compute capability (90 for 9.0).
pub(super) fn code_is_for(capability: c_int) {
    with(|state| state.capability = Some(capability));
}

/// Devices that are opened from now on have no memory pools.
pub(super) fn without_pools() {
    with(|state| state.no_pools = true);
}

/// Makes memory known.
pub(super) fn know(memory: FakeMemory) {
    with(|state| state.memory.push(memory));
}

/// Stream and event of the last `cuStreamWaitEvent`.
pub(super) fn last_wait() -> [usize; 2] {
    with(|state| state.last_wait)
}

/// The stream of each launch of a graph, oldest first.
pub(super) fn launches() -> Vec<usize> {
    with(|state| state.launches.clone())
}

/// From now on, streams say that they capture; or that they do not.
pub(super) fn leave_captures_open(open: bool) {
    capture_status(if open { CU_STREAM_CAPTURE_STATUS_ACTIVE } else { CU_STREAM_CAPTURE_STATUS_NONE });
}

/// From now on, streams say this of their capture.
pub(super) fn capture_status(status: CUstreamCaptureStatus) {
    with(|state| state.capture_status = status);
}

/// Captures record nodes of these kinds from now on.
pub(super) fn capture_nodes(kinds: &[CUgraphNodeType]) {
    with(|state| state.captured = kinds.to_vec());
}

/// Another thread begins a capture in the global mode.
pub(super) fn begin_capture() {
    with(|state| state.capture = Some(Vec::new()));
}

/// The other thread ends its capture. Gives the calls that have invalidated it.
pub(super) fn end_capture() -> Vec<&'static str> {
    with(|state| state.capture.take().unwrap_or_default())
}

/// This thread's capture mode.
pub(super) fn mode() -> c_uint {
    with(|state| state.mode)
}

/// What a call of the function returns; each function of the table asks this first.
pub(crate) fn called(function: &'static str) -> Code {
    with(|state| {
        *state.calls.entry(function).or_default() += 1;
        let current = state.contexts.last().copied().unwrap_or(0);
        state.context_at.insert(function, current);
        if let Some(invalidated_by) = &mut state.capture
            && state.mode != CU_STREAM_CAPTURE_MODE_RELAXED
            && DISTURBING.contains(&function)
        {
            invalidated_by.push(function);
            return CAPTURE_UNSUPPORTED;
        }
        let failing =
            state.failing.iter_mut().find(|failing| failing.function == function && failing.times > 0);
        match failing {
            Some(failing) if failing.skip > 0 => failing.skip -= 1,
            Some(failing) => {
                failing.times -= 1;
                return failing.code;
            }
            None => {}
        }
        if state.held && matches!(function, "cuEventQuery" | "cuStreamQuery") {
            return CUDA_ERROR_NOT_READY;
        }
        CUDA_SUCCESS
    })
}

/// What a call returns that is given the parameters of a launch.
fn launched(function: &'static str, kernel: CUfunction, shared_bytes: c_uint) -> Code {
    /// What functions may have without a call.
    const GRANTED: usize = 48 << 10;
    let limit = with(|state| state.shared.get(&kernel.addr()).copied().unwrap_or(GRANTED));
    match called(function) {
        CUDA_SUCCESS if shared_bytes as usize > limit => CUDA_ERROR_INVALID_VALUE,
        code => code,
    }
}

/// A handle or address that no thread has been given.
fn fresh() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    4096 + LAST.fetch_add(4096, Ordering::Relaxed)
}

/// Functions whose first argument is the place of a handle, an address or a number.
macro_rules! giving {
    ($($function:ident($place:ident: $type:ty $(, $argument:ty)*) = $value:expr;)+) => {
        $(pub(super) unsafe extern "C" fn $function($place: *mut $type $(, _: $argument)*) -> Code {
            let code = called(stringify!($function));
            if code == CUDA_SUCCESS {
                // SAFETY: the caller gives a place for such a value.
                unsafe { $place.write($value) };
            }
            code
        })+
    };
}

#[allow(non_snake_case, reason = "the vendor's names")]
mod functions {
    use super::*;

    giving! {
        cuDriverGetVersion(version: c_int) = 13_000;
        cuDeviceGetCount(count: c_int) = 2;
        cuDeviceTotalMem(bytes: usize, CUdevice) = 1 << 30;
        cuDevicePrimaryCtxRetain(context: CUcontext, CUdevice) = ptr::without_provenance_mut(fresh());
        cuCtxGetDevice(device: CUdevice) = 0;
        cuMemPoolCreate(pool: CUmemoryPool, *const CUmemPoolProps) = ptr::without_provenance_mut(fresh());
        cuMemAllocFromPoolAsync(address: CUdeviceptr, usize, CUmemoryPool, CUstream) = fresh() as u64;
        cuMemAlloc(address: CUdeviceptr, usize) = fresh() as u64;
        cuModuleLoadDataEx(module: CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void) =
            ptr::without_provenance_mut(fresh());
        cuStreamCreate(stream: CUstream, c_uint) = ptr::without_provenance_mut(fresh());
        cuEventCreate(event: CUevent, c_uint) = ptr::without_provenance_mut(fresh());
        cuEventElapsedTime(milliseconds: f32, CUevent, CUevent) = 0.0;
        cuGraphCreate(graph: CUgraph, c_uint) = ptr::without_provenance_mut(fresh());
        cuGraphAddMemsetNode(
            node: CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMSET_NODE_PARAMS,
            CUcontext
        ) = ptr::without_provenance_mut(fresh());
        cuGraphAddEmptyNode(node: CUgraphNode, CUgraph, *const CUgraphNode, usize) =
            ptr::without_provenance_mut(fresh());
        cuGraphInstantiateWithFlags(exec: CUgraphExec, CUgraph, u64) = ptr::without_provenance_mut(fresh());
        cuGraphConditionalHandleCreate(
            handle: CUgraphConditionalHandle, CUgraph, CUcontext, c_uint, c_uint
        ) = fresh() as u64;
        cuDevResourceGenerateDesc(desc: CUdevResourceDesc, *mut CUdevResource, c_uint) =
            ptr::without_provenance_mut(fresh());
        cuGreenCtxCreate(green: CUgreenCtx, CUdevResourceDesc, CUdevice, c_uint) =
            ptr::without_provenance_mut(fresh());
        cuGreenCtxStreamCreate(stream: CUstream, CUgreenCtx, c_uint, c_int) =
            ptr::without_provenance_mut(fresh());
    }

    /// Devices have 132 multiprocessors.
    pub(super) unsafe extern "C" fn cuDeviceGetDevResource(
        _: CUdevice,
        all: *mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Code {
        let mut found = CUdevResource { type_: kind, smCount: 132, ..Default::default() };
        let own = with(|state| *state.multiprocessors.get_or_insert_with(fresh));
        found.internal[..size_of::<usize>()].copy_from_slice(&own.to_ne_bytes());
        // SAFETY: the caller gives a place for a resource.
        unsafe { all.write(found) };
        called("cuDeviceGetDevResource")
    }

    /// Rounds one group up to a multiple of 8.
    pub(super) unsafe extern "C" fn cuDevSmResourceSplitByCount(
        group: *mut CUdevResource,
        groups: *mut c_uint,
        all: *const CUdevResource,
        rest: *mut CUdevResource,
        _: c_uint,
        least: c_uint,
    ) -> Code {
        // SAFETY: the caller gives a resource.
        let all = unsafe { all.read() };
        let count = least.next_multiple_of(8);
        let Some(left) = all.smCount.checked_sub(count) else {
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        };
        // SAFETY: the caller gives a place for a resource.
        unsafe { group.write(CUdevResource { smCount: count, ..all }) };
        // SAFETY: as above.
        unsafe { rest.write(CUdevResource { smCount: left, ..all }) };
        // SAFETY: the caller gives a place for a number.
        unsafe { groups.write(1) };
        called("cuDevSmResourceSplitByCount")
    }

    /// The context has the handle of the green context, so that tests know it.
    pub(super) unsafe extern "C" fn cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx) -> Code {
        with(|state| state.green.push(green.addr()));
        // SAFETY: the caller gives a place for a handle.
        unsafe { context.write(ptr::without_provenance_mut(green.addr())) };
        called("cuCtxFromGreenCtx")
    }

    pub(super) unsafe extern "C" fn cuGreenCtxDestroy(green: CUgreenCtx) -> Code {
        with(|state| state.green.retain(|&other| other != green.addr()));
        called("cuGreenCtxDestroy")
    }

    pub(super) unsafe extern "C" fn cuDeviceGetAttribute(
        value: *mut c_int,
        attribute: CUdevice_attribute,
        _: CUdevice,
    ) -> Code {
        let is_lacking =
            attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED && with(|state| state.no_pools);
        let number = match attribute {
            _ if is_lacking => 0,
            // Of which some is for gaps between arguments.
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 2048,
            _ => 1024,
        };
        // SAFETY: the caller gives a place for a number.
        unsafe { value.write(number) };
        called("cuDeviceGetAttribute")
    }

    pub(super) unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, index: c_int) -> Code {
        // SAFETY: the caller gives a place for a number.
        unsafe { device.write(index) };
        called("cuDeviceGet")
    }

    /// A device is not its own peer.
    pub(super) unsafe extern "C" fn cuDeviceCanAccessPeer(
        can: *mut c_int,
        device: CUdevice,
        peer: CUdevice,
    ) -> Code {
        // SAFETY: the caller gives a place for a number.
        unsafe { can.write(c_int::from(device != peer)) };
        called("cuDeviceCanAccessPeer")
    }

    pub(super) unsafe extern "C" fn cuModuleGetFunction(
        function: *mut CUfunction,
        _: CUmodule,
        name: *const std::ffi::c_char,
    ) -> Code {
        let handle = fresh();
        // SAFETY: the caller gives a text that ends in NUL.
        if unsafe { std::ffi::CStr::from_ptr(name) } == c"wakegraph_condition" {
            with(|state| state.deciding.push(handle));
        }
        // SAFETY: the caller gives a place for a handle.
        unsafe { function.write(ptr::without_provenance_mut(handle)) };
        called("cuModuleGetFunction")
    }

    pub(super) unsafe extern "C" fn cuFuncSetAttribute(
        function: CUfunction,
        attribute: CUfunction_attribute,
        value: c_int,
    ) -> Code {
        assert_eq!(attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        with(|state| state.shared.insert(function.addr(), value as usize));
        called("cuFuncSetAttribute")
    }

    pub(super) unsafe extern "C" fn cuLaunchKernel(
        function: CUfunction,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        shared_bytes: c_uint,
        _: CUstream,
        _: *mut *mut c_void,
        _: *mut *mut c_void,
    ) -> Code {
        launched("cuLaunchKernel", function, shared_bytes)
    }

    pub(super) unsafe extern "C" fn cuGraphAddKernelNode(
        node: *mut CUgraphNode,
        _: CUgraph,
        _: *const CUgraphNode,
        _: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS_v2,
    ) -> Code {
        // SAFETY: the caller gives the parameters of a node.
        let params = unsafe { &*params };
        if with(|state| state.deciding.contains(&params.func.addr())) {
            let args = [0, 1, 2, 3, 4].map(|index| {
                // SAFETY: this kernel has five parameters.
                let place = unsafe { params.kernelParams.wrapping_add(index).read() };
                // SAFETY: each argument is a word.
                unsafe { place.cast::<u64>().read() }
            });
            with(|state| state.decisions.push(args));
        }
        // SAFETY: the caller gives a place for a handle.
        unsafe { node.write(ptr::without_provenance_mut(fresh())) };
        launched("cuGraphAddKernelNode", params.func, params.sharedMemBytes)
    }

    pub(super) unsafe extern "C" fn cuGraphAddNode(
        node: *mut CUgraphNode,
        _: CUgraph,
        _: *const CUgraphNode,
        _: *const CUgraphEdgeData,
        _: usize,
        params: *mut c_void,
    ) -> Code {
        // SAFETY: the parameters of all kinds of nodes begin with their kind.
        if unsafe { params.cast::<CUgraphNodeType>().read() } == CU_GRAPH_NODE_TYPE_CONDITIONAL {
            // SAFETY: the caller gives the parameters of such a node.
            let params = unsafe { &mut *params.cast::<CUgraphConditionalParams>() };
            let mut bodies = vec![ptr::without_provenance_mut(fresh()), ptr::without_provenance_mut(fresh())];
            params.conditional.phGraph_out = bodies.as_mut_ptr();
            with(|state| state.bodies.push(bodies));
        }
        // SAFETY: the caller gives a place for a handle.
        unsafe { node.write(ptr::without_provenance_mut(fresh())) };
        called("cuGraphAddNode")
    }

    pub(super) unsafe extern "C" fn cuGraphAddMemcpyNode(
        node: *mut CUgraphNode,
        _: CUgraph,
        _: *const CUgraphNode,
        _: usize,
        params: *const CUDA_MEMCPY3D,
        _: CUcontext,
    ) -> Code {
        // SAFETY: the caller gives the parameters of a copy.
        let params = unsafe { &*params };
        with(|state| state.last_copy = [params.srcMemoryType, params.dstMemoryType]);
        // SAFETY: the caller gives a place for a handle.
        unsafe { node.write(ptr::without_provenance_mut(fresh())) };
        called("cuGraphAddMemcpyNode")
    }

    pub(super) unsafe extern "C" fn cuMemsetD32Async(
        address: CUdeviceptr,
        value: c_uint,
        words: usize,
        _: CUstream,
    ) -> Code {
        if words == 1 {
            with(|state| state.words_set.push((address, value)));
        }
        called("cuMemsetD32Async")
    }

    pub(super) unsafe extern "C" fn cuCtxPushCurrent(context: CUcontext) -> Code {
        let code = called("cuCtxPushCurrent");
        if code == CUDA_SUCCESS {
            with(|state| state.contexts.push(context.addr()));
        }
        code
    }

    pub(super) unsafe extern "C" fn cuCtxPopCurrent(context: *mut CUcontext) -> Code {
        let Some(popped) = with(|state| state.contexts.pop()) else { return CUDA_ERROR_INVALID_CONTEXT };
        // SAFETY: the caller gives a place for a handle.
        unsafe { context.write(ptr::without_provenance_mut(popped)) };
        called("cuCtxPopCurrent")
    }

    pub(super) unsafe extern "C" fn cuGraphLaunch(_: CUgraphExec, stream: CUstream) -> Code {
        let code = called("cuGraphLaunch");
        if code == CUDA_SUCCESS {
            with(|state| state.launches.push(stream.addr()));
        }
        code
    }

    pub(super) unsafe extern "C" fn cuGraphExecKernelNodeSetParams(
        _: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS_v2,
    ) -> Code {
        // SAFETY: the caller gives the parameters of a node.
        let params = unsafe { &*params };
        let code = launched("cuGraphExecKernelNodeSetParams", params.func, params.sharedMemBytes);
        with(|state| {
            let Some(kernels) = state.kernels.as_mut().filter(|_| code == CUDA_SUCCESS) else { return };
            let arg = |index| {
                // SAFETY: the kernel has at least two parameters.
                let place = unsafe { params.kernelParams.wrapping_add(index).read() };
                // SAFETY: each argument begins a word of its own.
                unsafe { place.cast::<u64>().read() }
            };
            let node_now = FakeKernelNode {
                function: params.func.addr(),
                groups: [params.gridDimX, params.gridDimY, params.gridDimZ],
                items: [params.blockDimX, params.blockDimY, params.blockDimZ],
                args: [arg(0), arg(1)],
            };
            kernels.insert(node.addr(), node_now);
        });
        code
    }

    pub(super) unsafe extern "C" fn cuFuncGetAttribute(
        value: *mut c_int,
        attribute: CUfunction_attribute,
        _: CUfunction,
    ) -> Code {
        let capability =
            with(|state| state.capability).filter(|_| attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION);
        // SAFETY: the caller gives a place for a number.
        unsafe { value.write(capability.unwrap_or(256)) };
        called("cuFuncGetAttribute")
    }

    pub(super) unsafe extern "C" fn cuStreamCreateWithPriority(
        stream: *mut CUstream,
        _: c_uint,
        priority: c_int,
    ) -> Code {
        assert_eq!(priority, -5, "nothing has asked for another priority");
        // SAFETY: the caller gives a place for a handle.
        unsafe { stream.write(ptr::without_provenance_mut(fresh())) };
        called("cuStreamCreateWithPriority")
    }

    pub(super) unsafe extern "C" fn cuCtxGetStreamPriorityRange(
        lowest: *mut c_int,
        highest: *mut c_int,
    ) -> Code {
        // SAFETY: the caller gives a place for a number.
        unsafe { lowest.write(0) };
        // SAFETY: likewise.
        unsafe { highest.write(-5) };
        called("cuCtxGetStreamPriorityRange")
    }

    pub(super) unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> Code {
        // SAFETY: the caller gives a place for a pointer.
        unsafe { context.write(ptr::without_provenance_mut(current())) };
        called("cuCtxGetCurrent")
    }

    pub(super) unsafe extern "C" fn cuStreamIsCapturing(_: CUstream, status: *mut c_uint) -> Code {
        // SAFETY: the caller gives a place for a number.
        unsafe { status.write(with(|state| state.capture_status)) };
        called("cuStreamIsCapturing")
    }

    pub(super) unsafe extern "C" fn cuStreamGetCaptureInfo(
        _: CUstream,
        status: *mut CUstreamCaptureStatus,
        _: *mut u64,
        graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        count: *mut usize,
    ) -> Code {
        // SAFETY: the caller gives a place for a number.
        unsafe { status.write(with(|state| state.capture_status)) };
        // SAFETY: the caller gives a place for a handle.
        unsafe { graph.write(ptr::without_provenance_mut(fresh())) };
        // SAFETY: the caller gives a place for a pointer.
        unsafe { nodes.write(ptr::null()) };
        // SAFETY: the caller gives a place for a number.
        unsafe { count.write(0) };
        called("cuStreamGetCaptureInfo")
    }

    pub(super) unsafe extern "C" fn cuStreamUpdateCaptureDependencies(
        _: CUstream,
        _: *mut CUgraphNode,
        _: usize,
        _: c_uint,
    ) -> Code {
        called("cuStreamUpdateCaptureDependencies")
    }

    pub(super) unsafe extern "C" fn cuStreamEndCapture(_: CUstream, graph: *mut CUgraph) -> Code {
        // SAFETY: the caller gives a place for a handle.
        unsafe { graph.write(ptr::without_provenance_mut(fresh())) };
        called("cuStreamEndCapture")
    }

    /// The nodes of all graphs are those that captures record; their handles begin with 1.
    pub(super) unsafe extern "C" fn cuGraphGetNodes(
        _: CUgraph,
        nodes: *mut CUgraphNode,
        count: *mut usize,
    ) -> Code {
        let captured = with(|state| state.captured.len());
        if nodes.is_null() {
            // SAFETY: the caller gives a place for a number.
            unsafe { count.write(captured) };
        } else if captured == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        } else {
            for index in 0..captured {
                // SAFETY: the caller gives places for so many handles.
                unsafe { nodes.wrapping_add(index).write(ptr::without_provenance_mut(index + 1)) };
            }
        }
        called("cuGraphGetNodes")
    }

    pub(super) unsafe extern "C" fn cuGraphNodeGetType(
        node: CUgraphNode,
        kind: *mut CUgraphNodeType,
    ) -> Code {
        // SAFETY: the caller gives a place for a number.
        unsafe { kind.write(with(|state| state.captured[node.addr() - 1])) };
        called("cuGraphNodeGetType")
    }

    pub(super) unsafe extern "C" fn cuCtxSetCurrent(context: CUcontext) -> Code {
        // The top of the stack gets another context; none takes the top away.
        with(|state| {
            state.contexts.pop();
            state.contexts.extend([context.addr()].iter().filter(|&&context| context != 0));
        });
        called("cuCtxSetCurrent")
    }

    pub(super) unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> Code {
        // SAFETY: the caller gives the place of a number.
        let mode = unsafe { &mut *mode };
        with(|state| std::mem::swap(&mut state.mode, mode));
        called("cuThreadExchangeStreamCaptureMode")
    }

    pub(super) unsafe extern "C" fn cuStreamWaitEvent(stream: CUstream, event: CUevent, _: c_uint) -> Code {
        with(|state| state.last_wait = [stream.addr(), event.addr()]);
        called("cuStreamWaitEvent")
    }

    /// Answers what this backend asks for, in its order.
    pub(super) unsafe extern "C" fn cuPointerGetAttributes(
        count: c_uint,
        _: *const CUpointer_attribute,
        places: *const *mut c_void,
        address: CUdeviceptr,
    ) -> Code {
        let known = with(|state| {
            let inside =
                |memory: &&FakeMemory| (memory.start..memory.start + memory.len as u64).contains(&address);
            state.memory.iter().find(inside).copied()
        });
        // SAFETY: the caller gives so many places.
        let places = unsafe { std::slice::from_raw_parts(places, count as usize) };
        let &[kind, context, pool, is_managed, device, start, len] = places else { return 1 };
        let Some(memory) = known else { return called("cuPointerGetAttributes") };
        // SAFETY: the place has the attribute's size, here and below.
        unsafe { kind.cast::<CUmemorytype>().write(memory.kind) };
        // SAFETY: as above.
        unsafe { context.cast::<usize>().write(memory.context) };
        // SAFETY: as above.
        unsafe { pool.cast::<usize>().write(0) };
        // SAFETY: as above.
        unsafe { is_managed.cast::<c_uint>().write(0) };
        // SAFETY: as above.
        unsafe { device.cast::<CUdevice>().write(memory.device) };
        // SAFETY: as above.
        unsafe { start.cast::<CUdeviceptr>().write(memory.start) };
        // SAFETY: as above.
        unsafe { len.cast::<usize>().write(memory.len) };
        called("cuPointerGetAttributes")
    }

    /// The memory is real, as the host uses it, and is not freed.
    pub(super) unsafe extern "C" fn cuMemHostAlloc(place: *mut *mut c_void, len: usize, _: c_uint) -> Code {
        let code = called("cuMemHostAlloc");
        if code == CUDA_SUCCESS {
            let Ok(layout) = Layout::from_size_align(len.max(1), 64) else { return 1 };
            // SAFETY: the layout has a size.
            let memory = unsafe { alloc_zeroed(layout) };
            HOST_MEMORY.lock().push(memory.expose_provenance());
            // SAFETY: the caller gives a place for a pointer.
            unsafe { place.write(memory.cast()) };
        }
        code
    }
}

fn table() -> Driver {
    use functions::*;
    Driver {
        cuDriverGetVersion,
        cuDeviceGetCount,
        cuDeviceGet,
        cuDeviceTotalMem,
        cuDeviceGetAttribute,
        cuDeviceCanAccessPeer,
        cuDevicePrimaryCtxRetain,
        cuCtxPopCurrent,
        cuCtxPushCurrent,
        cuCtxGetDevice,
        cuStreamWaitEvent,
        cuPointerGetAttributes,
        cuCtxGetCurrent,
        cuCtxSetCurrent,
        cuThreadExchangeStreamCaptureMode,
        cuMemPoolCreate,
        cuMemAllocFromPoolAsync,
        cuMemAlloc,
        cuMemHostAlloc,
        cuModuleLoadDataEx,
        cuModuleGetFunction,
        cuFuncGetAttribute,
        cuFuncSetAttribute,
        cuLaunchKernel,
        cuMemsetD32Async,
        cuStreamCreate,
        cuStreamCreateWithPriority,
        cuCtxGetStreamPriorityRange,
        cuStreamIsCapturing,
        cuStreamGetCaptureInfo: Some(cuStreamGetCaptureInfo),
        cuStreamUpdateCaptureDependencies: Some(cuStreamUpdateCaptureDependencies),
        cuStreamEndCapture,
        cuGraphGetNodes,
        cuGraphNodeGetType,
        cuEventCreate,
        cuEventElapsedTime,
        cuGraphCreate,
        cuGraphAddKernelNode,
        cuGraphAddNode: Some(cuGraphAddNode),
        cuGraphConditionalHandleCreate: Some(cuGraphConditionalHandleCreate),
        cuGraphAddMemcpyNode,
        cuGraphAddMemsetNode,
        cuGraphAddEmptyNode,
        cuGraphInstantiateWithFlags,
        cuGraphLaunch,
        cuGraphExecKernelNodeSetParams,
        cuDeviceGetDevResource: Some(cuDeviceGetDevResource),
        cuDevSmResourceSplitByCount: Some(cuDevSmResourceSplitByCount),
        cuDevResourceGenerateDesc: Some(cuDevResourceGenerateDesc),
        cuGreenCtxCreate: Some(cuGreenCtxCreate),
        cuGreenCtxDestroy: Some(cuGreenCtxDestroy),
        cuCtxFromGreenCtx: Some(cuCtxFromGreenCtx),
        cuGreenCtxStreamCreate: Some(cuGreenCtxStreamCreate),
        ..Driver::fake()
    }
}

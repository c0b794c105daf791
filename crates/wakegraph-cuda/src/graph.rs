//! The driver's graphs: how nodes are added to them, and what is instantiated and launched.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::graphs::InstantiatedGraph;
use wakegraph_hal::support::memory::{BoxSide, CopyBox, FillRow};

use super::context::{CudaContext, CudaObject, CudaRawEvent, CudaStream};
use super::device::CudaDeviceInner;
use super::kernel::CudaLaunch;
use super::sys::{
    CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    CU_GRAPH_NODE_TYPE_MEM_FREE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CU_STREAM_CAPTURE_STATUS_ACTIVE,
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUDA_CONDITIONAL_NODE_PARAMS,
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraph,
    CUgraph_st, CUgraphConditionalHandle, CUgraphConditionalNodeType, CUgraphConditionalParams,
    CUgraphEdgeData, CUgraphExec_st, CUgraphExecUpdateResultInfo, CUgraphKernelParams, CUgraphNode, CUresult,
    CUstream, CUstreamCaptureStatus, CudaFailure, Driver, call, missing, outcome,
};

/// A node of a graph, which keeps it alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct GraphNode {
    /// The number of the part that has the node.
    pub(super) part: u32,
    pub(super) raw: CUgraphNode,
}

// SAFETY: a node is a name; the calls that use it lock the graph.
unsafe impl Send for GraphNode {}
// SAFETY: as for `Send`.
unsafe impl Sync for GraphNode {}

/// A graph of the driver's.
pub(super) type DriverGraph = CudaObject<CUgraph_st>;

fn create_graph(context: &Arc<CudaContext>) -> Result<DriverGraph, CudaFailure> {
    DriverGraph::create_by(context, |driver, place| {
        // SAFETY: the context is bound, the place valid.
        unsafe { call!(driver, cuGraphCreate(place, 0)) }
    })
}

/// Whether a graph allocates or frees memory. The driver does not clone such a graph.
pub(super) fn allocates(graph: &DriverGraph) -> Result<bool, CudaFailure> {
    let mut count = 0;
    // SAFETY: without an array, the driver writes the number of nodes alone.
    unsafe { call!(graph.driver(), cuGraphGetNodes(graph.raw(), ptr::null_mut(), &raw mut count)) }?;
    if count == 0 {
        // The driver refuses an array of no nodes.
        return Ok(false);
    }
    let mut nodes = vec![ptr::null_mut(); count];
    // SAFETY: there is room for as many nodes.
    unsafe { call!(graph.driver(), cuGraphGetNodes(graph.raw(), nodes.as_mut_ptr(), &raw mut count)) }?;
    for node in nodes {
        let mut kind = CU_GRAPH_NODE_TYPE_KERNEL;
        // SAFETY: the node is of this graph; the pointer is valid for a number.
        unsafe { call!(graph.driver(), cuGraphNodeGetType(node, &raw mut kind)) }?;
        if matches!(kind, CU_GRAPH_NODE_TYPE_MEM_ALLOC | CU_GRAPH_NODE_TYPE_MEM_FREE) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds a copy of a graph behind what the stream has captured so far, and returns the status of the capture.
/// Unless that is active, nothing is added.
///
/// # Safety
/// Stream and graph are live, and no other thread uses them.
pub(super) unsafe fn add_to_capture(
    driver: &Driver,
    stream: CUstream,
    graph: CUgraph,
) -> Result<CUstreamCaptureStatus, CudaFailure> {
    const INFO: &str = "cuStreamGetCaptureInfo_v2";
    const CONTINUE: &str = "cuStreamUpdateCaptureDependencies";
    let info = driver.cuStreamGetCaptureInfo.ok_or_else(|| missing(INFO))?;
    let go_on = driver.cuStreamUpdateCaptureDependencies.ok_or_else(|| missing(CONTINUE))?;
    let (mut status, mut number) = (CU_STREAM_CAPTURE_STATUS_NONE, 0);
    let (mut captured, mut after, mut count) = (ptr::null_mut(), ptr::null(), 0);
    let places = (&raw mut status, &raw mut number, &raw mut captured, &raw mut after, &raw mut count);
    // SAFETY: the caller vouches for the stream; the places are valid.
    outcome(INFO, unsafe { info(stream, places.0, places.1, places.2, places.3, places.4) })?;
    if status != CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(status);
    }
    let mut node = ptr::null_mut();
    let place = &raw mut node;
    // SAFETY: the driver has given the graph and its nodes, which it keeps; the caller vouches for the other
    // graph.
    unsafe { call!(driver, cuGraphAddChildGraphNode(place, captured, after, count, graph)) }?;
    // SAFETY: the node has just been added to the graph that the stream captures.
    outcome(CONTINUE, unsafe { go_on(stream, place, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES) })?;
    Ok(status)
}

/// One of the driver's graphs that a command-buffer consists of.
#[derive(Debug)]
struct GraphPart {
    graph: DriverGraph,
    /// Whether it is the [work of one command](CudaGraph::push_captured), which allocates.
    is_captured: bool,
}

impl GraphPart {
    fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        Ok(Self { graph: create_graph(context)?, is_captured: false })
    }
}

/// A graph under construction, in parts that are launched one behind the other: mostly one. The caller of its
/// methods has bound the context.
#[derive(Debug)]
pub(super) struct CudaGraph {
    /// The parts before the last one.
    earlier: Vec<GraphPart>,
    last: GraphPart,
}

impl CudaGraph {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        Ok(Self { earlier: Vec::new(), last: GraphPart::create(context)? })
    }

    fn parts(&self) -> impl Iterator<Item = &GraphPart> {
        self.earlier.iter().chain([&self.last])
    }

    /// The number of the last part, where nodes are added.
    pub(super) fn last_part(&self) -> u32 {
        self.earlier.len() as u32
    }

    /// Has nodes added to another part from now on.
    pub(super) fn begin_part(&mut self) -> Result<(), CudaFailure> {
        let new = GraphPart::create(self.last.graph.context())?;
        self.earlier.push(std::mem::replace(&mut self.last, new));
        Ok(())
    }

    /// Whether the last part takes no more nodes.
    pub(super) fn is_closed(&self) -> bool {
        self.last.is_captured
    }

    /// Makes a captured graph the last part as it is, in place of one `without_nodes`. Nodes that come
    /// later need another part.
    pub(super) fn push_captured(&mut self, graph: DriverGraph, without_nodes: bool) {
        let before = std::mem::replace(&mut self.last, GraphPart { graph, is_captured: true });
        if !without_nodes {
            self.earlier.push(before);
        }
    }

    /// Gives up the parts behind the one with this number.
    pub(super) fn keep_parts(&mut self, last: u32) {
        while self.last_part() > last
            && let Some(before) = self.earlier.pop()
        {
            self.last = before;
        }
    }

    /// The place where its nodes are added.
    pub(super) fn body(&mut self) -> GraphBody<'_> {
        let last = &self.last.graph;
        let (context, part, raw) = (last.context(), self.last_part(), last.raw());
        GraphBody { context, part, raw, graph: PhantomData }
    }

    /// Removes a node that no other follows.
    pub(super) fn remove(&mut self, node: GraphNode) -> Result<(), CudaFailure> {
        // SAFETY: the node is of this graph, and not used any more.
        unsafe { call!(self.last.graph.driver(), cuGraphDestroyNode(node.raw)) }
    }
}

/// A node to add.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewNode<'a> {
    Kernel(&'a CudaLaunch),
    /// A kernel that is started when the only node before it, a kernel, allows it, and then waits for its
    /// end.
    OverlappingKernel(&'a CudaLaunch),
    Copy(&'a CopyBox),
    Fill(&'a FillRow),
    /// Does nothing.
    Empty,
    /// Records an event.
    Record(&'a CudaRawEvent),
    /// A copy of another graph.
    Graph(&'a DriverGraph),
}

/// A place for nodes: a graph, or the driver's own graph that a conditional node runs.
///
/// It borrows the graph exclusively.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphBody<'a> {
    context: &'a Arc<CudaContext>,
    /// The number of the part that the graph is.
    part: u32,
    raw: CUgraph,
    graph: PhantomData<&'a mut CudaGraph>,
}

/// Decides about a conditional node. A kernel sets it.
pub(super) type ConditionalHandle = CUgraphConditionalHandle;

impl<'a> GraphBody<'a> {
    /// Adds a node behind others of the same part, each of which is named once.
    pub(super) fn add(self, new: NewNode<'_>, after: &[GraphNode]) -> Result<GraphNode, CudaFailure> {
        self.context.confined(|| self.add_confined(new, after))
    }

    fn add_confined(self, new: NewNode<'_>, after: &[GraphNode]) -> Result<GraphNode, CudaFailure> {
        let after = raw_nodes(after);
        let (driver, graph, before, count) = (self.context.driver, self.raw, after.as_ptr(), after.len());
        let mut node = ptr::null_mut();
        let place = &raw mut node;
        match new {
            NewNode::Kernel(launch) => launch.with_params(|params| {
                // SAFETY: nodes and graph are alive; the parameters are complete, and copied.
                unsafe { call!(driver, cuGraphAddKernelNode(place, graph, before, count, params)) }
            }),
            NewNode::OverlappingKernel(launch) => {
                const CALL: &str = "cuGraphAddNode";
                let add = driver.cuGraphAddNode.ok_or_else(|| missing(CALL))?;
                launch.with_params(|params| {
                    let (mut params, edge) =
                        (CUgraphKernelParams::of(*params), &CUgraphEdgeData::PROGRAMMATIC);
                    let params = (&raw mut params).cast();
                    // SAFETY: as above; there is one node before it, and the data of one edge.
                    outcome(CALL, unsafe { add(place, graph, before, edge, count, params) })
                })
            }
            NewNode::Copy(copy) => {
                let (params, context) = (&copy_params(copy), self.context.of_nodes());
                // SAFETY: as above.
                unsafe { call!(driver, cuGraphAddMemcpyNode(place, graph, before, count, params, context)) }
            }
            NewNode::Fill(fill) => {
                let (params, context) = (&fill_params(fill), self.context.of_nodes());
                // SAFETY: as above.
                unsafe { call!(driver, cuGraphAddMemsetNode(place, graph, before, count, params, context)) }
            }
            // SAFETY: nodes and graph are alive.
            NewNode::Empty => unsafe { call!(driver, cuGraphAddEmptyNode(place, graph, before, count)) },
            NewNode::Record(event) => {
                let event = event.raw();
                // SAFETY: nodes, graph and event are alive.
                unsafe { call!(driver, cuGraphAddEventRecordNode(place, graph, before, count, event)) }
            }
            NewNode::Graph(child) => {
                let child = child.raw();
                // SAFETY: nodes and both graphs are alive.
                unsafe { call!(driver, cuGraphAddChildGraphNode(place, graph, before, count, child)) }
            }
        }?;
        Ok(GraphNode { part: self.part, raw: node })
    }

    /// A handle for one conditional node here. Each launch resets it.
    pub(super) fn create_handle(self) -> Result<ConditionalHandle, CudaFailure> {
        const CALL: &str = "cuGraphConditionalHandleCreate";
        let create = self.context.driver.cuGraphConditionalHandleCreate.ok_or_else(|| missing(CALL))?;
        let (mut handle, context) = (0, self.context.of_nodes());
        self.context.confined(|| {
            // SAFETY: graph and context are alive; the pointer is valid for a number.
            outcome(CALL, unsafe { create(&raw mut handle, self.raw, context, 0, 0) })
        })?;
        Ok(handle)
    }

    /// Adds a node that runs one of so many bodies, or its only body repeatedly, as the handle says.
    pub(super) fn add_conditional(
        self,
        kind: CUgraphConditionalNodeType,
        handle: ConditionalHandle,
        bodies: usize,
        after: &[GraphNode],
    ) -> Result<(GraphNode, impl Iterator<Item = GraphBody<'a>> + use<'a>), CudaFailure> {
        const CALL: &str = "cuGraphAddNode";
        let add = self.context.driver.cuGraphAddNode.ok_or_else(|| missing(CALL))?;
        let mut params = CUgraphConditionalParams {
            type_: CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            conditional: CUDA_CONDITIONAL_NODE_PARAMS {
                handle,
                type_: kind,
                size: bodies as u32,
                phGraph_out: ptr::null_mut(),
                ctx: self.context.of_nodes(),
            },
            reserved1: [0; 25],
            reserved2: 0,
        };
        let after = raw_nodes(after);
        let (before, count, params_ptr) = (after.as_ptr(), after.len(), (&raw mut params).cast());
        let mut node = ptr::null_mut();
        self.context.confined(|| {
            // SAFETY: nodes, graph and handle are alive; the parameters are complete.
            outcome(CALL, unsafe { add(&raw mut node, self.raw, before, ptr::null(), count, params_ptr) })
        })?;
        let bodies = (0..bodies).map(move |number| {
            // SAFETY: the driver has written a pointer to its array of as many graphs, which lives as long as
            // the node, as the graphs do.
            let raw = unsafe { params.conditional.phGraph_out.wrapping_add(number).read() };
            Self { raw, ..self }
        });
        Ok((GraphNode { part: self.part, raw: node }, bodies))
    }
}

fn raw_nodes(nodes: &[GraphNode]) -> SmallVec<[CUgraphNode; 4]> {
    let mut raw = SmallVec::new();
    nodes.iter().for_each(|node| raw.push(node.raw));
    raw
}

/// The codes with which the driver refuses an update in place.
const REFUSALS: [CUresult; 3] =
    [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE];

/// An instantiated graph of the driver's.
type DriverExec = CudaObject<CUgraphExec_st>;

/// An instantiated graph, part by part. The driver takes one call at a time. The caller ensures this, and has
/// bound the context.
#[derive(Debug)]
pub(super) struct CudaGraphExec {
    parts: SmallVec<[DriverExec; 1]>,
}

impl CudaGraphExec {
    /// Whether it has several parts.
    pub(super) fn is_parted(&self) -> bool {
        self.parts.len() > 1
    }

    /// The part that was made from the one with the node.
    fn part_of(&self, node: GraphNode) -> &DriverExec {
        &self.parts[node.part as usize]
    }

    /// Changes a copy node of one row for later launches. The driver changes no others.
    pub(super) fn set_copy(&mut self, node: GraphNode, copy: &CopyBox) -> Result<(), CudaFailure> {
        let (exec, node) = (self.part_of(node), node.raw);
        let (context, params) = (exec.context().of_nodes(), copy_params(copy));
        let params = &raw const params;
        exec.context().confined(|| {
            // SAFETY: the node is of the graph that this was made from; the parameters are complete,
            // and copied.
            unsafe { call!(exec.driver(), cuGraphExecMemcpyNodeSetParams(exec.raw(), node, params, context)) }
        })
    }
}

impl InstantiatedGraph<CudaDeviceInner> for CudaGraphExec {
    fn instantiate(graph: &mut CudaGraph) -> Result<Self, CudaFailure> {
        let instantiate = |part: &GraphPart| {
            // Memory that a launch has not freed, the next one frees before it allocates.
            let flags = match part.is_captured {
                true => CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.into(),
                false => 0,
            };
            let context = part.graph.context();
            DriverExec::create_by(context, |driver, place| {
                context.confined(|| {
                    // SAFETY: the graph is alive, the place valid.
                    unsafe { call!(driver, cuGraphInstantiateWithFlags(place, part.graph.raw(), flags)) }
                })
            })
        };
        Ok(Self { parts: graph.parts().map(instantiate).collect::<Result<_, _>>()? })
    }

    fn upload(&mut self, stream: &CudaStream) -> Result<(), CudaFailure> {
        self.parts.iter().try_for_each(|part| {
            // SAFETY: both are alive and of one context.
            unsafe { call!(part.driver(), cuGraphUpload(part.raw(), stream.raw())) }
        })
    }

    fn launch(&mut self, stream: &CudaStream) -> Result<Option<CudaFailure>, CudaFailure> {
        for (number, part) in self.parts.iter().enumerate() {
            // SAFETY: both are alive and of one context.
            match unsafe { call!(part.driver(), cuGraphLaunch(part.raw(), stream.raw())) } {
                Ok(()) => {}
                Err(failure) if number == 0 => return Err(failure),
                Err(failure) => return Ok(Some(failure)),
            }
        }
        Ok(None)
    }

    fn set_kernel(&mut self, node: GraphNode, launch: &CudaLaunch) -> Result<(), CudaFailure> {
        let (exec, node) = (self.part_of(node), node.raw);
        launch.with_params(|params| {
            exec.context().confined(|| {
                // SAFETY: the node is of the graph that this was made from; the parameters are
                // complete, and copied.
                unsafe { call!(exec.driver(), cuGraphExecKernelNodeSetParams(exec.raw(), node, params)) }
            })
        })
    }

    /// Enables or disables a kernel or copy node in later launches.
    ///
    /// Not a memset node: with a disabled one the driver loses the order of what comes before and
    /// after it. The caller sets the parameters of a node again after it has enabled it: if a node
    /// gets new parameters and is disabled before a launch has used them, the driver forgets them.
    fn set_enabled(&mut self, node: GraphNode, enabled: bool) -> Result<(), CudaFailure> {
        let (exec, node) = (self.part_of(node), node.raw);
        // SAFETY: the node is of the graph that this was made from, and of a kind that can be
        // disabled.
        unsafe { call!(exec.driver(), cuGraphNodeSetEnabled(exec.raw(), node, u32::from(enabled))) }
    }

    fn update(&mut self, graph: &mut CudaGraph) -> Result<bool, CudaFailure> {
        if graph.last_part() as usize + 1 != self.parts.len() {
            return Ok(false);
        }
        for (exec, part) in self.parts.iter().zip(graph.parts()) {
            if !update(exec, &part.graph)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn set_event(&mut self, node: GraphNode, event: &CudaRawEvent) -> Result<(), CudaFailure> {
        let (exec, node, event) = (self.part_of(node), node.raw, event.raw());
        // SAFETY: the node is of the graph that this was made from; the event is alive.
        unsafe { call!(exec.driver(), cuGraphExecEventRecordNodeSetEvent(exec.raw(), node, event)) }
    }
}

/// Makes later launches of one part do what a graph says. False where the driver refuses.
fn update(exec: &DriverExec, graph: &DriverGraph) -> Result<bool, CudaFailure> {
    let mut info =
        CUgraphExecUpdateResultInfo { result: 0, errorNode: ptr::null_mut(), errorFromNode: ptr::null_mut() };
    let place = &raw mut info;
    let updated = exec.context().confined(|| {
        // SAFETY: both are alive; the pointer is valid for such a structure.
        unsafe { call!(exec.driver(), cuGraphExecUpdate(exec.raw(), graph.raw(), place)) }
    });
    match updated {
        Ok(()) => Ok(true),
        Err(CudaFailure { code, .. }) if REFUSALS.contains(&code) => {
            let reason = info.result;
            tracing::debug!(target: "wakegraph::cuda", reason, "an update in place was refused");
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

/// A copy in the form that the driver takes.
pub(super) fn copy_params(copy: &CopyBox) -> CUDA_MEMCPY3D {
    let CopyBox { from, to, width, height, depth } = *copy;
    // The driver knows its own addresses, those of pinned memory among them. Others have to be
    // named as the host's.
    let kind = |side: BoxSide| match side.start.is_foreign {
        true => CU_MEMORYTYPE_HOST,
        false => CU_MEMORYTYPE_UNIFIED,
    };
    let [from_rows, to_rows] = copy.slice_rows();
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: kind(from),
        srcHost: from.start.address as *const c_void,
        srcDevice: from.start.address,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: from.pitch,
        srcHeight: from_rows,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: kind(to),
        dstHost: to.start.address as *mut c_void,
        dstDevice: to.start.address,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: to.pitch,
        dstHeight: to_rows,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    }
}

/// A fill in the form that the driver takes.
fn fill_params(fill: &FillRow) -> CUDA_MEMSET_NODE_PARAMS {
    let FillRow { address, value, element, count } = *fill;
    CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: element, width: count, height: 1 }
}

//! Where nodes are added: a graph, or a body in it, which is the driver's.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use super::context::Context;
use super::graph::{Graph, Node};
use super::launch::Launch;
use super::shape::{CopyShape, SetShape, Side};
use super::stream::RawEvent;
use super::sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_MEMCPY3D_st, CUDA_MEMSET_NODE_PARAMS_st, CUgraph,
    CUgraphConditionalHandle, CUgraphConditionalNodeType, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUmemorytype, Failure, call, missing,
};

/// A graph's nodes, for as long as somebody holds the graph exclusively and has bound the context.
///
/// Every method adds one node behind others, which are named once each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    context: &'a Context,
    raw: CUgraph,
    graph: PhantomData<&'a mut Graph>,
}

/// What decides about a conditional node; a kernel sets it.
pub(super) type Handle = CUgraphConditionalHandle;

impl<'a> Place<'a> {
    pub(super) fn new(context: &'a Context, raw: CUgraph) -> Self {
        Self { context, raw, graph: PhantomData }
    }

    pub(super) fn add_kernel(self, launch: &Launch, after: &[Node]) -> Result<Node, Failure> {
        let driver = self.context.driver;
        launch.with_params(|params| {
            self.add(after, |node, graph, before, count| {
                // SAFETY: nodes and graph are alive; the parameters are complete, and copied.
                unsafe { call!(driver, cuGraphAddKernelNode(node, graph, before, count, params)) }
            })
        })
    }

    pub(super) fn add_copy(
        self,
        shape: &CopyShape,
        foreign: [bool; 2],
        after: &[Node],
    ) -> Result<Node, Failure> {
        let (driver, context) = (self.context.driver, self.context.raw());
        let copy = copy_params(shape, foreign);
        let copy = &raw const copy;
        self.add(after, |node, graph, before, count| {
            // SAFETY: nodes and graph are alive; the parameters are complete, and copied.
            unsafe { call!(driver, cuGraphAddMemcpyNode(node, graph, before, count, copy, context)) }
        })
    }

    pub(super) fn add_set(self, shape: &SetShape, after: &[Node]) -> Result<Node, Failure> {
        let (driver, context) = (self.context.driver, self.context.raw());
        let set = set_params(shape);
        let set = &raw const set;
        self.add(after, |node, graph, before, count| {
            // SAFETY: nodes and graph are alive; the parameters are complete, and copied.
            unsafe { call!(driver, cuGraphAddMemsetNode(node, graph, before, count, set, context)) }
        })
    }

    /// A node that does nothing.
    pub(super) fn add_empty(self, after: &[Node]) -> Result<Node, Failure> {
        let driver = self.context.driver;
        self.add(after, |node, graph, before, count| {
            // SAFETY: nodes and graph are alive.
            unsafe { call!(driver, cuGraphAddEmptyNode(node, graph, before, count)) }
        })
    }

    /// A node that records an event.
    pub(super) fn add_record(self, event: &RawEvent, after: &[Node]) -> Result<Node, Failure> {
        let (driver, event) = (self.context.driver, event.raw());
        self.add(after, |node, graph, before, count| {
            // SAFETY: nodes, graph and event are alive.
            unsafe { call!(driver, cuGraphAddEventRecordNode(node, graph, before, count, event)) }
        })
    }

    /// A node that is a copy of another graph.
    pub(super) fn add_graph(self, child: &Graph, after: &[Node]) -> Result<Node, Failure> {
        let (driver, child) = (self.context.driver, child.raw());
        self.add(after, |node, graph, before, count| {
            // SAFETY: nodes and both graphs are alive.
            unsafe { call!(driver, cuGraphAddChildGraphNode(node, graph, before, count, child)) }
        })
    }

    /// A handle for one conditional node here, undecided before each launch.
    pub(super) fn create_handle(self) -> Result<Handle, Failure> {
        let driver = self.context.driver;
        let Some(create) = driver.cuGraphConditionalHandleCreate else {
            return Err(missing("cuGraphConditionalHandleCreate"));
        };
        let mut handle = 0;
        // SAFETY: graph and context are alive; the place is a number's.
        let code = unsafe { create(&raw mut handle, self.raw, self.context.raw(), 0, 0) };
        super::sys::outcome("cuGraphConditionalHandleCreate", code)?;
        Ok(handle)
    }

    /// A node that runs one of `N` bodies, or its only one again and again, as the handle says.
    pub(super) fn add_conditional<const N: usize>(
        self,
        kind: CUgraphConditionalNodeType,
        handle: Handle,
        after: &[Node],
    ) -> Result<(Node, [Place<'a>; N]), Failure> {
        let Some(add) = self.context.driver.cuGraphAddNode else { return Err(missing("cuGraphAddNode")) };
        // All zero first, so that no byte of the union is left open.
        let mut params = CUgraphNodeParams {
            type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            __bindgen_anon_1: super::sys::CUgraphNodeParams_st__bindgen_ty_1 { reserved1: [0; 29] },
            reserved2: 0,
        };
        params.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            type_: kind,
            size: N as u32,
            phGraph_out: ptr::null_mut(),
            ctx: self.context.raw(),
        };
        let place = &raw mut params;
        let node = self.add(after, |node, graph, before, count| {
            // SAFETY: nodes, graph and handle are alive; the parameters are complete.
            let code = unsafe { add(node, graph, before, ptr::null(), count, place) };
            super::sys::outcome("cuGraphAddNode", code)
        })?;
        // SAFETY: these are still a conditional's parameters.
        let conditional = unsafe { params.__bindgen_anon_1.conditional };
        // SAFETY: the driver has put the place of its array of as many graphs there, which live as
        // long as the node.
        let bodies = unsafe { conditional.phGraph_out.cast::<[CUgraph; N]>().read() };
        Ok((node, bodies.map(|body| Place::new(self.context, body))))
    }

    fn add(
        self,
        after: &[Node],
        add: impl FnOnce(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize) -> Result<(), Failure>,
    ) -> Result<Node, Failure> {
        let mut node = ptr::null_mut();
        add(&raw mut node, self.raw, after.as_ptr().cast(), after.len())?;
        Ok(Node(node))
    }
}

pub(super) fn copy_params(shape: &CopyShape, foreign: [bool; 2]) -> CUDA_MEMCPY3D_st {
    let CopyShape { from, to, width, height, depth } = *shape;
    // The driver knows its own addresses, pinned ones among them; others have to be called the host's.
    let [from_type, to_type] = foreign.map(|foreign| match foreign {
        true => CUmemorytype::CU_MEMORYTYPE_HOST,
        false => CUmemorytype::CU_MEMORYTYPE_UNIFIED,
    });
    let rows = |side: Side| if depth == 1 { height } else { side.rows };
    CUDA_MEMCPY3D_st {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: from_type,
        srcHost: from.address as *const c_void,
        srcDevice: from.address,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: from.pitch,
        srcHeight: rows(from),
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: to_type,
        dstHost: to.address as *mut c_void,
        dstDevice: to.address,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: to.pitch,
        dstHeight: rows(to),
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    }
}

fn set_params(shape: &SetShape) -> CUDA_MEMSET_NODE_PARAMS_st {
    let SetShape { address, value, element, count } = *shape;
    CUDA_MEMSET_NODE_PARAMS_st {
        dst: address,
        pitch: 0,
        value,
        elementSize: element,
        width: count,
        height: 1,
    }
}

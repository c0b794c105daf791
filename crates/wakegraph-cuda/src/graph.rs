//! The driver's graphs, and how nodes are added to them.
#![expect(unsafe_code, reason = "calls the driver")]

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::copy_box::CopyBox;
use wakegraph_hal::support::fill_row::FillRow;

use super::context::CudaContext;
use super::handle::CudaObject;
use super::launch::CudaLaunch;
use super::stream::CudaRawEvent;
use super::sys::{
    CU_GRAPH_NODE_TYPE_CONDITIONAL, CUDA_CONDITIONAL_NODE_PARAMS, CUgraph, CUgraph_st,
    CUgraphConditionalHandle, CUgraphConditionalNodeType, CUgraphConditionalParams, CUgraphEdgeData,
    CUgraphKernelParams, CUgraphNode, CudaFailure, call, missing, outcome,
};
use super::transfer::{copy_params, fill_params};

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

/// A graph under construction, in parts that are launched one behind the other: mostly one. The caller of its
/// methods has bound the context.
#[derive(Debug)]
pub(super) struct CudaGraph {
    /// The parts before the last one.
    earlier: Vec<DriverGraph>,
    last: DriverGraph,
}

impl CudaGraph {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        Ok(Self { earlier: Vec::new(), last: create_graph(context)? })
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &DriverGraph> {
        self.earlier.iter().chain([&self.last])
    }

    /// The number of the last part, where nodes are added.
    pub(super) fn last_part(&self) -> u32 {
        self.earlier.len() as u32
    }

    /// Has nodes added to another part from now on.
    pub(super) fn begin_part(&mut self) -> Result<(), CudaFailure> {
        let new = create_graph(self.last.context())?;
        self.earlier.push(std::mem::replace(&mut self.last, new));
        Ok(())
    }

    /// Gives up the last part, which has no nodes.
    pub(super) fn give_up_part(&mut self) {
        if let Some(before) = self.earlier.pop() {
            self.last = before;
        }
    }

    /// Where its nodes are added.
    pub(super) fn body(&mut self) -> GraphBody<'_> {
        let (context, part, raw) = (self.last.context(), self.last_part(), self.last.raw());
        GraphBody { context, part, raw, graph: PhantomData }
    }

    /// Removes a node that no other follows.
    pub(super) fn remove(&mut self, node: GraphNode) -> Result<(), CudaFailure> {
        // SAFETY: the node is of this graph, and not used any more.
        unsafe { call!(self.last.driver(), cuGraphDestroyNode(node.raw)) }
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
                let (params, context) = (&copy_params(copy), self.context.raw);
                // SAFETY: as above.
                unsafe { call!(driver, cuGraphAddMemcpyNode(place, graph, before, count, params, context)) }
            }
            NewNode::Fill(fill) => {
                let (params, context) = (&fill_params(fill), self.context.raw);
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
        let mut handle = 0;
        // SAFETY: graph and context are alive; the pointer is valid for a number.
        let code = unsafe { create(&raw mut handle, self.raw, self.context.raw, 0, 0) };
        outcome(CALL, code)?;
        Ok(handle)
    }

    /// Adds a node that runs one of `N` bodies, or its only body repeatedly, as the handle says.
    pub(super) fn add_conditional<const N: usize>(
        self,
        kind: CUgraphConditionalNodeType,
        handle: ConditionalHandle,
        after: &[GraphNode],
    ) -> Result<(GraphNode, [GraphBody<'a>; N]), CudaFailure> {
        const CALL: &str = "cuGraphAddNode";
        let add = self.context.driver.cuGraphAddNode.ok_or_else(|| missing(CALL))?;
        let mut params = CUgraphConditionalParams {
            type_: CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            conditional: CUDA_CONDITIONAL_NODE_PARAMS {
                handle,
                type_: kind,
                size: N as u32,
                phGraph_out: ptr::null_mut(),
                ctx: self.context.raw,
            },
            reserved1: [0; 25],
            reserved2: 0,
        };
        let after = raw_nodes(after);
        let (before, count, params_ptr) = (after.as_ptr(), after.len(), (&raw mut params).cast());
        let mut node = ptr::null_mut();
        // SAFETY: nodes, graph and handle are alive; the parameters are complete.
        outcome(CALL, unsafe { add(&raw mut node, self.raw, before, ptr::null(), count, params_ptr) })?;
        // SAFETY: the driver has written a pointer to its array of as many graphs, which live as
        // long as the node.
        let bodies = unsafe { params.conditional.phGraph_out.cast::<[CUgraph; N]>().read() };
        Ok((GraphNode { part: self.part, raw: node }, bodies.map(|raw| Self { raw, ..self })))
    }
}

fn raw_nodes(nodes: &[GraphNode]) -> SmallVec<[CUgraphNode; 4]> {
    nodes.iter().map(|node| node.raw).collect()
}

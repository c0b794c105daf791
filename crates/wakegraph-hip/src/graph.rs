//! The driver's graphs, and how nodes are added to them.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::copy_box::CopyBox;
use wakegraph_hal::support::fill_row::FillRow;

use super::context::HipContext;
use super::handle::HipObject;
use super::launch::HipLaunch;
use super::stream::HipRawEvent;
use super::sys::{Driver, HipFailure, call, hipGraphNode_t, hipMemcpyDefault, ihipGraph};
use super::transfer::{copy_params, fill_params};

/// A node of a graph, which keeps it alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub(super) struct HipGraphNode(pub(super) hipGraphNode_t);

// SAFETY: a node is a name; the calls that use it lock the graph.
unsafe impl Send for HipGraphNode {}
// SAFETY: as for `Send`.
unsafe impl Sync for HipGraphNode {}

/// A node to add.
#[derive(Clone, Copy, Debug)]
pub(super) enum HipNewNode<'a> {
    Kernel(&'a HipLaunch),
    Copy(&'a CopyBox),
    Fill(&'a FillRow),
    /// Records an event.
    Record(&'a HipRawEvent),
    /// A copy of another graph.
    Graph(&'a HipGraph),
}

/// A graph under construction. The caller of its methods has bound the context.
pub(super) type HipGraph = HipObject<ihipGraph>;

pub(super) fn create_graph(context: &Arc<HipContext>) -> Result<HipGraph, HipFailure> {
    let create = |driver: &Driver, place| {
        // SAFETY: the device is current, the place valid.
        unsafe { call!(driver, hipGraphCreate(place, 0)) }
    };
    HipGraph::create_by(context, create)
}

/// Adds a node behind others, each of which is named once.
pub(super) fn add_node(
    graph: &mut HipGraph,
    new: HipNewNode<'_>,
    after: &[HipGraphNode],
) -> Result<HipGraphNode, HipFailure> {
    let (driver, raw, before, count) = (graph.driver(), graph.raw(), after.as_ptr().cast(), after.len());
    let mut node = ptr::null_mut();
    let place = &raw mut node;
    match new {
        HipNewNode::Kernel(launch) => launch.with_params(|params| {
            let _arguments = graph.context().arguments.hold();
            // SAFETY: nodes and graph are alive; the parameters are complete, and copied.
            unsafe { call!(driver, hipGraphAddKernelNode(place, raw, before, count, params)) }
        }),
        HipNewNode::Copy(copy) if copy.is_row() => {
            let (from, to) = (
                ptr::with_exposed_provenance(copy.from.start.address as usize),
                ptr::with_exposed_provenance_mut(copy.to.start.address as usize),
            );
            let (len, kind) = (copy.width, hipMemcpyDefault);
            // SAFETY: nodes and graph are alive.
            unsafe { call!(driver, hipGraphAddMemcpyNode1D(place, raw, before, count, to, from, len, kind)) }
        }
        HipNewNode::Copy(copy) => {
            let params = &copy_params(copy);
            // SAFETY: as for a kernel.
            unsafe { call!(driver, hipGraphAddMemcpyNode(place, raw, before, count, params)) }
        }
        HipNewNode::Fill(fill) => {
            let params = &fill_params(fill);
            // SAFETY: as for a kernel.
            unsafe { call!(driver, hipGraphAddMemsetNode(place, raw, before, count, params)) }
        }
        HipNewNode::Record(event) => {
            let event = event.raw();
            // SAFETY: nodes, graph and event are alive.
            unsafe { call!(driver, hipGraphAddEventRecordNode(place, raw, before, count, event)) }
        }
        HipNewNode::Graph(child) => {
            let child = child.raw();
            // SAFETY: nodes and both graphs are alive.
            unsafe { call!(driver, hipGraphAddChildGraphNode(place, raw, before, count, child)) }
        }
    }?;
    Ok(HipGraphNode(node))
}

/// Removes a node that no other follows.
pub(super) fn remove_node(graph: &mut HipGraph, node: HipGraphNode) -> Result<(), HipFailure> {
    // SAFETY: the node is of this graph, and not used any more.
    unsafe { call!(graph.driver(), hipGraphDestroyNode(node.0)) }
}

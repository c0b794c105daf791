//! The driver's graphs: how nodes are added to them, and what is instantiated and launched.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::graphs::InstantiatedGraph;
use wakegraph_hal::support::memory::{BoxSide, CopyBox, FillRow};

use super::context::{HipContext, HipObject, HipRawEvent, HipStream};
use super::device::HipDeviceInner;
use super::kernel::HipLaunch;
use super::sys::{
    Code, HipFailure, call, hipErrorGraphExecUpdateFailure, hipErrorInvalidValue, hipErrorNotSupported,
    hipExtent, hipGraphExec, hipGraphNode_t, hipGraphNodeTypeMemAlloc, hipGraphNodeTypeMemFree,
    hipMemcpy3DParms, hipMemcpyDefault, hipMemsetParams, hipPitchedPtr, hipPos, ihipGraph,
};

/// A node of a graph, which keeps it alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub(super) struct HipGraphNode(hipGraphNode_t);

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
    HipGraph::create_by(context, |driver, place| {
        // SAFETY: the device is current, the place valid.
        unsafe { call!(driver, hipGraphCreate(place, 0)) }
    })
}

/// Whether a graph allocates or frees memory.
pub(super) fn allocates(graph: &HipGraph) -> Result<bool, HipFailure> {
    let mut count = 0;
    // SAFETY: without an array, the driver writes the number of nodes alone.
    unsafe { call!(graph.driver(), hipGraphGetNodes(graph.raw(), ptr::null_mut(), &raw mut count)) }?;
    let mut nodes = vec![ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: there is room for as many nodes.
        unsafe { call!(graph.driver(), hipGraphGetNodes(graph.raw(), nodes.as_mut_ptr(), &raw mut count)) }?;
    }
    for node in nodes {
        let mut kind = 0;
        // SAFETY: the node is of this graph; the pointer is valid for a number.
        unsafe { call!(graph.driver(), hipGraphNodeGetType(node, &raw mut kind)) }?;
        if matches!(kind, hipGraphNodeTypeMemAlloc | hipGraphNodeTypeMemFree) {
            return Ok(true);
        }
    }
    Ok(false)
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

/// The codes with which the driver refuses an update in place.
const REFUSALS: [Code; 3] = [hipErrorInvalidValue, hipErrorNotSupported, hipErrorGraphExecUpdateFailure];

/// An instantiated graph. The driver takes one call at a time. The caller ensures this, and has
/// bound the context.
pub(super) type HipGraphExec = HipObject<hipGraphExec>;

impl InstantiatedGraph<HipDeviceInner> for HipGraphExec {
    fn instantiate(graph: &mut HipGraph) -> Result<Self, HipFailure> {
        let _addresses = graph.context().addresses.hold_to_allocate();
        let _arguments = graph.context().arguments.hold();
        Self::create_by(graph.context(), |driver, place| {
            // SAFETY: the graph is alive, the place valid.
            unsafe { call!(driver, hipGraphInstantiateWithFlags(place, graph.raw(), 0)) }
        })
    }

    fn upload(&mut self, stream: &HipStream) -> Result<(), HipFailure> {
        let _addresses = self.context().addresses.hold_to_allocate();
        let _arguments = self.context().arguments.hold();
        // SAFETY: both are alive and of one device.
        unsafe { call!(self.driver(), hipGraphUpload(self.raw(), stream.raw())) }
    }

    fn launch(&mut self, stream: &HipStream) -> Result<Option<HipFailure>, HipFailure> {
        let _arguments = self.context().arguments.hold();
        // SAFETY: both are alive and of one device.
        unsafe { call!(self.driver(), hipGraphLaunch(self.raw(), stream.raw())) }.map(|()| None)
    }

    fn set_kernel(&mut self, HipGraphNode(node): HipGraphNode, launch: &HipLaunch) -> Result<(), HipFailure> {
        launch.with_params(|params| {
            let _arguments = self.context().arguments.hold();
            // SAFETY: the node is of the graph that this was made from; the parameters are
            // complete, and copied.
            unsafe { call!(self.driver(), hipGraphExecKernelNodeSetParams(self.raw(), node, params)) }
        })
    }

    /// Enables or disables a kernel, copy or memset node in later launches.
    fn set_enabled(&mut self, HipGraphNode(node): HipGraphNode, enabled: bool) -> Result<(), HipFailure> {
        // SAFETY: the node is of the graph that this was made from, and of a kind that can be
        // disabled.
        unsafe { call!(self.driver(), hipGraphNodeSetEnabled(self.raw(), node, u32::from(enabled))) }
    }

    fn update(&mut self, graph: &mut HipGraph) -> Result<bool, HipFailure> {
        let (mut node, mut reason) = (ptr::null_mut(), 0);
        let places = (&raw mut node, &raw mut reason);
        let _addresses = self.context().addresses.hold_to_allocate();
        let _arguments = self.context().arguments.hold();
        // SAFETY: both graphs are alive, the places valid.
        match unsafe { call!(self.driver(), hipGraphExecUpdate(self.raw(), graph.raw(), places.0, places.1)) }
        {
            Ok(()) => Ok(true),
            Err(HipFailure { code, .. }) if REFUSALS.contains(&code) => {
                tracing::debug!(target: "wakegraph::hip", reason, "an update in place was refused");
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    fn set_event(&mut self, HipGraphNode(node): HipGraphNode, event: &HipRawEvent) -> Result<(), HipFailure> {
        let event = event.raw();
        // SAFETY: the node is of the graph that this was made from; the event is alive.
        unsafe { call!(self.driver(), hipGraphExecEventRecordNodeSetEvent(self.raw(), node, event)) }
    }
}

/// A copy in the form that the driver takes. Both sides of the box are described by their rows: the driver
/// reads beyond slices of fewer rows than the copy has.
fn copy_params(copy: &CopyBox) -> hipMemcpy3DParms {
    let [from_rows, to_rows] = copy.slice_rows();
    let side = |side: BoxSide, rows| hipPitchedPtr {
        ptr: ptr::with_exposed_provenance_mut(side.start.address as usize),
        pitch: side.pitch,
        // With a size, the driver compares memory with whole slices, and the last may end early.
        xsize: 0,
        ysize: rows,
    };
    let origin = hipPos { x: 0, y: 0, z: 0 };
    hipMemcpy3DParms {
        srcArray: ptr::null_mut(),
        srcPos: origin,
        srcPtr: side(copy.from, from_rows),
        dstArray: ptr::null_mut(),
        dstPos: origin,
        dstPtr: side(copy.to, to_rows),
        extent: hipExtent { width: copy.width, height: copy.height, depth: copy.depth },
        // The driver knows the addresses of its own memory; all others are the host's.
        kind: hipMemcpyDefault,
    }
}

/// A fill in the form that the driver takes.
fn fill_params(fill: &FillRow) -> hipMemsetParams {
    let FillRow { address, value, element, count } = *fill;
    hipMemsetParams {
        dst: ptr::with_exposed_provenance_mut(address as usize),
        elementSize: element,
        height: 1,
        pitch: 0,
        value,
        width: count,
    }
}

//! Instantiated graphs: what the driver launches.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use wakegraph_hal::support::graphs::InstantiatedGraph;

use super::device_inner::HipDeviceInner;
use super::graph::{HipGraph, HipGraphNode};
use super::handle::HipObject;
use super::launch::HipLaunch;
use super::stream::{HipRawEvent, HipStream};
use super::sys::{
    Code, HipFailure, call, hipErrorGraphExecUpdateFailure, hipErrorInvalidValue, hipErrorNotSupported,
    hipGraphExec,
};

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

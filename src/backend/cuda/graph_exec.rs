//! Instantiated graphs: what the driver launches.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::device_inner::CudaDeviceInner;
use super::graph::{CudaGraph, GraphNode};
use super::handle::CudaObject;
use super::launch::CudaLaunch;
use super::stream::{CudaRawEvent, CudaStream};
use super::sys::{
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUgraphExec_st,
    CUgraphExecUpdateResultInfo, CUresult, CudaFailure, call,
};
use super::transfer::copy_params;
use crate::hal::support::copy_box::CopyBox;
use crate::hal::support::graphs::InstantiatedGraph;

/// The codes with which the driver refuses an update in place.
const REFUSALS: [CUresult; 3] =
    [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE];

/// An instantiated graph. The driver takes one call at a time. The caller ensures this, and has
/// bound the context.
pub(super) type CudaGraphExec = CudaObject<CUgraphExec_st>;

impl CudaObject<CUgraphExec_st> {
    /// Changes a copy node of one row for later launches. The driver changes no others.
    pub(super) fn set_copy(&mut self, GraphNode(node): GraphNode, copy: &CopyBox) -> Result<(), CudaFailure> {
        let (context, params) = (self.context().raw, copy_params(copy));
        let params = &raw const params;
        // SAFETY: the node is of the graph that this was made from; the parameters are complete,
        // and copied.
        unsafe { call!(self.driver(), cuGraphExecMemcpyNodeSetParams(self.raw(), node, params, context)) }
    }
}

impl InstantiatedGraph<CudaDeviceInner> for CudaGraphExec {
    fn instantiate(graph: &mut CudaGraph) -> Result<Self, CudaFailure> {
        Self::create_by(graph.context(), |driver, place| {
            // SAFETY: the graph is alive, the place valid.
            unsafe { call!(driver, cuGraphInstantiateWithFlags(place, graph.raw(), 0)) }
        })
    }

    fn upload(&mut self, stream: &CudaStream) -> Result<(), CudaFailure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.driver(), cuGraphUpload(self.raw(), stream.raw())) }
    }

    fn launch(&mut self, stream: &CudaStream) -> Result<(), CudaFailure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.driver(), cuGraphLaunch(self.raw(), stream.raw())) }
    }

    fn set_kernel(&mut self, GraphNode(node): GraphNode, launch: &CudaLaunch) -> Result<(), CudaFailure> {
        launch.with_params(|params| {
            // SAFETY: the node is of the graph that this was made from; the parameters are
            // complete, and copied.
            unsafe { call!(self.driver(), cuGraphExecKernelNodeSetParams(self.raw(), node, params)) }
        })
    }

    /// Enables or disables a kernel or copy node in later launches.
    ///
    /// Not a memset node: with a disabled one the driver loses the order of what comes before and
    /// after it. The caller sets the parameters of a node again after it has enabled it: if a node
    /// gets new parameters and is disabled before a launch has used them, the driver forgets them.
    fn set_enabled(&mut self, GraphNode(node): GraphNode, enabled: bool) -> Result<(), CudaFailure> {
        // SAFETY: the node is of the graph that this was made from, and of a kind that can be
        // disabled.
        unsafe { call!(self.driver(), cuGraphNodeSetEnabled(self.raw(), node, u32::from(enabled))) }
    }

    fn update(&mut self, graph: &mut CudaGraph) -> Result<bool, CudaFailure> {
        let mut info = CUgraphExecUpdateResultInfo {
            result: 0,
            errorNode: ptr::null_mut(),
            errorFromNode: ptr::null_mut(),
        };
        let place = &raw mut info;
        // SAFETY: both are alive; the pointer is valid for such a structure.
        match unsafe { call!(self.driver(), cuGraphExecUpdate(self.raw(), graph.raw(), place)) } {
            Ok(()) => Ok(true),
            Err(CudaFailure { code, .. }) if REFUSALS.contains(&code) => {
                let reason = info.result;
                tracing::debug!(target: "wakegraph::cuda", reason, "an update in place was refused");
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    fn set_event(&mut self, GraphNode(node): GraphNode, event: &CudaRawEvent) -> Result<(), CudaFailure> {
        let event = event.raw();
        // SAFETY: the node is of the graph that this was made from; the event is alive.
        unsafe { call!(self.driver(), cuGraphExecEventRecordNodeSetEvent(self.raw(), node, event)) }
    }
}

//! Instantiated graphs: what the driver launches.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use smallvec::SmallVec;
use wakegraph_hal::support::copy_box::CopyBox;
use wakegraph_hal::support::graphs::InstantiatedGraph;

use super::device_inner::CudaDeviceInner;
use super::graph::{CudaGraph, DriverGraph, GraphNode};
use super::handle::CudaObject;
use super::launch::CudaLaunch;
use super::stream::{CudaRawEvent, CudaStream};
use super::sys::{
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUgraphExec_st,
    CUgraphExecUpdateResultInfo, CUresult, CudaFailure, call,
};
use super::transfer::copy_params;

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
        let (context, params) = (exec.context().raw, copy_params(copy));
        let params = &raw const params;
        // SAFETY: the node is of the graph that this was made from; the parameters are complete,
        // and copied.
        unsafe { call!(exec.driver(), cuGraphExecMemcpyNodeSetParams(exec.raw(), node, params, context)) }
    }
}

impl InstantiatedGraph<CudaDeviceInner> for CudaGraphExec {
    fn instantiate(graph: &mut CudaGraph) -> Result<Self, CudaFailure> {
        let instantiate = |part: &DriverGraph| {
            DriverExec::create_by(part.context(), |driver, place| {
                // SAFETY: the graph is alive, the place valid.
                unsafe { call!(driver, cuGraphInstantiateWithFlags(place, part.raw(), 0)) }
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
            // SAFETY: the node is of the graph that this was made from; the parameters are
            // complete, and copied.
            unsafe { call!(exec.driver(), cuGraphExecKernelNodeSetParams(exec.raw(), node, params)) }
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
            if !update(exec, part)? {
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
    // SAFETY: both are alive; the pointer is valid for such a structure.
    match unsafe { call!(exec.driver(), cuGraphExecUpdate(exec.raw(), graph.raw(), place)) } {
        Ok(()) => Ok(true),
        Err(CudaFailure { code, .. }) if REFUSALS.contains(&code) => {
            let reason = info.result;
            tracing::debug!(target: "wakegraph::cuda", reason, "an update in place was refused");
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

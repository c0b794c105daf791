//! Command-buffers: how commands become a graph that is launched.

use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::copy_box::CopyBox;
use wakegraph_hal::support::graphs::{
    GraphCommandBuffer, GraphDevice, GraphObjects, GraphState, LaunchableGraph, RecordedCommand,
};
use wakegraph_hal::support::streams::Started;
use wakegraph_hal::{Command, CommandBufferDesc, KernelLaunch, Result};

use super::device_inner::CudaDeviceInner;
use super::graph::{CudaGraph, GraphNode};
use super::graph_exec::CudaGraphExec;
use super::graph_instance::{self, InstanceForm};
use super::launch::CudaLaunch;
use super::lower::copy_boxes;
use super::node_place::NodePlace;
use super::recording::{self, CudaRecording, NodeOrder};
use super::stream::CudaStream;
use super::sys::CudaFailure;

pub(super) type CudaCommandBuffer = GraphCommandBuffer<CudaDeviceInner>;

impl GraphObjects for CudaDeviceInner {
    type Graph = CudaGraph;
    type Node = GraphNode;
    type Launch = CudaLaunch;
    type Exec = CudaGraphExec;
    type Order = NodeOrder;
    type Place = NodePlace;
    type Form = InstanceForm;

    fn create_graph(&self) -> Result<CudaGraph> {
        Ok(CudaGraph::create(&self.context)?)
    }

    fn launch_of(&self, launch: &KernelLaunch) -> Result<CudaLaunch> {
        CudaLaunch::of(self, launch)
    }

    fn replace_argument(current: &mut CudaLaunch, launch: &KernelLaunch, index: usize) -> Result<bool> {
        current.replace_argument(launch, index)
    }
}

impl GraphDevice for CudaDeviceInner {
    type ChangedCopy = (GraphNode, CopyBox);
    const LOWERING: &'static str = "CUDA graph";
    const FORGETS_DISABLED: bool = true;

    fn append(recording: &mut CudaRecording, command: &Command, after: SmallVec<[u32; 2]>) -> Result<()> {
        recording::append(recording, command, after)
    }

    fn append_like(
        recording: &mut CudaRecording,
        command: &Command,
        like: &RecordedCommand<Self>,
        enabled: bool,
    ) -> Result<()> {
        recording::append_after(recording, command, like.place.after.clone(), enabled)
    }

    /// A command that starts early has to wait for the one before it. Where it cannot, or is so
    /// large that waiting costs it more than an early start saves, the graph is recorded again.
    fn launch_in_place(
        &self,
        place: &NodePlace,
        current: &CudaLaunch,
        launch: &KernelLaunch,
    ) -> Result<Option<CudaLaunch>> {
        let mut launch = CudaLaunch::of(self, launch)?;
        if place.starts_early || place.leads_early {
            launch.overlap_like(current, self);
        }
        Ok(Some(launch).filter(|launch| launch.overlaps || !place.starts_early))
    }

    fn can_disable(place: &NodePlace) -> bool {
        !place.starts_early && !place.leads_early
    }

    fn has_same_edges(ours: &NodePlace, theirs: &NodePlace) -> bool {
        ours.starts_early == theirs.starts_early
    }

    fn changed(recording: &mut CudaRecording, index: usize) {
        recording::count_outside(recording, index);
    }

    fn has_only_commands(recording: &CudaRecording) -> bool {
        !recording.order.counts && recording.order.loops.is_none()
    }

    fn instantiate(recording: &mut CudaRecording) -> Result<(CudaGraphExec, InstanceForm)> {
        let (exec, counting) = recording::instantiate(recording)?;
        Ok((exec, InstanceForm::new(counting, recording.order.loops.clone())))
    }

    fn reason(recording: &CudaRecording) -> &'static str {
        let CommandBufferDesc { low_latency, profiling, .. } = recording.desc;
        match () {
            () if recording.order.counts => "its last node counts the runs in pinned memory, for low latency",
            () if recording.graph.lock().last_part() > 0 => {
                "each copy that an engine does behind something else begins another graph; a driver event \
                                   tells of the end"
            }
            () if profiling => "a driver event around each node times it, so no counter tells of its end",
            () if !low_latency => {
                "a driver event tells of its end, as the wake policy is efficient or another \
                                   device partition waits for it"
            }
            () => "a driver event tells of its end, as it is long or uses memory outside the device",
        }
    }

    fn launch(
        instance: &mut LaunchableGraph<Self>,
        recording: &CudaRecording,
        stream: &Arc<CudaStream>,
        counts: bool,
    ) -> Result<Started<Self>> {
        let started = graph_instance::launch(instance, stream, counts)?;
        Ok(Started {
            counted: started.counted.filter(|_| recording::no_command_leaves(recording)),
            ..started
        })
    }

    fn replace(instance: &mut LaunchableGraph<Self>, exec: CudaGraphExec, form: InstanceForm) -> Result<()> {
        Ok(graph_instance::replace(instance, exec, form)?)
    }

    /// The driver sets the parameters of copies of single rows; those of others never change.
    fn changed_copies(recording: &CudaRecording, index: usize) -> Result<Vec<(GraphNode, CopyBox)>> {
        let RecordedCommand { command, nodes, .. } = &recording.commands[index];
        if recording.state != GraphState::Outdated {
            return Ok(Vec::new());
        }
        let copies = nodes.work.iter().copied().zip(copy_boxes(&recording.device, command)?);
        Ok(copies.filter(|(_, copy)| copy.is_row()).collect())
    }

    fn set_copy(exec: &mut CudaGraphExec, (node, copy): &(GraphNode, CopyBox)) -> Result<(), CudaFailure> {
        exec.set_copy(*node, copy)
    }
}

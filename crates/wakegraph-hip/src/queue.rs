//! The launches of queues: single commands and command-buffers.

use std::convert::Infallible;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::graphs::{
    GraphCommandBuffer, GraphDevice, GraphObjects, GraphRecording, InstantiatedGraph as _, LaunchableGraph,
    RecordedCommand, enqueue_as_graph,
};
use wakegraph_hal::support::streams::{BorrowedStream, LaunchDevice, Started, StreamQueue};
use wakegraph_hal::{
    Command, CommandBuffer, CommandBufferDesc, Error, KernelLaunch, Result, Signal, WaitList,
};

use super::context::HipContext;
use super::device::HipDeviceInner;
use super::graph::{HipGraph, HipGraphExec, HipGraphNode, create_graph};
use super::kernel::HipLaunch;
use super::lower::{self, PathEnd};
use super::sys::HipFailure;
use super::updates_in_flight::keep_their_values;

pub(super) type HipCommandBuffer = GraphCommandBuffer<HipDeviceInner>;

/// All nodes are one path.
impl GraphObjects for HipDeviceInner {
    type Graph = HipGraph;
    type Node = HipGraphNode;
    type Launch = HipLaunch;
    type Exec = HipGraphExec;
    type Order = PathEnd;
    type Place = ();
    type Form = ();

    fn create_graph(&self) -> Result<HipGraph> {
        Ok(create_graph(&self.context)?)
    }

    fn launch_of(&self, launch: &KernelLaunch) -> Result<HipLaunch> {
        HipLaunch::of(self, launch)
    }

    fn replace_argument(current: &mut HipLaunch, launch: &KernelLaunch, index: usize) -> Result<bool> {
        current.replace_argument(launch, index)
    }
}

impl GraphDevice for HipDeviceInner {
    type ChangedCopy = Infallible;
    const LOWERING: &'static str = "HIP graph";
    const FORGETS_DISABLED: bool = false;

    /// Behind all earlier ones.
    fn append(recording: &mut GraphRecording<Self>, command: &Command, _: SmallVec<[u32; 2]>) -> Result<()> {
        let (graph, record) = (recording.graph.get_mut(), recording.placeholder.as_ref());
        let (order, updatable) = (&mut recording.order, recording.desc.updatable);
        let nodes = lower::add(&recording.device, graph, order, command, updatable, record)?;
        recording.push(command, nodes, ());
        Ok(())
    }

    fn append_like(
        recording: &mut GraphRecording<Self>,
        command: &Command,
        _: &RecordedCommand<Self>,
        _: bool,
    ) -> Result<()> {
        Self::append(recording, command, SmallVec::new())
    }

    fn instantiate(recording: &mut GraphRecording<Self>) -> Result<(HipGraphExec, ())> {
        Ok((recording.instantiate_graph()?, ()))
    }

    fn reason(recording: &GraphRecording<Self>) -> &'static str {
        match () {
            () if !recording.desc.updatable => {
                "its nodes follow each other in one path: the driver loses edges of other graphs"
            }
            () if keep_their_values(&recording.device) => {
                "its nodes are one path, as the driver loses other edges; updates change it in place, as \
                 a launch in flight kept its values when this was tried"
            }
            () => {
                "its nodes are one path, as the driver loses other edges; updates make a second instance \
                 while a launch is in flight, which might see them"
            }
        }
    }

    fn prepare(device: &Arc<Self>, desc: &CommandBufferDesc) {
        if desc.updatable {
            // Now, as an update is no time for a compilation.
            keep_their_values(device);
        }
    }

    /// The driver orders launches on one stream only: on two streams they would run side by side.
    fn launch(
        instance: &mut LaunchableGraph<Self>,
        _: &GraphRecording<Self>,
        BorrowedStream { stream, turn }: &BorrowedStream<HipContext>,
        _: bool,
    ) -> Result<Started<Self>> {
        instance.check_launch()?;
        instance.follow_last(stream)?;
        let failure = instance.exec.launch(stream)?.map(Error::from);
        instance.launched(turn);
        Ok(Started { failure, ..Started::default() })
    }

    fn replace(instance: &mut LaunchableGraph<Self>, exec: HipGraphExec, form: ()) -> Result<()> {
        instance.swap(exec, form);
        Ok(())
    }

    fn can_change(device: &Arc<Self>, instance: &LaunchableGraph<Self>) -> Result<bool> {
        Ok(keep_their_values(device) || instance.is_idle()?)
    }

    fn set_copy(_: &mut HipGraphExec, copy: &Infallible) -> Result<(), HipFailure> {
        match *copy {}
    }
}

impl LaunchDevice for HipDeviceInner {
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        enqueue_as_graph(queue, command, wait, signal, |graph| {
            lower::add(&queue.device, graph, &mut None, command, false, None)
        })
    }

    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        borrowed: &BorrowedStream<HipContext>,
    ) -> Result<Option<Error>> {
        HipCommandBuffer::launch_in_batch(device, buffer, borrowed)
    }
}

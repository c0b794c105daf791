//! The launches of queues: single commands and command-buffers.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::graphs::{
    CommandNodes, GraphCommandBuffer, GraphDevice, GraphObjects, GraphState, InstantiatedGraph as _,
    LaunchableGraph, RecordedCommand, enqueue_as_graph,
};
use wakegraph_hal::support::memory::{CopyBox, FillRow};
use wakegraph_hal::support::streams::{
    BorrowedStream, DriverContext as _, Kept, LaunchDevice, Started, StreamQueue,
};
use wakegraph_hal::{
    Command, CommandBuffer, CommandBufferDesc, Error, KernelLaunch, MemoryKind, MemoryView, Result, Signal,
    WaitList,
};

use super::context::{CudaContext, CudaRawEvent, CudaStream};
use super::device::{CudaDeviceInner, CudaMemory};
use super::events::LoopStop;
use super::graph::{CudaGraph, CudaGraphExec, GraphNode, copy_params};
use super::kernel::CudaLaunch;
use super::lower::{self, AddOptions, EndNodes, copy_boxes};
use super::recording::{self, CountingKernel, CudaRecording, NodeOrder, NodePlace};
use super::sys::{CUDA_KERNEL_NODE_PARAMS_v2, CudaFailure, call};

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

/// State that an instance has beside the instantiated graph.
#[derive(Debug)]
pub(super) struct InstanceForm {
    /// In the low-latency form: counts every launch.
    counting: Option<CountingKernel>,
    /// With loops: stops those of a run.
    loops: Option<Arc<LoopStop>>,
    /// The next launch waits for this: the end of the last launch of the graph before this one.
    after: Option<CudaRawEvent>,
}

impl InstanceForm {
    fn new(counting: Option<CountingKernel>, loops: Option<Arc<LoopStop>>) -> Self {
        Self { counting, loops, after: None }
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

    /// The driver starts the graph when its last launch has ended, on whatever stream that was, so runs are
    /// counted in the order of the launches.
    fn launch(
        instance: &mut LaunchableGraph<Self>,
        recording: &CudaRecording,
        BorrowedStream { stream, turn }: &BorrowedStream<CudaContext>,
        counts: bool,
    ) -> Result<Started<Self>> {
        instance.check_launch()?;
        if let Some(after) = &instance.form.after {
            stream.wait(after)?;
        } else if instance.exec.is_parted() || instance.form.loops.is_some() {
            // The driver has each part wait for its own last launch, and not for that of the others. And the
            // number of a run must not change while the one before compares it.
            instance.follow_last(stream)?;
        }
        let loops = instance.form.loops.as_ref().map(|loops| loops.begin_run(stream)).transpose()?;
        enable_counting(instance, counts);
        let failure = match instance.exec.launch(stream) {
            Ok(failure) => failure.map(Error::from),
            Err(failure) => {
                stop_counting(instance, failure)?;
                instance.exec.launch(stream)?.map(Error::from)
            }
        };
        instance.form.after = None;
        instance.launched(turn);
        let counting = instance.form.counting.as_ref().filter(|counting| counting.is_enabled);
        let counted = counting.map(|counting| counting.counter.launched());
        Ok(Started { counted: counted.filter(|_| recording::no_command_leaves(recording)), loops, failure })
    }

    fn replace(
        instance: &mut LaunchableGraph<Self>,
        exec: CudaGraphExec,
        mut form: InstanceForm,
    ) -> Result<()> {
        if let Some(fence) = instance.fence()? {
            instance.form.after = Some(fence);
        }
        form.after = instance.form.after.take();
        instance.swap(exec, form);
        Ok(())
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

/// Has later launches counted or not. Where the driver refuses, they stay as they are.
fn enable_counting(instance: &mut LaunchableGraph<CudaDeviceInner>, enabled: bool) {
    let Some(counting) = &mut instance.form.counting else { return };
    let is_due = counting.is_due(enabled);
    if is_due && instance.exec.set_enabled(counting.node, enabled).is_ok() {
        counting.is_enabled = enabled;
    }
}

/// Gives up the low-latency form, which is only a hint, as a launch of it has failed.
fn stop_counting(
    instance: &mut LaunchableGraph<CudaDeviceInner>,
    failure: CudaFailure,
) -> Result<(), CudaFailure> {
    let enabled = instance.form.counting.as_ref().filter(|counting| counting.is_enabled);
    let node = enabled.ok_or(failure)?.node;
    instance.exec.set_enabled(node, false)?;
    let error = Error::from(failure);
    tracing::debug!(target: "wakegraph::cuda", %error, "launches are no longer counted");
    // Only now: a counter that is dropped may be used by others.
    let counting = instance.form.counting.take();
    instance.retire(counting);
    Ok(())
}

impl LaunchDevice for CudaDeviceInner {
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let call = queue.device.context.run(|| StreamCommand::of(&queue.device, command))?;
        if let Some(call) = call {
            let kept: Kept = Arc::clone(command) as Kept;
            return queue.submit(None, Some(kept), wait, signal, |borrowed, _| {
                call.start(&borrowed.stream)?;
                Ok(Started::default())
            });
        }
        enqueue_as_graph(queue, command, wait, signal, |graph| {
            let mut nodes = CommandNodes::default();
            lower::add(&queue.device, graph, command, EndNodes::new(), AddOptions::default(), &mut nodes)?;
            Ok(nodes)
        })
    }

    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        borrowed: &BorrowedStream<CudaContext>,
    ) -> Result<Option<Error>> {
        CudaCommandBuffer::launch_in_batch(device, buffer, borrowed)
    }
}

/// A command that a stream takes as one call of the driver, without a graph around it.
#[derive(Debug)]
enum StreamCommand {
    Kernel(CudaLaunch),
    Copy(CopyBox),
    Fill(FillRow),
}

impl StreamCommand {
    /// The call that does what the command says, if there is one. The caller has bound the context.
    fn of(device: &CudaDeviceInner, command: &Command) -> Result<Option<Self>> {
        let is_on_device = |view: &MemoryView| view.memory().kind() == MemoryKind::Device;
        Ok(match command {
            Command::Kernel(launch) => Some(Self::Kernel(CudaLaunch::of(device, launch)?)),
            Command::BufferFill { dst, pattern } => {
                FillRow::of(CudaMemory::address_of(dst)?, dst.len(), pattern).map(Self::Fill)
            }
            // The host waits for a stream that copies within its memory, or memory that the driver does not
            // know.
            command if command.copy_sides().is_some_and(|sides| sides.into_iter().any(is_on_device)) => {
                match CopyBox::of_command(command, CudaMemory::copy_address_of, |_| true)?[..] {
                    [copy] if !copy.from.start.is_foreign && !copy.to.start.is_foreign => {
                        Some(Self::Copy(copy))
                    }
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// Puts it on the stream. The caller has bound the context, and keeps what it uses until it has ended.
    fn start(&self, stream: &CudaStream) -> Result<(), CudaFailure> {
        let (driver, raw) = (stream.driver(), stream.raw());
        match self {
            Self::Kernel(launch) => launch.with_params(|params| {
                let CUDA_KERNEL_NODE_PARAMS_v2 { gridDimX: x, gridDimY: y, gridDimZ: z, .. } = *params;
                let CUDA_KERNEL_NODE_PARAMS_v2 { blockDimX: a, blockDimY: b, blockDimZ: c, .. } = *params;
                let (func, shared) = (params.func, params.sharedMemBytes);
                let (values, extra) = (params.kernelParams, params.extra);
                // SAFETY: function and stream are alive; the parameters are complete, and copied.
                unsafe { call!(driver, cuLaunchKernel(func, x, y, z, a, b, c, shared, raw, values, extra)) }
            }),
            Self::Copy(copy) if copy.is_row() => {
                let (to, from, len) = (copy.to.start.address, copy.from.start.address, copy.width);
                // SAFETY: the caller of the enqueue promises that the memory may be used.
                unsafe { call!(driver, cuMemcpyAsync(to, from, len, raw)) }
            }
            Self::Copy(copy) => {
                let params = &copy_params(copy);
                // SAFETY: as above; the parameters are complete, and copied.
                unsafe { call!(driver, cuMemcpy3DAsync(params, raw)) }
            }
            Self::Fill(FillRow { address, value, element: 1, count }) => {
                // SAFETY: as above.
                unsafe { call!(driver, cuMemsetD8Async(*address, *value as u8, *count, raw)) }
            }
            Self::Fill(FillRow { address, value, element: 2, count }) => {
                // SAFETY: as above.
                unsafe { call!(driver, cuMemsetD16Async(*address, *value as u16, *count, raw)) }
            }
            Self::Fill(FillRow { address, value, count, .. }) => {
                // SAFETY: as above.
                unsafe { call!(driver, cuMemsetD32Async(*address, *value, *count, raw)) }
            }
        }
    }
}

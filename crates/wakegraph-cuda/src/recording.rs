//! The commands of a command-buffer, recorded as a graph in the order that they name.

use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::graphs::{GraphRecording, RecordedCommand};
use wakegraph_hal::support::once_each::once_each;
use wakegraph_hal::{Command, CommandBufferDesc, Result};

use super::control_flow::{ControlFlowOrder, has_loop};
use super::device_inner::CudaDeviceInner;
use super::graph::GraphNode;
use super::graph_exec::CudaGraphExec;
use super::loop_stop::LoopStop;
use super::low_latency::{CountingKernel, MOST_COMMANDS, stays_on_device};
use super::lower::{self, AddOptions, EndNodes};
use super::node_place::NodePlace;
use super::parts::PartOrder;

pub(super) type CudaRecording = GraphRecording<CudaDeviceInner>;

/// What a recording knows about the order of its nodes.
#[derive(Default, Debug)]
pub(super) struct NodeOrder {
    control_flow: ControlFlowOrder,
    /// How many commands do not [stay on the device](stays_on_device). Not counted without the
    /// low-latency hint.
    outside: usize,
    /// Whether the graph has a [`CountingKernel`].
    pub(super) counts: bool,
    /// Stops the loops of a run, if there are some.
    pub(super) loops: Option<Arc<LoopStop>>,
    /// Where the graph is parted.
    parts: PartOrder,
}

/// Appends a command behind these earlier ones. On an error the recording is as it was. The
/// caller has bound the context.
pub(super) fn append(
    recording: &mut CudaRecording,
    command: &Command,
    mut after: SmallVec<[u32; 2]>,
) -> Result<()> {
    let index = recording.commands.len() as u32;
    if recording.desc.in_order {
        after.extend(index.checked_sub(1));
    }
    after.extend(recording.order.control_flow.predecessors(command));
    append_after(recording, command, after, true)
}

/// As [`append`](CudaRecording::append), behind exactly these, and without an early start of, or behind,
/// what is disabled: what the driver makes of that is not documented.
pub(super) fn append_after(
    recording: &mut CudaRecording,
    command: &Command,
    after: SmallVec<[u32; 2]>,
    enabled: bool,
) -> Result<()> {
    let CommandBufferDesc { updatable, profiling, .. } = recording.desc;
    if recording.order.loops.is_none() && has_loop(command) {
        recording.order.loops = Some(Arc::new(LoopStop::create(&recording.device.counters)?));
    }
    let last = recording.graph.get_mut().last_part();
    let ended = recording.order.parts.ended(&recording.device, &recording.commands, last, command, &after);
    let options = AddOptions {
        can_be_disabled: updatable,
        record: recording.placeholder.as_ref(),
        may_overlap: enabled && !profiling,
        overlapping: overlapping(recording, &after),
        loops: recording.order.loops.as_deref(),
    };
    let graph = recording.graph.get_mut();
    if ended.is_some() {
        graph.begin_part()?;
    }
    let part = graph.last_part();
    let mut follows = ends_of(after.iter().map(|&earlier| &recording.commands[earlier as usize]));
    // What is in earlier parts is over before.
    follows.retain(|node| node.part == part);
    let added = lower::add(&recording.device, graph, command, follows, options);
    if added.is_err() && ended.is_some() {
        graph.give_up_part();
    }
    let (nodes, starts_early) = added?;
    let index = recording.commands.len();
    recording.order.control_flow.append(index as u32, command);
    recording.order.parts.added(&recording.commands, &after, part, ended);
    for &earlier in &after {
        let place = &mut recording.commands[earlier as usize].place;
        place.is_followed = true;
        place.leads_early |= starts_early;
    }
    let (is_followed, is_outside, leads_early) = (false, false, false);
    let place = NodePlace { after, part, is_followed, is_outside, starts_early, leads_early };
    recording.push(command, nodes, place);
    count_outside(recording, index);
    Ok(())
}

/// The same commands as a graph of one part.
fn whole(recording: &CudaRecording) -> Result<CudaRecording> {
    let mut whole = CudaRecording::new(&recording.device, recording.desc)?;
    whole.order.parts.is_whole = true;
    for RecordedCommand { command, enabled, place, .. } in &recording.commands {
        append_after(&mut whole, command, place.after.clone(), *enabled)?;
        if let Some(copy) = whole.commands.last_mut() {
            copy.enabled = *enabled;
        }
    }
    Ok(whole)
}

/// The node of the only command among these, if it lets a kernel behind it be started early.
fn overlapping(recording: &CudaRecording, after: &[u32]) -> Option<GraphNode> {
    let (first, others) = after.split_first()?;
    let only = others.iter().all(|other| other == first).then(|| &recording.commands[*first as usize])?;
    only.nodes.kernel.as_ref().filter(|(_, launch)| only.enabled && launch.overlaps).map(|(node, _)| *node)
}

/// Counts the command with this index among those that do not stay on the device, if it is one.
pub(super) fn count_outside(recording: &mut CudaRecording, index: usize) {
    let recorded = &mut recording.commands[index];
    let is_outside = recording.desc.low_latency && !stays_on_device(&recording.device, &recorded.command);
    recording.order.outside += usize::from(is_outside);
    recording.order.outside -= usize::from(std::mem::replace(&mut recorded.place.is_outside, is_outside));
}

/// Whether a counter may say that a run is over.
pub(super) fn no_command_leaves(recording: &CudaRecording) -> bool {
    recording.order.outside == 0
}

/// Instantiates the new graph for launches: without disabled commands, and in the low-latency
/// form if that was asked for and can be made. The caller has bound the context.
pub(super) fn instantiate(recording: &mut CudaRecording) -> Result<(CudaGraphExec, Option<CountingKernel>)> {
    let CommandBufferDesc { low_latency, profiling, .. } = recording.desc;
    if recording.order.parts.is_slower {
        *recording = whole(recording)?;
    }
    if low_latency && !profiling && no_command_leaves(recording) && recording.commands.len() <= MOST_COMMANDS
    {
        match instantiate_counting(recording) {
            Ok((exec, counting)) => return Ok((exec, Some(counting))),
            Err(error) => {
                tracing::debug!(target: "wakegraph::cuda", %error, "a graph gets no completion counter")
            }
        }
        if recording.order.counts {
            *recording = recording.record_again(recording.desc)?;
        }
    }
    Ok((recording.instantiate_graph()?, None))
}

fn instantiate_counting(recording: &mut CudaRecording) -> Result<(CudaGraphExec, CountingKernel)> {
    let leaves = ends_of(recording.commands.iter().filter(|recorded| !recorded.place.is_followed));
    let counting = CountingKernel::add(&recording.device, recording.graph.get_mut(), &leaves)?;
    recording.order.counts = true;
    Ok((recording.instantiate_graph()?, counting))
}

/// The end nodes of these commands. The same for the same commands, whatever addresses the nodes
/// have: the driver compares graphs in the order in which they were built.
fn ends_of<'a>(commands: impl Iterator<Item = &'a RecordedCommand<CudaDeviceInner>>) -> EndNodes {
    once_each(commands.flat_map(|recorded| recorded.nodes.ends.iter().copied()).collect())
}

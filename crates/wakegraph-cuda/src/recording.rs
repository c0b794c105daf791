//! The commands of a command-buffer, recorded as a graph in the order that they name.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use wakegraph_hal::support::graphs::{CommandNodes, GraphRecording, RecordedCommand, once_each};
use wakegraph_hal::support::streams::capture;
use wakegraph_hal::{Command, CommandBufferDesc, CommandKind, KernelArg, Result};

use super::device::{CudaDeviceInner, is_of};
use super::events::{CompletionCounter, LoopStop};
use super::graph::{CudaGraph, CudaGraphExec, DriverGraph, GraphNode, NewNode, allocates};
use super::kernel::BuiltinKernel;
use super::lower::{self, AddOptions, ControlFlowOrder, EarlyStart, EndNodes, has_loop};
use super::sys::CudaFailure;

pub(super) type CudaRecording = GraphRecording<CudaDeviceInner>;

/// The order of a recording's nodes.
#[derive(Default, Debug)]
pub(super) struct NodeOrder {
    control_flow: ControlFlowOrder,
    /// Number of commands that do not [stay on the device](stays_on_device). Not counted without the
    /// low-latency hint.
    outside: usize,
    /// Whether the graph has a [`CountingKernel`].
    pub(super) counts: bool,
    /// Stops the loops of a run, if there are some.
    pub(super) loops: Option<Arc<LoopStop>>,
    /// Places where the graph is parted.
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
    let before = index.checked_sub(1).filter(|_| recording.desc.in_order);
    for earlier in before.into_iter().chain(recording.order.control_flow.predecessor(command)) {
        after.push(earlier);
    }
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
    if recording.order.loops.is_none() && has_loop(command) {
        recording.order.loops = Some(Arc::new(LoopStop::create(&recording.device.counters)?));
    }
    let captured = match command {
        Command::Native(native) => Some(capture(&recording.device.context, native)?),
        _ => None,
    };
    let mut nodes = CommandNodes::default();
    let added = match captured {
        Some(captured) if allocates(&captured)? => add_alone(recording, captured, &mut nodes)?,
        captured => add_nodes(recording, command, &after, enabled, captured.as_ref(), &mut nodes)?,
    };
    let index = recording.commands.len();
    let part = recording.graph.get_mut().last_part();
    recording.order.control_flow.append(index as u32, command);
    let early = added.early;
    recording.order.parts.added(&mut recording.commands, &after, part, added);
    let (is_followed, is_outside, leads_early) = (false, false, false);
    let EarlyStart { starts: starts_early, leads: may_lead_early } = early;
    let place = NodePlace { after, part, is_followed, is_outside, starts_early, may_lead_early, leads_early };
    recording.push(command, nodes, place);
    count_outside(recording, index);
    Ok(())
}

/// A command that has been added to the last part of a graph.
struct AddedCommand {
    /// The ends of the part before, if the command begins another one.
    ended: Option<Ends>,
    early: EarlyStart,
}

/// Adds the nodes of a command to the last part, or to one that it begins. On an error the graph is as it
/// was.
fn add_nodes(
    recording: &mut CudaRecording,
    command: &Command,
    after: &[u32],
    enabled: bool,
    captured: Option<&DriverGraph>,
    nodes: &mut CommandNodes<CudaDeviceInner>,
) -> Result<AddedCommand> {
    let CommandBufferDesc { updatable, profiling, .. } = recording.desc;
    let overlapping = overlapping(recording, after);
    let graph = recording.graph.get_mut();
    let last = graph.last_part();
    let ended = match graph.is_closed() {
        true => Some(Ends::new()),
        false => recording.order.parts.ended(&recording.device, &recording.commands, last, command, after),
    };
    let options = AddOptions {
        can_be_disabled: updatable,
        record: recording.placeholder.as_ref(),
        may_overlap: enabled && !profiling,
        overlapping,
        loops: recording.order.loops.as_deref(),
        captured,
    };
    if ended.is_some() {
        graph.begin_part()?;
    }
    let part = graph.last_part();
    let mut follows = EndNodes::new();
    for &earlier in after {
        // Earlier parts have ended before.
        let ends = &recording.commands[earlier as usize].nodes.ends;
        ends.iter().filter(|node| node.part == part).for_each(|node| follows.push(*node));
    }
    let follows = once_each(follows);
    let added = lower::add(&recording.device, graph, command, follows, options, nodes);
    let early = added.inspect_err(|_| graph.keep_parts(last))?;
    Ok(AddedCommand { ended, early })
}

/// Makes captured work that allocates a part of its own, as the driver refuses to clone it. With profiling,
/// parts around it have the nodes that record events. On an error the graph is as it was.
fn add_alone(
    recording: &mut CudaRecording,
    captured: DriverGraph,
    nodes: &mut CommandNodes<CudaDeviceInner>,
) -> Result<AddedCommand> {
    let graph = recording.graph.get_mut();
    let last = graph.last_part();
    match &recording.placeholder {
        None => {
            let in_part = recording.commands.iter().rev().take_while(|recorded| recorded.place.part == last);
            let is_empty = in_part.into_iter().all(|recorded| recorded.nodes.ends.is_empty());
            graph.push_captured(captured, is_empty && !graph.is_closed());
        }
        Some(event) => {
            let record = |graph: &mut CudaGraph| {
                graph.begin_part()?;
                graph.body().add(NewNode::Record(event), &[])
            };
            let add = || -> Result<_, CudaFailure> {
                let first = record(graph)?;
                graph.push_captured(captured, false);
                Ok([first, record(graph)?])
            };
            let [first, end] = add().inspect_err(|_| graph.keep_parts(last))?;
            nodes.records = Some(Box::new([first, end]));
            nodes.ends = smallvec![end];
        }
    }
    // All of it comes after all of the part before, which keeps nothing apart that a copy would.
    Ok(AddedCommand { ended: Some(Ends::new()), early: EarlyStart::default() })
}

/// A recording of the same commands as a graph of one part.
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
    only.nodes.ends.first().copied().filter(|_| only.enabled && only.place.may_lead_early)
}

/// Counts the command with this index among those that do not stay on the device, if it is one.
pub(super) fn count_outside(recording: &mut CudaRecording, index: usize) {
    let recorded = &mut recording.commands[index];
    let is_outside = recording.desc.low_latency && !stays_on_device(&recording.device, &recorded.command);
    recording.order.outside += usize::from(is_outside);
    recording.order.outside -= usize::from(std::mem::replace(&mut recorded.place.is_outside, is_outside));
}

/// Whether a counter may say that a run has ended.
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

/// The place of a command among the others.
#[derive(Debug)]
pub(super) struct NodePlace {
    /// The commands that it follows.
    pub(super) after: SmallVec<[u32; 2]>,
    /// The number of the part that has its nodes.
    pub(super) part: u32,
    /// Whether another command follows it.
    is_followed: bool,
    /// Whether it uses something outside the device.
    is_outside: bool,
    /// Whether it may be started before the end of the command before it, for which it then has to
    /// wait.
    pub(super) starts_early: bool,
    /// Whether it lets a command behind it start early.
    may_lead_early: bool,
    /// Whether a command behind it starts early.
    pub(super) leads_early: bool,
}

/// Places where the graph of a command-buffer is parted: a copy by an engine begins another part, and
/// [work that allocates](add_alone) is one.
///
/// Inside a graph, most changes between kernels and copies by an engine take the driver 7 us, and between two
/// launches on a stream 1 us: copy, kernel and copy back took 17.4 and 10 us (4 KiB, H100). Each part comes
/// after all of the one before it, so a graph is parted only where its commands do anyway.
/// `docs/adr/0025-copies-between-graphs.md` has the figures.
#[derive(Default, Debug)]
struct PartOrder {
    /// Whether the graph has one part in any case.
    is_whole: bool,
    /// Number of commands of the last part that no other one follows.
    open: usize,
    /// The ends of the part before.
    before: Ends,
    /// Whether some command could run beside one of an earlier part, if the graph had one part.
    is_slower: bool,
}

/// The numbers of the commands at the end of a part, which no other one of the part follows.
type Ends = SmallVec<[u32; 1]>;

impl PartOrder {
    /// If a command behind these others begins another part, the ends of the last one, which has this number:
    /// a copy by an engine does, if it comes after all of the part and after something else than such copies.
    fn ended(
        &self,
        device: &CudaDeviceInner,
        commands: &[RecordedCommand<CudaDeviceInner>],
        last: u32,
        command: &Command,
        after: &[u32],
    ) -> Option<Ends> {
        if self.is_whole || !is_by_engine(device, command) {
            return None;
        }
        let is_end = |place: &NodePlace| place.part == last && !place.is_followed;
        let ends = after.iter().copied().filter(|&earlier| is_end(&commands[earlier as usize].place));
        let ends = once_each(ends.collect());
        let is_other = |&end: &u32| {
            let RecordedCommand { command, nodes, .. } = &commands[end as usize];
            !nodes.ends.is_empty() && !is_by_engine(device, command)
        };
        (ends.len() == self.open && ends.iter().any(is_other)).then_some(ends)
    }

    /// Takes note of a command that has been added to a part behind these others.
    fn added(
        &mut self,
        commands: &mut [RecordedCommand<CudaDeviceInner>],
        after: &[u32],
        part: u32,
        AddedCommand { ended, early }: AddedCommand,
    ) {
        let begins = ended.is_some();
        if let Some(ended) = ended {
            (self.before, self.open) = (ended, 0);
        }
        let (mut is_behind, mut followed) = (false, 0);
        for &earlier in after {
            let place = &mut commands[earlier as usize].place;
            // What begins a part follows nothing in it; an empty part before may have had its number.
            let is_here = !begins && place.part == part;
            followed += usize::from(is_here && !place.is_followed);
            is_behind |= is_here;
            place.is_followed = true;
            place.leads_early |= early.starts;
        }
        self.open = self.open + 1 - followed;
        self.is_slower |= !is_behind && !self.before.iter().all(|end| after.contains(end));
    }
}

/// Whether a copy engine does the command, and no kernel of the driver's.
fn is_by_engine(device: &CudaDeviceInner, command: &Command) -> bool {
    command.kind().row().is_copy && !stays_on_device(device, command)
}

/// With more commands, the last microsecond does not matter.
const MOST_COMMANDS: usize = 128;

/// The low-latency form of a command-buffer: a kernel behind all nodes of the graph counts the run in a
/// completion counter.
///
/// The host sees the count a microsecond before an event would be complete, without a driver call,
/// for a microsecond of the device's time. The creator asks for it ([`CommandBufferDesc::low_latency`]). This
/// serves only command-buffers that use the device's memory alone:
/// - There is no fence between the commands and the counter. The kernels before the counter have ended when
///   it counts, so later work on the device sees their results, also where it is on another stream, which
///   does not wait for this one.
/// - A copy engine brings what comes from other memory. A graph that counts its runs behind such a copy
///   takes 10 us longer than one that an event tells of (H100).
///
/// Nothing reads the counter for a launch in a batch, so the kernel is disabled there.
#[derive(Debug)]
pub(super) struct CountingKernel {
    pub(super) node: GraphNode,
    pub(super) counter: Arc<CompletionCounter>,
    /// Whether launches run the kernel.
    pub(super) is_enabled: bool,
    /// Consecutive launches that might have counted, while the kernel was disabled.
    missed: u32,
}

/// After a batch, so many launches on their own have to follow before they are counted again: the driver
/// uploads a graph again after a node has been switched.
const LAUNCHES_AFTER_BATCH: u32 = 16;

impl CountingKernel {
    /// Adds the kernel behind these nodes. The caller has bound the context.
    fn add(device: &CudaDeviceInner, graph: &mut CudaGraph, after: &[GraphNode]) -> Result<Self> {
        let counter = Arc::new(device.counters.take()?);
        let launch = BuiltinKernel::Count.launch(device, &counter.addresses(), 1)?;
        let node = graph.body().add(NewNode::Kernel(&launch), after)?;
        Ok(Self { node, counter, is_enabled: true, missed: 0 })
    }

    /// Whether the kernel should be enabled or disabled, before a launch that counts or does not.
    pub(super) fn is_due(&mut self, counts: bool) -> bool {
        self.missed = if counts && !self.is_enabled { self.missed + 1 } else { 0 };
        self.is_enabled != counts && (!counts || self.missed > LAUNCHES_AFTER_BATCH)
    }
}

/// Whether the command uses memory of this device only.
fn stays_on_device(device: &CudaDeviceInner, command: &Command) -> bool {
    let has_only_views = match command {
        // A pointer may point anywhere.
        Command::Kernel(launch) => !launch.args.iter().any(|arg| matches!(arg, KernelArg::Usm(_))),
        Command::BufferCopy { .. } | Command::BufferCopyRect { .. } | Command::BufferFill { .. } => true,
        command => command.kind() == CommandKind::Empty,
    };
    has_only_views && command.views().all(|view| is_of(device, view))
}

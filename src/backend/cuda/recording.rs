//! The commands of a command-buffer, recorded as a graph.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::control_flow::ControlFlowOrder;
use super::device_inner::CudaDeviceInner;
use super::graph::{CudaGraph, GraphNode};
use super::graph_exec::CudaGraphExec;
use super::low_latency::{CountingKernel, MOST_COMMANDS, writes_only_device};
use super::lower::{self, AddOptions, CommandNodes, EndNodes};
use super::stream::CudaRawEvent;
use crate::hal::support::once_each::once_each;
use crate::hal::{Command, CommandBufferDesc, CommandChange};
use crate::types::Result;

/// Commands, and a graph of explicit nodes that does what they say.
#[derive(Debug)]
pub(super) struct CudaRecording {
    pub(super) device: Arc<CudaDeviceInner>,
    pub(super) desc: CommandBufferDesc,
    /// Also locked by whatever updates another command-buffer from this one: the driver takes one
    /// call at a time, even from readers.
    pub(super) graph: Mutex<CudaGraph>,
    pub(super) commands: Vec<RecordedCommand>,
    order: ControlFlowOrder,
    /// How many commands do not [write only](writes_only_device) to the device. Not counted without
    /// the low-latency hint.
    outside: usize,
    /// Whether the graph has a [`CountingKernel`].
    pub(super) counts: bool,
    /// With profiling: what the record nodes record until an enqueue gives them its own events.
    placeholder: Option<CudaRawEvent>,
    pub(super) state: GraphState,
}

/// How the graph compares to the commands. Updates change the instance and not the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum GraphState {
    /// It does what the commands say.
    Current,
    /// It has other launches at kernel nodes.
    OtherLaunches,
    /// It has other copies or fills as well.
    Outdated,
}

/// One command in a graph.
#[derive(Debug)]
pub(super) struct RecordedCommand {
    /// Keeps the operands alive.
    pub(super) command: Command,
    /// Its nodes, and its launch as updates have changed it.
    pub(super) nodes: CommandNodes,
    /// The commands that it follows.
    after: SmallVec<[u32; 2]>,
    /// Whether another command follows it.
    is_followed: bool,
    pub(super) enabled: bool,
    /// Whether it is one of [`CudaRecording::outside`].
    is_outside: bool,
}

impl CudaRecording {
    pub(super) fn new(device: &Arc<CudaDeviceInner>, desc: CommandBufferDesc) -> Result<Self> {
        let context = &device.context;
        Ok(Self {
            device: Arc::clone(device),
            desc,
            placeholder: desc.profiling.then(|| CudaRawEvent::create(context, true)).transpose()?,
            graph: Mutex::new(CudaGraph::create(context)?),
            commands: Vec::new(),
            order: ControlFlowOrder::default(),
            outside: 0,
            counts: false,
            state: GraphState::Current,
        })
    }

    /// Appends a command behind these earlier ones. On an error the recording is as it was. The
    /// caller has bound the context.
    pub(super) fn append(&mut self, command: &Command, mut after: SmallVec<[u32; 2]>) -> Result<()> {
        let index = self.commands.len() as u32;
        if self.desc.in_order {
            after.extend(index.checked_sub(1));
        }
        after.extend(self.order.predecessors(command));
        self.push(command, after)
    }

    fn push(&mut self, command: &Command, after: SmallVec<[u32; 2]>) -> Result<()> {
        let CommandBufferDesc { updatable, profiling, .. } = self.desc;
        let options = AddOptions {
            can_be_disabled: updatable,
            record: self.placeholder.as_ref(),
            // Behind a kernel that an update has disabled or made large, none may be started early.
            may_overlap: !updatable && !profiling,
            overlapping: self.overlapping(&after),
        };
        let follows = ends_of(after.iter().map(|&earlier| &self.commands[earlier as usize]));
        let nodes = lower::add(&self.device, self.graph.get_mut(), command, follows, options)?;
        let index = self.commands.len();
        self.order.append(index as u32, command);
        for &earlier in &after {
            self.commands[earlier as usize].is_followed = true;
        }
        let command = command.clone();
        let (is_followed, is_outside) = (false, false);
        self.commands.push(RecordedCommand { command, nodes, after, is_followed, enabled: true, is_outside });
        self.command_changed(index, GraphState::Current);
        Ok(())
    }

    /// The node of the only command among these, if it lets a kernel behind it be started early.
    fn overlapping(&self, after: &[u32]) -> Option<GraphNode> {
        let (first, others) = after.split_first()?;
        let only = others.iter().all(|other| other == first).then(|| &self.commands[*first as usize])?;
        only.nodes.kernel.as_ref().filter(|(_, launch)| launch.overlaps).map(|(node, _)| *node)
    }

    /// Takes note of what the command with this index has become, and of how the graph compares to
    /// that.
    pub(super) fn command_changed(&mut self, index: usize, state: GraphState) {
        self.state = self.state.max(state);
        let recorded = &mut self.commands[index];
        let is_outside = self.desc.low_latency && !writes_only_device(&self.device, &recorded.command);
        self.outside += usize::from(is_outside);
        self.outside -= usize::from(std::mem::replace(&mut recorded.is_outside, is_outside));
    }

    /// The same commands, enabled or disabled as they are, in a graph of their own. The caller has
    /// bound the context.
    pub(super) fn record_again(&self, desc: CommandBufferDesc) -> Result<Self> {
        self.record_changed(desc, &[])
    }

    /// The same with these changes.
    pub(super) fn record_changed(&self, desc: CommandBufferDesc, changes: &[CommandChange]) -> Result<Self> {
        let mut again = Self::new(&self.device, desc)?;
        for (index, recorded) in self.commands.iter().enumerate() {
            let change = changes.iter().find(|change| change.index == index);
            let command = change.and_then(|change| change.command.as_ref()).unwrap_or(&recorded.command);
            again.push(command, recorded.after.clone())?;
            if let Some(copy) = again.commands.last_mut() {
                copy.enabled = change.and_then(|change| change.enabled).unwrap_or(recorded.enabled);
            }
        }
        Ok(again)
    }

    /// Whether a counter may say that a run is over.
    pub(super) fn writes_only_device(&self) -> bool {
        self.outside == 0
    }

    /// Instantiates the new graph for launches: without disabled commands, and in the low-latency
    /// form if that was asked for and can be made. The caller has bound the context.
    pub(super) fn instantiate(&mut self) -> Result<(CudaGraphExec, Option<CountingKernel>)> {
        let CommandBufferDesc { low_latency, profiling, .. } = self.desc;
        if low_latency && !profiling && self.writes_only_device() && self.commands.len() <= MOST_COMMANDS {
            match self.instantiate_counting() {
                Ok((exec, counting)) => return Ok((exec, Some(counting))),
                Err(error) => {
                    tracing::debug!(target: "wakegraph::cuda", %error, "a graph gets no completion counter")
                }
            }
            if self.counts {
                *self = self.record_again(self.desc)?;
            }
        }
        Ok((self.instantiate_graph()?, None))
    }

    fn instantiate_counting(&mut self) -> Result<(CudaGraphExec, CountingKernel)> {
        let leaves = ends_of(self.commands.iter().filter(|recorded| !recorded.is_followed));
        let counting = CountingKernel::add(&self.device, self.graph.get_mut(), &leaves)?;
        self.counts = true;
        Ok((self.instantiate_graph()?, counting))
    }

    fn instantiate_graph(&mut self) -> Result<CudaGraphExec> {
        let (graph, commands) = (self.graph.get_mut(), &self.commands);
        self.device.pool.retry_with_room(|| -> Result<_> {
            let mut exec = CudaGraphExec::instantiate(graph)?;
            for recorded in commands.iter().filter(|recorded| !recorded.enabled) {
                recorded.nodes.work.iter().try_for_each(|node| exec.set_enabled(*node, false))?;
            }
            // Otherwise the first launch would have to do it.
            exec.upload(&self.device.pool.stream)?;
            Ok(exec)
        })
    }
}

/// The end nodes of these commands. The same for the same commands, whatever addresses the nodes
/// have: the driver compares graphs in the order in which they were built.
fn ends_of<'a>(commands: impl Iterator<Item = &'a RecordedCommand>) -> EndNodes {
    once_each(commands.flat_map(|recorded| recorded.nodes.ends.iter().copied()).collect())
}

//! The commands of a command-buffer, recorded as a graph.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::completion_counter::CompletionCounter;
use super::control_flow::ControlFlowOrder;
use super::device_inner::CudaDeviceInner;
use super::graph::CudaGraph;
use super::graph_exec::CudaGraphExec;
use super::low_latency::{LowLatencyEligibility, counting_launch, writes_only_device};
use super::lower::{self, AddOptions, CommandNodes, EndNodes, once_each};
use super::stream::{CudaStream, RawEvent};
use crate::hal::{Command, CommandBufferDesc, Kernel};
use crate::types::Result;

/// Commands, and a graph of explicit nodes that does what they say.
#[derive(Debug)]
pub(super) struct GraphRecording {
    device: Arc<CudaDeviceInner>,
    desc: CommandBufferDesc,
    /// Also locked by whatever updates another command-buffer from this one: the driver takes one
    /// call at a time, even from readers.
    pub(super) graph: Mutex<CudaGraph>,
    pub(super) commands: Vec<RecordedCommand>,
    order: ControlFlowOrder,
    pub(super) low_latency: LowLatencyEligibility,
    /// In updatable buffers: all kernels of the graph, which may be instantiated again after updates
    /// have replaced them in the commands.
    kernels: Vec<Arc<dyn Kernel>>,
    /// With profiling: what the record nodes record until an enqueue gives them its own events.
    placeholder: Option<RawEvent>,
    pub(super) state: GraphState,
}

/// How the graph compares to the commands. Updates change the instance and not the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum GraphState {
    /// It does what the commands say.
    Current,
    /// It has other launches at kernel nodes, which an instance of it can be given.
    OtherLaunches,
    /// It has other copies or fills as well, so that an instance of it would be wrong.
    Outdated,
}

/// One command in a graph.
#[derive(Debug)]
pub(super) struct RecordedCommand {
    /// Keeps the operands alive.
    pub(super) command: Command,
    /// Its nodes, and its launch as updates have changed it.
    pub(super) nodes: CommandNodes,
    /// In updatable buffers: the commands that it follows.
    after: SmallVec<[u32; 2]>,
    pub(super) enabled: bool,
    /// Whether it writes to the device's memory only.
    pub(super) stays: bool,
}

impl GraphRecording {
    pub(super) fn new(device: &Arc<CudaDeviceInner>, desc: CommandBufferDesc) -> Result<Self> {
        let context = &device.context;
        Ok(Self {
            device: Arc::clone(device),
            desc,
            placeholder: desc.profiling.then(|| RawEvent::create(context, true)).transpose()?,
            graph: Mutex::new(CudaGraph::create(context)?),
            commands: Vec::new(),
            order: ControlFlowOrder::default(),
            low_latency: LowLatencyEligibility::default(),
            kernels: Vec::new(),
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
        after.extend(self.order.predecessors(index, command));
        self.push(command, after)
    }

    fn push(&mut self, command: &Command, after: SmallVec<[u32; 2]>) -> Result<()> {
        let updatable = self.desc.updatable;
        let follows = self.ends_of(&after);
        let options = AddOptions { can_be_disabled: updatable, record: self.placeholder.as_ref() };
        let nodes = lower::add(&self.device, self.graph.get_mut(), command, follows.clone(), options)?;
        if let (true, Command::Kernel(launch)) = (updatable, command) {
            self.kernels.push(Arc::clone(&launch.kernel));
        }
        let stays = writes_only_device(&self.device, command);
        self.low_latency.append(&follows, &nodes.ends, stays);
        self.order.append(self.commands.len() as u32, command);
        let after = if updatable { after } else { SmallVec::new() };
        let command = command.clone();
        self.commands.push(RecordedCommand { command, nodes, after, enabled: true, stays });
        Ok(())
    }

    /// The end nodes of these commands. The same for the same commands, whatever addresses the nodes
    /// have: the driver compares graphs in the order in which they were built.
    fn ends_of(&self, commands: &[u32]) -> EndNodes {
        let recorded = commands.iter().filter_map(|&index| self.commands.get(index as usize));
        once_each(recorded.flat_map(|earlier| earlier.nodes.ends.iter().copied()).collect())
    }

    /// The same commands, enabled or disabled as they are, in a graph of their own. The caller has
    /// bound the context.
    pub(super) fn record_again(&self) -> Result<Self> {
        let mut again = Self::new(&self.device, self.desc)?;
        for recorded in &self.commands {
            again.push(&recorded.command, recorded.after.clone())?;
            if let Some(copy) = again.commands.last_mut() {
                copy.enabled = recorded.enabled;
            }
        }
        Ok(again)
    }

    /// Whether nodes record the times of commands.
    pub(super) fn has_records(&self) -> bool {
        self.desc.profiling
    }

    /// Whether runs of the graph may be counted instead of recording an event behind them.
    pub(super) fn may_count(&self) -> bool {
        !self.desc.profiling && self.state != GraphState::Outdated && self.low_latency.is_eligible()
    }

    /// Instantiates the graph for launches: with the launches that updates have given to its
    /// kernels, without disabled commands, and with a kernel behind all nodes that counts, if a
    /// counter is given. The caller has bound the context.
    pub(super) fn instantiate(
        &self,
        counter: Option<&CompletionCounter>,
        stream: &CudaStream,
    ) -> Result<CudaGraphExec> {
        self.device.pool.retry_with_room(|| -> Result<_> {
            let mut graph = self.graph.lock();
            let mut exec = match counter {
                None => CudaGraphExec::instantiate(&mut graph)?,
                Some(counter) => self.instantiate_counting(&graph, counter)?,
            };
            for recorded in &self.commands {
                let CommandNodes { work, kernel, .. } = &recorded.nodes;
                if let (true, Some((node, launch))) = (self.state != GraphState::Current, kernel) {
                    exec.set_kernel(*node, launch)?;
                }
                if !recorded.enabled {
                    work.iter().try_for_each(|node| exec.set_enabled(*node, false))?;
                }
            }
            // Otherwise the first launch would have to do it.
            exec.upload(stream)?;
            Ok(exec)
        })
    }

    /// Adds the counting kernel to a copy of the graph: updates of other command-buffers use the
    /// graph itself, and the driver compares all its nodes.
    fn instantiate_counting(&self, graph: &CudaGraph, counter: &CompletionCounter) -> Result<CudaGraphExec> {
        let leaves = self.low_latency.leaves();
        let updatable = self.commands.iter().filter(|_| self.desc.updatable).flat_map(|recorded| {
            let CommandNodes { work, kernel, .. } = &recorded.nodes;
            work.iter().chain(kernel.as_ref().map(|(node, _)| node))
        });
        let nodes: Vec<_> = leaves.iter().chain(updatable).copied().collect();
        let (mut copy, copies) = graph.duplicate(&nodes)?;
        copy.body().add_kernel(&counting_launch(&self.device, counter)?, &copies[..leaves.len()])?;
        Ok(CudaGraphExec::instantiate_copy(copy, nodes.into_iter().zip(copies))?)
    }
}

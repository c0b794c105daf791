//! The commands of a command-buffer, recorded as a graph.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::objects::{GraphObjects, InstantiatedGraph as _};
use crate::hal::support::streams::{Kept, RawEvent, retry_with_room};
use crate::hal::{Command, CommandBufferDesc};
use crate::types::Result;

/// Commands, and a graph of explicit nodes that does what they say.
#[derive(Debug)]
pub(crate) struct GraphRecording<D: GraphObjects> {
    pub(crate) device: Arc<D>,
    pub(crate) desc: CommandBufferDesc,
    /// Also locked by whatever updates another command-buffer from this one: the driver takes one
    /// call at a time, even from readers.
    pub(crate) graph: Mutex<D::Graph>,
    pub(crate) commands: Vec<RecordedCommand<D>>,
    pub(crate) order: D::Order,
    /// With profiling: what the record nodes record until an enqueue gives them its own events.
    pub(crate) placeholder: Option<RawEvent<D::Context>>,
    pub(crate) state: GraphState,
}

/// How the graph compares to the commands. Updates change the instance and not the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GraphState {
    /// It does what the commands say.
    Current,
    /// It has other launches at kernel nodes.
    OtherLaunches,
    /// It has other copies or fills as well.
    Outdated,
}

/// One command in a graph.
#[derive(Debug)]
pub(crate) struct RecordedCommand<D: GraphObjects> {
    /// Keeps the operands alive.
    pub(crate) command: Command,
    /// Its nodes, and its launch as updates have changed it.
    pub(crate) nodes: CommandNodes<D>,
    pub(crate) enabled: bool,
    pub(crate) place: D::Place,
}

/// The nodes of one command in a graph.
#[derive(Debug)]
pub(crate) struct CommandNodes<D: GraphObjects> {
    /// The nodes that later commands follow to come after this one: as few as possible, each once. None
    /// where all nodes follow each other in one path.
    pub(crate) ends: SmallVec<[D::Node; 1]>,
    /// The nodes that do its work.
    pub(crate) work: SmallVec<[D::Node; 1]>,
    /// If the command is one launch: its node, and the launch.
    pub(crate) kernel: Option<(D::Node, D::Launch)>,
    /// With profiling: the nodes that record its times.
    pub(crate) records: Option<[D::Node; 2]>,
    /// What nodes use beside the operands, and what therefore lives as long as they do: patterns of fills,
    /// and registrations of host memory.
    pub(crate) kept: Vec<Kept>,
}

impl<D: GraphObjects> Default for CommandNodes<D> {
    fn default() -> Self {
        let (ends, work) = (SmallVec::new(), SmallVec::new());
        Self { ends, work, kernel: None, records: None, kept: Vec::new() }
    }
}

impl<D: GraphObjects> GraphRecording<D> {
    pub(crate) fn new(device: &Arc<D>, desc: CommandBufferDesc) -> Result<Self> {
        let event = || RawEvent::create(device.context(), true);
        Ok(Self {
            device: Arc::clone(device),
            desc,
            placeholder: desc.profiling.then(event).transpose()?,
            graph: Mutex::new(device.create_graph()?),
            commands: Vec::new(),
            order: D::Order::default(),
            state: GraphState::Current,
        })
    }

    /// Takes note of a command that has been added to the graph.
    pub(crate) fn push(&mut self, command: &Command, nodes: CommandNodes<D>, place: D::Place) {
        self.commands.push(RecordedCommand { command: command.clone(), nodes, enabled: true, place });
    }

    /// Instantiates the new graph, without disabled commands. The caller has bound the context.
    pub(crate) fn instantiate_graph(&mut self) -> Result<D::Exec> {
        let (device, graph, commands) = (&self.device, self.graph.get_mut(), &self.commands);
        let instantiate = || -> Result<_> {
            let mut exec = D::Exec::instantiate(graph)?;
            for recorded in commands.iter().filter(|recorded| !recorded.enabled) {
                recorded.nodes.work.iter().try_for_each(|node| exec.set_enabled(*node, false))?;
            }
            // Otherwise the first launch would have to do it.
            exec.upload(device.memory_stream())?;
            Ok(exec)
        };
        retry_with_room(|| device.trim(), instantiate)
    }
}

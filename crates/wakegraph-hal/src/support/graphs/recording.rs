//! The commands of a command-buffer, recorded as a graph.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::objects::{GraphObjects, InstantiatedGraph as _};
use crate::support::streams::{Kept, RawEvent, retry_with_room};
use crate::{Command, CommandBufferDesc, Result};

/// Commands, and a graph of explicit nodes that does what they say.
#[derive(Debug)]
pub struct GraphRecording<D: GraphObjects> {
    /// The device.
    pub device: Arc<D>,
    /// How the command-buffer was created.
    pub desc: CommandBufferDesc,
    /// Also locked by whatever updates another command-buffer from this one: the driver takes one
    /// call at a time, even from readers.
    pub graph: Mutex<D::Graph>,
    /// The commands, in the order in which they were appended.
    pub commands: Vec<RecordedCommand<D>>,
    /// What the backend knows about the order of its nodes.
    pub order: D::Order,
    /// With profiling: what the record nodes record until an enqueue gives them its own events.
    pub placeholder: Option<RawEvent<D::Context>>,
    /// How the graph compares to the commands.
    pub state: GraphState,
}

/// How the graph compares to the commands. Updates change the instance and not the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GraphState {
    /// It does what the commands say.
    Current,
    /// It has other launches at kernel nodes.
    OtherLaunches,
    /// It has other copies or fills as well.
    Outdated,
}

/// One command in a graph.
#[derive(Debug)]
pub struct RecordedCommand<D: GraphObjects> {
    /// Keeps the operands alive.
    pub command: Command,
    /// Its nodes, and its launch as updates have changed it.
    pub nodes: CommandNodes<D>,
    /// Disabled commands have nodes that do nothing.
    pub enabled: bool,
    /// Its place in the order of nodes.
    pub place: D::Place,
}

/// The nodes of one command in a graph.
#[derive(Debug)]
pub struct CommandNodes<D: GraphObjects> {
    /// The nodes that later commands follow to come after this one: as few as possible, each once. None
    /// where all nodes follow each other in one path.
    pub ends: SmallVec<[D::Node; 1]>,
    /// The nodes that do its work.
    pub work: SmallVec<[D::Node; 1]>,
    /// If the command is one launch: its node, and the launch.
    pub kernel: Option<(D::Node, D::Launch)>,
    /// With profiling: the nodes that record its times.
    pub records: Option<[D::Node; 2]>,
    /// What nodes use beside the operands, and what therefore lives as long as they do: patterns of fills,
    /// and registrations of host memory.
    pub kept: Vec<Kept>,
}

impl<D: GraphObjects> Default for CommandNodes<D> {
    fn default() -> Self {
        let (ends, work) = (SmallVec::new(), SmallVec::new());
        Self { ends, work, kernel: None, records: None, kept: Vec::new() }
    }
}

impl<D: GraphObjects> GraphRecording<D> {
    /// An empty recording.
    pub fn new(device: &Arc<D>, desc: CommandBufferDesc) -> Result<Self> {
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
    pub fn push(&mut self, command: &Command, nodes: CommandNodes<D>, place: D::Place) {
        self.commands.push(RecordedCommand { command: command.clone(), nodes, enabled: true, place });
    }

    /// Instantiates the new graph, without disabled commands. The caller has bound the context.
    pub fn instantiate_graph(&mut self) -> Result<D::Exec> {
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

//! The common part of drivers with graphs of explicit nodes, as CUDA's and HIP's: a command-buffer is a
//! graph that is instantiated at finalize, launched at enqueue, and changed by updates.
//!
//! A backend implements [`GraphObjects`], the driver's calls, and [`GraphDevice`], how commands become nodes
//! and how an instance is launched. This file has the driver's graphs: how commands become one, its instance,
//! single commands; `command_buffer` has the contract's command-buffer, and how updates change it.

mod command_buffer;

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

pub use command_buffer::GraphCommandBuffer;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::support::command_list::Retired;
use crate::support::errors::half_updated;
use crate::support::streams::{
    BorrowedStream, ContextFailure, DriverContext as _, DriverStream, Kept, LaunchDevice, MemoryDevice,
    RawEvent, Started, StreamQueue, StreamTurn, retry_with_room,
};
use crate::{Command, CommandBufferDesc, CommandChange, Error, KernelLaunch, Result, Signal, WaitList};

/// A device whose command-buffers are graphs of the driver. The caller of the functions has bound the
/// context.
pub trait GraphObjects: LaunchDevice + MemoryDevice {
    /// A graph under construction. The driver takes one call at a time.
    type Graph: Debug + Send + 'static;
    /// A node of a graph, which keeps it alive.
    type Node: Copy + Debug + Send + Sync;
    /// A launch of a kernel as nodes take it.
    type Launch: Clone + Debug + Send + Sync + 'static;
    /// An instantiated graph.
    type Exec: InstantiatedGraph<Self>;
    /// A recording's knowledge of the order of its nodes.
    type Order: Default + Debug + Send + Sync;
    /// Place of one command in that order.
    type Place: Debug + Send + Sync;
    /// The part of an instance beside the instantiated graph.
    type Form: Debug + Send + Sync + 'static;

    /// Creates an empty graph.
    fn create_graph(&self) -> Result<Self::Graph>;

    /// The launch of a kernel of this device.
    fn launch_of(&self, launch: &KernelLaunch) -> Result<Self::Launch>;

    /// Gives a launch the argument with this index of `launch`, from which it differs in arguments alone.
    /// False, and without effect, if it has to be made again for that.
    fn replace_argument(current: &mut Self::Launch, launch: &KernelLaunch, index: usize) -> Result<bool>;
}

/// An instantiated graph, which the driver launches. It takes one call at a time, and the caller has bound
/// the context.
pub trait InstantiatedGraph<D: GraphObjects>: Debug + Send + Sync + Sized + 'static {
    /// Instantiates a graph.
    fn instantiate(graph: &mut D::Graph) -> Result<Self, ContextFailure<D::Context>>;

    /// Prepares the first launch.
    fn upload(&mut self, stream: &DriverStream<D::Context>) -> Result<(), ContextFailure<D::Context>>;

    /// Launches it. If a part of it cannot be launched behind other parts, which are on the stream then, that
    /// failure is in the result.
    fn launch(
        &mut self,
        stream: &DriverStream<D::Context>,
    ) -> Result<Option<ContextFailure<D::Context>>, ContextFailure<D::Context>>;

    /// Changes a kernel node for later launches.
    fn set_kernel(&mut self, node: D::Node, launch: &D::Launch) -> Result<(), ContextFailure<D::Context>>;

    /// Enables or disables a node in later launches.
    fn set_enabled(&mut self, node: D::Node, enabled: bool) -> Result<(), ContextFailure<D::Context>>;

    /// Lets a record node record another event in later launches.
    fn set_event(
        &mut self,
        node: D::Node,
        event: &RawEvent<D::Context>,
    ) -> Result<(), ContextFailure<D::Context>>;

    /// Makes later launches do what `graph` says, whose nodes are like those of the graph that this
    /// was made from. False where the driver refuses; then later launches may do anything.
    fn update(&mut self, graph: &mut D::Graph) -> Result<bool, ContextFailure<D::Context>>;
}

/// The differences between drivers. The caller of the functions has bound the context.
pub trait GraphDevice: GraphObjects {
    /// A copy that is set again when its command is enabled.
    type ChangedCopy;

    /// The name of what a command-buffer becomes, for its users.
    const LOWERING: &'static str;
    /// Whether the driver forgets new parameters of a kernel that is disabled before a launch has used them.
    const FORGETS_DISABLED: bool;

    /// Appends a command behind these earlier ones. On an error the recording is as it was.
    fn append(
        recording: &mut GraphRecording<Self>,
        command: &Command,
        after: SmallVec<[u32; 2]>,
    ) -> Result<()>;

    /// Appends a command, which will be enabled or not, in the place that another one has in
    /// another recording.
    fn append_like(
        recording: &mut GraphRecording<Self>,
        command: &Command,
        like: &RecordedCommand<Self>,
        enabled: bool,
    ) -> Result<()>;

    /// The new launch of a command in this place; none if the graph has to be recorded again for
    /// it.
    fn launch_in_place(
        &self,
        _place: &Self::Place,
        _current: &Self::Launch,
        launch: &KernelLaunch,
    ) -> Result<Option<Self::Launch>> {
        self.launch_of(launch).map(Some)
    }

    /// Whether the command in this place can be disabled without recording the graph again.
    fn can_disable(_place: &Self::Place) -> bool {
        true
    }

    /// Whether the edges of a command that has these places in two graphs are of the same kind.
    fn has_same_edges(_ours: &Self::Place, _theirs: &Self::Place) -> bool {
        true
    }

    /// Takes note that the command with this index has changed.
    fn changed(_recording: &mut GraphRecording<Self>, _index: usize) {}

    /// Whether the graph has no nodes but those of its commands.
    fn has_only_commands(_recording: &GraphRecording<Self>) -> bool {
        true
    }

    /// Instantiates the new graph for launches, without disabled commands.
    fn instantiate(recording: &mut GraphRecording<Self>) -> Result<(Self::Exec, Self::Form)>;

    /// The reason why a command-buffer with this recording is what it is.
    fn reason(recording: &GraphRecording<Self>) -> &'static str;

    /// Called when a command-buffer is created, which is the time for what takes long.
    fn prepare(_device: &Arc<Self>, _desc: &CommandBufferDesc) {}

    /// Launches the graph behind its last launch. A counter tells of the end, if the launch `counts` and the
    /// graph has such a form.
    fn launch(
        instance: &mut LaunchableGraph<Self>,
        recording: &GraphRecording<Self>,
        borrowed: &BorrowedStream<Self::Context>,
        counts: bool,
    ) -> Result<Started<Self>>;

    /// Replaces the instantiated graph. Launches in flight go on, and the next launch comes after them.
    fn replace(instance: &mut LaunchableGraph<Self>, exec: Self::Exec, form: Self::Form) -> Result<()>;

    /// Whether the instance may be changed now: launches in flight keep their values, or there are none.
    fn can_change(_device: &Arc<Self>, _instance: &LaunchableGraph<Self>) -> Result<bool> {
        Ok(true)
    }

    /// The copies of a command, if an update from another graph may have changed their parameters in the
    /// instance and the driver forgets that.
    fn changed_copies(_: &GraphRecording<Self>, _index: usize) -> Result<Vec<Self::ChangedCopy>> {
        Ok(Vec::new())
    }

    /// Changes what a copy node copies.
    fn set_copy(exec: &mut Self::Exec, copy: &Self::ChangedCopy)
    -> Result<(), ContextFailure<Self::Context>>;
}

impl<D: GraphDevice> GraphRecording<D> {
    /// Takes note of what the command with this index has become, and of how the graph compares to
    /// that.
    pub fn command_changed(&mut self, index: usize, state: GraphState) {
        self.state = self.state.max(state);
        D::changed(self, index);
    }

    /// Records the commands again, enabled or disabled as they are, as a graph of their own. The caller has
    /// bound the context.
    pub fn record_again(&self, desc: CommandBufferDesc) -> Result<Self> {
        self.record_changed(desc, &[])
    }

    /// Records again, as [`record_again`](Self::record_again), with these changes.
    pub fn record_changed(&self, desc: CommandBufferDesc, changes: &[CommandChange]) -> Result<Self> {
        let mut again = Self::new(&self.device, desc)?;
        let changes: HashMap<usize, &CommandChange> =
            changes.iter().map(|change| (change.index, change)).collect();
        for (index, recorded) in self.commands.iter().enumerate() {
            let change = changes.get(&index);
            let command = change.and_then(|change| change.command.as_ref()).unwrap_or(&recorded.command);
            let enabled = change.and_then(|change| change.enabled).unwrap_or(recorded.enabled);
            D::append_like(&mut again, command, recorded, enabled)?;
            if let Some(copy) = again.commands.last_mut() {
                copy.enabled = enabled;
            }
        }
        Ok(again)
    }
}

/// Commands, and a graph of explicit nodes that does what they say.
#[derive(Debug)]
pub struct GraphRecording<D: GraphObjects> {
    /// The device.
    pub device: Arc<D>,
    /// Descriptor that the command-buffer was created with.
    pub desc: CommandBufferDesc,
    /// Also locked by whatever updates another command-buffer from this one: the driver takes one
    /// call at a time, even from readers.
    pub graph: Mutex<D::Graph>,
    /// The commands, in the order in which they were appended.
    pub commands: Vec<RecordedCommand<D>>,
    /// The backend's knowledge of the order of its nodes.
    pub order: D::Order,
    /// Event that record nodes record, with profiling, until an enqueue gives them its own events.
    pub placeholder: Option<RawEvent<D::Context>>,
    /// Difference between the graph and the commands.
    pub state: GraphState,
}

/// Difference between a graph and its commands. Updates change the instance and not the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GraphState {
    /// The graph does what the commands say.
    Current,
    /// The graph has other launches at kernel nodes.
    OtherLaunches,
    /// The graph has other copies or fills as well.
    Outdated,
}

/// One command in a graph.
#[derive(Debug)]
pub struct RecordedCommand<D: GraphObjects> {
    /// Keeps the operands alive.
    pub command: Command,
    /// Nodes, and the launch as updates have changed it.
    pub nodes: CommandNodes<D>,
    /// Disabled commands have nodes that do nothing.
    pub enabled: bool,
    /// Place in the order of nodes.
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
    /// Node and launch of a command that is one launch, if updates may change it. In a box, as most graphs
    /// are never updated.
    pub kernel: Option<Box<(D::Node, D::Launch)>>,
    /// Nodes that record its times, with profiling.
    pub records: Option<Box<[D::Node; 2]>>,
    /// Values that nodes use beside the operands, and that therefore live as long as they do: patterns of
    /// fills, and registrations of host memory.
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

/// An instantiated graph, and what launches of it in flight may still use.
#[derive(Debug)]
pub struct LaunchableGraph<D: GraphObjects> {
    /// The driver's instance.
    pub exec: D::Exec,
    /// The part that the backend keeps beside it.
    pub form: D::Form,
    /// The turn of the last launch, of this graph or one that it has replaced.
    last: Option<StreamTurn<D::Context>>,
    retired: Retired<RawEvent<D::Context>, Box<dyn Any + Send>>,
    /// With profiling: owns the events of the record nodes, which keep a node's own until it gets another
    /// one.
    recorded: Vec<Arc<dyn Any + Send + Sync>>,
    /// The reason why it must not be launched any more.
    broken: Option<Error>,
}

impl<D: GraphObjects> LaunchableGraph<D> {
    /// An instance that has not been launched.
    pub fn new((exec, form): (D::Exec, D::Form)) -> Self {
        let (retired, recorded) = (Retired::default(), Vec::new());
        Self { exec, form, last: None, retired, recorded, broken: None }
    }

    /// The reason why it must not be launched any more, if there is a reason.
    pub fn broken(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    /// Checks the state; called before a launch.
    pub fn check_launch(&mut self) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.purge();
        Ok(())
    }

    /// Makes the record nodes record these events in later launches. `owner` owns all of them.
    pub fn record<'a>(
        &mut self,
        owner: Arc<dyn Any + Send + Sync>,
        events: impl Iterator<Item = (D::Node, &'a RawEvent<D::Context>)>,
    ) -> Result<(), ContextFailure<D::Context>> {
        // If this fails half-way, the nodes have events of both owners.
        self.recorded.push(owner);
        for (node, event) in events {
            self.exec.set_event(node, event)?;
        }
        self.recorded.drain(..self.recorded.len() - 1);
        Ok(())
    }

    /// Has another graph launched from now on.
    pub fn swap(&mut self, exec: D::Exec, form: D::Form) {
        let exec = std::mem::replace(&mut self.exec, exec);
        let form = std::mem::replace(&mut self.form, form);
        self.retire((exec, form));
        self.broken = None;
    }

    /// Keeps what launches in flight may use until they are done. The driver does not: it unloads a
    /// kernel that runs.
    pub fn retire(&mut self, replaced: impl Any + Send) {
        self.purge();
        match self.fence() {
            Ok(Some(fence)) => self.retired.keep(fence, Box::new(replaced)),
            Ok(None) => {}
            Err(failure) => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "what an update has replaced is leaked");
                std::mem::forget(replaced);
            }
        }
    }

    /// Drops what has been replaced and no launch uses any more.
    fn purge(&mut self) {
        self.retired.purge(|fence| matches!(fence.is_complete(), Ok(true)));
    }

    /// Changes what later launches do: all of `change`, or nothing if that fails and `undo`
    /// succeeds. If `undo` fails as well, the state is unknown, and nothing is launched until
    /// another graph replaces this one.
    ///
    /// # Errors
    /// That of `change`; once the state is unknown, one that says so.
    pub fn change<E: Into<Error>>(
        &mut self,
        change: impl FnOnce(&mut D::Exec) -> Result<(), E>,
        undo: impl FnOnce(&mut D::Exec) -> Result<()>,
    ) -> Result<()> {
        self.check_intact()?;
        let Err(error) = change(&mut self.exec) else { return Ok(()) };
        let undone = undo(&mut self.exec);
        Err(self.failed(error.into(), undone))
    }

    /// Checks the state; called before a change.
    pub fn check_intact(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// The error of a change that has failed. If it could not be undone, nothing is launched from now on.
    pub fn failed(&mut self, error: Error, undone: Result<()>) -> Error {
        let Err(cause) = undone else { return error };
        let unknown = half_updated(&error, &cause)
            .help("update everything from a graph with `update_from`, or finalize the graph again");
        self.broken = Some(unknown.clone());
        unknown
    }

    /// Takes note of a launch in this turn.
    pub fn launched(&mut self, turn: &StreamTurn<D::Context>) {
        match &mut self.last {
            Some(last) => last.clone_from(turn),
            last => *last = Some(turn.clone()),
        }
    }

    /// Whether everything launched so far has ended.
    pub fn is_idle(&self) -> Result<bool, ContextFailure<D::Context>> {
        self.last.as_ref().map_or(Ok(true), StreamTurn::is_idle)
    }

    /// Complete when everything launched so far is. None if that is so already.
    pub fn fence(&self) -> Result<Option<RawEvent<D::Context>>, ContextFailure<D::Context>> {
        self.last.as_ref().map_or(Ok(None), |last| last.fence(None))
    }

    /// Has a launch on this stream come after the last one.
    pub fn follow_last(&self, stream: &Arc<DriverStream<D::Context>>) -> Result<()> {
        if let Some(last) = &self.last
            && let Some(fence) = last.fence(Some(stream))?
        {
            stream.wait(&fence)?;
        }
        Ok(())
    }
}

/// A command as a graph, and what that needs.
#[derive(Debug)]
struct SingleCommand<D: GraphObjects> {
    exec: Mutex<D::Exec>,
    _graph: Mutex<D::Graph>,
    _command: Arc<Command>,
    _nodes: CommandNodes<D>,
}

/// Enqueues a command. `add` adds its nodes to a graph, with the context bound.
pub fn enqueue_as_graph<D: GraphObjects>(
    queue: &StreamQueue<D>,
    command: &Arc<Command>,
    wait: WaitList<'_>,
    signal: Signal<'_>,
    add: impl FnOnce(&mut D::Graph) -> Result<CommandNodes<D>>,
) -> Result<()> {
    let device = &queue.device;
    let single = device.context().run(|| {
        let mut graph = device.create_graph()?;
        let nodes = add(&mut graph)?;
        let exec = retry_with_room(|| device.trim(), || D::Exec::instantiate(&mut graph))?;
        let (exec, graph) = (Mutex::new(exec), Mutex::new(graph));
        Ok::<_, Error>(SingleCommand { exec, _graph: graph, _command: Arc::clone(command), _nodes: nodes })
    })?;
    let single = Arc::new(single);
    let kept: Kept = Arc::clone(&single) as Kept;
    queue.submit(None, Some(kept), wait, signal, |borrowed, _| {
        let failure = single.exec.lock().launch(&borrowed.stream)?.map(Error::from);
        Ok(Started { failure, ..Started::default() })
    })
}

/// Keeps the first of equal values: drivers of graphs take each dependency once.
pub fn once_each<T: Copy + Ord>(values: SmallVec<[T; 1]>) -> SmallVec<[T; 1]> {
    if values.len() <= 1 {
        return values;
    }
    let mut indexed: SmallVec<[(T, usize); 8]> = values.into_iter().zip(0..).collect();
    indexed.sort_unstable();
    indexed.dedup_by_key(|(value, _)| *value);
    indexed.sort_unstable_by_key(|&(_, index)| index);
    indexed.into_iter().map(|(value, _)| value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_values_keeps_its_place() {
        let once = |values: &[u32]| once_each(SmallVec::from_slice(values)).to_vec();
        assert_eq!(once(&[3, 1, 3, 2, 1]), [3, 1, 2]);
        assert_eq!(once(&[7]), [7]);
        assert_eq!(once(&[]), []);
    }
}

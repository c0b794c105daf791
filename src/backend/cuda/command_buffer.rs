//! Command-buffers: a graph of explicit nodes, instantiated at finalize and launched at enqueue.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::alone::Alone;
use super::device::Shared;
use super::error::foreign;
use super::graph::{Exec, Graph, Node};
use super::instance::Instance;
use super::launch::Launch;
use super::lower::{Lowered, lower};
use super::memory::CudaMemory;
use super::nodes::{self, Added, Ends, once_each};
use super::prompt::{self, Prompt};
use super::queue::{CudaQueue, Ticked};
use super::stream::{RawEvent, Stream};
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandUpdate, Kernel, Queue, Signal, SyncPoint, WaitList,
};
use crate::types::{Error, ErrorKind, Result};

/// Commands as a graph.
#[derive(Debug)]
pub(super) struct CudaCommandBuffer {
    id: CommandBufferId,
    pub(super) shared: Arc<Shared>,
    pub(super) desc: CommandBufferDesc,
    /// Locked by whoever updates another command-buffer from it: the driver wants one call at a
    /// time, readers too.
    pub(super) graph: Mutex<Graph>,
    pub(super) commands: Vec<Recorded>,
    alone: Alone,
    /// In updatable buffers: what the graph launches, which may be instantiated once more when
    /// updates have replaced it.
    pub(super) kernels: Vec<Arc<dyn Kernel>>,
    /// There from finalize on.
    pub(super) instance: Option<Mutex<Instance>>,
    /// Where all that is written stays on the device, and nothing of it changes. What can be
    /// updated has a tick instead.
    prompt: Option<Mutex<Prompt>>,
    /// With profiling: what the record nodes record until an enqueue names its own events.
    pub(super) placeholder: Option<RawEvent>,
    /// Whether the graph still says what the commands do. An update changes the instance only.
    pub(super) as_recorded: bool,
    /// Whether it says something else of commands that are no kernels, so that another instance of
    /// it would be wrong.
    pub(super) is_behind: bool,
    /// How many commands may write to somewhere else than the device.
    pub(super) outside: usize,
}

/// One command in the graph.
#[derive(Debug)]
pub(super) struct Recorded {
    /// Keeps the operands alive.
    pub(super) command: Command,
    pub(super) patterns: Vec<Arc<CudaMemory>>,
    /// What has to be waited for to come after it.
    ends: Ends,
    /// In updatable buffers: the commands that it follows.
    pub(super) after: SmallVec<[u32; 2]>,
    /// In updatable buffers: the nodes that do its work.
    pub(super) nodes: SmallVec<[Node; 1]>,
    /// Its node and what that was last given, if it can be updated.
    pub(super) kernel: Option<(Node, Launch)>,
    pub(super) enabled: bool,
    /// Whether all that it writes stays on the device.
    pub(super) stays: bool,
    /// With profiling: the nodes that record its times.
    records: Option<[Node; 2]>,
}

impl CudaCommandBuffer {
    pub(super) fn create(shared: &Arc<Shared>, desc: CommandBufferDesc) -> Result<Self> {
        let context = &shared.context;
        let placeholder = desc.profiling.then(|| RawEvent::create(context, true)).transpose()?;
        Ok(Self {
            id: CommandBufferId::unique(),
            shared: Arc::clone(shared),
            desc,
            graph: Mutex::new(Graph::create(context)?),
            commands: Vec::new(),
            alone: Alone::default(),
            kernels: Vec::new(),
            instance: None,
            prompt: (!desc.profiling && !desc.updatable).then(Mutex::default),
            placeholder,
            as_recorded: true,
            is_behind: false,
            outside: 0,
        })
    }

    /// The commands that the next one follows.
    fn predecessors(&self, index: u32, command: &Command, after: &[SyncPoint]) -> Result<SmallVec<[u32; 2]>> {
        let mut indices = SmallVec::with_capacity(after.len());
        for point in after {
            if point.buffer != self.id || point.index as usize >= self.commands.len() {
                let why = "a sync-point is not of an earlier command of this command-buffer";
                return Err(Error::new(ErrorKind::InvalidSyncPoint, why));
            }
            indices.push(point.index);
        }
        if self.desc.in_order {
            indices.extend((self.commands.len() as u32).checked_sub(1));
        }
        indices.extend(self.alone.before(index, command));
        Ok(indices)
    }

    /// What comes after these commands has to wait for. The same for the same commands, whatever
    /// addresses the nodes have: the driver compares graphs in the order in which they were built.
    pub(super) fn ends_of(&self, commands: &[u32]) -> Ends {
        let ends = commands.iter().filter_map(|&index| self.commands.get(index as usize));
        once_each(ends.flat_map(|earlier| earlier.ends.iter().copied()).collect())
    }

    /// Adds the nodes of a command. On an error the graph is as it was.
    pub(super) fn add(&mut self, command: &Command, after: Ends) -> Result<Recorded> {
        let Lowered { ops, patterns } = lower(&self.shared, command, self.desc.updatable)?;
        let record = self.placeholder.as_ref();
        let Added { ends, work, kernel, records } =
            nodes::add(&self.shared, self.graph.get_mut(), ops, after, record)?;
        let updatable = self.desc.updatable;
        if let (true, Command::Kernel(launch)) = (updatable, command) {
            self.kernels.push(Arc::clone(&launch.kernel));
        }
        Ok(Recorded {
            command: command.clone(),
            patterns,
            ends,
            after: SmallVec::new(),
            nodes: if updatable { work } else { SmallVec::new() },
            kernel: kernel.filter(|_| updatable),
            enabled: true,
            stays: prompt::stays_on(&self.shared, command),
            records,
        })
    }

    /// Counts anew, as all commands have become others.
    pub(super) fn count_outside(&mut self) {
        self.outside = self.commands.iter().filter(|recorded| !recorded.stays).count();
    }

    /// Launches it, and gives the tick that tells of its end, if that is `asked` for and there is one.
    fn launch(&self, instance: &mut Instance, stream: &Arc<Stream>, asked: bool) -> Result<Option<Ticked>> {
        if let Some(prompt) = &self.prompt {
            let ticked = prompt.lock().launch(&self.shared, &self.graph, stream, asked)?;
            if ticked.is_some() {
                return Ok(ticked);
            }
        }
        let told = self.prepare_tick(instance, asked, stream);
        Ok(instance.launch(stream, self.desc.updatable)?.filter(|_| told))
    }

    /// Launches it as one of a batch, whose end is told by others.
    pub(super) fn launch_in_batch(&self, device: &Arc<Shared>, stream: &Arc<Stream>) -> Result<()> {
        if !Arc::ptr_eq(device, &self.shared) {
            return Err(foreign("command-buffer"));
        }
        if self.desc.profiling {
            return Err(invalid("command-buffers with profiling are not enqueued in batches"));
        }
        self.launch(&mut self.instance()?.lock(), stream, false).map(drop)
    }

    fn instance(&self) -> Result<&Mutex<Instance>> {
        self.instance.as_ref().ok_or_else(|| invalid("the command-buffer is not finalized"))
    }
}

impl CommandBuffer for CudaCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let state = match self.instance {
            None => CommandBufferState::Recording,
            Some(_) => CommandBufferState::Executable,
        };
        CommandBufferInfo {
            id: self.id,
            device: self.shared.info.id,
            desc: self.desc,
            state,
            commands: self.commands.len(),
            lowering: "CUDA graph",
        }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        if self.instance.is_some() {
            return Err(invalid("commands cannot be appended after finalize"));
        }
        let index = u32::try_from(self.commands.len()).map_err(|_| invalid("the command-buffer is full"))?;
        let shared = Arc::clone(&self.shared);
        let append = || {
            let _bound = shared.context.bind()?;
            let after = self.predecessors(index, command, after)?;
            let follows = self.ends_of(&after);
            let mut recorded = self.add(command, follows.clone())?;
            self.prompt = self.prompt.take().filter(|_| recorded.stays);
            if let Some(prompt) = &mut self.prompt {
                prompt.get_mut().append(&follows, &recorded.ends);
            }
            if self.desc.updatable {
                recorded.after = after;
            }
            self.outside += usize::from(!recorded.stays);
            self.commands.push(recorded);
            self.alone.add(index, command);
            Ok(())
        };
        let appended: Result<()> = { append }();
        appended.map_err(|error| shared.context.error(error))?;
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn finalize(&mut self) -> Result<()> {
        if self.instance.is_some() {
            return Err(invalid("the command-buffer is finalized already"));
        }
        let shared = Arc::clone(&self.shared);
        let context = &shared.context;
        let _bound = context.bind().map_err(|failure| context.error(failure))?;
        let exec = self.instantiate(None, &shared.service).map_err(|error| context.error(error))?;
        self.instance = Some(Mutex::new(Instance::new(exec)));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let instance = self.instance()?;
        let queue = queue.as_any().downcast_ref::<CudaQueue>();
        let queue = queue.filter(|queue| Arc::ptr_eq(queue.shared(), &self.shared));
        let queue = queue.ok_or_else(|| foreign("queue"))?;
        let timed = self.desc.profiling.then_some(self.commands.len());
        let asked = signal.prompt;
        queue.submit(timed, None, wait, signal, |stream, starting| {
            let mut instance = instance.lock();
            if self.desc.profiling {
                starting.with_places(|places| {
                    let records = self
                        .commands
                        .iter()
                        .zip(places)
                        .filter_map(|(recorded, places)| Some(recorded.records?.into_iter().zip(places)));
                    instance.record(starting.signal(), records.flatten())
                })?;
            }
            self.launch(&mut instance, stream, asked)
        })
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        self.update_commands(updates)
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        self.become_like(other.as_any())
    }
}

pub(super) fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// A command outside command-buffers: a graph that is launched once.
#[derive(Debug)]
pub(super) struct OneShot {
    exec: Mutex<Exec>,
    _graph: Graph,
    _command: Command,
    _patterns: Vec<Arc<CudaMemory>>,
}

impl OneShot {
    pub(super) fn new(shared: &Arc<Shared>, command: &Command) -> Result<Self> {
        let prepare = || {
            let _bound = shared.context.bind()?;
            let Lowered { ops, patterns } = lower(shared, command, false)?;
            let mut graph = Graph::create(&shared.context)?;
            nodes::add(shared, &mut graph, ops, Ends::new(), None)?;
            let exec = Mutex::new(shared.retry_with_room(|| graph.instantiate())?);
            Ok(Self { exec, _graph: graph, _command: command.clone(), _patterns: patterns })
        };
        prepare().map_err(|error: Error| shared.context.error(error))
    }

    pub(super) fn launch(&self, stream: &Stream) -> Result<()> {
        Ok(self.exec.lock().launch(stream)?)
    }
}

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
use super::launch::Launch;
use super::lower::{Lowered, lower, lower_kernel};
use super::memory::CudaMemory;
use super::nodes::{self, Added, Ends, once_each};
use super::queue::CudaQueue;
use super::signal::Signal as Signalled;
use super::stream::{RawEvent, Stream};
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandHandle, KernelLaunch, KernelUpdate, Queue, Signal, SyncPoint, WaitList,
};
use crate::types::{Error, ErrorKind, Result};

/// Commands as a graph.
#[derive(Debug)]
pub(super) struct CudaCommandBuffer {
    id: CommandBufferId,
    shared: Arc<Shared>,
    desc: CommandBufferDesc,
    graph: Graph,
    commands: Vec<Recorded>,
    alone: Alone,
    /// There from finalize on.
    exec: Option<Mutex<Exec>>,
    /// With profiling: what the record nodes record until an enqueue names its own events.
    placeholder: Option<RawEvent>,
    /// With profiling: whose events the record nodes were last given. The driver looks at the old one when a node gets
    /// another, so it may not be destroyed before. Locked while `exec` is.
    recorded: Mutex<SmallVec<[Arc<Signalled>; 2]>>,
}

/// One command in the graph.
#[derive(Debug)]
struct Recorded {
    /// Keeps the operands alive.
    command: Command,
    _patterns: Vec<Arc<CudaMemory>>,
    /// What has to be waited for to come after it.
    ends: Ends,
    /// Its node and what that was last given, if it can be updated.
    kernel: Option<(Node, Launch)>,
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
            graph: Graph::create(context)?,
            commands: Vec::new(),
            alone: Alone::default(),
            exec: None,
            placeholder,
            recorded: Mutex::default(),
        })
    }

    /// What the next command comes after.
    fn predecessors(&self, index: u32, command: &Command, after: &[SyncPoint]) -> Result<Ends> {
        let mut ends = Ends::new();
        for point in after {
            let earlier = self.commands.get(point.index as usize).filter(|_| point.buffer == self.id);
            let Some(earlier) = earlier else {
                let why = "a sync-point is not of an earlier command of this command-buffer";
                return Err(Error::new(ErrorKind::InvalidSyncPoint, why));
            };
            ends.extend_from_slice(&earlier.ends);
        }
        if self.desc.in_order {
            ends.extend(self.commands.last().into_iter().flat_map(|last| last.ends.iter().copied()));
        }
        let alone = self.alone.before(index, command);
        ends.extend(alone.flat_map(|index| self.commands[index as usize].ends.iter().copied()));
        Ok(once_each(ends))
    }

    /// Adds the nodes of a command. On an error the graph is as it was.
    fn add(&mut self, command: &Command, after: Ends) -> Result<Recorded> {
        let Lowered { ops, patterns } = lower(&self.shared, command)?;
        let Added { ends, kernel, records } =
            nodes::add(&self.shared, &mut self.graph, ops, after, self.placeholder.as_ref())?;
        let kernel = kernel.filter(|_| self.desc.updatable);
        Ok(Recorded { command: command.clone(), _patterns: patterns, ends, kernel, records })
    }

    fn exec(&self) -> Result<&Mutex<Exec>> {
        self.exec.as_ref().ok_or_else(|| invalid("the command-buffer is not finalized"))
    }
}

impl CommandBuffer for CudaCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let state = match self.exec {
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
        if self.exec.is_some() {
            return Err(invalid("commands cannot be appended after finalize"));
        }
        let index = u32::try_from(self.commands.len()).map_err(|_| invalid("the command-buffer is full"))?;
        let shared = Arc::clone(&self.shared);
        let append = || {
            let _bound = shared.context.bind()?;
            let after = self.predecessors(index, command, after)?;
            let recorded = self.add(command, after)?;
            self.commands.push(recorded);
            self.alone.add(index, command);
            Ok(())
        };
        let appended: Result<()> = { append }();
        appended.map_err(|error| shared.context.error(error))?;
        let updatable = self.desc.updatable && matches!(command, Command::Kernel(_));
        Ok(Appended {
            sync_point: SyncPoint { buffer: self.id, index },
            handle: updatable.then_some(CommandHandle { buffer: self.id, index }),
        })
    }

    fn finalize(&mut self) -> Result<()> {
        if self.exec.is_some() {
            return Err(invalid("the command-buffer is finalized already"));
        }
        let finalize = || {
            let _bound = self.shared.context.bind()?;
            let mut exec = self.graph.instantiate()?;
            // Else the first launch would have to.
            exec.upload(&self.shared.service)?;
            Ok(exec)
        };
        let exec = finalize().map_err(|failure: super::sys::Failure| self.shared.context.error(failure))?;
        self.exec = Some(Mutex::new(exec));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let exec = self.exec()?;
        let queue = queue.as_any().downcast_ref::<CudaQueue>();
        let queue = queue.filter(|queue| Arc::ptr_eq(queue.shared(), &self.shared));
        let queue = queue.ok_or_else(|| foreign("queue"))?;
        let timed = self.desc.profiling.then_some(self.commands.len());
        // The driver starts it when its last launch, on whatever stream, is done.
        queue.submit(timed, None, wait, signal, |stream, starting| {
            let mut exec = exec.lock();
            if self.desc.profiling {
                let mut recorded = self.recorded.lock();
                recorded.push(Arc::clone(starting.signal()));
                starting.with_places(|places| {
                    let records = self.commands.iter().map(|recorded| recorded.records);
                    for (records, places) in records.zip(places) {
                        for (node, event) in records.iter().flatten().zip(places) {
                            exec.set_event(*node, event)?;
                        }
                    }
                    Ok::<_, super::sys::Failure>(())
                })?;
                // All nodes have those of this one; of several before, when a call had failed.
                let others = recorded.len() - 1;
                recorded.drain(..others);
            }
            Ok(exec.launch(stream)?)
        })
    }

    fn update(&mut self, updates: &[KernelUpdate]) -> Result<()> {
        let Some(exec) = &mut self.exec else {
            return Err(invalid("a command-buffer can be updated only after finalize"));
        };
        let context = &self.shared.context;
        let exec = exec.get_mut();
        // All are prepared before the driver gets the first: what is wrong shows here. Several updates of one command build
        // on each other.
        let mut changes: SmallVec<[(usize, Box<KernelLaunch>, Launch); 1]> = SmallVec::new();
        for update in updates {
            let index = update.handle.index as usize;
            let mut launch = match changes.iter().rev().find(|(changed, ..)| *changed == index) {
                Some((_, launch, _)) => launch.clone(),
                None => match self.commands.get(index) {
                    Some(Recorded { command: Command::Kernel(launch), kernel: Some(_), .. }) => {
                        launch.clone()
                    }
                    _ => {
                        let why = format!("command {index} is not a kernel launch that can be updated");
                        return Err(Error::new(ErrorKind::InvalidCommandHandle, why));
                    }
                },
            };
            update.apply_to(&mut launch)?;
            let lowered = lower_kernel(&self.shared, &launch).map_err(|error| context.error(error))?;
            changes.push((index, launch, lowered));
        }
        let _bound = context.bind().map_err(|failure| context.error(failure))?;
        for (done, (index, _, lowered)) in changes.iter().enumerate() {
            let node = self.commands[*index].kernel.as_ref().map(|(node, _)| *node);
            let Some(node) = node else { continue };
            if let Err(failure) = exec.set_kernel(node, lowered) {
                for (index, ..) in &changes[..done] {
                    if let Some((node, old)) = &self.commands[*index].kernel {
                        exec.set_kernel(*node, old).map_err(|failure| context.error(failure))?;
                    }
                }
                return Err(context.error(failure));
            }
        }
        for (index, launch, lowered) in changes {
            let recorded = &mut self.commands[index];
            recorded.command = Command::Kernel(launch);
            if let Some((_, current)) = &mut recorded.kernel {
                *current = lowered;
            }
        }
        Ok(())
    }
}

fn invalid(why: &str) -> Error {
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
            let Lowered { ops, patterns } = lower(shared, command)?;
            let mut graph = Graph::create(&shared.context)?;
            nodes::add(shared, &mut graph, ops, Ends::new(), None)?;
            let exec = Mutex::new(graph.instantiate()?);
            Ok(Self { exec, _graph: graph, _command: command.clone(), _patterns: patterns })
        };
        prepare().map_err(|error: Error| shared.context.error(error))
    }

    pub(super) fn launch(&self, stream: &Stream) -> Result<()> {
        Ok(self.exec.lock().launch(stream)?)
    }
}

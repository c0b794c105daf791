//! Queues, and command-buffers: recorded as lists, finalized into a program, updated by copy-on-write.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::errors::{self, foreign, foreign_wait};
use wakegraph_hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandChange, CommandUpdate, DeviceId, Event, Queue, QueueDesc, QueueOrder, Result,
    Signal, SyncPoint, WaitList,
};

use super::events::HostEvent;
use super::interpreter::{check, check_arg};
use super::launch::HostKernel;
use super::program::{EnqueuedCommands, HostProgram};
use super::thread_pool::{ChainId, Dependent, HostWait, PoolWork, QueueTag, ThreadPool};

/// A queue: a serial chain of runs if it is in order, else only a name for [`finish`](Queue::finish).
#[derive(Debug)]
pub(super) struct HostQueue {
    device: DeviceId,
    pool: Arc<ThreadPool>,
    desc: QueueDesc,
    tag: QueueTag,
    chain: Option<ChainId>,
    notifies: bool,
    peer_access: bool,
}

impl HostQueue {
    pub(super) fn new(
        device: DeviceId,
        pool: &Arc<ThreadPool>,
        desc: QueueDesc,
        notifies: bool,
        peer_access: bool,
    ) -> Self {
        Self {
            device,
            pool: Arc::clone(pool),
            desc,
            tag: pool.add_queue(),
            chain: (desc.order == QueueOrder::InOrder).then(|| pool.add_chain()),
            notifies,
            peer_access,
        }
    }

    /// Enqueues commands, of the command-buffer with this serial chain if they are one's.
    fn submit(
        &self,
        commands: EnqueuedCommands,
        profiled: bool,
        buffer: Option<ChainId>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let event = HostEvent::of(signal.event);
        let event = event.filter(|event| event.device() == self.device).ok_or_else(|| foreign("event"))?;
        let wait = self.wait_list(wait)?;
        let notification = signal.notification.filter(|_| self.notifies);
        let profiled = profiled || self.desc.profiling || signal.timed;
        let work = PoolWork::new(commands, event, notification, profiled);
        self.pool.enqueue(work, self.tag, [self.chain, buffer], &wait)
    }

    fn wait_list<'a>(&self, wait: WaitList<'a>) -> Result<SmallVec<[HostWait<'a>; 8]>> {
        if wait.dependencies.is_empty() && wait.order.is_empty() {
            return Ok(SmallVec::new());
        }
        let host_wait = |event: &'a dyn Event, needs_result: bool| {
            let event = event.downcast_ref::<HostEvent<Dependent>>();
            let event = event.filter(|event| self.peer_access || event.device() == self.device);
            let event = event.ok_or_else(foreign_wait)?;
            Ok(HostWait { event, needs_result })
        };
        let dependencies = wait.dependencies.iter().map(|&event| host_wait(event, true));
        dependencies.chain(wait.order.iter().map(|&event| host_wait(event, false))).collect()
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        if let Some(chain) = self.chain {
            self.pool.release_chain(chain);
        }
    }
}

impl Queue for HostQueue {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        check(command)?;
        self.submit(EnqueuedCommands::One(Arc::clone(command)), false, None, wait, signal)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let nothing = EnqueuedCommands::One(Arc::new(Command::Empty));
        let marker = PoolWork::new(nothing, Arc::new(HostEvent::new(self.device)), None, false);
        self.pool.join(marker, self.tag);
        Ok(())
    }
}

/// A command-buffer. Runs in flight hold the program, so the command-buffer itself may be dropped.
#[derive(Debug)]
pub(super) struct HostCommandBuffer {
    id: CommandBufferId,
    device: DeviceId,
    desc: CommandBufferDesc,
    pool: Arc<ThreadPool>,
    /// Chain in which the enqueues of this command-buffer follow each other, on any queue.
    chain: ChainId,
    state: HostContents,
}

#[derive(Debug)]
enum HostContents {
    Recording { commands: Vec<Command>, after: Vec<SmallVec<[u32; 2]>> },
    Executable(Arc<HostProgram>),
}

impl HostCommandBuffer {
    pub(super) fn new(device: DeviceId, pool: &Arc<ThreadPool>, desc: CommandBufferDesc) -> Self {
        Self {
            id: CommandBufferId::unique(),
            device,
            desc,
            pool: Arc::clone(pool),
            chain: pool.add_chain(),
            state: HostContents::Recording { commands: Vec::new(), after: Vec::new() },
        }
    }
}

/// Whether workers may share the command.
fn is_divided(command: &Command) -> bool {
    match command {
        Command::Kernel(launch) => launch.kernel.can_be_stopped(),
        _ => false,
    }
}

impl Drop for HostCommandBuffer {
    fn drop(&mut self) {
        self.pool.release_chain(self.chain);
    }
}

impl CommandBuffer for HostCommandBuffer {
    fn info(&self) -> CommandBufferInfo {
        let (state, commands, (lowering, reason)) = match &self.state {
            HostContents::Recording { commands, .. } => {
                (CommandBufferState::Recording, commands.len(), ("recording", ""))
            }
            HostContents::Executable(program) => {
                let lowering = match (program.graph().is_some(), program.commands().iter().any(is_divided)) {
                    (true, false) => ("dependency-counted run", "some of its nodes may run at the same time"),
                    (true, true) => (
                        "dependency-counted run",
                        "some of its nodes may run at the same time; large kernels use all workers",
                    ),
                    (false, false) => ("in-order run", "its nodes run one after the other"),
                    (false, true) => {
                        ("in-order run", "its nodes run one after the other; large kernels use all workers")
                    }
                };
                (CommandBufferState::Executable, program.commands().len(), lowering)
            }
        };
        let (id, device, desc) = (self.id, self.device, self.desc);
        CommandBufferInfo { id, device, desc, state, commands, lowering, reason }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        let HostContents::Recording { commands, after: all_after } = &mut self.state else {
            return Err(errors::append_after_finalize());
        };
        check(command)?;
        let (index, after) = errors::next_command(self.id, commands.len(), after)?;
        commands.push(command.clone());
        all_after.push(after);
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        match &self.state {
            HostContents::Recording { commands, .. } => commands.get(index),
            HostContents::Executable(program) => program.commands().get(index),
        }
    }

    fn finalize(&mut self) -> Result<()> {
        let HostContents::Recording { commands, after } = &mut self.state else {
            return Err(errors::finalized_twice());
        };
        let CommandBufferDesc { in_order, profiling, .. } = self.desc;
        let program = HostProgram::new(std::mem::take(commands), after, in_order, profiling);
        self.state = HostContents::Executable(Arc::new(program));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let HostContents::Executable(program) = &self.state else {
            return Err(errors::enqueue_before_finalize());
        };
        let queue = queue.downcast_ref::<HostQueue>();
        let queue =
            queue.filter(|queue| queue.device() == self.device).ok_or_else(|| errors::foreign("queue"))?;
        let commands = EnqueuedCommands::Program(Arc::clone(program));
        queue.submit(commands, self.desc.profiling, Some(self.chain), wait, signal)
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let HostContents::Executable(program) = &mut self.state else {
            return Err(errors::update_before_finalize());
        };
        // All changes are prepared before the first is made: on an error nothing has changed.
        let changes = CommandChange::of(updates, |index| program.commands().get(index))?;
        for update in updates {
            if let Some(kernel) = &update.kernel {
                HostKernel::of(&**kernel)?;
            }
            update.args.iter().try_for_each(|(_, arg)| check_arg(arg))?;
            update.command.as_deref().map_or(Ok(()), check)?;
        }
        // Copies the commands only if an earlier enqueue still needs the old ones.
        let program = Arc::make_mut(program);
        for CommandChange { index, command, enabled } in changes {
            if let Some(command) = command {
                program.set_command(index, command);
            }
            if let Some(enabled) = enabled {
                program.set_enabled(index, enabled);
            }
        }
        Ok(())
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let HostContents::Executable(program) = &mut self.state else {
            return Err(errors::update_before_finalize());
        };
        let other = other.downcast_ref::<Self>().filter(|other| other.device == self.device);
        // The order is the same, so the object that holds it, and the progress of a run, is kept.
        let new = match &other.ok_or_else(|| errors::foreign("command-buffer"))?.state {
            HostContents::Recording { commands, .. } => program.with_commands(commands.clone()),
            HostContents::Executable(other) => program.like(other),
        };
        *program = Arc::new(new);
        Ok(())
    }
}

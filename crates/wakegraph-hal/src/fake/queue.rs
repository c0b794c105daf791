//! Queues, command-buffers and events of a fake device. The schedule completes what is enqueued.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::schedule::{FakeCompletion, FakeEnqueue, FakeSchedule};
use crate::support::errors;
use crate::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandChange, CommandUpdate, DeviceId, Enqueued, Error, Event, EventProfile,
    EventStatus, NativeStream, Queue, QueueDesc, QueueOrder, Result, Signal, SyncPoint, WaitList,
};

/// A queue whose work the schedule completes.
#[derive(Debug)]
pub(super) struct FakeQueue {
    id: u64,
    device: DeviceId,
    desc: QueueDesc,
    schedule: Arc<FakeSchedule>,
    /// Whether it waits for other fake devices.
    peers: bool,
}

impl FakeQueue {
    pub(super) fn new(device: DeviceId, desc: QueueDesc, schedule: &Arc<FakeSchedule>, peers: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, device, desc, schedule: Arc::clone(schedule), peers }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Enqueues a command, or the commands of `buffer`; `timed_commands` is how many, where each
    /// one's times are wanted. Its event fails with `failure`, if there is one, in its turn.
    pub(super) fn submit(
        &self,
        buffer: Option<CommandBufferId>,
        timed_commands: Option<usize>,
        failure: Option<Error>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let known = |event: &dyn Event, any: bool| {
            let event = event.downcast_ref::<FakeEvent>()?;
            (any || event.device() == self.device).then(|| Arc::clone(event.completion()))
        };
        let event = known(&**signal.event, false).ok_or_else(|| errors::foreign("event"))?;
        let dependencies = wait.dependencies.len();
        let wait = wait.events().map(|event| known(event, self.peers).ok_or_else(errors::foreign_wait));
        self.schedule.enqueue(FakeEnqueue {
            queue: self.id,
            in_order: self.desc.order == QueueOrder::InOrder,
            buffer,
            wait: wait.collect::<Result<_>>()?,
            dependencies,
            event,
            notification: signal.notification,
            profiled: self.desc.profiling || signal.timed || timed_commands.is_some(),
            timed_commands: timed_commands.unwrap_or(0),
            failure,
        })
    }
}

impl Queue for FakeQueue {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.schedule.log(|| format!("queue {command:?} {}", described(wait, &signal)));
        self.schedule.status()?;
        self.submit(None, None, call_stream_task(command, wait), wait, signal)
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        self.schedule.log(|| format!("batch of {}", buffers.len()));
        let (mut count, mut failure) = (0, None);
        for buffer in buffers {
            let own: Arc<dyn Event> = Arc::new(FakeEvent::new(self.device, &self.schedule));
            let buffer = buffer.downcast_ref::<FakeCommandBuffer>();
            let buffer = buffer.ok_or_else(|| errors::foreign("command-buffer"));
            match buffer.and_then(|buffer| buffer.submit(self, WaitList::NONE, Signal::new(&own))) {
                Ok(()) => count += 1,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        if (count > 0 || failure.is_none())
            && let Err(error) = self.submit(None, None, None, WaitList::NONE, signal)
        {
            // The device has been lost meanwhile, and with it what was enqueued.
            (count, failure) = (0, Some(error));
        }
        Enqueued { count, failure }
    }

    fn flush(&self) -> Result<()> {
        self.schedule.log(|| "flush".into());
        self.schedule.status()
    }

    fn finish(&self) -> Result<()> {
        self.schedule.log(|| "finish".into());
        for (event, generation) in self.schedule.pending_events(self.id) {
            self.schedule.wait(&event, Some(generation), None);
        }
        self.schedule.status()
    }
}

/// Calls the closure of a stream task at its enqueue, as a device with streams does. There is no stream here.
/// Returns the reason why the event is to fail.
fn call_stream_task(command: &Command, wait: WaitList<'_>) -> Option<Error> {
    let Command::StreamTask(task) = command else { return None };
    let has_failed = |event: &&dyn Event| matches!(event.status(), EventStatus::Failed(_));
    if wait.dependencies.iter().any(has_failed) {
        return None;
    }
    // SAFETY: the backend says that there are no handles.
    let lent = unsafe { NativeStream::new("fake", ptr::null_mut(), ptr::null_mut()) };
    // SAFETY: no command runs, so none uses the memory.
    unsafe { task.call_live(&lent) }.err()
}

/// The wait list and the signal of an enqueue, for the log.
fn described(wait: WaitList<'_>, signal: &Signal<'_>) -> String {
    let token = signal.notification.as_ref().map(|notification| notification.token);
    format!("after {} events, token {token:?}", wait.events().count())
}

/// Commands that are kept alive, with their operands, and never run.
#[derive(Debug)]
pub(super) struct FakeCommandBuffer {
    id: CommandBufferId,
    device: DeviceId,
    desc: CommandBufferDesc,
    state: CommandBufferState,
    commands: Vec<Command>,
    schedule: Arc<FakeSchedule>,
}

impl FakeCommandBuffer {
    pub(super) fn new(device: DeviceId, desc: CommandBufferDesc, schedule: &Arc<FakeSchedule>) -> Self {
        let (id, state) = (CommandBufferId::unique(), CommandBufferState::Recording);
        Self { id, device, desc, state, commands: Vec::new(), schedule: Arc::clone(schedule) }
    }

    fn expect(&self, state: CommandBufferState, refusal: fn() -> Error) -> Result<()> {
        if self.state == state { Ok(()) } else { Err(refusal()) }
    }

    fn submit(&self, queue: &FakeQueue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.expect(CommandBufferState::Executable, errors::enqueue_before_finalize)?;
        if queue.device != self.device {
            return Err(errors::foreign("queue"));
        }
        let timed_commands = self.desc.profiling.then_some(self.commands.len());
        queue.submit(Some(self.id), timed_commands, None, wait, signal)
    }
}

impl CommandBuffer for FakeCommandBuffer {
    fn info(&self) -> CommandBufferInfo {
        CommandBufferInfo {
            id: self.id,
            device: self.device,
            desc: self.desc,
            state: self.state,
            commands: self.commands.len(),
            lowering: "nothing",
            reason: "",
        }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        self.expect(CommandBufferState::Recording, errors::append_after_finalize)?;
        self.schedule.change()?;
        self.schedule.log(|| {
            let after: Vec<_> = after.iter().map(|point| point.index).collect();
            format!("append {command:?} after {after:?}")
        });
        self.commands.push(command.clone());
        Ok(Appended::new(self.id, self.commands.len() as u32 - 1, command, &self.desc))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.commands.get(index)
    }

    fn finalize(&mut self) -> Result<()> {
        self.expect(CommandBufferState::Recording, errors::finalized_twice)?;
        self.schedule.change()?;
        self.schedule.log(|| "finalize".into());
        self.state = CommandBufferState::Executable;
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.schedule.log(|| format!("enqueue {}", described(wait, &signal)));
        let queue = queue.downcast_ref::<FakeQueue>();
        self.submit(queue.ok_or_else(|| errors::foreign("queue"))?, wait, signal)
    }

    /// A disabled command keeps its place in the order.
    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        self.expect(CommandBufferState::Executable, errors::update_before_finalize)?;
        self.schedule.change()?;
        self.schedule.log(|| format!("update {updates:?}"));
        for CommandChange { index, command, .. } in
            CommandChange::of(updates, |index| self.commands.get(index))?
        {
            if let Some(command) = command {
                self.commands[index] = command;
            }
        }
        Ok(())
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        self.expect(CommandBufferState::Executable, errors::update_before_finalize)?;
        let theirs = other.downcast_ref::<Self>().filter(|other| other.device == self.device);
        let theirs = theirs.ok_or_else(|| errors::foreign("command-buffer"))?;
        self.schedule.change()?;
        self.schedule.log(|| format!("update from a buffer of {}", theirs.commands.len()));
        self.commands.clone_from(&theirs.commands);
        Ok(())
    }
}

/// An event that the schedule completes.
#[derive(Debug)]
pub(super) struct FakeEvent {
    device: DeviceId,
    completion: Arc<FakeCompletion>,
    schedule: Arc<FakeSchedule>,
}

impl FakeEvent {
    pub(super) fn new(device: DeviceId, schedule: &Arc<FakeSchedule>) -> Self {
        Self { device, completion: Arc::new(FakeCompletion::new()), schedule: Arc::clone(schedule) }
    }

    pub(super) fn completion(&self) -> &Arc<FakeCompletion> {
        &self.completion
    }
}

impl Event for FakeEvent {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn status(&self) -> EventStatus {
        self.schedule.poll(&self.completion)
    }

    /// Returns at once when the event is idle: nothing has been enqueued that could make it final.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        self.schedule.wait(&self.completion, None, timeout)
    }

    fn profile(&self) -> Result<EventProfile> {
        self.completion.profile()
    }
}

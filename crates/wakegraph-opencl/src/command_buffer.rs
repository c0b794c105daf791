//! Command-buffers: a list of operations, and a recording of it on devices where that is faster.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::list_update::ReplacedParts;
use wakegraph_hal::support::recorded_commands::RecordedCommands;
use wakegraph_hal::support::refusal;
use wakegraph_hal::support::retired::Retired;
use wakegraph_hal::support::signals::EnqueueSignal;
use wakegraph_hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferInfo, CommandUpdate, Progress, Queue,
    Result, Signal, SyncPoint, WaitList,
};

use super::context::OpenclContext;
use super::lower::lower;
use super::mutable;
use super::operation::OpenclOperation;
use super::options::Lowering;
use super::queue::{EnqueueRequest, OpenclQueue};
use super::recording::OpenclRecording;
use super::signal::{OpenclSignal, TimesWanted};

/// A command-buffer.
#[derive(Debug)]
pub(super) struct OpenclCommandBuffer {
    context: Arc<OpenclContext>,
    /// Like all recordings it is dropped before the list: then the driver releases each kernel for good
    /// when the list is dropped, in the list's order.
    pub(super) recording: Option<OpenclRecording>,
    in_flight: Mutex<PendingEnqueues>,
    pub(super) recorded: RecordedCommands<OpenclOperation>,
}

/// What the driver may still use.
#[derive(Debug, Default)]
struct PendingEnqueues {
    /// The last enqueue, which the next must not overlap.
    last: Option<Arc<OpenclSignal>>,
    /// Recordings that updates have replaced, each with the last enqueue that may use it.
    retired: Retired<Arc<OpenclSignal>, OpenclRecording>,
}

impl OpenclCommandBuffer {
    pub(super) fn new(context: &Arc<OpenclContext>, desc: CommandBufferDesc) -> Self {
        Self {
            context: Arc::clone(context),
            recording: None,
            in_flight: Mutex::default(),
            recorded: RecordedCommands::new(desc),
        }
    }

    /// The lowering for the list, and why it is that one.
    fn choose(&self) -> (Lowering, &'static str) {
        let context = &self.context;
        if self.recorded.desc.profiling {
            return (Lowering::Replay, "the times of its commands come from enqueuing each");
        }
        if self.recorded.commands.is_empty() {
            return (Lowering::Replay, "it is empty, which is a marker either way");
        }
        if context.features.recording.is_none() {
            return (Lowering::Replay, "the device cannot record what the backend needs");
        }
        if !OpenclRecording::can_hold(context, &self.recorded.list) {
            return (Lowering::Replay, "the device cannot record one of its commands");
        }
        match context.options.lowering {
            Some(forced) => (forced, "an option of the device forces it"),
            None if context.capabilities.progress == Progress::HostCores => {
                (Lowering::Replay, "plain enqueues are faster on CPUs, or leak less memory")
            }
            None => (Lowering::CommandBuffer, "the device can record it"),
        }
    }

    /// A recording of the list, if the device can record it and that is the faster lowering.
    fn record(&self) -> Result<Option<OpenclRecording>> {
        let context = &self.context;
        if self.choose().0 == Lowering::Replay {
            return Ok(None);
        }
        let recording = OpenclRecording::new(context, &self.recorded.list, self.recorded.desc.updatable);
        recording.map(Some).map_err(|failure| context.error(failure))
    }

    /// The last enqueue, if it is still pending.
    fn pending(&self) -> Option<Arc<OpenclSignal>> {
        self.in_flight.lock().last.clone().filter(|last| !last.is_final())
    }

    /// Replaces the recording. The old one is kept while an enqueue may use it.
    fn replace_recording(&mut self, new: Option<OpenclRecording>) {
        let old = std::mem::replace(&mut self.recording, new);
        if let Some((pending, old)) = self.pending().zip(old) {
            self.in_flight.get_mut().retired.keep(pending, old);
        }
    }

    /// Changes the recording after an update of the commands, or undoes the update. Enqueued commands have
    /// read their arguments, so they keep the old values.
    fn apply(&mut self, updated: Result<ReplacedParts<OpenclOperation>>) -> Result<()> {
        let replaced = updated.map_err(|error| self.context.error(error))?;
        if let Err(error) = self.change_recording(&replaced) {
            let error = replaced.restore(&self.context, &mut self.recorded, error);
            return Err(self.context.error(error));
        }
        let mut memory = replaced.into_memory().peekable();
        if memory.peek().is_some()
            && let Some(pending) = self.pending()
        {
            pending.keep(memory);
        }
        Ok(())
    }

    /// Changes the recording, if there is one, or makes a new one of the commands that are in place now.
    fn change_recording(&mut self, replaced: &ReplacedParts<OpenclOperation>) -> Result<()> {
        let Some(recording) = self.recording.as_ref().filter(|_| !replaced.0.is_empty()) else {
            return Ok(());
        };
        if self.pending().is_none() && mutable::change_in_place(recording, &self.recorded.commands, replaced)
        {
            return Ok(());
        }
        let (new, result) = match self.record() {
            Ok(new) => (new, Ok(())),
            // The driver may have changed the old one in part before it refused the change. The list still
            // says what the commands do, and is replayed from now on.
            Err(error) => (None, Err(error)),
        };
        self.replace_recording(new);
        result
    }
}

impl CommandBuffer for OpenclCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let (lowering, reason) = match (self.recorded.is_finalized(), &self.recording) {
            (false, _) => ("recording", ""),
            (_, Some(_)) => ("cl_khr_command_buffer", self.choose().1),
            (_, None) => match self.choose() {
                (Lowering::Replay, reason) => ("replayed enqueues", reason),
                _ => ("replayed enqueues", "the driver has refused to change its recording"),
            },
        };
        self.recorded.info(self.context.info.id, lowering, reason)
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        self.recorded.append(command, after, |command| lower(&self.context, command))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.recorded.commands.get(index)
    }

    fn finalize(&mut self) -> Result<()> {
        self.recorded.check_finalize()?;
        self.recording = self.record()?;
        self.recorded.set_finalized();
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.recorded.check_enqueue()?;
        let queue = OpenclQueue::of(queue, &self.context)?;
        // The lock is held until the commands are enqueued: enqueues of one command-buffer follow each
        // other.
        let mut in_flight = self.in_flight.lock();
        in_flight.retired.purge(|run| run.is_final());
        // A signal that is over is dropped, so that its event can use it again.
        in_flight.last = in_flight.last.take().filter(|last| !last.outcome().is_known());
        let request = EnqueueRequest {
            list: &self.recorded.list,
            recording: self.recording.as_ref(),
            times: match (self.recorded.desc.profiling, signal.timed) {
                (true, _) => TimesWanted::Commands,
                (false, true) => TimesWanted::Whole,
                (false, false) => TimesWanted::None,
            },
            previous: in_flight.last.as_ref(),
        };
        // SAFETY: passed on to the caller.
        let last = unsafe { queue.submit(request, wait, signal.event) }?;
        in_flight.last = Some(Arc::clone(&last));
        drop(in_flight);
        queue.notify(last, signal.notification);
        Ok(())
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let updated = self.recorded.update(&self.context, updates);
        self.apply(updated)
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let other = other.as_any().downcast_ref::<Self>();
        let other = other.filter(|other| Arc::ptr_eq(&other.context, &self.context));
        let other = other.ok_or_else(|| refusal::foreign("command-buffer"))?;
        let updated = self.recorded.update_from(&self.context, &other.recorded);
        self.apply(updated)
    }
}

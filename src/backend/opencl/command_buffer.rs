//! Command-buffers: a list, and beside it a recording where that is faster.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::device::Shared;
use super::invalid_operation;
use super::lower;
use super::options::Lowering;
use super::queue::{OpenclQueue, Work};
use super::record::Recording;
use super::replay::{After, List};
use super::signal::Signal;
use super::sys;
use super::update::Replaced;
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandChange, CommandUpdate, Queue, QueueOrder, SyncPoint, WaitList,
};
use crate::types::{Error, ErrorKind, Result};

/// A command-buffer.
#[derive(Debug)]
pub(super) struct OpenclCommandBuffer {
    id: CommandBufferId,
    desc: CommandBufferDesc,
    pub(super) shared: Arc<Shared>,
    state: CommandBufferState,
    /// For in-order queues of the driver's. Like all recordings it is dropped before the list: then
    /// the driver releases each kernel for good when the list is dropped, in the list's order.
    pub(super) recording: Option<Recording>,
    /// The same for out-of-order queues, made when the first of them gets an enqueue; `None` in it
    /// where that cannot be.
    pub(super) out_of_order: OnceLock<Option<Recording>>,
    pub(super) run: Mutex<Run>,
    /// Keeps what the operations use, and what an update builds on.
    pub(super) commands: Vec<Command>,
    /// The commands that each follows.
    pub(super) after: Vec<After>,
    pub(super) list: List,
}

/// What is in flight.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The last enqueue, which the next must not overlap.
    pub(super) last: Option<Arc<Signal>>,
    /// Recordings that updates have replaced, with the enqueue that may still use them.
    pub(super) retired: Vec<(Arc<Signal>, Recording)>,
}

impl OpenclCommandBuffer {
    pub(super) fn new(shared: &Arc<Shared>, desc: CommandBufferDesc) -> Self {
        Self {
            id: CommandBufferId::unique(),
            desc,
            shared: Arc::clone(shared),
            state: CommandBufferState::Recording,
            commands: Vec::new(),
            after: Vec::new(),
            list: List::default(),
            recording: None,
            out_of_order: OnceLock::new(),
            run: Mutex::default(),
        }
    }

    /// The recording that enqueues shall use, if any.
    fn record(&self) -> Result<Option<Recording>> {
        // Times of commands come from replaying them; nothing at all is a marker either way.
        if self.desc.profiling || self.commands.is_empty() {
            return Ok(None);
        }
        let shared = &self.shared;
        if !Recording::supports(shared, &self.list, QueueOrder::InOrder)
            || shared.choice.get(shared, self.commands.len()) == Lowering::Replay
        {
            return Ok(None);
        }
        let queue = shared.service().map_err(|failure| shared.error(failure))?;
        let recording = Recording::new(shared, &self.list, queue, self.desc.updatable);
        recording.map(Some).map_err(|failure| shared.error(failure))
    }

    /// The recording for enqueues on this queue. Out of order, one that fails is none: commands are
    /// replayed then.
    fn recording_for(&self, queue: &OpenclQueue) -> Option<&Recording> {
        let in_order = self.recording.as_ref()?;
        let driver_queue = queue.driver();
        if driver_queue.order() == QueueOrder::InOrder {
            return Some(in_order);
        }
        if driver_queue.profiling() {
            return None;
        }
        let record = || {
            let shared = &self.shared;
            if !Recording::supports(shared, &self.list, QueueOrder::OutOfOrder) {
                return None;
            }
            let recording = Recording::new(shared, &self.list, driver_queue, self.desc.updatable);
            recording
                .inspect_err(|failure| {
                    let sys::Failure { call, code } = failure;
                    tracing::debug!(target: "wakegraph::opencl", call, code, "not recorded for out-of-order queues");
                })
                .ok()
        };
        self.out_of_order.get_or_init(record).as_ref()
    }

    #[cfg(test)]
    pub(super) fn recordings(&self) -> [Option<&Recording>; 2] {
        [self.recording.as_ref(), self.out_of_order.get().and_then(Option::as_ref)]
    }
}

impl CommandBuffer for OpenclCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let lowering = match (self.state, &self.recording) {
            (CommandBufferState::Recording, _) => "recording",
            (_, Some(_)) => "cl_khr_command_buffer",
            (_, None) => "replayed enqueues",
        };
        CommandBufferInfo {
            id: self.id,
            device: self.shared.info.id,
            desc: self.desc,
            state: self.state,
            commands: self.commands.len(),
            lowering,
        }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        if self.state == CommandBufferState::Executable {
            return Err(invalid_operation("commands cannot be appended after finalize"));
        }
        let index = u32::try_from(self.commands.len())
            .map_err(|_| invalid_operation("the command-buffer is full"))?;
        if after.iter().any(|point| point.buffer != self.id || point.index >= index) {
            let why = "a sync-point is not of an earlier command of this command-buffer";
            return Err(Error::new(ErrorKind::InvalidSyncPoint, why));
        }
        let mut after: After = after.iter().map(|point| point.index).collect();
        if self.desc.in_order {
            after.clear();
            after.extend(index.checked_sub(1));
        }
        self.list.push(&self.shared, command, &after).map_err(|error| self.shared.error(error))?;
        self.commands.push(command.clone());
        self.after.push(after);
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    /// The first time on a device for commands of about this number, this measures both lowerings.
    fn finalize(&mut self) -> Result<()> {
        if self.state == CommandBufferState::Executable {
            return Err(invalid_operation("the command-buffer is finalized already"));
        }
        self.recording = self.record()?;
        self.state = CommandBufferState::Executable;
        Ok(())
    }

    unsafe fn enqueue(
        &self,
        queue: &dyn Queue,
        wait: WaitList<'_>,
        signal: crate::hal::Signal<'_>,
    ) -> Result<()> {
        if self.state == CommandBufferState::Recording {
            return Err(invalid_operation("the command-buffer is not finalized"));
        }
        let queue = OpenclQueue::of(queue, &self.shared)?;
        // One at a time: enqueues of one command-buffer follow each other.
        let mut run = self.run.lock();
        if run.last.as_ref().is_some_and(|last| last.status().is_final()) {
            // So that its event can use it again.
            run.last = None;
            run.retired.clear();
        }
        let work = Work {
            list: &self.list,
            recording: self.recording_for(queue),
            timed: self.desc.profiling,
            previous: run.last.as_ref(),
        };
        // SAFETY: passed on to the caller.
        let last = unsafe { queue.submit(work, wait, signal.event) }?;
        run.last = Some(Arc::clone(&last));
        drop(run);
        queue.notify(last, signal.notification);
        Ok(())
    }

    /// What is already enqueued has read its arguments, so an update replaces the kernel's
    /// instance, and, where there is a recording, records anew.
    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        if self.state == CommandBufferState::Recording {
            return Err(invalid_operation("a command-buffer can be updated only after finalize"));
        }
        // All are prepared before the first is put in place: on an error nothing has changed.
        let changes = CommandChange::of(updates, |index| self.commands.get(index))?;
        let mut new = Vec::with_capacity(changes.len());
        let mut switches = Vec::new();
        for CommandChange { index, launch, enabled } in changes {
            new.extend(launch.map(|launch| (index, Command::Kernel(launch))));
            switches.extend(enabled.filter(|on| *on != self.list.is_enabled(index)).map(|on| (index, on)));
        }
        if new.is_empty() && switches.is_empty() {
            return Ok(());
        }
        let lowered = new.iter().map(|(index, launch)| Ok((*index, lower::lower(&self.shared, launch)?)));
        let lowered: Vec<_> =
            lowered.collect::<Result<_>>().map_err(|error: Error| self.shared.error(error))?;
        let disabled = self.list.disabled().to_vec();
        let old_commands = self.exchange_commands(new);
        let old = match self.exchange(lowered) {
            Ok(old) => old,
            Err(error) => {
                self.exchange_commands(old_commands);
                return Err(self.shared.error(error));
            }
        };
        for &(index, enabled) in &switches {
            self.list.set_enabled(index, enabled);
        }
        // What is disabled is left out of a recording.
        let [in_order, out_of_order] = match switches.is_empty() {
            true => self.change_in_place(&old_commands, &old),
            false => [false; 2],
        };
        if self.recording.is_some() && !in_order {
            match self.record() {
                Ok(recording) => {
                    let replaced = std::mem::replace(&mut self.recording, recording);
                    self.retire(replaced);
                }
                Err(error) => {
                    self.exchange_commands(old_commands);
                    match old {
                        Replaced::List(list) => self.list = list,
                        // They fitted before.
                        Replaced::Ops(ops) => _ = self.exchange(ops),
                    }
                    self.list.set_disabled(disabled);
                    self.retire_recordings();
                    return Err(error);
                }
            }
        }
        if !out_of_order {
            self.retire_out_of_order();
        }
        if let Replaced::List(old) = old {
            self.keep_staged(old);
        }
        Ok(())
    }

    /// Always a new list, and, where recording is the faster lowering, a new recording.
    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        if self.state == CommandBufferState::Recording {
            return Err(invalid_operation("a command-buffer can be updated only after finalize"));
        }
        let other = other.as_any().downcast_ref::<Self>();
        let other = other.filter(|other| Arc::ptr_eq(&other.shared, &self.shared));
        let other = other.ok_or_else(|| super::foreign("command-buffer"))?;
        let list = List::build(&self.shared, &other.commands, &self.after);
        let mut list = list.map_err(|error| self.shared.error(error))?;
        list.set_disabled(other.list.disabled().to_vec());
        let old_commands = std::mem::replace(&mut self.commands, other.commands.clone());
        let old_list = std::mem::replace(&mut self.list, list);
        match self.record() {
            Ok(recording) => {
                let replaced = std::mem::replace(&mut self.recording, recording);
                self.retire(replaced);
            }
            Err(error) => {
                (self.commands, self.list) = (old_commands, old_list);
                return Err(error);
            }
        }
        self.retire_out_of_order();
        self.keep_staged(old_list);
        Ok(())
    }
}

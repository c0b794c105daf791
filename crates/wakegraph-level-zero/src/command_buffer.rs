//! Command-buffers: commands, and recordings of them, each of which runs once at a time.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::list_update::ReplacedParts;
use wakegraph_hal::support::recorded_commands::RecordedCommands;
use wakegraph_hal::support::refusal;
use wakegraph_hal::support::retired::Retired;
use wakegraph_hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferInfo, CommandUpdate, Queue, Result,
    Signal, SyncPoint, WaitList,
};

use super::context::LevelZeroContext;
use super::enqueue_work::{LastRun, RunRequest};
use super::lower::lower;
use super::operation::LevelZeroOperation;
use super::options::Lowering;
use super::queue::LevelZeroQueue;
use super::recording::ListRecording;
use super::run_slot::SlotRun;
use super::sys::DriverResult;

/// A command-buffer.
#[derive(Debug)]
pub(super) struct LevelZeroCommandBuffer {
    context: Arc<LevelZeroContext>,
    /// Dropped before the operations that the recordings hold.
    runs: Mutex<Runs>,
    recorded: RecordedCommands<LevelZeroOperation>,
}

/// What the driver may use.
#[derive(Debug, Default)]
struct Runs {
    /// From finalize on at least one, in the order of their last runs. Runs come one after the other, so the
    /// first is idle before the others.
    recordings: VecDeque<ListRecording>,
    /// The last run, which the next must not overlap.
    last: Option<LastRun>,
    /// What updates have replaced, with the last run that may use it.
    retired: Retired<SlotRun, (VecDeque<ListRecording>, ReplacedParts<LevelZeroOperation>)>,
}

impl Runs {
    /// The last run, if it may still be going on.
    fn pending(&self) -> Option<&SlotRun> {
        let last = self.last.as_ref().map(|last| &last.run);
        last.filter(|run| !matches!(run.is_over(), Ok(true)))
    }

    /// Brings a recording that can run now to the front, if there is one.
    #[inline]
    fn bring_free(&mut self) -> DriverResult<bool> {
        let mut index = 0;
        while let Some(recording) = self.recordings.get(index) {
            if !recording.is_idle()? {
                break;
            }
            if recording.has_no_waits() {
                if index > 0 {
                    // Those before it are idle, too.
                    self.recordings.swap(0, index);
                }
                return Ok(true);
            }
            index += 1;
        }
        Ok(false)
    }
}

impl LevelZeroCommandBuffer {
    pub(super) fn new(context: &Arc<LevelZeroContext>, desc: CommandBufferDesc) -> Self {
        Self { context: Arc::clone(context), runs: Mutex::default(), recorded: RecordedCommands::new(desc) }
    }

    #[cold]
    fn record(&self) -> Result<ListRecording> {
        let recording = ListRecording::new(
            &self.context,
            &self.recorded.commands,
            &self.recorded.list,
            self.recorded.desc,
        );
        recording.map_err(|error| self.context.error(error))
    }

    #[cold]
    fn add_recording(&self, recordings: &mut VecDeque<ListRecording>) -> Result<()> {
        recordings.push_front(self.record()?);
        Ok(())
    }

    /// Changes the first recording after an update of the commands, if it is idle, or else makes a new one.
    /// Enqueued runs keep the old one.
    fn apply(&mut self, updated: Result<ReplacedParts<LevelZeroOperation>>) -> Result<()> {
        let parts = updated.map_err(|error| self.context.error(error))?;
        if parts.0.is_empty() {
            return Ok(());
        }
        let runs = self.runs.get_mut();
        let first = runs.recordings.front_mut().filter(|first| matches!(first.is_idle(), Ok(true)));
        let is_changed = first.map(|first| first.change_in_place(&self.recorded.commands, &parts));
        let replaced = if is_changed == Some(true) {
            runs.recordings.split_off(1)
        } else {
            if is_changed.is_some() {
                // The driver may have changed a part of it.
                runs.recordings.pop_front();
            }
            match self.record() {
                Ok(new) => std::mem::replace(&mut self.runs.get_mut().recordings, VecDeque::from([new])),
                Err(error) => return Err(parts.restore(&self.context, &mut self.recorded, error)),
            }
        };
        let runs = self.runs.get_mut();
        if let Some(pending) = runs.pending().cloned() {
            runs.retired.keep(pending, (replaced, parts));
        }
        Ok(())
    }
}

impl CommandBuffer for LevelZeroCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let lowering = self.context.lowering;
        let reason = match (self.context.options.lowering, lowering) {
            (Some(_), _) => "an option of the device asks for it",
            (None, Lowering::Append) => "the driver appends closed lists to immediate ones",
            (None, Lowering::Execute) => "the driver cannot append closed lists to immediate ones",
        };
        let lowering = match lowering {
            Lowering::Append => "immediate append",
            Lowering::Execute => "prefix, list, suffix",
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
        let recording = self.record()?;
        self.runs.get_mut().recordings.push_back(recording);
        self.recorded.set_finalized();
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.recorded.check_enqueue()?;
        let queue = LevelZeroQueue::of(queue, &self.context)?;
        // The lock is held until the commands are enqueued: enqueues of one command-buffer follow each
        // other.
        let mut runs = self.runs.lock();
        let runs = &mut *runs;
        runs.retired.purge(|run| matches!(run.is_over(), Ok(true)));
        if !runs.bring_free().map_err(|failure| self.context.error(failure))? {
            self.add_recording(&mut runs.recordings)?;
        }
        let timed_commands = self.recorded.desc.profiling.then_some(self.recorded.commands.len());
        let request = RunRequest { recording: &mut runs.recordings[0], last: &mut runs.last, timed_commands };
        // SAFETY: passed on to the caller.
        unsafe { queue.submit(request, wait, &signal) }?;
        if runs.recordings.len() > 1 {
            runs.recordings.rotate_left(1);
        }
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

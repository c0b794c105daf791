//! What can be enqueued: a run of a command-buffer, what runs once, and a signal alone.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::sync::Arc;

use wakegraph_hal::{Error, Result};

use super::context::LevelZeroContext;
use super::event_pool::DriverEventKind;
use super::queue_driver::{LevelZeroWaitList, QueueDriver, Started};
use super::recording::ListRecording;
use super::run_slot::SlotRun;
use super::single_run::SingleRun;

/// What to enqueue.
pub(super) trait EnqueueWork: Sized {
    /// Whether anything runs.
    const RUNS: bool;

    /// Whether something has to be [kept](Self::kept).
    const KEPT: bool = false;

    /// How many commands have times of their own, if some have.
    fn timed_commands(&self) -> Option<usize> {
        None
    }

    /// The last run of the same commands, which must be over first.
    fn last(&self) -> Option<&LastRun> {
        None
    }

    /// Hands it to the driver.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue).
    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>>;

    /// What has to be kept until the enqueue is over.
    fn kept(self) -> Option<Box<SingleRun>>;
}

/// Where something is enqueued.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnqueueTarget<'a> {
    pub(super) context: &'a Arc<LevelZeroContext>,
    /// The queue's number.
    pub(super) queue: u64,
    /// The kind of event to signal.
    pub(super) kind: DriverEventKind,
}

/// A run of a recording.
#[derive(Debug)]
pub(super) struct RunRequest<'a> {
    /// It is free.
    pub(super) recording: &'a mut ListRecording,
    /// The last run of the same commands; then this one.
    pub(super) last: &'a mut Option<LastRun>,
    /// How many commands have times of their own.
    pub(super) timed_commands: Option<usize>,
}

impl EnqueueWork for RunRequest<'_> {
    const RUNS: bool = true;

    fn timed_commands(&self) -> Option<usize> {
        self.timed_commands
    }

    fn last(&self) -> Option<&LastRun> {
        self.last.as_ref()
    }

    #[inline]
    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        // SAFETY: passed on to the caller.
        let started = unsafe { driver.run(to.context, self.recording, to.kind, waits) }?;
        LastRun::set(self.last, &started, to.queue);
        Ok(started)
    }

    fn kept(self) -> Option<Box<SingleRun>> {
        None
    }
}

/// The last run of a command-buffer.
#[derive(Clone, Debug)]
pub(super) struct LastRun {
    pub(super) run: SlotRun,
    /// The queue that it was enqueued on.
    pub(super) queue: u64,
}

impl LastRun {
    #[inline]
    fn set(last: &mut Option<Self>, started: &Started<'_>, queue: u64) {
        match last {
            Some(last) => {
                last.run.set(started.slot, started.number);
                last.queue = queue;
            }
            None => {
                let run = SlotRun::new(Arc::clone(started.slot), started.number);
                *last = Some(Self { run, queue });
            }
        }
    }
}

impl EnqueueWork for Box<SingleRun> {
    const RUNS: bool = true;
    const KEPT: bool = true;

    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        // SAFETY: passed on to the caller.
        unsafe { driver.run(to.context, &mut self.recording, to.kind, waits) }
    }

    fn kept(self) -> Option<Self> {
        Some(self)
    }
}

/// The signal alone, which fails if there is a reason.
#[derive(Debug)]
pub(super) struct SignalAlone(pub(super) Option<Error>);

impl EnqueueWork for SignalAlone {
    const RUNS: bool = false;

    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        Ok(driver.mark(to.context, to.kind, waits.events())?.failing(self.0.take()))
    }

    fn kept(self) -> Option<Box<SingleRun>> {
        None
    }
}

//! Times of an enqueue, on the device's clock.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use wakegraph_hal::support::command_times::JoinedTimes;
use wakegraph_hal::{CommandTimes, Error, ErrorKind, EventProfile, Result};

use super::context::LevelZeroContext;
use super::run_slot::RunSlot;
use super::sys::DriverResult;

/// Where the times of one signal begin.
#[derive(Debug)]
pub(super) struct LevelZeroTimes {
    /// When it was enqueued, in nanoseconds.
    submitted: u64,
    /// The same on the host's clock.
    enqueued: Instant,
    /// How long after that a poll first found it over.
    took: OnceLock<Duration>,
    /// How many commands have times of their own.
    commands: usize,
    /// Whether anything runs.
    has_work: bool,
}

impl LevelZeroTimes {
    /// Those of a signal that is being enqueued now.
    pub(super) fn begin(
        context: &LevelZeroContext,
        commands: Option<usize>,
        has_work: bool,
    ) -> DriverResult<Self> {
        let (submitted, enqueued) = (context.now()?, Instant::now());
        let (took, commands) = (OnceLock::new(), commands.unwrap_or(0));
        Ok(Self { submitted, enqueued, took, commands, has_work })
    }

    /// It is over, and no longer than a poll ago.
    pub(super) fn note_end(&self) -> Duration {
        *self.took.get_or_init(|| self.enqueued.elapsed())
    }

    /// The times, from the events and stamps of the run, which is over. The host's reading of the
    /// clock and the stamps of the device differ a little, so the order of times is enforced.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) when the run may have taken longer than the
    /// stamps of the device count up to.
    pub(super) fn read(&self, context: &Arc<LevelZeroContext>, slot: &RunSlot) -> Result<EventProfile> {
        let submitted = self.submitted;
        let span = u64::try_from(self.note_end().as_nanos()).unwrap_or(u64::MAX);
        let time = context.kernel_times(submitted, span).ok_or_else(|| {
            let why = "the run may have taken longer than the timestamps of the device count up to";
            Error::new(ErrorKind::FeatureNotSupported, why)
        })?;
        let last = slot.event.times().map_err(Error::from)?;
        let first = match &slot.begin {
            Some(begin) if self.has_work => begin.times().map_err(Error::from)?,
            _ => last,
        };
        let start = time(first.global.kernelEnd).max(submitted);
        let end = time(last.global.kernelEnd).max(start);
        let mut commands = JoinedTimes::new(self.commands);
        if let Some(stamps) = &slot.stamps {
            for (&command, [from, to]) in stamps.commands.iter().zip(stamps.read()?) {
                let from = time(from).clamp(start, end);
                commands.add(command, CommandTimes::new(from, time(to).clamp(from, end)));
            }
        }
        Ok(EventProfile { submitted, start, end, commands: commands.finish(start) })
    }
}

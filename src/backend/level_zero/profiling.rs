//! Times of an enqueue, on the device's clock.

use std::sync::Arc;

use super::context::LevelZeroContext;
use super::run_slot::RunSlot;
use super::sys::DriverResult;
use crate::hal::support::command_times::JoinedTimes;
use crate::hal::{CommandTimes, EventProfile};
use crate::types::{Error, Result};

/// Where the times of one signal begin.
#[derive(Debug)]
pub(super) struct LevelZeroTimes {
    /// When it was enqueued, in nanoseconds.
    submitted: u64,
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
        Ok(Self { submitted: context.now()?, commands: commands.unwrap_or(0), has_work })
    }

    /// The times, from the events and stamps of the run, which is over. The host's reading of the
    /// clock and the stamps of the device differ a little, so the order of times is enforced.
    pub(super) fn read(&self, context: &Arc<LevelZeroContext>, slot: &RunSlot) -> Result<EventProfile> {
        let submitted = self.submitted;
        let time = |cycles| context.kernel_time(cycles, submitted);
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

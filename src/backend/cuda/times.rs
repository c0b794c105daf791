//! Times of one use of an event.

use std::sync::Arc;

use super::clock::{self, Base};
use super::context::Context;
use super::signal::Signal;
use super::stream::RawEvent;
use super::sys::Failure;
use crate::hal::{CommandTimes, EventProfile};

/// When a use was enqueued and seen complete, and the driver's events around its commands.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// For as many commands as there ever were in a use.
    places: Vec<[RawEvent; 2]>,
    /// How many of them are of this use.
    commands: usize,
    /// What this use counts from; without, it keeps no times.
    base: Option<Arc<Base>>,
    submitted: u64,
    seen: u64,
}

impl Times {
    pub(super) fn prepare(
        &mut self,
        context: &Arc<Context>,
        commands: usize,
        base: Arc<Base>,
    ) -> Result<(), Failure> {
        while self.places.len() < commands {
            self.places.push([RawEvent::create(context, true)?, RawEvent::create(context, true)?]);
        }
        (self.commands, self.submitted, self.base) = (commands, clock::now(), Some(base));
        Ok(())
    }

    pub(super) fn places(&self) -> &[[RawEvent; 2]] {
        &self.places[..self.commands]
    }

    pub(super) fn clear(&mut self) {
        self.base = None;
    }

    /// The use is complete, and was so a little earlier.
    pub(super) fn set_seen(&mut self) {
        if self.base.is_some() {
            self.seen = clock::now();
        }
    }

    /// The times, if this use keeps any. The device's and the host's clock drift apart by
    /// microseconds, so what follows from the order of things is enforced.
    pub(super) fn read(&self, signal: &Signal) -> Result<Option<EventProfile>, Failure> {
        let (Some(base), Some(first)) = (&self.base, &signal.start) else { return Ok(None) };
        let (submitted, seen) = (self.submitted, self.seen.max(self.submitted));
        let start = base.time.saturating_add_signed(first.since(&base.event)?).clamp(submitted, seen);
        let since_start = |event: &RawEvent| Ok(start.saturating_add_signed(event.since(first)?));
        let end = since_start(signal.end())?.clamp(start, seen);
        let commands = self.places().iter().map(|[from, to]| {
            let from = since_start(from)?.clamp(start, end);
            Ok(CommandTimes { start: from, end: since_start(to)?.clamp(from, end) })
        });
        let commands = commands.collect::<Result<_, Failure>>()?;
        Ok(Some(EventProfile { submitted, start, end, commands }))
    }
}

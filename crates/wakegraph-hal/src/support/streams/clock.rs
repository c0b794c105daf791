//! Times of events on the host's clock. The driver has no clock to read: it tells how far apart two
//! events are.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::context::ContextFailure;
use super::stream::{DriverStream, RawEvent, StreamContext};
use crate::{CommandTimes, EventProfile};

/// An event, and the host's time at which it was recorded: the origin of other events' times.
#[derive(Debug)]
pub struct ClockBase<C: StreamContext> {
    event: RawEvent<C>,
    time: u64,
    /// How far the time may be off, in nanoseconds.
    error: u64,
    made: Instant,
}

/// Gives the base for times. It is renewed, as times become coarse with the distance from it.
#[derive(Debug)]
pub struct DeviceClock<C: StreamContext> {
    /// Idle except while a base is recorded.
    stream: DriverStream<C>,
    base: Mutex<Option<Arc<ClockBase<C>>>>,
}

/// The clocks of device and host drift apart by some ten microseconds in a second. And the driver gives
/// milliseconds as an `f32`: within this time, to less than a quarter of a microsecond.
const OLDEST_BASE: Duration = Duration::from_millis(500);

/// Of so many attempts at a base, the one that took the least time is kept.
const ATTEMPTS: usize = 3;

/// That resolution, in nanoseconds.
const RESOLUTION: u64 = 250;

impl<C: StreamContext> DeviceClock<C> {
    /// Reads the device's clock for the first time.
    pub fn create(context: &Arc<C>) -> Result<Self, ContextFailure<C>> {
        Ok(Self { stream: DriverStream::create(context)?, base: Mutex::new(None) })
    }

    /// A base for work that is enqueued from now on.
    pub fn base(&self) -> Result<Arc<ClockBase<C>>, ContextFailure<C>> {
        let mut base = self.base.lock();
        if let Some(base) = base.as_ref().filter(|base| base.made.elapsed() < OLDEST_BASE) {
            return Ok(Arc::clone(base));
        }
        let mut best = self.attempt()?;
        for _ in 1..ATTEMPTS {
            let another = self.attempt()?;
            if another.error < best.error {
                best = another;
            }
        }
        let best = Arc::new(best);
        *base = Some(Arc::clone(&best));
        Ok(best)
    }

    fn attempt(&self) -> Result<ClockBase<C>, ContextFailure<C>> {
        let context = self.stream.context();
        let event = RawEvent::create(context, true)?;
        let _bound = context.bind()?;
        let before = now();
        event.record(&self.stream)?;
        self.stream.synchronize()?;
        let after = now();
        let (time, error) = (before.midpoint(after), (after - before) / 2 + RESOLUTION);
        Ok(ClockBase { event, time, error, made: Instant::now() })
    }

    /// How far times may be off, in nanoseconds; 0 before there are any.
    pub fn error(&self) -> u64 {
        self.base.lock().as_ref().map_or(0, |base| base.error)
    }
}

/// Nanoseconds since a point in time that is the same for all devices of this process.
pub(super) fn now() -> u64 {
    nanoseconds_at(Instant::now())
}

pub(super) fn nanoseconds_at(instant: Instant) -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(instant.saturating_duration_since(*ORIGIN).as_nanos()).unwrap_or(u64::MAX)
}

/// Where the times of one signal begin.
#[derive(Debug)]
pub struct SignalTimes<C: StreamContext> {
    base: Arc<ClockBase<C>>,
    submitted: u64,
    /// How many commands have times of their own.
    commands: usize,
}

impl<C: StreamContext> SignalTimes<C> {
    /// Those of a signal that is being enqueued now.
    pub fn begin(base: Arc<ClockBase<C>>, commands: usize) -> Self {
        Self { base, submitted: now(), commands }
    }

    /// The times of a signal that was seen complete at `seen`, from the events that were recorded
    /// around its work and around its commands. The clocks of device and host drift apart by
    /// microseconds, so the order of times is enforced.
    pub fn read(
        &self,
        seen: u64,
        [first, last]: [&RawEvent<C>; 2],
        commands: &[[RawEvent<C>; 2]],
    ) -> Result<EventProfile, ContextFailure<C>> {
        let Self { base, submitted, .. } = self;
        let (submitted, seen) = (*submitted, seen.max(*submitted));
        let started = base.time.saturating_add_signed(first.since(&base.event)?);
        let lasted = u64::try_from(last.since(first)?).unwrap_or(0);
        let (start, end) = between(submitted, seen, started, lasted);
        let since_start = |event: &RawEvent<C>| Ok(start.saturating_add_signed(event.since(first)?));
        let commands = commands.iter().take(self.commands).map(|[before, after]| {
            let from = since_start(before)?.clamp(start, end);
            Ok(CommandTimes { start: from, end: since_start(after)?.clamp(from, end) })
        });
        let commands = commands.collect::<Result<_, ContextFailure<C>>>()?;
        Ok(EventProfile { submitted, start, end, commands })
    }
}

/// The begin and the end of work that lasted so long and began about then, moved between its
/// submission and when it was seen complete. The base may be off by more than the work has lasted, but
/// how far events are apart is exact.
fn between(submitted: u64, seen: u64, started: u64, lasted: u64) -> (u64, u64) {
    let start = started.min(seen.saturating_sub(lasted)).max(submitted);
    (start, start.saturating_add(lasted).min(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moved_as_a_whole() {
        assert_eq!(between(100, 200, 120, 30), (120, 150));
        assert_eq!(between(100, 200, 230, 30), (170, 200), "the base is too late");
        assert_eq!(between(100, 200, 50, 30), (100, 130), "the base is too early");
        assert_eq!(between(100, 200, 150, 300), (100, 200), "the clocks drift apart");
    }
}

//! Device times on the host's clock. The driver has no clock to read: it tells how far apart two
//! events are.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::context::HipContext;
use super::stream::{HipRawEvent, HipStream};
use super::sys::HipFailure;
use crate::hal::{CommandTimes, EventProfile};

/// An event, and the host's time at which it was recorded: the origin of other events' times.
#[derive(Debug)]
pub(super) struct HipClockBase {
    event: HipRawEvent,
    time: u64,
    /// How far the time may be off, in nanoseconds.
    error: u64,
    made: Instant,
}

/// Gives the base for times. It is renewed, as times become coarse with the distance from it.
#[derive(Debug)]
pub(super) struct HipDeviceClock {
    context: Arc<HipContext>,
    /// Idle except while a base is recorded.
    stream: HipStream,
    base: Mutex<Option<Arc<HipClockBase>>>,
}

/// The clocks of device and host drift apart by some ten microseconds in a second. And the driver gives
/// milliseconds as an `f32`: within this time, to less than a quarter of a microsecond.
const OLDEST_BASE: Duration = Duration::from_millis(500);

/// Of so many attempts at a base, the one that took the least time is kept.
const ATTEMPTS: usize = 3;

/// That resolution, in nanoseconds.
const RESOLUTION: u64 = 250;

impl HipDeviceClock {
    pub(super) fn create(context: &Arc<HipContext>) -> Result<Self, HipFailure> {
        let stream = HipStream::create(context)?;
        Ok(Self { context: Arc::clone(context), stream, base: Mutex::new(None) })
    }

    /// A base for work that is enqueued from now on.
    pub(super) fn base(&self) -> Result<Arc<HipClockBase>, HipFailure> {
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

    fn attempt(&self) -> Result<HipClockBase, HipFailure> {
        let event = HipRawEvent::create(&self.context, true)?;
        let _bound = self.context.bind()?;
        let before = now();
        event.record(&self.stream)?;
        self.stream.synchronize()?;
        let after = now();
        let (time, error) = (before.midpoint(after), (after - before) / 2 + RESOLUTION);
        Ok(HipClockBase { event, time, error, made: Instant::now() })
    }

    /// How far times may be off, in nanoseconds; 0 before there are any.
    pub(super) fn error(&self) -> u64 {
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
pub(super) struct HipSignalTimes {
    base: Arc<HipClockBase>,
    submitted: u64,
    /// How many commands have times of their own.
    commands: usize,
}

impl HipSignalTimes {
    /// Those of a signal that is being enqueued now.
    pub(super) fn begin(base: Arc<HipClockBase>, commands: usize) -> Self {
        Self { base, submitted: now(), commands }
    }

    /// The times of a signal that was seen complete at `seen`, from the events that were recorded
    /// around its work and around its commands. The clocks of device and host drift apart by
    /// microseconds, so the order of times is enforced.
    pub(super) fn read(
        &self,
        seen: u64,
        [first, last]: [&HipRawEvent; 2],
        commands: &[[HipRawEvent; 2]],
    ) -> Result<EventProfile, HipFailure> {
        let Self { base, submitted, .. } = self;
        let (submitted, seen) = (*submitted, seen.max(*submitted));
        let start = base.time.saturating_add_signed(first.since(&base.event)?).clamp(submitted, seen);
        let since_start = |event: &HipRawEvent| Ok(start.saturating_add_signed(event.since(first)?));
        let end = since_start(last)?.clamp(start, seen);
        let commands = commands.iter().take(self.commands).map(|[before, after]| {
            let from = since_start(before)?.clamp(start, end);
            Ok(CommandTimes { start: from, end: since_start(after)?.clamp(from, end) })
        });
        let commands = commands.collect::<Result<_, HipFailure>>()?;
        Ok(EventProfile { submitted, start, end, commands })
    }
}

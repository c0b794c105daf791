//! Device times on the host's clock. The driver has no clock to read: it tells how far apart two
//! events are.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::context::CudaContext;
use super::stream::{CudaStream, RawEvent};
use super::sys::CudaFailure;
use crate::hal::{CommandTimes, EventProfile};

/// An event, and the host's time at which it was recorded: the origin of other events' times.
#[derive(Debug)]
pub(super) struct ClockBase {
    event: RawEvent,
    time: u64,
    made: Instant,
}

/// Gives the base for times. It is renewed, as times become coarse with the distance from it.
#[derive(Debug)]
pub(super) struct DeviceClock {
    context: Arc<CudaContext>,
    /// Idle except while a base is recorded.
    stream: CudaStream,
    base: Mutex<Option<Arc<ClockBase>>>,
}

/// The driver gives milliseconds as an `f32`: within this time, to a quarter of a microsecond.
const OLDEST_BASE: Duration = Duration::from_secs(2);

impl DeviceClock {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let stream = CudaStream::create(context)?;
        Ok(Self { context: Arc::clone(context), stream, base: Mutex::new(None) })
    }

    /// A base for work that is enqueued from now on.
    pub(super) fn base(&self) -> Result<Arc<ClockBase>, CudaFailure> {
        let mut base = self.base.lock();
        if let Some(base) = base.as_ref().filter(|base| base.made.elapsed() < OLDEST_BASE) {
            return Ok(Arc::clone(base));
        }
        let event = RawEvent::create(&self.context, true)?;
        let _bound = self.context.bind()?;
        let before = now();
        event.record(&self.stream)?;
        self.stream.synchronize()?;
        let new = Arc::new(ClockBase { event, time: before.midpoint(now()), made: Instant::now() });
        *base = Some(Arc::clone(&new));
        Ok(new)
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

/// When one use of an event was enqueued and seen complete, and the driver's events around its
/// commands.
#[derive(Debug, Default)]
pub(super) struct EventTimes {
    /// Enough for the use with the most commands so far.
    commands: Vec<[RawEvent; 2]>,
    /// How many of them belong to this use.
    count: usize,
    /// Without a base this use has no times.
    base: Option<Arc<ClockBase>>,
    submitted: u64,
    seen: u64,
}

impl EventTimes {
    /// Begins a use that has times, those of `count` commands among them.
    pub(super) fn prepare(
        &mut self,
        context: &Arc<CudaContext>,
        count: usize,
        base: Arc<ClockBase>,
    ) -> Result<(), CudaFailure> {
        while self.commands.len() < count {
            self.commands.push([RawEvent::create(context, true)?, RawEvent::create(context, true)?]);
        }
        (self.count, self.submitted, self.base) = (count, now(), Some(base));
        Ok(())
    }

    /// The events before and after each command of this use.
    pub(super) fn commands(&self) -> &[[RawEvent; 2]] {
        &self.commands[..self.count]
    }

    /// This use has no times.
    pub(super) fn clear(&mut self) {
        self.base = None;
    }

    /// This use is complete, and has been for a short time.
    pub(super) fn set_seen(&mut self) {
        if self.base.is_some() {
            self.seen = now();
        }
    }

    /// The times, if this use has any; `first` and `last` were recorded around its work. The clocks
    /// of device and host drift apart by microseconds, so the order of times is enforced.
    pub(super) fn read(
        &self,
        first: &RawEvent,
        last: &RawEvent,
    ) -> Result<Option<EventProfile>, CudaFailure> {
        let Some(base) = &self.base else { return Ok(None) };
        let (submitted, seen) = (self.submitted, self.seen.max(self.submitted));
        let start = base.time.saturating_add_signed(first.since(&base.event)?).clamp(submitted, seen);
        let since_start = |event: &RawEvent| Ok(start.saturating_add_signed(event.since(first)?));
        let end = since_start(last)?.clamp(start, seen);
        let commands = self.commands().iter().map(|[before, after]| {
            let from = since_start(before)?.clamp(start, end);
            Ok(CommandTimes { start: from, end: since_start(after)?.clamp(from, end) })
        });
        let commands = commands.collect::<Result<_, CudaFailure>>()?;
        Ok(Some(EventProfile { submitted, start, end, commands }))
    }
}

//! Device times on the host's clock. The driver has no clock to read: it tells how far apart two events are.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::context::Context;
use super::stream::{RawEvent, Stream};
use super::sys::Failure;

/// An event and the time at which it was recorded.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) event: RawEvent,
    pub(super) time: u64,
    made: Instant,
}

/// What times count from, renewed as they become coarse with the distance.
#[derive(Debug)]
pub(super) struct Clock {
    context: Arc<Context>,
    /// Idle but for the recording of a base.
    stream: Stream,
    base: Mutex<Option<Arc<Base>>>,
}

/// The driver gives milliseconds as an `f32`: within so long, a quarter of a microsecond.
const OLDEST_BASE: Duration = Duration::from_secs(2);

impl Clock {
    pub(super) fn create(context: &Arc<Context>) -> Result<Self, Failure> {
        let stream = Stream::create(context)?;
        Ok(Self { context: Arc::clone(context), stream, base: Mutex::new(None) })
    }

    /// A base for what is enqueued from now on.
    pub(super) fn base(&self) -> Result<Arc<Base>, Failure> {
        let mut base = self.base.lock();
        if let Some(base) = base.as_ref().filter(|base| base.made.elapsed() < OLDEST_BASE) {
            return Ok(Arc::clone(base));
        }
        let event = RawEvent::create(&self.context, true)?;
        let _bound = self.context.bind()?;
        let before = now();
        event.record(&self.stream)?;
        self.stream.synchronize()?;
        let new = Arc::new(Base { event, time: before.midpoint(now()), made: Instant::now() });
        *base = Some(Arc::clone(&new));
        Ok(new)
    }
}

/// Nanoseconds since a moment of this process, one for all devices.
pub(super) fn now() -> u64 {
    at(Instant::now())
}

pub(super) fn at(instant: Instant) -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(instant.saturating_duration_since(*ORIGIN).as_nanos()).unwrap_or(u64::MAX)
}

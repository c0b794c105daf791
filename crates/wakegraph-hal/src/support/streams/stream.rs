//! The driver's streams and events, streams that are lent to users' closures with the capture of their work
//! as a graph, and times of events on the host's clock.
//!
//! The driver has no clock to read: it tells how far apart two events are.
#![expect(unsafe_code, reason = "passes handles to the driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{ContextFailure, DriverContext, call_user};
use crate::support::library::{ObjectKind, Owned};
use crate::{CommandTimes, Error, ErrorKind, EventProfile, NativeCommand, NativeStream, Priority, Result};

/// A context with streams and events: the driver's calls.
pub trait StreamContext: DriverContext {
    /// The driver's streams.
    type StreamKind: ObjectKind<Handle = *mut Self::StreamKind, Owner = Arc<Self>>;
    /// The driver's events.
    type EventKind: ObjectKind<Handle = *mut Self::EventKind, Owner = Arc<Self>>;
    /// The codes with which the driver says that a handle is not that of a live object.
    const BAD_HANDLE: &'static [u32];

    /// A stream that runs independently of the default stream. The driver's streams have the lowest
    /// priority, unless they are created with another.
    fn create_stream(
        context: &Arc<Self>,
        priority: Priority,
    ) -> Result<Owned<Self::StreamKind>, ContextFailure<Self>>;

    /// As [`create_stream`](Self::create_stream). None where that would wait until another thread has loaded
    /// code.
    fn try_create_stream(
        context: &Arc<Self>,
        priority: Priority,
    ) -> Option<Result<Owned<Self::StreamKind>, ContextFailure<Self>>> {
        Some(Self::create_stream(context, priority))
    }

    /// An event, whose records may have times.
    fn create_event(
        context: &Arc<Self>,
        timing: bool,
    ) -> Result<Owned<Self::EventKind>, ContextFailure<Self>>;

    /// Makes the event complete once everything is done that is on the stream now. The caller has bound
    /// the context.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn record(
        &self,
        event: EventHandle<Self>,
        stream: StreamHandle<Self>,
    ) -> Result<(), ContextFailure<Self>>;

    /// Makes work that is enqueued from now on wait for the last record of the event. The caller has bound
    /// the context.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn wait(
        &self,
        stream: StreamHandle<Self>,
        event: EventHandle<Self>,
    ) -> Result<(), ContextFailure<Self>>;

    /// Whether everything before the last record of the event is done. A query needs no context.
    ///
    /// # Safety
    /// The event is live.
    unsafe fn query_event(&self, event: EventHandle<Self>) -> Result<bool, ContextFailure<Self>>;

    /// Whether everything on the stream is done. The caller has bound the context.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn query_stream(&self, stream: StreamHandle<Self>) -> Result<bool, ContextFailure<Self>>;

    /// Blocks until everything on the stream is done. The caller has bound the context.
    ///
    /// # Safety
    /// The stream is live.
    unsafe fn synchronize(&self, stream: StreamHandle<Self>) -> Result<(), ContextFailure<Self>>;

    /// Milliseconds from one event to another. The caller has bound the context.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn elapsed(
        &self,
        from: EventHandle<Self>,
        to: EventHandle<Self>,
    ) -> Result<f32, ContextFailure<Self>>;
}

/// The driver's handle of a stream.
pub(super) type StreamHandle<C> = <<C as StreamContext>::StreamKind as ObjectKind>::Handle;

/// The driver's handle of an event.
pub(super) type EventHandle<C> = <<C as StreamContext>::EventKind as ObjectKind>::Handle;

/// A stream that runs independently of the default stream.
#[derive(Debug)]
pub struct DriverStream<C: StreamContext> {
    stream: Owned<C::StreamKind>,
    /// The number of events that have been recorded by [`record`](Self::record). Each has a sequence number.
    recorded: Mutex<u64>,
    /// The largest sequence number that is known to be complete, and with it all smaller ones.
    complete: AtomicU64,
    /// The number of allocations that its work comes behind, as
    /// [`MemoryStream`](super::memory_stream::MemoryStream) counts them.
    pub(super) behind: AtomicU64,
}

impl<C: StreamContext> DriverStream<C> {
    /// Creates a stream of normal priority.
    pub fn create(context: &Arc<C>) -> Result<Self, ContextFailure<C>> {
        Self::create_with(context, Priority::Normal)
    }

    /// Creates a stream.
    pub fn create_with(context: &Arc<C>, priority: Priority) -> Result<Self, ContextFailure<C>> {
        C::create_stream(context, priority).map(Self::new)
    }

    /// Creates a stream. None where that would wait until another thread has loaded code.
    pub(super) fn try_create_with(
        context: &Arc<C>,
        priority: Priority,
    ) -> Option<Result<Self, ContextFailure<C>>> {
        C::try_create_stream(context, priority).map(|created| created.map(Self::new))
    }

    fn new(stream: Owned<C::StreamKind>) -> Self {
        let (complete, behind) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { stream, recorded: Mutex::new(0), complete, behind }
    }

    /// Records an event behind everything that is on the stream now, and returns its sequence
    /// number. The caller has bound the context.
    pub fn record(&self, event: &RawEvent<C>) -> Result<u64, ContextFailure<C>> {
        let mut recorded = self.recorded.lock();
        event.record(self)?;
        *recorded += 1;
        Ok(*recorded)
    }

    /// Whether the event with this sequence number is complete. The driver is asked only if no
    /// later event of the stream is known to be.
    pub fn has_completed(&self, sequence: u64, event: &RawEvent<C>) -> Result<bool, ContextFailure<C>> {
        if self.complete.load(Ordering::Acquire) >= sequence {
            return Ok(true);
        }
        let is_complete = event.is_complete()?;
        if is_complete {
            self.note_completed(sequence);
        }
        Ok(is_complete)
    }

    /// The event with this sequence number is complete: something that came behind it is.
    pub fn note_completed(&self, sequence: u64) {
        self.complete.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Handle for calls; valid while `self` lives.
    pub fn raw(&self) -> StreamHandle<C> {
        self.stream.raw()
    }

    /// The context that the stream belongs to.
    pub fn context(&self) -> &Arc<C> {
        self.stream.owner()
    }

    /// The driver's functions.
    pub fn driver(&self) -> &'static C::Driver {
        self.context().driver()
    }

    /// Blocks until everything on the stream is done.
    pub fn synchronize(&self) -> Result<(), ContextFailure<C>> {
        let _bound = self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.context().synchronize(self.raw()) }
    }

    /// Whether everything on the stream is done.
    pub fn is_idle(&self) -> Result<bool, ContextFailure<C>> {
        let _bound = self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.context().query_stream(self.raw()) }
    }

    /// Makes work that is enqueued from now on wait for the last record of the event. The caller has
    /// bound the context.
    pub fn wait(&self, event: &RawEvent<C>) -> Result<(), ContextFailure<C>> {
        // SAFETY: both are alive.
        unsafe { self.context().wait(self.raw(), event.raw()) }
    }
}

/// An event of the driver's. A stream that waits for it takes its record at once.
#[derive(Debug)]
pub struct RawEvent<C: StreamContext>(Owned<C::EventKind>);

impl<C: StreamContext> RawEvent<C> {
    /// Creates an event; `timing` lets it tell when it was recorded.
    pub fn create(context: &Arc<C>, timing: bool) -> Result<Self, ContextFailure<C>> {
        C::create_event(context, timing).map(Self)
    }

    /// A new event that is recorded behind everything that is on the stream now. The caller has
    /// bound the context.
    pub fn recorded_on(stream: &DriverStream<C>) -> Result<Self, ContextFailure<C>> {
        let event = Self::create(stream.context(), false)?;
        event.record(stream)?;
        Ok(event)
    }

    /// Handle for calls; valid while `self` lives.
    pub fn raw(&self) -> EventHandle<C> {
        self.0.raw()
    }

    fn context(&self) -> &Arc<C> {
        self.0.owner()
    }

    /// Makes the event complete once everything is done that is on the stream now. The caller has
    /// bound the context.
    pub fn record(&self, stream: &DriverStream<C>) -> Result<(), ContextFailure<C>> {
        // SAFETY: both are alive.
        unsafe { self.context().record(self.raw(), stream.raw()) }
    }

    /// Whether everything before the last record is done. A loop of queries does not bind the context.
    pub fn is_complete(&self) -> Result<bool, ContextFailure<C>> {
        let _relaxed = self.context().relaxed()?;
        // SAFETY: the event is alive.
        unsafe { self.context().query_event(self.raw()) }
    }

    /// Nanoseconds from `earlier` to this event, both of which are complete. Negative if this is
    /// the earlier one.
    pub fn since(&self, earlier: &Self) -> Result<i64, ContextFailure<C>> {
        let _bound = self.context().bind()?;
        // SAFETY: both are alive.
        let milliseconds = unsafe { self.context().elapsed(earlier.raw(), self.raw()) }?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

/// Streams on which nothing runs: each waits for an event of another library.
#[derive(Debug)]
pub struct ImportStreams<C: StreamContext>(Mutex<Vec<Arc<DriverStream<C>>>>);

impl<C: StreamContext> Default for ImportStreams<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C: StreamContext> ImportStreams<C> {
    /// Has `then` recorded once the last record of another library's event is complete. Gives the stream that
    /// it is recorded on, and its sequence number there. Each event that is still awaited has a stream of its
    /// own, so that none waits for another. The caller has bound the context.
    ///
    /// # Safety
    /// The event is live.
    pub unsafe fn follow(
        &self,
        event: EventHandle<C>,
        then: &RawEvent<C>,
    ) -> Result<(Arc<DriverStream<C>>, u64), ContextFailure<C>> {
        let mut streams = self.0.lock();
        let mut idle = None;
        for stream in &*streams {
            if stream.is_idle()? {
                idle = Some(Arc::clone(stream));
                break;
            }
        }
        let stream = match idle {
            Some(stream) => stream,
            None => {
                let stream = Arc::new(DriverStream::create(then.context())?);
                streams.push(Arc::clone(&stream));
                stream
            }
        };
        // SAFETY: the stream is alive; the caller vouches for the event.
        unsafe { stream.context().wait(stream.raw(), event) }?;
        let sequence = stream.record(then)?;
        Ok((stream, sequence))
    }
}

/// A context whose streams capture work as graphs. For all calls the caller has bound the context.
pub trait CaptureContext: StreamContext {
    /// The driver's graphs.
    type GraphKind: ObjectKind<Handle = *mut Self::GraphKind, Owner = Arc<Self>>;
    /// The backend's name.
    const BACKEND: &'static str;

    /// The handle that closures get beside a stream.
    fn native_context(&self) -> *mut c_void;

    /// Begins a capture, in a mode that does not restrict other threads.
    ///
    /// # Safety
    /// The stream is live, and only the caller uses it.
    unsafe fn begin_capture(&self, stream: StreamHandle<Self>) -> Result<(), ContextFailure<Self>>;

    /// Ends a capture, and writes its graph to the place, if there is one. An error says that the capture
    /// was invalid, and has ended it.
    ///
    /// # Safety
    /// The stream is live, and this thread has begun its capture.
    unsafe fn end_capture(
        &self,
        stream: StreamHandle<Self>,
        graph: &mut *mut Self::GraphKind,
    ) -> Result<(), ContextFailure<Self>>;

    /// # Safety
    /// The stream is live.
    unsafe fn is_capturing(&self, stream: StreamHandle<Self>) -> Result<bool, ContextFailure<Self>>;
}

impl<C: CaptureContext> DriverStream<C> {
    /// The stream as closures get it.
    ///
    /// # Safety
    /// The stream lives as long as the value.
    pub unsafe fn lent(&self) -> NativeStream<'_> {
        // SAFETY: the stream keeps the context; the caller promises the rest.
        unsafe { NativeStream::new(C::BACKEND, self.raw().cast(), self.context().native_context()) }
    }

    /// Ends the capture of the stream, if there is one: an event that is recorded there would never
    /// complete. Says whether there was one.
    pub fn end_open_capture(&self) -> Result<bool, ContextFailure<C>> {
        let context = self.context();
        // SAFETY: the stream is alive.
        if !unsafe { context.is_capturing(self.raw()) }? {
            return Ok(false);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the stream is alive, and captures.
        let _ = unsafe { context.end_capture(self.raw(), &mut raw) };
        drop(Owned::adopt(context, raw));
        Ok(true)
    }
}

/// Calls the closure with a stream that captures. The caller has bound the context.
///
/// # Errors
/// The closure's own or its panic; the driver's, where the work cannot be captured.
pub fn capture<C: CaptureContext>(context: &Arc<C>, native: &NativeCommand) -> Result<Owned<C::GraphKind>> {
    let stream = DriverStream::create(context)?;
    // SAFETY: the stream is alive, and nothing else uses it.
    unsafe { context.begin_capture(stream.raw()) }?;
    // SAFETY: the stream lives until the end of this function, and so does the value.
    let lent = unsafe { stream.lent() };
    // SAFETY: the stream captures, in the current context. The graph becomes part of a
    // command-buffer, which keeps the command with its memory; its enqueues promise the order.
    let called = call_user(|| unsafe { native.call(&lent) });
    // A library may have made another context current.
    let current = context.make_current();
    let mut raw = ptr::null_mut();
    // SAFETY: the stream is alive and its capture was begun on this thread.
    let ended = unsafe { context.end_capture(stream.raw(), &mut raw) };
    // Owned from here on, so that a graph is destroyed whatever went wrong.
    let graph = Owned::adopt(context, raw);
    let ended = ended.map_err(|failure| (fault_of(failure.code), Error::from(failure)));
    // The closure's error says more than the end of its capture.
    called.map_err(|error| match &ended {
        Ok(()) => error,
        Err((fault, end)) => error.with_note(&format!("{fault}{}", end.message())).help(CAPTURE_REMEDY),
    })?;
    current?;
    ended.map_err(|(fault, end)| match end.kind() {
        ErrorKind::DeviceLost => end,
        _ => not_captured(native, &format!("{fault}{}", end.message())),
    })?;
    graph.ok_or_else(|| not_captured(native, "the driver gave no graph"))
}

const CAPTURE_REMEDY: &str = "enqueue on the stream that the closure is given, leave its capture open, join \
                              what branches off it, and make no call that waits; what cannot be captured can \
                              be a `stream_task`";

fn not_captured(native: &NativeCommand, why: &str) -> Error {
    let why = format!("native command '{}' cannot be captured: {why}", native.name());
    Error::new(ErrorKind::Driver, why).help(CAPTURE_REMEDY)
}

/// The mistake of a closure whose capture has ended with this code of CUDA's and HIP's. Empty for other
/// codes.
fn fault_of(code: u32) -> &'static str {
    match code {
        401 => "the closure has ended the capture; ",
        901 => "a call of the closure has made the capture invalid; ",
        904 => "a stream that branches off does not join; ",
        _ => "",
    }
}

/// An event, and the host's time at which it was recorded: the origin of other events' times.
#[derive(Debug)]
pub struct ClockBase<C: StreamContext> {
    event: RawEvent<C>,
    time: u64,
    /// Maximum error of the time, in nanoseconds.
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

/// Resolution of the driver's times, in nanoseconds.
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

    /// Maximum error of times, in nanoseconds; 0 before there are any.
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

/// Base of the times of one signal.
#[derive(Debug)]
pub(super) struct SignalTimes<C: StreamContext> {
    base: Arc<ClockBase<C>>,
    submitted: u64,
    /// The number of commands that have times of their own.
    commands: usize,
}

impl<C: StreamContext> SignalTimes<C> {
    /// The times of a signal that is being enqueued now.
    pub(super) fn begin(base: Arc<ClockBase<C>>, commands: usize) -> Self {
        Self { base, submitted: now(), commands }
    }

    /// The times of a signal that was seen complete at `seen`, from the events that were recorded
    /// around its work and around its commands. The clocks of device and host drift apart by
    /// microseconds, so the order of times is enforced.
    pub(super) fn read(
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

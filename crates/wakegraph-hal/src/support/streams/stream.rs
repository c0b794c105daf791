//! The driver's streams and events.
#![expect(unsafe_code, reason = "passes handles to the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::context::{ContextFailure, DriverContext};
use crate::Priority;
use crate::support::object::{ObjectKind, Owned};

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

/// What the driver calls a stream.
pub(super) type StreamHandle<C> = <<C as StreamContext>::StreamKind as ObjectKind>::Handle;

/// What the driver calls an event.
pub(super) type EventHandle<C> = <<C as StreamContext>::EventKind as ObjectKind>::Handle;

/// A stream that runs independently of the default stream.
#[derive(Debug)]
pub struct DriverStream<C: StreamContext> {
    stream: Owned<C::StreamKind>,
    /// How many events have been recorded by [`record`](Self::record). Each has a sequence number.
    recorded: Mutex<u64>,
    /// The largest sequence number that is known to be complete, and with it all smaller ones.
    complete: AtomicU64,
}

impl<C: StreamContext> DriverStream<C> {
    /// Creates a stream of normal priority.
    pub fn create(context: &Arc<C>) -> Result<Self, ContextFailure<C>> {
        Self::create_with(context, Priority::Normal)
    }

    /// Creates a stream.
    pub fn create_with(context: &Arc<C>, priority: Priority) -> Result<Self, ContextFailure<C>> {
        let stream = C::create_stream(context, priority)?;
        Ok(Self { stream, recorded: Mutex::new(0), complete: AtomicU64::new(0) })
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

    /// For calls; valid while `self` lives.
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

    /// For calls; valid while `self` lives.
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

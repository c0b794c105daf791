//! The streams of a device, which its queues borrow.
//!
//! Work that runs at once needs streams, queues that merely exist do not, and a stream takes memory of the
//! device: 451 KiB on an H200. So a queue has a stream only while something of the queue is in flight.
//!
//! - A queue keeps its stream until everything that it has enqueued has ended: the stream keeps the order.
//!   After that the next enqueue has nothing to come after, and may go to any stream.
//! - No other queue uses the stream meanwhile. A queue takes the stream that it had last, if that is idle;
//!   else another idle one; else a new one.
//! - With [`MOST_STREAMS`] in use, or where the driver makes no more, queues meet on one common stream, and
//!   their work is ordered more than they were asked to. What is on a stream never waits for what is
//!   enqueued later, so none waits for ever. Code of users gets no common stream: it may capture its stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::ContextFailure;
use super::stream::{DriverStream, RawEvent, StreamContext};
use crate::{Error, Priority};

/// The most streams of one priority that queues have to themselves: as many grids as NVIDIA's GPUs run at a
/// time.
pub const MOST_STREAMS: usize = 128;

/// The streams of a device.
#[derive(Debug)]
pub(super) struct StreamPool<C: StreamContext> {
    context: Arc<C>,
    by_priority: [Streams<C>; 3],
}

/// The streams of one priority.
#[derive(Debug)]
struct Streams<C: StreamContext> {
    /// The stream of all queues for which there is no other. Made with the first queue.
    common: Mutex<Option<Arc<DriverStream<C>>>>,
    /// The number of other streams.
    made: AtomicUsize,
    /// The [listed](LISTED) streams, the one that was used last at the end.
    idle: Mutex<Vec<Arc<PooledStream<C>>>>,
}

/// A stream that one queue at a time has to itself.
#[derive(Debug)]
struct PooledStream<C: StreamContext> {
    stream: Arc<DriverStream<C>>,
    /// [`BORROWED`] and [`LISTED`].
    state: AtomicU8,
}

/// A queue has the stream.
const BORROWED: u8 = 1;
/// The stream is in the list of idle ones, where it stays when a queue takes it again that had it last: a
/// device whose queues keep their streams never locks the list.
const LISTED: u8 = 2;

impl<C: StreamContext> PooledStream<C> {
    /// Borrows the stream, unless a queue has it.
    fn take(&self) -> bool {
        self.state.fetch_or(BORROWED, Ordering::AcqRel) & BORROWED == 0
    }
}

impl<C: StreamContext> StreamPool<C> {
    pub(super) fn new(context: &Arc<C>) -> Self {
        let streams =
            || Streams { common: Mutex::default(), made: AtomicUsize::new(0), idle: Mutex::default() };
        Self { context: Arc::clone(context), by_priority: [(); 3].map(|()| streams()) }
    }

    fn streams(&self, priority: Priority) -> &Streams<C> {
        &self.by_priority[priority as usize]
    }

    /// The common stream. It is made by the first call, with another one where that can be made, so that the
    /// first enqueue need not make any.
    fn common(&self, priority: Priority) -> Result<Arc<DriverStream<C>>, ContextFailure<C>> {
        let streams = self.streams(priority);
        let mut common = streams.common.lock();
        if let Some(common) = &*common {
            return Ok(Arc::clone(common));
        }
        let new = Arc::new(DriverStream::create_with(&self.context, priority)?);
        if let Ok(Some(first)) = self.make(priority) {
            streams.give_back(&first);
        }
        Ok(Arc::clone(common.insert(new)))
    }

    /// Borrows a stream that no queue has. None if only the common stream is left.
    fn borrow(&self, priority: Priority) -> Result<Option<Arc<PooledStream<C>>>, ContextFailure<C>> {
        self.streams(priority).take_idle().map_or_else(|| self.make(priority), |idle| Ok(Some(idle)))
    }

    /// Makes a stream, which the caller has borrowed. None if there are as many as there may be, or if the
    /// caller would wait until another thread has loaded code.
    fn make(&self, priority: Priority) -> Result<Option<Arc<PooledStream<C>>>, ContextFailure<C>> {
        let made = &self.streams(priority).made;
        if made.fetch_add(1, Ordering::Relaxed) >= MOST_STREAMS {
            made.fetch_sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        let stream = DriverStream::try_create_with(&self.context, priority).transpose();
        if !matches!(stream, Ok(Some(_))) {
            made.fetch_sub(1, Ordering::Relaxed);
        }
        let borrowed = |stream| PooledStream { stream: Arc::new(stream), state: AtomicU8::new(BORROWED) };
        Ok(stream?.map(|stream| Arc::new(borrowed(stream))))
    }
}

impl<C: StreamContext> Streams<C> {
    fn take_idle(&self) -> Option<Arc<PooledStream<C>>> {
        let mut idle = self.idle.lock();
        while let Some(last) = idle.pop() {
            // A queue may have taken it again. Then it is listed when that queue gives it back.
            if last.state.swap(BORROWED, Ordering::AcqRel) & BORROWED == 0 {
                return Some(last);
            }
        }
        None
    }

    fn give_back(&self, stream: &Arc<PooledStream<C>>) {
        if stream.state.fetch_and(!BORROWED, Ordering::AcqRel) & LISTED != 0 {
            return;
        }
        let mut idle = self.idle.lock();
        // A queue may have taken it, and given it back, since.
        if stream.state.fetch_or(LISTED, Ordering::AcqRel) & LISTED == 0 {
            idle.push(Arc::clone(stream));
        }
    }
}

/// A queue's part: which stream the queue has.
#[derive(Debug)]
pub(super) struct StreamBorrower<C: StreamContext> {
    pool: Arc<StreamPool<C>>,
    priority: Priority,
    common: Arc<DriverStream<C>>,
    /// Held for a moment by enqueues, and by polls that see the end of one.
    state: Mutex<BorrowerState<C>>,
}

#[derive(Debug)]
struct BorrowerState<C: StreamContext> {
    /// Number of enqueues whose end has not been seen.
    in_flight: usize,
    /// The number of the turn, or of the last one.
    turn: u64,
    /// The stream of that turn.
    stream: Arc<DriverStream<C>>,
    /// The same stream, where it is one of the pool's.
    pooled: Option<Arc<PooledStream<C>>>,
}

impl<C: StreamContext> StreamBorrower<C> {
    /// The part of a new queue.
    pub(super) fn new(pool: &Arc<StreamPool<C>>, priority: Priority) -> Result<Self, ContextFailure<C>> {
        let common = pool.common(priority)?;
        let state = BorrowerState { in_flight: 0, turn: 0, stream: Arc::clone(&common), pooled: None };
        Ok(Self { pool: Arc::clone(pool), priority, common, state: Mutex::new(state) })
    }

    /// Borrows a stream for an enqueue. Gives why it is the common one, too, if no other can be made: the
    /// caller [logs](log_common) that once it holds no lock.
    pub(super) fn borrow(self: &Arc<Self>) -> (BorrowedStream<C>, Option<ContextFailure<C>>) {
        let mut unmade = None;
        let mut state = self.state.lock();
        if state.in_flight == 0 {
            state.turn += 1;
            let is_idle = state.pooled.as_ref().is_some_and(|last| last.take());
            if !is_idle {
                state.pooled = self.pool.borrow(self.priority).unwrap_or_else(|failure| {
                    unmade = Some(failure);
                    None
                });
                let stream = state.pooled.as_ref().map_or(&self.common, |pooled| &pooled.stream);
                state.stream = Arc::clone(stream);
            }
        }
        state.in_flight += 1;
        let turn = StreamTurn { borrower: Arc::clone(self), number: state.turn };
        (BorrowedStream { stream: Arc::clone(&state.stream), turn }, unmade)
    }

    /// As [`borrow`](Self::borrow), for code of users: no other queue uses the stream. The caller has bound
    /// the context.
    pub(super) fn borrow_alone(self: &Arc<Self>) -> Result<BorrowedStream<C>, ContextFailure<C>> {
        let (borrowed, unmade) = self.borrow();
        log_common(unmade);
        if !Arc::ptr_eq(&borrowed.stream, &self.common) {
            return Ok(borrowed);
        }
        match self.leave_common() {
            Ok(stream) => Ok(BorrowedStream { stream, ..borrowed }),
            Err(failure) => {
                borrowed.turn.give_back();
                Err(failure)
            }
        }
    }

    /// Goes on, until the end of the turn, on a stream that is not one of the pool's.
    fn leave_common(&self) -> Result<Arc<DriverStream<C>>, ContextFailure<C>> {
        let own = Arc::new(DriverStream::create_with(&self.pool.context, self.priority)?);
        own.wait(&RawEvent::recorded_on(&self.common)?)?;
        self.state.lock().stream = Arc::clone(&own);
        Ok(own)
    }

    /// The stream, if something of the queue may be in flight there.
    pub(super) fn stream(&self) -> Option<Arc<DriverStream<C>>> {
        let state = self.state.lock();
        (state.in_flight > 0).then(|| Arc::clone(&state.stream))
    }

    /// The end of an enqueue has been seen.
    fn give_back(&self) {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            self.end_turn(&state);
        }
    }

    fn end_turn(&self, state: &BorrowerState<C>) {
        let streams = self.pool.streams(self.priority);
        state.pooled.iter().for_each(|pooled| streams.give_back(pooled));
    }
}

/// Logs why a queue has got the common stream, if no other can be made.
pub(super) fn log_common(unmade: Option<impl Into<Error>>) {
    if let Some(error) = unmade.map(Into::into) {
        tracing::debug!(target: "wakegraph", %error, "queues share a stream, as no other can be made");
    }
}

impl<C: StreamContext> Drop for StreamBorrower<C> {
    /// Work in flight goes on. The queue orders nothing behind it any more.
    fn drop(&mut self) {
        let state = self.state.lock();
        if state.in_flight > 0 {
            self.end_turn(&state);
        }
    }
}

/// The stream of a queue, for one enqueue.
///
/// Unless its turn is given back, the queue keeps the stream for good: work may be in flight there whose
/// end no poll is going to see.
#[derive(Debug)]
pub struct BorrowedStream<C: StreamContext> {
    /// The stream.
    pub stream: Arc<DriverStream<C>>,
    /// The turn in which the queue has the stream.
    pub turn: StreamTurn<C>,
}

impl<C: StreamContext> BorrowedStream<C> {
    /// Ends an enqueue that has failed. Waits and a part of its work may be on the stream: unless they have
    /// ended, the queue keeps it.
    pub(super) fn abandon(self) {
        if matches!(self.stream.is_idle(), Ok(true)) {
            self.turn.give_back();
        }
    }
}

/// A time in which a queue keeps one stream, from an enqueue until everything that the queue has enqueued has
/// ended.
#[derive(Debug)]
pub struct StreamTurn<C: StreamContext> {
    borrower: Arc<StreamBorrower<C>>,
    number: u64,
}

impl<C: StreamContext> StreamTurn<C> {
    /// An enqueue of the turn has ended.
    pub(super) fn give_back(self) {
        self.borrower.give_back();
    }

    /// An event that is recorded behind everything on the stream, unless the turn is over, or the stream is
    /// `unless`. The turn, after which another queue may capture the stream, does not end meanwhile. The
    /// caller has bound the context.
    pub fn fence(
        &self,
        unless: Option<&Arc<DriverStream<C>>>,
    ) -> Result<Option<RawEvent<C>>, ContextFailure<C>> {
        let state = self.borrower.state.lock();
        let is_due = self.lasts(&state) && unless.is_none_or(|own| !Arc::ptr_eq(own, &state.stream));
        is_due.then(|| RawEvent::recorded_on(&state.stream)).transpose()
    }

    /// Whether everything that was enqueued in the turn has ended.
    pub fn is_idle(&self) -> Result<bool, ContextFailure<C>> {
        let state = self.borrower.state.lock();
        Ok(!self.lasts(&state) || state.stream.is_idle()?)
    }

    /// Whether something of the turn may be in flight, so that the queue has its stream.
    fn lasts(&self, state: &BorrowerState<C>) -> bool {
        state.in_flight > 0 && state.turn == self.number
    }
}

impl<C: StreamContext> Clone for StreamTurn<C> {
    fn clone(&self) -> Self {
        Self { borrower: Arc::clone(&self.borrower), number: self.number }
    }

    /// Counts no reference where both are turns of one queue.
    fn clone_from(&mut self, other: &Self) {
        if !Arc::ptr_eq(&self.borrower, &other.borrower) {
            self.borrower = Arc::clone(&other.borrower);
        }
        self.number = other.number;
    }
}

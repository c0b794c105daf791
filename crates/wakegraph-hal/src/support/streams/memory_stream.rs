//! The stream on which a device's memory is allocated, cleared and freed, and the order of all other streams
//! behind it.
//!
//! No thread waits for an allocation. It is counted, and each stream knows how many it comes behind. A stream
//! that is about to get work compares the two numbers, and waits on the device if memory has come since:
//! for all of it, as nothing here knows what a kernel or another library's call will use. The clears that it
//! waits for are short, and the stream is of high priority, so they do not queue behind kernels.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::ContextFailure;
use super::stream::{DriverStream, RawEvent, StreamContext};
use crate::Priority;

/// The stream of a device's memory.
#[derive(Debug)]
pub struct MemoryStream<C: StreamContext> {
    stream: DriverStream<C>,
    /// The number of allocations on the stream so far. It is raised after the allocation is on the stream and
    /// before the caller gets the memory, so each thread that has the memory sees it counted.
    allocations: AtomicU64,
    /// The first of them that are known to be there and cleared.
    ready: AtomicU64,
    last: Mutex<AllocationRecord<C>>,
}

/// An event behind the first `allocations` allocations.
#[derive(Debug)]
struct AllocationRecord<C: StreamContext> {
    event: RawEvent<C>,
    allocations: u64,
}

impl<C: StreamContext> MemoryStream<C> {
    /// Creates the stream of a device.
    pub fn create(context: &Arc<C>) -> Result<Self, ContextFailure<C>> {
        let stream = DriverStream::create_with(context, Priority::High)?;
        let last = AllocationRecord { event: RawEvent::create(context, false)?, allocations: 0 };
        Ok(Self { stream, allocations: AtomicU64::new(0), ready: AtomicU64::new(0), last: Mutex::new(last) })
    }

    /// Counts an allocation that is on the stream with its clear, and gives its number.
    pub fn count_allocation(&self) -> u64 {
        self.allocations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes later work on another stream of the device wait for the allocations so far. The caller has bound
    /// the context.
    pub fn order_before(&self, stream: &DriverStream<C>) -> Result<(), ContextFailure<C>> {
        let allocations = self.allocations.load(Ordering::Relaxed);
        // Acquire: another thread that raised the number has had the stream wait before it.
        if stream.behind.load(Ordering::Acquire) >= allocations {
            return Ok(());
        }
        self.with_record(allocations, |event| stream.wait(event))?;
        stream.behind.fetch_max(allocations, Ordering::Release);
        Ok(())
    }

    /// Makes all streams of another device wait for the allocations so far; `behind` counts those that they
    /// wait for already.
    pub fn order_before_peer(&self, peer: &Self, behind: &mut u64) -> Result<(), ContextFailure<C>> {
        let allocations = self.allocations.load(Ordering::Relaxed);
        if *behind >= allocations {
            return Ok(());
        }
        self.with_record(allocations, |event| {
            let _bound = peer.stream.context().bind()?;
            peer.stream.wait(event)
        })?;
        // To the peer's own streams it is as if memory had come.
        peer.count_allocation();
        *behind = allocations;
        Ok(())
    }

    /// Calls `wait` with an event that is recorded behind so many allocations.
    #[cold]
    fn with_record(
        &self,
        allocations: u64,
        wait: impl FnOnce(&RawEvent<C>) -> Result<(), ContextFailure<C>>,
    ) -> Result<(), ContextFailure<C>> {
        let mut last = self.last.lock();
        if last.allocations < allocations {
            let _bound = self.stream.context().bind()?;
            last.event.record(&self.stream)?;
            last.allocations = allocations;
        }
        wait(&last.event)
    }

    /// Blocks until the allocation with this number is there and cleared.
    pub fn wait_for(&self, allocation: u64) -> Result<(), ContextFailure<C>> {
        if self.ready.load(Ordering::Relaxed) >= allocation {
            return Ok(());
        }
        let allocations = self.allocations.load(Ordering::Relaxed);
        self.stream.synchronize()?;
        self.ready.fetch_max(allocations, Ordering::Relaxed);
        Ok(())
    }
}

/// For everything else that is done on the stream.
impl<C: StreamContext> Deref for MemoryStream<C> {
    type Target = DriverStream<C>;

    fn deref(&self) -> &DriverStream<C> {
        &self.stream
    }
}

//! Copies between a buffer and memory of the application's, which is not pinned: through pinned
//! memory, in chunks. The device copies a chunk while the host copies the next one.
#![expect(unsafe_code, reason = "fills and reads memory that no device uses at the time")]

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal::{AccessMode, Error, ErrorKind, Result};

use crate::runtime::builder::memory_command::{MemoryCommand, Transfer};
use crate::runtime::completion::tasks::{give_way, take_turn, wake_after_locks};
use crate::runtime::execution::accesses::UsedAllocation;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::run::{FenceGuard, FenceHolder, Run};
use crate::runtime::execution::submission::Event;
use crate::runtime::queue::QueueInner;
use crate::runtime::queue::command::QueueCommand;
use crate::runtime::queue::loan::queue_of;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::scratch;
use crate::util::parallel_copy;

impl<T: Pod> Buffer<T> {
    /// Copies the elements to the host, as [`read`](Self::read).
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len()];
        self.read(&mut elements).await?;
        Ok(elements)
    }

    /// Copies the start of the buffer to `elements` on the host, after everything submitted so far
    /// that writes these elements. What is submitted later, and writes them, waits until they are
    /// copied.
    ///
    /// It copies in chunks through pinned memory: the device copies some while the host copies
    /// others, with up to twelve threads. Between chunks other tasks get their turn. A service that
    /// can work in pinned memory keeps a [`HostBuffer`] and copies to that inside its graph, which
    /// saves the copy on the host.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = wakegraph::Device::open("host")?;
    /// let x = device.buffer::<u32>(1000)?;
    /// x.write(&[7; 1000]).await?;
    /// let mut first = [0; 3];
    /// x.read(&mut first).await?;
    /// assert_eq!(first, [7; 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when the buffer has fewer elements;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for scratch memory; those of allocating pinned
    /// memory and of the device. Some elements may have been copied then.
    ///
    /// # Cancel safety
    /// Cancel safe: what is submitted later waits for chunks that the device is copying, and for no
    /// others.
    pub async fn read(&self, elements: &mut [T]) -> Result<()> {
        let source = self.slice(..elements.len())?;
        let transfer = StagedTransfer::begin(source.view(), AccessMode::Read).await?;
        transfer.read(bytemuck::cast_slice_mut(elements)).await
    }

    /// Copies `elements` from the host to the start of the buffer, after everything submitted so
    /// far that uses these elements of it. What is submitted later, and uses them, waits until they
    /// are copied. Otherwise as [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Not cancel safe: some elements have been copied, or will be before what is submitted later
    /// gets its turn.
    pub async fn write(&self, elements: &[T]) -> Result<()> {
        let target = self.slice(..elements.len())?;
        let transfer = StagedTransfer::begin(target.view(), AccessMode::Write).await?;
        transfer.write(bytemuck::cast_slice(elements)).await
    }
}

/// Maximum of chunks in flight.
const DEPTH: usize = 4;

/// The smallest chunk of a larger transfer: the device takes longer for it than the host to enqueue
/// it and to wake its helpers.
const SMALLEST: usize = 1 << 20;

/// The largest chunk for each thread that copies: a task is not polled for longer than it takes to
/// copy that, some 150 microseconds. Of 1 GiB, smaller ones lose a tenth.
const LARGEST_OF_THREAD: usize = 768 << 10;

fn largest() -> usize {
    (LARGEST_OF_THREAD * parallel_copy::threads()).max(SMALLEST)
}

/// The length of the next chunk, if the host has that many bytes before it, or behind it: while it
/// copies the chunk, the device copies these. So nothing but a small chunk is copied by one of the
/// two alone.
fn chunk_beside(bytes: usize) -> usize {
    (bytes / 2 / SMALLEST * SMALLEST).clamp(SMALLEST, largest())
}

/// Exclusive or shared use of a buffer while chunks of it are copied.
struct StagedTransfer {
    buffer: Buffer<u8>,
    mode: AccessMode,
    queue: Arc<QueueInner>,
    /// The chunks in flight have it, too: they have ended before what waits for it uses the buffer.
    lease: Arc<FenceGuard>,
    /// The chunks in flight, the oldest first.
    chunks: VecDeque<Chunk>,
    location: &'static Location<'static>,
}

/// Pinned memory for one chunk.
struct StagingSlot(HostBuffer<u8>);

/// A chunk that the host has copied to its slot: these bytes of the buffer.
struct Copied {
    slot: StagingSlot,
    range: Range<usize>,
}

/// A chunk that the device copies.
struct Chunk {
    slot: StagingSlot,
    len: usize,
    run: Arc<Run>,
}

impl StagedTransfer {
    /// Waits for everything before it that uses the bytes in a conflicting way.
    async fn begin(view: &View, mode: AccessMode) -> Result<Self> {
        scratch::check_owner([view], None)?;
        let holder = FenceHolder::of(view, "a transfer of the buffer", None);
        let mut lease = conflicts::acquire(view, mode, holder);
        lease.turn().await?;
        take_turn().await;
        let (buffer, queue) = (Buffer::from_view(view.clone()), queue_of(view)?.clone());
        let (lease, chunks) = (Arc::new(lease), VecDeque::with_capacity(DEPTH));
        Ok(Self { buffer, mode, queue, lease, chunks, location: Location::caller() })
    }

    async fn write(mut self, bytes: &[u8]) -> Result<()> {
        let mut offset = 0;
        // The host has copied it, and the device has not begun.
        let mut copied: Option<Copied> = None;
        while offset < bytes.len() {
            let slot = match self.chunks.len() + usize::from(copied.is_some()) < DEPTH {
                true => self.slot()?,
                false => self.next().await?.slot,
            };
            let range = offset..offset + chunk_beside(offset).min(bytes.len() - offset);
            // SAFETY: the device does not use the slot.
            let to = unsafe { &mut slot.bytes()[..range.len()] };
            let enqueue = || copied.take().map_or(Ok(()), |copied| self.start_write(copied));
            parallel_copy::copy(to, &bytes[range.clone()], enqueue)?;
            offset = range.end;
            copied = Some(Copied { slot, range });
            if offset < bytes.len() {
                give_way().await;
            }
        }
        copied.map_or(Ok(()), |copied| self.start_write(copied))?;
        while !self.chunks.is_empty() {
            self.next().await?;
        }
        Ok(())
    }

    async fn read(mut self, mut bytes: &mut [u8]) -> Result<()> {
        let (mut offset, total) = (0, bytes.len());
        // Slots that no chunk uses.
        let mut slots = Vec::with_capacity(DEPTH);
        while !bytes.is_empty() {
            while offset < total && self.chunks.len() + slots.len() < DEPTH {
                let slot = self.slot()?;
                self.start_read(slot, &mut offset, total)?;
            }
            let Chunk { slot, len, .. } = self.next().await?;
            let (to, rest) = bytes.split_at_mut(len);
            let enqueue = || match slots.pop() {
                Some(slot) if offset < total => self.start_read(slot, &mut offset, total),
                _ => Ok(()),
            };
            // SAFETY: the device has filled the slot, and does not use it any more.
            parallel_copy::copy(to, unsafe { &slot.bytes()[..len] }, enqueue)?;
            bytes = rest;
            slots.push(slot);
            if !bytes.is_empty() {
                give_way().await;
            }
        }
        Ok(())
    }

    /// Has the device copy a chunk that the host has copied.
    fn start_write(&mut self, Copied { slot, range }: Copied) -> Result<()> {
        let part = (slot.0.slice(..range.len())?, self.buffer.slice(range.clone())?);
        let run = self.start(Transfer::copy(&part.0, &part.1))?;
        self.chunks.push_back(Chunk { slot, len: range.len(), run });
        Ok(())
    }

    /// Has the device copy the next chunk.
    fn start_read(&mut self, slot: StagingSlot, offset: &mut usize, total: usize) -> Result<()> {
        let len = chunk_beside(total - *offset).min(total - *offset);
        let part = (self.buffer.slice(*offset..*offset + len)?, slot.0.slice(..len)?);
        let run = self.start(Transfer::copy(&part.0, &part.1))?;
        self.chunks.push_back(Chunk { slot, len, run });
        *offset += len;
        Ok(())
    }

    /// The oldest chunk, once the device has copied it.
    async fn next(&mut self) -> Result<Chunk> {
        let bug = || Error::new(ErrorKind::Bug, "no chunk is in flight");
        let event = Event::new(self.chunks.front().ok_or_else(bug)?.run.clone());
        match event.outcome() {
            // A wait would let other tasks run first.
            Some(outcome) => outcome?,
            None => event.wait().await?,
        }
        self.chunks.pop_front().ok_or_else(bug)
    }

    /// Pinned memory for any chunk of this transfer.
    fn slot(&self) -> Result<StagingSlot> {
        let len = self.buffer.len().min(largest());
        Ok(StagingSlot(HostBuffer::whole(Allocation::on_host(self.buffer.device(), len, false)?)))
    }

    fn start(&self, transfer: Transfer) -> Result<Arc<Run>> {
        let Transfer::Direct(MemoryCommand { command, uses, .. }) = transfer else {
            let why = "a device does not reach its pinned memory";
            return Err(Error::new(ErrorKind::FeatureNotSupported, why));
        };
        let used = |(view, mode): (View, AccessMode)| {
            let access = view.access(mode);
            UsedAllocation::new(view.allocation, access)
        };
        let (template, uses) = (self.queue.next_template(), uses.into_iter().map(used).collect());
        let command = QueueCommand::holding(template, command?, uses, self.lease.clone(), self.location);
        self.queue.run_in_place(&command)
    }
}

impl Drop for StagedTransfer {
    /// Ends the lease, so that later uses wait for the chunks in flight only. A run may have ended and still
    /// have the lease for a moment.
    fn drop(&mut self) {
        let runs: Vec<_> = self.chunks.drain(..).map(|chunk| chunk.run).collect();
        wake_after_locks(|| conflicts::hand_over(self.buffer.view(), self.mode, &self.lease, &runs));
    }
}

impl StagingSlot {
    /// # Safety
    /// The device does not use the memory while the result lives.
    #[expect(clippy::mut_from_ref, reason = "the memory is not part of the slot")]
    unsafe fn bytes(&self) -> &mut [u8] {
        let View { allocation, len, .. } = self.0.view();
        // Host memory always has an address; without one there is nothing to see.
        let Some(start) = allocation.memory().host_ptr() else { return &mut [] };
        // SAFETY: the memory is as long, and stays for as long as the slot, which alone has it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), *len) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use futures::FutureExt as _;
    use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};

    use super::*;
    use crate::{Device, Graph};

    fn manual_device() -> (Device, FakeControl) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        (Device::from_hal(device), control)
    }

    /// More than all chunks that are in flight at a time.
    fn long() -> Vec<u8> {
        let len = (DEPTH + 2) * largest() + SMALLEST + 5;
        (0..len).map(|index| (index * 7 + index / 251) as u8).collect()
    }

    #[test]
    fn chunks_grow_with_what_is_copied_beside_them() {
        assert_eq!([0, 1, SMALLEST, 3 * SMALLEST].map(chunk_beside), [SMALLEST; 4]);
        assert_eq!(chunk_beside(usize::MAX), largest());
        assert!(largest() >= SMALLEST);
    }

    #[tokio::test]
    async fn elements_of_any_number_are_copied() {
        let device = Device::open("host:91").unwrap();
        let elements = long();
        for len in [1, SMALLEST - 1, SMALLEST, 3 * SMALLEST + 7, elements.len()] {
            let (x, elements) = (device.buffer::<u8>(len + 1).unwrap(), &elements[..len]);
            x.write(elements).await.unwrap();
            let mut found = vec![0; len];
            x.read(&mut found).await.unwrap();
            assert!(found == elements, "{len}");
            assert_eq!(x.to_vec().await.unwrap()[len], 0);
            let error = x.write(&vec![0; len + 2]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize);
        }
    }

    #[tokio::test]
    async fn submissions_come_before_or_after_all_of_a_transfer() {
        let (device, control) = manual_device();
        let elements = long();
        let x = device.buffer::<u8>(elements.len()).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        let before = exec.submit();
        let mut write = std::pin::pin!(x.write(&elements));
        assert!((&mut write).now_or_never().is_none());
        let after = exec.submit();
        control.complete_all();
        before.await.unwrap();
        while (&mut write).now_or_never().is_none() {
            assert!(!after.is_finished());
            control.complete_all();
            tokio::task::yield_now().await;
        }
        while !after.is_finished() {
            control.complete_all();
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_dropped_transfer_ends_with_its_chunks_in_flight() {
        let (device, control) = manual_device();
        let elements = long();
        let x = device.buffer::<u8>(elements.len()).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        let mut write = Box::pin(x.write(&elements));
        for _ in 0..10 * DEPTH {
            assert!((&mut write).now_or_never().is_none());
        }
        drop(write);
        let after = exec.submit();
        tokio::task::yield_now().await;
        assert!(!after.is_finished());
        while !after.is_finished() {
            control.complete_all();
            tokio::task::yield_now().await;
        }
        after.await.unwrap();
    }

    #[tokio::test]
    async fn nothing_waits_for_a_transfer_that_is_over() {
        let device = Device::open("host:92").unwrap();
        let x = device.buffer::<u8>(10).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        for _ in 0..200 {
            x.write(&[2; 10]).await.unwrap();
            // On this thread there is no runtime that could wait for a guard.
            let submission = std::thread::scope(|scope| scope.spawn(|| exec.submit()).join().unwrap());
            submission.await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [1; 10]);
        }
    }

    #[tokio::test]
    async fn the_failure_of_a_chunk_is_that_of_the_transfer() {
        let (device, control) = manual_device();
        let x = device.buffer::<u8>(10).unwrap();
        let mut write = std::pin::pin!(x.write(&[1; 10]));
        assert!((&mut write).now_or_never().is_none());
        control.lose_device();
        assert_eq!(write.await.unwrap_err().kind(), ErrorKind::DeviceLost);
    }
}

//! Typed device memory.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;

use crate::hal::MemoryKind;
use crate::runtime::builder::Graph;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::types::Result;

/// Device memory holding `len` elements of `T`: a reference-counted view of an allocation.
///
/// Clones and [slices](Self::slice) are views of the same memory and cost an atomic increment.
/// Graphs and executables keep the memory alive for as long as a device may touch it, so a buffer
/// can be dropped at any time.
///
/// New memory is zeroed. (Buffers of [`Graph::scratch`] have memory only while their graph runs,
/// and what is in it then is undefined.)
pub struct Buffer<T> {
    view: View,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn allocate(device: &Device, len: usize) -> Result<Self> {
        let bytes = crate::runtime::resource::host_buffer::byte_len::<T>(len)?;
        let allocation = Allocation::new(device, MemoryKind::Device, bytes)?;
        Ok(Self::whole(allocation))
    }

    /// All of an allocation.
    pub(crate) fn whole(allocation: Arc<Allocation>) -> Self {
        let len = allocation.memory().len();
        Self { view: View { allocation, offset: 0, len }, elements: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.view.len / size_of::<T>()
    }

    /// Never true: buffers of 0 elements are refused.
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// The device it lives on.
    pub fn device(&self) -> &Device {
        self.view.allocation.device()
    }

    /// The elements in `range`, as a view of the same memory. Accesses to disjoint slices do not
    /// depend on each other.
    ///
    /// # Errors
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when the range is empty or not inside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { view: self.view.slice(range, size_of::<T>())?, elements: PhantomData })
    }

    /// Copies the elements to the host, after everything submitted so far that writes them.
    ///
    /// Made for tests and first steps: it builds a graph of one copy. A service keeps a
    /// [`HostBuffer`] and copies to it inside its graph.
    ///
    /// # Errors
    /// Those of allocating the host memory and of the submission.
    ///
    /// # Cancel safety
    /// Dropping the future detaches the copy.
    pub async fn to_vec(&self) -> Result<Vec<T>> {
        let staging = HostBuffer::allocate(self.device(), self.len())?;
        let mut graph = Graph::new(self.device());
        graph.copy(self, &staging).name("Buffer::to_vec");
        graph.finalize()?.submit().await?;
        Ok(staging.read().await.to_vec())
    }

    /// Copies `elements` from the host to the start of the buffer, after everything submitted so
    /// far that uses them.
    ///
    /// Made for tests and first steps, as [`to_vec`](Self::to_vec).
    ///
    /// # Errors
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when they do not fit or are none; those of the submission.
    ///
    /// # Cancel safety
    /// Dropping the future detaches the copy.
    pub async fn write(&self, elements: &[T]) -> Result<()> {
        let target = self.slice(..elements.len())?;
        let mut graph = Graph::new(self.device());
        graph.write(&target, elements).name("Buffer::write");
        graph.finalize()?.submit().await
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), elements: PhantomData }
    }
}

impl<T> Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { allocation, offset, len } = &self.view;
        write!(f, "Buffer<{}>[{offset}..{}] of {allocation:?}", std::any::type_name::<T>(), offset + len)
    }
}

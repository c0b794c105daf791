//! Typed device memory.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal::{ResourceId, Result};

use crate::runtime::resource::allocation::{Allocation, View, byte_len};
use crate::runtime::resource::device::Device;

/// Device memory holding `len` elements of `T`: a reference-counted view of an allocation.
///
/// Clones and [slices](Self::slice) are views of the same memory and cost an atomic increment.
/// Graphs and executables keep the memory alive for as long as a device may touch it, so a buffer
/// can be dropped at any time.
///
/// New memory is zeroed, unless it is [asked for otherwise](Device::buffer_uninit). (Buffers of
/// [`Graph::scratch`](crate::Graph::scratch) have memory only while their graph runs, and what is in it
/// then is undefined.)
///
/// [Memory](crate::guide::memory) is a page of the guide.
///
/// ```
/// use wakegraph::Device;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let x = device.buffer::<f32>(4)?;
/// x.slice(1..3)?.write(&[2.0, 3.0]).await?;
/// assert_eq!(x.to_vec().await?, [0.0, 2.0, 3.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub struct Buffer<T> {
    view: View,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> Buffer<T> {
    /// Memory that is zeroed, or holds anything.
    fn allocate(device: &Device, len: usize, zeroed: bool) -> Result<Self> {
        let bytes = byte_len::<T>(len)?;
        let allocation = Allocation::on_device(device, bytes, zeroed)?;
        Ok(Self::whole(allocation))
    }

    /// All of an allocation.
    pub(crate) fn whole(allocation: Arc<Allocation>) -> Self {
        Self { view: View::whole(allocation), elements: PhantomData }
    }

    /// The elements of a view, which is made of whole ones.
    pub(crate) fn from_view(view: View) -> Self {
        Self { view, elements: PhantomData }
    }

    /// Identifies the allocation, as in the [accesses](crate::Graph::accesses) of nodes. Slices of a buffer
    /// have it in common.
    pub fn resource(&self) -> ResourceId {
        self.view.allocation.memory().resource()
    }

    /// Elements.
    pub fn len(&self) -> usize {
        // A null buffer may have elements of no size.
        self.view.len.checked_div(size_of::<T>()).unwrap_or(0)
    }

    /// Whether there are no elements. Commands that use only such buffers do nothing, but for their order.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// The device it lives on.
    pub fn device(&self) -> &Device {
        self.view.allocation.device()
    }

    /// The elements in `range`, as a view of the same memory. Accesses to disjoint slices do not
    /// depend on each other.
    ///
    /// # Errors
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when the range is not inside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { view: self.view.slice(range, size_of::<T>())?, elements: PhantomData })
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }
}

impl Device {
    /// Device memory for `len` elements, zeroed. There may be none.
    ///
    /// On CUDA and HIP neither this nor the drop of the buffer waits for the device: the memory is
    /// allocated, cleared and freed in the order of a stream, and the first use of the buffer is ordered
    /// after that. If the allocation fails, this call returns the error. It waits only if memory has run
    /// out: it then first returns spare memory to the system. [Memory](crate::guide::memory) says what
    /// other devices do.
    ///
    /// # Errors
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) for elements of 0 bytes,
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::allocate(self, len, true)
    }

    /// Device memory for `len` elements with undefined contents, such as those of memory that has been freed.
    /// It saves the clear of a [`buffer`](Self::buffer) that is written as a whole anyway.
    ///
    /// ```
    /// # #![allow(unsafe_code)]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = wakegraph::Device::open("host")?;
    /// // SAFETY: all elements are written before any is read.
    /// let x = unsafe { device.buffer_uninit::<u32>(3) }?;
    /// x.write(&[1, 2, 3]).await?;
    /// assert_eq!(x.to_vec().await?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    ///
    /// # Safety
    /// No command and no copy reads an element before something has written it.
    #[expect(unsafe_code, reason = "the caller vouches that nothing is read before it is written")]
    pub unsafe fn buffer_uninit<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::allocate(self, len, false)
    }

    /// Device memory holding a copy of `elements`. Blocks for the time of the copy.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer), and the driver's.
    pub fn buffer_from<T: Pod>(&self, elements: &[T]) -> Result<Buffer<T>> {
        // The memory of no elements has a byte, which nothing uses.
        let buffer = Buffer::allocate(self, elements.len(), false)?;
        buffer.view.allocation.initialise(bytemuck::cast_slice(elements))?;
        Ok(buffer)
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "reads what the fake device has there")]
    fn memory_is_zeroed_unless_it_is_overwritten() {
        let device = Device::from_hal(FakeDevice::open(FakeOptions::new()).0);
        let bytes = |buffer: &Buffer<u8>| {
            let mut bytes = [1; 3];
            // SAFETY: nothing is in flight.
            unsafe { buffer.view.allocation.memory().read(0, &mut bytes) }.unwrap();
            bytes
        };
        assert_eq!(bytes(&device.buffer(3).unwrap()), [0; 3]);
        assert_eq!(bytes(&device.buffer_from(&[7, 8, 9]).unwrap()), [7, 8, 9]);
        // SAFETY: the fake device's memory has bytes.
        let any = unsafe { device.buffer_uninit(3) }.unwrap();
        assert_eq!(bytes(&any), [FakeDevice::UNWRITTEN; 3]);
        assert_eq!(device.buffer_from::<u8>(&[]).unwrap().len(), 0);
    }
}

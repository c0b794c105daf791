//! Typed host memory that devices can copy from and to.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal::{ResourceId, Result};

use crate::runtime::resource::allocation::{Allocation, View, byte_len};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::host_pool::HostPoolStats;

/// Pinned host memory holding `len` elements of `T`: the host's side of copies, and what host tasks
/// read and write.
///
/// Clones and [slices](Self::slice) are views of the same memory. Outside graphs it is used through
/// [`read`](Self::read) and [`write`](Self::write), which wait for the submissions in flight that
/// conflict, and which later submissions wait for: no data race is possible.
///
/// New memory is zeroed.
///
/// [Memory](crate::guide::memory) is a page of the guide.
///
/// ```
/// use wakegraph::{Device, Graph};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (input, x) = (device.host_buffer::<u32>(3)?, device.buffer::<u32>(3)?);
/// let mut graph = Graph::new(&device);
/// graph.copy(&input, &x);
/// let exec = graph.finalize()?;
///
/// input.write().await.copy_from_slice(&[1, 2, 3]); // the guard is dropped before the submission
/// exec.submit().await?;
/// assert_eq!(x.to_vec().await?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
pub struct HostBuffer<T> {
    view: View,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> HostBuffer<T> {
    pub(crate) fn allocate(device: &Device, len: usize) -> Result<Self> {
        let allocation = Allocation::on_host(device, byte_len::<T>(len)?, true)?;
        Ok(Self::whole(allocation))
    }

    /// All of an allocation.
    pub(crate) fn whole(allocation: Arc<Allocation>) -> Self {
        Self { view: View::whole(allocation), elements: PhantomData }
    }

    /// Identifies the allocation, as in the [accesses](crate::Graph::accesses) of nodes. Slices of a buffer
    /// have it in common.
    pub fn resource(&self) -> ResourceId {
        self.view.allocation.memory().resource()
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.view.len / size_of::<T>()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// The device it is pinned for.
    pub fn device(&self) -> &Device {
        self.view.allocation.device()
    }

    /// The elements in `range`, as a view of the same memory.
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
    /// Pinned host memory for `len` elements, zeroed. Mostly it is memory that an earlier host buffer has
    /// left: see [`host_pool_stats`](Self::host_pool_stats). Other memory comes from the driver, which may
    /// block as [`buffer`](Self::buffer) does.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn host_buffer<T: Pod>(&self, len: usize) -> Result<HostBuffer<T>> {
        HostBuffer::allocate(self, len)
    }

    /// Pinned host memory holding a copy of `elements`.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn host_buffer_from<T: Pod>(&self, elements: &[T]) -> Result<HostBuffer<T>> {
        let allocation = Allocation::on_host(self, byte_len::<T>(elements.len())?, false)?;
        allocation.initialise(bytemuck::cast_slice(elements))?;
        Ok(HostBuffer::whole(allocation))
    }

    /// Returns what the device's pool of host memory has done, and how much it keeps.
    ///
    /// The memory of a dropped [`HostBuffer`](crate::HostBuffer) is kept, once nothing uses it any more, for
    /// later host buffers of about the same size: these then need no call of the driver.
    /// [`trim`](Self::trim) gives it back to the system.
    ///
    /// ```
    /// # let device = wakegraph::Device::open("host:77")?;
    /// drop(device.host_buffer::<f32>(1 << 20)?);
    /// let again = device.host_buffer::<f32>(1 << 20)?;
    /// assert_eq!((device.host_pool_stats().allocations, device.host_pool_stats().reuses), (1, 1));
    /// # Ok::<(), wakegraph::Error>(())
    /// ```
    pub fn host_pool_stats(&self) -> HostPoolStats {
        self.host_pool().stats()
    }

    /// Sets how many bytes the device keeps for later host buffers at most: 256 MiB unless set, and 0 to
    /// free the memory of each host buffer with it. What is kept beyond that is freed, first of the sizes
    /// that have not been asked for for longest.
    pub fn set_host_pool_limit(&self, bytes: usize) {
        self.host_pool().set_limit(bytes);
    }
}

impl<T> Clone for HostBuffer<T> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), elements: PhantomData }
    }
}

impl<T> Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { allocation, offset, len } = &self.view;
        write!(f, "HostBuffer<{}>[{offset}..{}] of {allocation:?}", std::any::type_name::<T>(), offset + len)
    }
}

//! Memory that the application has as host memory of a device: of vectors, of mapped files, of other
//! libraries.
#![expect(unsafe_code, reason = "wraps memory that the caller, or its owner, vouches for")]

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use parking_lot::Mutex;
use wakegraph_hal::{Error, ErrorKind, Memory, ResourceId, Result, UserMemory};

use crate::runtime::resource::allocation::{Allocation, View, byte_len};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::util::deferred_drop::drop_later;

/// Memory of the application that copies read `len` elements of `T` from: a mapped file, a `Bytes`, a static.
/// Made by [`Device::register_source`].
///
/// It dereferences to the elements, which nothing writes as long as it lives. Clones and
/// [slices](Self::slice) are views of the same memory.
pub struct HostSource<T> {
    view: View,
    elements: PhantomData<fn() -> T>,
}

/// The registered ranges of addresses: the ends by the starts.
static RANGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A registered range, and what owns the memory.
struct Registration<O: Send + 'static> {
    start: usize,
    owner: Option<O>,
}

impl<O: Send + 'static> Registration<O> {
    /// # Errors
    /// When a part of the range is registered already. The owner is dropped then.
    fn new(start: usize, len: usize, owner: O) -> Result<Self> {
        let (end, mut ranges) = (start + len, RANGES.lock());
        let before_end = ranges.range(..end).next_back();
        if let Some((&other, &other_end)) = before_end.filter(|&(_, &other_end)| other_end > start) {
            drop(ranges);
            let why = format!(
                "the memory at {start:#x}..{end:#x} overlaps registered memory, at {other:#x}..{other_end:#x}"
            );
            let error = Error::new(ErrorKind::InvalidArgument, why);
            return Err(error.help("use the buffer of that registration: copies on all devices take it"));
        }
        ranges.insert(start, end);
        Ok(Self { start, owner: Some(owner) })
    }
}

impl<O: Send + 'static> Drop for Registration<O> {
    fn drop(&mut self) {
        // Before the memory is freed and can be registered again.
        RANGES.lock().remove(&self.start);
        // A value of the user's, and this may be a thread of the device.
        self.owner.take().into_iter().for_each(drop_later);
    }
}

/// A value in a place of its own, where it stays while what borrows from it is used by its address.
struct Pinned<O>(NonNull<O>);

// SAFETY: it owns the value, as a box does.
unsafe impl<O: Send> Send for Pinned<O> {}
// SAFETY: as for `Send`.
unsafe impl<O: Sync> Sync for Pinned<O> {}

impl<O> Pinned<O> {
    fn new(owner: O) -> Self {
        Self(NonNull::from(Box::leak(Box::new(owner))))
    }
}

impl<O> Drop for Pinned<O> {
    fn drop(&mut self) {
        // SAFETY: made of a box by `new`, dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Device {
    /// A host buffer of the `len` elements at `address`, which stay where they are: memory of another
    /// library, a file that is mapped for writing. `keep_alive` is dropped when nothing uses the memory any
    /// more, on another thread, and is mostly what owns it. Memory of a vector needs no `unsafe`:
    /// [`register_owned`](Self::register_owned).
    ///
    /// The driver pins the memory where it can (`cuMemHostRegister` on CUDA), which takes as long
    /// as allocating pinned memory. Copies then go directly between it and the device, and kernels
    /// may use it, on the CPU as well. On OpenCL, and where the driver refuses, it is for copies
    /// only, which the driver may stage.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a null address, one that is not aligned
    /// for `T`, and memory a part of which is registered already, on any device;
    /// [`InvalidSize`](ErrorKind::InvalidSize) for more elements than there are addresses; those of a
    /// lost device. The address of no elements may be any.
    ///
    /// # Safety
    /// Until `keep_alive` is dropped, the elements are valid for reads and writes on any thread, and nothing
    /// else uses them.
    pub unsafe fn register<T: Pod>(
        &self,
        address: usize,
        len: usize,
        keep_alive: impl Send + Sync + 'static,
    ) -> Result<HostBuffer<T>> {
        if len == 0 {
            return self.host_buffer(0);
        }
        // SAFETY: passed on to the caller.
        let memory = unsafe { self.registered::<T>(address, len, false, keep_alive) }?;
        Ok(HostBuffer::whole(Allocation::of(self, memory)))
    }

    /// A host buffer of the elements of `owner`, a `Vec<T>` or a `Box<[T]>` for example, which stay
    /// where they are. The owner is dropped when nothing uses the memory any more, on another
    /// thread, and at once in case of an error. See [`register`](Self::register) for what can be
    /// done with the buffer.
    ///
    /// ```
    /// # use wakegraph::{Device, Graph};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let samples: Vec<f32> = vec![1.0; 1 << 20];
    /// let input = device.register_owned(samples)?;
    /// let x = device.buffer::<f32>(input.len())?;
    /// let mut graph = Graph::new(&device);
    /// graph.copy(&input, &x);
    /// graph.finalize()?.submit().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`register`](Self::register).
    pub fn register_owned<T, O>(&self, owner: O) -> Result<HostBuffer<T>>
    where
        T: Pod + Send + Sync,
        O: AsMut<[T]> + Send + Sync + 'static,
    {
        let mut owner = Pinned::new(owner);
        // SAFETY: nothing else refers to the owner, now or later.
        let elements = unsafe { owner.0.as_mut() }.as_mut();
        let (address, len) = (elements.as_mut_ptr().expose_provenance(), elements.len());
        // SAFETY: the elements are borrowed from the owner for as long as it lives, for writing.
        unsafe { self.register(address, len, owner) }
    }

    /// The elements of `owner`, a `Bytes`, a mapped file, a `Vec<T>` or a `&'static [T]` for example, as a
    /// source of copies. They stay where they are, and nothing writes them. The owner is dropped when nothing
    /// uses the memory any more, on another thread, and at once in case of an error.
    ///
    /// The driver pins the memory where it can, as for [`register`](Self::register). Copies on all devices
    /// take it.
    ///
    /// ```
    /// # use wakegraph::{Device, Graph};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let received = bytes::Bytes::from(vec![7; 16]);
    /// let input = device.register_source(received.clone())?;
    /// let x = device.buffer::<u8>(16)?;
    /// let mut graph = Graph::new(&device);
    /// graph.copy(&input, &x);
    /// graph.finalize()?.submit().await?;
    /// assert_eq!(x.to_vec().await?, received);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`register`](Self::register).
    pub fn register_source<T, O>(&self, owner: O) -> Result<HostSource<T>>
    where
        T: Pod + Send + Sync,
        O: AsRef<[T]> + Send + Sync + 'static,
    {
        let owner = Pinned::new(owner);
        // SAFETY: nothing refers to the owner mutably, now or later.
        let elements = unsafe { owner.0.as_ref() }.as_ref();
        let (address, len) = (elements.as_ptr().expose_provenance(), elements.len());
        if len == 0 {
            return Ok(HostSource::of(self.host_buffer::<T>(0)?.view().clone()));
        }
        // SAFETY: the elements are borrowed from the owner for as long as it lives, for reading.
        let memory = unsafe { self.registered::<T>(address, len, true, owner) }?;
        let allocation = Allocation::read_only(self, memory);
        Ok(HostSource::of(View::whole(allocation)))
    }

    /// # Safety
    /// Until `keep_alive` is dropped, the elements are valid on any thread, for reads, and nothing
    /// else writes them; unless they are read-only they are valid for writes, too, and nothing else
    /// reads them.
    unsafe fn registered<T: Pod>(
        &self,
        address: usize,
        len: usize,
        is_read_only: bool,
        keep_alive: impl Send + Sync + 'static,
    ) -> Result<Arc<dyn Memory>> {
        let bytes = byte_len::<T>(len)?;
        let invalid = |why| Error::new(ErrorKind::InvalidArgument, why);
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address));
        let start = start.ok_or_else(|| invalid("memory at a null address cannot be registered"))?;
        if !address.is_multiple_of(align_of::<T>()) {
            return Err(invalid("the address is not aligned for the elements"));
        }
        if address.checked_add(bytes).is_none() {
            return Err(Error::new(ErrorKind::InvalidSize, "the memory ends beyond the address space"));
        }
        let owner = Box::new(Registration::new(address, bytes, keep_alive)?);
        // SAFETY: the caller vouches for the bytes, as long as the owner lives.
        let memory = unsafe { UserMemory::new(start, bytes, is_read_only, owner) };
        self.observe(self.hal().register(memory))
    }
}

impl<T: Pod> HostSource<T> {
    fn of(view: View) -> Self {
        Self { view, elements: PhantomData }
    }

    /// Identifies the memory, as in the [accesses](crate::Graph::accesses) of nodes. Slices have it
    /// in common.
    pub fn resource(&self) -> ResourceId {
        self.view.allocation.memory().resource()
    }

    /// The device it is registered for. Copies on other devices take it as well.
    pub fn device(&self) -> &Device {
        self.view.allocation.device()
    }

    /// The elements in `range`, as a view of the same memory.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when the range is not inside the memory.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self::of(self.view.slice(range, size_of::<T>())?))
    }

    /// Returns the same bytes as elements of another type: of numbers in a mapped file, for example.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when they are not whole elements of `U`;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when they are not aligned for `U`.
    pub fn cast<U: Pod>(&self) -> Result<HostSource<U>> {
        match bytemuck::try_cast_slice::<T, U>(self) {
            Ok(_) => Ok(HostSource::of(self.view.clone())),
            Err(error) => {
                let kind = match error {
                    bytemuck::PodCastError::TargetAlignmentGreaterAndInputNotAligned => {
                        ErrorKind::InvalidArgument
                    }
                    _ => ErrorKind::InvalidSize,
                };
                let why = format!("{} bytes as elements of {}", self.view.len, std::any::type_name::<U>());
                Err(Error::new(kind, format!("{why}: {error}")))
            }
        }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }
}

impl<T: Pod> Deref for HostSource<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let Some(start) = self.view.allocation.memory().host_ptr() else { return &[] };
        // SAFETY: the offset is inside the memory.
        let start = unsafe { start.add(self.view.offset) };
        // SAFETY: registered memory is aligned for its elements, lives as long as this, and is written by
        // nothing: nodes and commands of queues are refused it as what they write.
        unsafe { std::slice::from_raw_parts(start.cast().as_ptr(), self.view.len / size_of::<T>()) }
    }
}

impl<T> Clone for HostSource<T> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), elements: PhantomData }
    }
}

impl<T> Debug for HostSource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { allocation, offset, len } = &self.view;
        write!(f, "HostSource<{}>[{offset}..{}] of {allocation:?}", std::any::type_name::<T>(), offset + len)
    }
}

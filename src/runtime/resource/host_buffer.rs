//! Typed host memory that devices can copy from and to.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

use crate::hal::MemoryKind;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::fence::GateLease;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::device::Device;
use crate::types::{AccessMode, Error, ErrorKind, Result};

/// Pinned host memory holding `len` elements of `T`: the host's side of copies, and what host tasks
/// read and write.
///
/// Clones and [slices](Self::slice) are views of the same memory. Outside graphs it is used through
/// [`read`](Self::read) and [`write`](Self::write), which wait for the submissions in flight that
/// conflict, and which later submissions wait for: no data race is possible.
///
/// New memory is zeroed.
pub struct HostBuffer<T> {
    view: View,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> HostBuffer<T> {
    pub(crate) fn allocate(device: &Device, len: usize) -> Result<Self> {
        let bytes = byte_len::<T>(len)?;
        let allocation = Allocation::new(device, MemoryKind::Host, bytes)?;
        Ok(Self { view: View { allocation, offset: 0, len: bytes }, elements: PhantomData })
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.view.len / size_of::<T>()
    }

    /// Never true: buffers of 0 elements are refused.
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// The device it is pinned for.
    pub fn device(&self) -> &Device {
        self.view.allocation.device()
    }

    /// The elements in `range`, as a view of the same memory.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when the range is empty or not inside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { view: self.view.slice(range, size_of::<T>())?, elements: PhantomData })
    }

    /// Reads: waits until no submission and no other guard writes the elements, then holds later
    /// writers off until the guard is dropped.
    ///
    /// Do not await a submission that writes the buffer while holding the guard: it waits for the guard.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    pub async fn read(&self) -> HostRef<T> {
        let lease = self.acquire(AccessMode::Read).await;
        HostRef::new(&self.view, lease)
    }

    /// Writes: waits until no submission and no other guard uses the elements, then holds later
    /// users off until the guard is dropped.
    ///
    /// Do not await a submission that uses the buffer while holding the guard: it waits for the guard.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    pub async fn write(&self) -> HostMut<T> {
        let lease = self.acquire(AccessMode::ReadWrite).await;
        HostMut(HostRef::new(&self.view, lease))
    }

    /// Reads without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) while a submission or a guard may write the elements.
    pub fn try_read(&self) -> Result<HostRef<T>> {
        Ok(HostRef::new(&self.view, self.try_acquire(AccessMode::Read)?))
    }

    /// Writes without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) while a submission or a guard may use the elements.
    pub fn try_write(&self) -> Result<HostMut<T>> {
        Ok(HostMut(HostRef::new(&self.view, self.try_acquire(AccessMode::ReadWrite)?)))
    }

    async fn acquire(&self, mode: AccessMode) -> Lease {
        let (lease, predecessors) = conflicts::acquire(&self.view, mode);
        for predecessor in predecessors {
            predecessor.finished().await;
        }
        Lease::Gate { _lease: lease }
    }

    fn try_acquire(&self, mode: AccessMode) -> Result<Lease> {
        let lease = conflicts::try_acquire(&self.view, mode).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, "the host buffer is in use by a submission or a guard")
                .help("await `read()` or `write()` instead, or await the submission first")
        })?;
        Ok(Lease::Gate { _lease: lease })
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
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

/// What `hal::Memory::host_ptr` promises.
const ALIGNMENT: usize = 64;

/// The bytes of `len` elements of `T`.
pub(crate) fn byte_len<T>(len: usize) -> Result<usize> {
    if align_of::<T>() > ALIGNMENT {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "{} is aligned to more than the {ALIGNMENT} bytes of allocations",
                std::any::type_name::<T>()
            ),
        ));
    }
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(Error::new(
            ErrorKind::InvalidSize,
            format!("a buffer of {len} elements of {} bytes cannot be allocated", size_of::<T>()),
        )),
    }
}

/// What gives a guard the right to the memory; given back by dropping it.
pub(crate) enum Lease {
    /// A place in the order between submissions.
    Gate { _lease: GateLease },
    /// A running host task, which is complete only when its views are dropped.
    HostTask { _lease: Arc<dyn Send + Sync> },
}

/// Shared access to a [`HostBuffer`]'s elements: dereferences to `[T]`.
///
/// Inside a host task it is a view of a declared access. It may be moved anywhere, also into
/// another task: the host task is complete when its future has finished and its views are dropped.
pub struct HostRef<T> {
    elements: *const T,
    len: usize,
    _lease: Lease,
    _allocation: Arc<Allocation>,
}

/// Exclusive access to a [`HostBuffer`]'s elements: dereferences to `[T]`. See [`HostRef`].
pub struct HostMut<T>(HostRef<T>);

impl<T: Pod> HostRef<T> {
    /// The caller's lease covers the view: shared for a `HostRef`, exclusive when it is put into a `HostMut`.
    pub(crate) fn new(view: &View, lease: Lease) -> Self {
        let base =
            view.allocation.memory().host_ptr().map_or(std::ptr::null(), |base| base.as_ptr().cast_const());
        Self {
            elements: base.wrapping_add(view.offset).cast(),
            // Host memory always has an address; without one there is nothing to see.
            len: if base.is_null() { 0 } else { view.len / size_of::<T>() },
            _lease: lease,
            _allocation: view.allocation.clone(),
        }
    }
}

impl<T: Pod> HostMut<T> {
    /// The caller's lease covers the view exclusively.
    pub(crate) fn new(view: &View, lease: Lease) -> Self {
        Self(HostRef::new(view, lease))
    }
}

#[expect(unsafe_code, reason = "guards turn leased host memory into slices")]
mod slices {
    use super::{Deref, DerefMut, HostMut, HostRef};

    // SAFETY: a guard is a `&[T]` or `&mut [T]` with an owned lease; leases may end on any thread.
    unsafe impl<T: Send + Sync> Send for HostRef<T> {}
    // SAFETY: as above; sharing a guard shares `&[T]`.
    unsafe impl<T: Send + Sync> Sync for HostRef<T> {}

    impl<T> Deref for HostRef<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            if self.len == 0 {
                return &[];
            }
            // SAFETY: the view lies inside the allocation, which the guard keeps alive; allocations
            // are aligned to 64 bytes and views are made of whole elements; the lease keeps writers
            // away; `T: Pod` when it was made.
            unsafe { std::slice::from_raw_parts(self.elements, self.len) }
        }
    }

    impl<T> Deref for HostMut<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }

    impl<T> DerefMut for HostMut<T> {
        fn deref_mut(&mut self) -> &mut [T] {
            if self.0.len == 0 {
                return &mut [];
            }
            // SAFETY: as in `HostRef::deref`, and the lease is exclusive; the pointer stems from a
            // mutable one.
            unsafe { std::slice::from_raw_parts_mut(self.0.elements.cast_mut(), self.0.len) }
        }
    }
}

impl<T: Debug> Debug for HostRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Debug> Debug for HostMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

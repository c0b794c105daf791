//! Guards: the host's access to the elements of a [`HostBuffer`](crate::HostBuffer).

use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;

use crate::runtime::execution::fence::FenceGuard;
use crate::runtime::resource::allocation::{Allocation, View};

/// What gives a guard the right to the memory; given back by dropping it.
pub(crate) enum Lease {
    /// A place in the order between submissions.
    Fence { _guard: FenceGuard },
    /// A running host task, which is complete only when its views are dropped.
    HostTask { _lease: Arc<dyn Send + Sync> },
}

/// Shared access to a [`HostBuffer`](crate::HostBuffer)'s elements: dereferences to `[T]`.
///
/// Inside a host task it is a view of a declared access. It may be moved anywhere, also into
/// another task: the host task is complete when its future has finished and its views are dropped.
pub struct HostRef<T> {
    elements: *const T,
    len: usize,
    _lease: Lease,
    _allocation: Arc<Allocation>,
}

/// Exclusive access to a [`HostBuffer`](crate::HostBuffer)'s elements: dereferences to `[T]`. See
/// [`HostRef`].
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

impl<T: Pod> HostRef<T> {
    pub(super) fn into_bytes_guard(self) -> HostRef<u8> {
        let Self { elements, len, _lease, _allocation } = self;
        HostRef { elements: elements.cast(), len: len * size_of::<T>(), _lease, _allocation }
    }
}

impl<T: Pod> HostMut<T> {
    pub(super) fn into_bytes_guard(self) -> HostMut<u8> {
        HostMut(self.0.into_bytes_guard())
    }

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
            // are aligned to 64 bytes, or for `T` if they are registered memory, and views are made of
            // whole elements; the lease keeps writers away; `T: Pod` when it was made.
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

/// With bytes as elements, what `bytes::Bytes::from_owner` takes: a response's body without a copy.
impl<T> AsRef<[T]> for HostRef<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

/// As for [`HostRef`].
impl<T> AsRef<[T]> for HostMut<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for HostMut<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
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

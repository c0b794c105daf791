//! Objects of a driver, destroyed when dropped.
#![expect(unsafe_code, reason = "destroys objects of drivers")]

use std::fmt::Debug;

/// A kind of object.
///
/// # Safety
/// Objects of this kind may be used and destroyed on any thread. Where the driver takes one call at a
/// time for an object, its owners see to it.
pub(crate) unsafe trait ObjectKind: 'static {
    /// What the driver calls an object.
    type Handle: Copy + Debug;
    /// The driver's functions.
    type Functions: Debug + Sync + 'static;

    /// Destroys an object, or gives up a reference to it. A failure goes to tracing.
    ///
    /// # Safety
    /// The object, or the reference, is the caller's, who does not use it any more.
    unsafe fn destroy(functions: &'static Self::Functions, handle: Self::Handle);
}

/// An object of the driver, or a reference to one. When it is dropped, nothing uses it any more, and
/// what it belongs to is still there.
#[derive(Debug)]
pub(crate) struct Owned<K: ObjectKind> {
    handle: K::Handle,
    functions: &'static K::Functions,
}

// SAFETY: the kind promises it.
unsafe impl<K: ObjectKind> Send for Owned<K> {}
// SAFETY: as for `Send`.
unsafe impl<K: ObjectKind> Sync for Owned<K> {}

impl<K: ObjectKind> Owned<K> {
    /// Takes over an object, or a reference to one.
    ///
    /// # Safety
    /// `handle` is that of a live object of this kind, and nothing else gives up the same reference.
    pub(crate) unsafe fn new(functions: &'static K::Functions, handle: K::Handle) -> Self {
        Self { handle, functions }
    }

    /// The object, for calls. It is valid while `self` lives.
    pub(crate) fn raw(&self) -> K::Handle {
        self.handle
    }
}

impl<K: ObjectKind> Drop for Owned<K> {
    fn drop(&mut self) {
        // SAFETY: the object, or the reference, is this object's own, and given up once.
        unsafe { K::destroy(self.functions, self.handle) }
    }
}

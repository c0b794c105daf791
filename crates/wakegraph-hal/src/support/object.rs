//! Objects of a driver, destroyed when dropped.
#![expect(unsafe_code, reason = "destroys objects of drivers")]

use std::fmt::Debug;

/// A kind of object.
///
/// # Safety
/// Objects of this kind may be used and destroyed on any thread. Where the driver takes one call at a
/// time for an object, its owners see to it.
pub unsafe trait ObjectKind: Debug + 'static {
    /// What the driver calls an object.
    type Handle: Copy + Debug;
    /// What objects need for as long as they live: the driver's functions, or a context that has them.
    type Owner: Debug + Send + Sync + 'static;

    /// Destroys an object, or gives up a reference to it. A failure goes to tracing.
    ///
    /// # Safety
    /// The object, or the reference, is the caller's, who does not use it any more.
    unsafe fn destroy(owner: &Self::Owner, handle: Self::Handle);
}

/// An object of the driver, or a reference to one. When it is dropped, nothing uses it any more, and
/// what it belongs to is still there.
#[derive(Debug)]
pub struct Owned<K: ObjectKind> {
    handle: K::Handle,
    owner: K::Owner,
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
    pub unsafe fn new(owner: K::Owner, handle: K::Handle) -> Self {
        Self { handle, owner }
    }

    /// The object, for calls. It is valid while `self` lives.
    pub fn raw(&self) -> K::Handle {
        self.handle
    }

    /// What the object needs while it lives.
    pub fn owner(&self) -> &K::Owner {
        &self.owner
    }
}

impl<K: ObjectKind> Drop for Owned<K> {
    fn drop(&mut self) {
        // SAFETY: the object, or the reference, is this object's own, and given up once.
        unsafe { K::destroy(&self.owner, self.handle) }
    }
}

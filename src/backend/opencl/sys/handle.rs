//! Objects of the driver, released when dropped.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use opencl_sys::{CL_SUCCESS, cl_int};

use super::Core;

/// The release function of a kind of object.
type Release = Option<unsafe extern "C" fn(*mut c_void) -> cl_int>;

/// A kind of object.
pub(in crate::backend::opencl) trait ObjectKind: 'static {
    /// The function that releases it, and that function's name.
    fn release(core: &Core) -> (Release, &'static str);
}

/// One reference to an object of the driver.
#[derive(Debug)]
pub(in crate::backend::opencl) struct Owned<K: ObjectKind> {
    raw: NonNull<c_void>,
    core: &'static Core,
    kind: PhantomData<K>,
}

// SAFETY: OpenCL's objects may be used and released on any thread. The one exception, setting
// arguments of a kernel while it is used, is up to the kernel's owner (`kernel.rs`).
unsafe impl<K: ObjectKind> Send for Owned<K> {}
// SAFETY: as for `Send`.
unsafe impl<K: ObjectKind> Sync for Owned<K> {}

impl<K: ObjectKind> Owned<K> {
    /// Takes over a reference.
    ///
    /// # Safety
    /// `raw` is an object of this kind, and the caller's reference to it is given up.
    pub(in crate::backend::opencl) unsafe fn new(core: &'static Core, raw: NonNull<c_void>) -> Self {
        Self { raw, core, kind: PhantomData }
    }

    /// The object, for calls. It is valid while `self` lives.
    pub(in crate::backend::opencl) fn raw(&self) -> *mut c_void {
        self.raw.as_ptr()
    }
}

impl<K: ObjectKind> Drop for Owned<K> {
    fn drop(&mut self) {
        let (release, call) = K::release(self.core);
        let Some(release) = release else { return };
        // SAFETY: the reference is this object's own, and given up once.
        let code = unsafe { release(self.raw.as_ptr()) };
        if code != CL_SUCCESS {
            tracing::warn!(target: "wakegraph::opencl", call, code, "an object could not be released");
        }
    }
}

macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident: $release:ident),+ $(,)?) => {
        $(
            $(#[$attribute])*
            #[derive(Debug)]
            pub(in crate::backend::opencl) struct $kind;

            impl ObjectKind for $kind {
                fn release(core: &Core) -> (Release, &'static str) {
                    (core.$release, stringify!($release))
                }
            }
        )+
    };
}

kinds! {
    /// A part of a device.
    SubDevice: clReleaseDevice,
    /// The devices that share memory and events.
    Context: clReleaseContext,
    /// A queue.
    CommandQueue: clReleaseCommandQueue,
    /// A buffer or part of one.
    MemObject: clReleaseMemObject,
    /// A program.
    Program: clReleaseProgram,
    /// A kernel with its arguments.
    Kernel: clReleaseKernel,
    /// Completion of one enqueued command.
    Event: clReleaseEvent,
}

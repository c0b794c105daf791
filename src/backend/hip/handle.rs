//! Objects of the driver, destroyed when dropped.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use super::context::HipContext;
use super::sys::{
    Code, Driver, HipFailure, hipGraphExec, ihipEvent_t, ihipGraph, ihipMemPoolHandle_t, ihipModule_t,
    ihipStream_t, outcome,
};

/// An object of the driver. It keeps the context alive.
#[derive(Debug)]
pub(super) struct HipObject<T: HipObjectKind> {
    raw: *mut T,
    context: Arc<HipContext>,
}

// SAFETY: any thread may use the driver's objects. Graphs, of which the driver takes one call at a
// time, are behind locks or exclusive references.
unsafe impl<T: HipObjectKind> Send for HipObject<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: HipObjectKind> Sync for HipObject<T> {}

/// What the driver's handles of a kind of object point to.
pub(super) trait HipObjectKind: 'static {
    /// Whether that function waits for what is in flight.
    const DESTROY_WAITS: bool;

    /// The function that destroys an object, and that function's name.
    fn destroy(driver: &Driver) -> (unsafe extern "C" fn(*mut Self) -> Code, &'static str);
}

impl<T: HipObjectKind> HipObject<T> {
    /// The object that `make` creates and writes to a place, with the context bound.
    pub(super) fn create_by(
        context: &Arc<HipContext>,
        make: impl FnOnce(&Driver, *mut *mut T) -> Result<(), HipFailure>,
    ) -> Result<Self, HipFailure> {
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        make(context.driver, &raw mut raw)?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Takes over an object that the driver has made, if it has.
    pub(super) fn adopt(context: &Arc<HipContext>, raw: *mut T) -> Option<Self> {
        (!raw.is_null()).then(|| Self { raw, context: Arc::clone(context) })
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> *mut T {
        self.raw
    }

    pub(super) fn context(&self) -> &Arc<HipContext> {
        &self.context
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.context.driver
    }
}

impl<T: HipObjectKind> Drop for HipObject<T> {
    /// Work in flight that uses the object goes on: the driver keeps events and instantiated graphs
    /// until then. Streams, code and pools are destroyed where that may wait.
    fn drop(&mut self) {
        let (destroy, call) = T::destroy(self.context.driver);
        if T::DESTROY_WAITS {
            let raw = self.raw.expose_provenance();
            self.context.releases.later(move |_| {
                // SAFETY: this object owns the driver's, which is destroyed once.
                outcome(call, unsafe { destroy(ptr::with_exposed_provenance_mut(raw)) })
            });
            return;
        }
        self.context.destroy(|| {
            // SAFETY: this object owns the driver's, which is destroyed once.
            outcome(call, unsafe { destroy(self.raw) })
        });
    }
}

macro_rules! kinds {
    ($($kind:ident: $destroy:ident, waits: $waits:literal;)+) => {
        $(impl HipObjectKind for $kind {
            const DESTROY_WAITS: bool = $waits;

            fn destroy(driver: &Driver) -> (unsafe extern "C" fn(*mut Self) -> Code, &'static str) {
                (driver.$destroy, stringify!($destroy))
            }
        })+
    };
}

kinds! {
    ihipStream_t: hipStreamDestroy, waits: true;
    ihipEvent_t: hipEventDestroy, waits: false;
    ihipGraph: hipGraphDestroy, waits: false;
    hipGraphExec: hipGraphExecDestroy, waits: false;
    ihipMemPoolHandle_t: hipMemPoolDestroy, waits: true;
    ihipModule_t: hipModuleUnload, waits: true;
}

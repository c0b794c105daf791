//! The kinds of objects of the driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::object::{ObjectKind, Owned};
use wakegraph_hal::support::streams::DriverContext as _;

use super::context::HipContext;
use super::idle_streams::destroy_later;
use super::sys::{
    call, hipGraphExec, ihipEvent_t, ihipGraph, ihipMemPoolHandle_t, ihipModule_t, ihipStream_t,
};

/// An object of the driver. It keeps the context alive.
///
/// Work in flight that uses a dropped object goes on: the driver keeps events and instantiated graphs
/// until then. Code and pools are destroyed where that may wait; streams are used again.
pub(super) type HipObject<T> = Owned<T>;

macro_rules! kinds {
    (at_once: { $($kind:ident: $destroy:ident,)+ } waiting: { $($late:ident: $destroy_late:ident,)+ }) => {
        $(
            // SAFETY: any thread may use the driver's objects. Graphs, of which the driver takes one call
            // at a time, are behind locks or exclusive references.
            unsafe impl ObjectKind for $kind {
                type Handle = *mut Self;
                type Owner = Arc<HipContext>;

                unsafe fn destroy(context: &Arc<HipContext>, object: *mut Self) {
                    context.destroy(|| {
                        // SAFETY: passed on to the caller.
                        unsafe { call!(context.driver, $destroy(object)) }
                    });
                }
            }
        )+
        $(
            // SAFETY: any thread may use the driver's objects.
            unsafe impl ObjectKind for $late {
                type Handle = *mut Self;
                type Owner = Arc<HipContext>;

                unsafe fn destroy(context: &Arc<HipContext>, object: *mut Self) {
                    let object = object.expose_provenance();
                    context.releases.later(move |driver| {
                        // SAFETY: passed on to the caller.
                        unsafe { call!(driver, $destroy_late(ptr::with_exposed_provenance_mut(object))) }
                    });
                }
            }
        )+
    };
}

kinds! {
    at_once: {
        ihipEvent_t: hipEventDestroy,
        ihipGraph: hipGraphDestroy,
        hipGraphExec: hipGraphExecDestroy,
    }
    waiting: {
        ihipMemPoolHandle_t: hipMemPoolDestroy,
        ihipModule_t: hipModuleUnload,
    }
}

// SAFETY: any thread may use a stream.
unsafe impl ObjectKind for ihipStream_t {
    type Handle = *mut Self;
    type Owner = Arc<HipContext>;

    /// Keeps an idle stream for another use.
    unsafe fn destroy(context: &Arc<HipContext>, stream: *mut Self) {
        let is_kept = context.bind().and_then(|_bound| {
            // SAFETY: passed on to the caller.
            unsafe { context.idle_streams.keep(context.driver, stream) }
        });
        if !is_kept.unwrap_or(false) {
            // SAFETY: passed on to the caller.
            unsafe { destroy_later(&context.releases, stream) }
        }
    }
}

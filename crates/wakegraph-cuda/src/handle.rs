//! The kinds of objects of the driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;

use wakegraph_hal::support::object::{ObjectKind, Owned};
use wakegraph_hal::support::streams::DriverContext as _;

use super::context::CudaContext;
use super::sys::{CUevent_st, CUgraph_st, CUgraphExec_st, CUmemPoolHandle_st, CUmod_st, CUstream_st, call};

/// An object of the driver. It keeps the context alive.
///
/// Work in flight that uses a dropped object goes on: the driver keeps streams, events and
/// instantiated graphs until then. Code and pools are dropped after all that uses them.
pub(super) type CudaObject<T> = Owned<T>;

macro_rules! kinds {
    ($($kind:ident: $destroy:ident),+ $(,)?) => {$(
        // SAFETY: any thread may use the driver's objects. Graphs, of which the driver takes one call at a
        // time, are behind locks or exclusive references.
        unsafe impl ObjectKind for $kind {
            type Handle = *mut Self;
            type Owner = Arc<CudaContext>;

            unsafe fn destroy(context: &Arc<CudaContext>, object: *mut Self) {
                context.destroy(|| {
                    // SAFETY: passed on to the caller.
                    unsafe { call!(context.driver, $destroy(object)) }
                });
            }
        }
    )+};
}

kinds! {
    CUstream_st: cuStreamDestroy,
    CUevent_st: cuEventDestroy,
    CUgraph_st: cuGraphDestroy,
    CUgraphExec_st: cuGraphExecDestroy,
    CUmemPoolHandle_st: cuMemPoolDestroy,
    CUmod_st: cuModuleUnload,
}

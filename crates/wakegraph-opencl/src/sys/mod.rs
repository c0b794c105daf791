//! OpenCL's types, constants and functions. No other file names the library or its symbols.
//!
//! `opencl-sys` has the declarations. This module loads the functions itself instead of using `cl3`,
//! for three reasons: `cl3` asks the driver for an event at every enqueue, which a replayed
//! list needs for its last command only; its table declares the functions with Rust's calling
//! convention; and extension functions have to be requested by platform, or a loader does not find
//! them.
#![expect(unsafe_code, reason = "loads the library and calls it")]

mod handle;
mod table;

use std::ffi::c_void;
use std::ptr::NonNull;

pub(super) use handle::{CommandQueue, Context, Event, Kernel, MemObject, Program, SubDevice, report};
pub(super) use opencl_sys::*;
pub(super) use table::{Core, Extensions, core};
use wakegraph_hal::support::object::ObjectKind;
pub(super) use wakegraph_hal::support::object::Owned;

/// Calls a function of the core table or of the extensions: `Ok` where it returned success.
///
/// Expands to one unsafe operation.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            Some(function) => {
                $crate::sys::outcome(stringify!($function), function($($argument),*))
            }
            None => Err($crate::sys::missing(stringify!($function))),
        }
    };
}

/// Calls a function that returns an address, and an error code through its last argument.
///
/// Expands to one unsafe operation.
macro_rules! get {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            Some(function) => {
                let mut code = $crate::sys::CL_SUCCESS;
                let raw = function($($argument,)* &raw mut code);
                $crate::sys::object(stringify!($function), code, raw)
            }
            None => Err($crate::sys::missing(stringify!($function))),
        }
    };
}

/// Calls a core function that creates an object, and takes over the object.
///
/// Expands to one unsafe operation.
macro_rules! create {
    ($core:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::sys::get!($core, $function($($argument),*))
            .map(|object| $crate::sys::adopt($core, object))
    };
}

pub(super) use call;
pub(super) use create;
pub(super) use get;

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenclFailure {
    /// The function.
    pub(super) call: &'static str,
    /// The code that it returned.
    pub(super) code: cl_int,
}

pub(super) type DriverResult<T = ()> = Result<T, OpenclFailure>;

/// The code for a function that the library does not have; not one of OpenCL's.
pub(super) const MISSING_FUNCTION: cl_int = cl_int::MIN;

pub(super) fn outcome(call: &'static str, code: cl_int) -> DriverResult {
    if code == CL_SUCCESS { Ok(()) } else { Err(OpenclFailure { call, code }) }
}

#[cold]
pub(super) fn missing(call: &'static str) -> OpenclFailure {
    OpenclFailure { call, code: MISSING_FUNCTION }
}

/// A driver that reports success without an object has run out of memory.
pub(super) fn object(call: &'static str, code: cl_int, raw: *mut c_void) -> DriverResult<NonNull<c_void>> {
    outcome(call, code)?;
    NonNull::new(raw).ok_or(OpenclFailure { call, code: CL_OUT_OF_HOST_MEMORY })
}

/// Takes over an object that a call has just created, or a reference that it has taken.
pub(super) fn adopt<K>(core: &'static Core, object: NonNull<c_void>) -> Owned<K>
where
    K: ObjectKind<Handle = *mut c_void, Owner = &'static Core>,
{
    // SAFETY: the driver has given the reference to the caller, who passes it on.
    unsafe { Owned::new(core, object.as_ptr()) }
}

/// Takes over the event that an enqueue has returned.
pub(super) fn adopt_event(core: &'static Core, event: cl_event) -> DriverResult<Owned<Event>> {
    Ok(adopt(core, object("clEnqueue*", CL_SUCCESS, event)?))
}

/// A list as the driver expects it: its length, and a null pointer if it is empty.
pub(super) fn list<T>(items: &[T]) -> (cl_uint, *const T) {
    let address = if items.is_empty() { std::ptr::null() } else { items.as_ptr() };
    (items.len() as cl_uint, address)
}

//! OpenCL's types, constants and functions: the only place that names the vendor's symbols' libraries.
//!
//! `opencl-sys` has the declarations. The functions are looked up here rather than through `cl3`,
//! for three reasons: its enqueues ask the driver for an event each time, which a replayed list
//! needs for its last command only; its table declares them with Rust's calling convention; and
//! extension functions must be asked for by platform, or they are not found behind a loader.
#![expect(unsafe_code, reason = "loads the library and calls it")]

mod extensions;
mod handle;
mod table;

pub(super) use extensions::{Extensions, OldExtensions, load as load_extensions};
pub(super) use handle::{CommandQueue, Context, Event, Kernel, MemObject, Owned, Program, SubDevice};
pub(super) use opencl_sys::*;
pub(super) use table::{Core, core};

/// Calls a function of the core table or of an extension: `Ok` where it returned success.
///
/// Expands to one unsafe operation.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            Some(function) => $crate::backend::opencl::sys::outcome(stringify!($function), function($($argument),*)),
            None => Err($crate::backend::opencl::sys::missing(stringify!($function))),
        }
    };
}

/// Calls a function that returns an object, and its code through a last argument.
///
/// Expands to one unsafe operation.
macro_rules! create {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            Some(function) => {
                let mut code = $crate::backend::opencl::sys::CL_SUCCESS;
                let raw = function($($argument,)* &raw mut code);
                $crate::backend::opencl::sys::object(stringify!($function), code, raw)
            }
            None => Err($crate::backend::opencl::sys::missing(stringify!($function))),
        }
    };
}

pub(super) use {call, create};

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    /// The function.
    pub(super) call: &'static str,
    /// What it returned.
    pub(super) code: cl_int,
}

/// The code for a function that the library does not have; not one of OpenCL's.
pub(super) const MISSING_FUNCTION: cl_int = cl_int::MIN;

pub(super) fn outcome(call: &'static str, code: cl_int) -> Result<(), Failure> {
    if code == CL_SUCCESS { Ok(()) } else { Err(Failure { call, code }) }
}

#[cold]
pub(super) fn missing(call: &'static str) -> Failure {
    Failure { call, code: MISSING_FUNCTION }
}

/// A driver that says success and gives no object has no memory left.
pub(super) fn object(
    call: &'static str,
    code: cl_int,
    raw: *mut std::ffi::c_void,
) -> Result<std::ptr::NonNull<std::ffi::c_void>, Failure> {
    outcome(call, code)?;
    std::ptr::NonNull::new(raw).ok_or(Failure { call, code: CL_OUT_OF_HOST_MEMORY })
}

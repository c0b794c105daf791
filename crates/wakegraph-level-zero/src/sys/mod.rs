//! The vendor's types, and the functions of its loader: the only place that names them.
#![expect(unsafe_code, reason = "loads the library and calls it")]

mod handle;
#[cfg(test)]
mod headers;
mod library;
mod ocloc;
mod table;
mod types;

pub(super) use handle::{BuildLog, CommandList, CommandQueue, Context, Event, EventPool, Kernel, Module};
pub(super) use library::{NoLibrary, api};
pub(super) use ocloc::{Ocloc, ocloc};
pub(super) use table::Api;
pub(super) use types::*;
pub(super) use wakegraph_hal::support::object::Owned;

/// Calls a function of the table: `Ok` where it returned success. Everything else is a failure,
/// which includes [`ZE_RESULT_NOT_READY`].
///
/// Expands to one unsafe operation.
macro_rules! call {
    ($api:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::sys::outcome(stringify!($function), ($api.$function)($($argument),*))
    };
}

/// Calls a function of the table that writes its result, such as a handle, to the place that its
/// last argument names: the result where it returned success.
///
/// Expands to one unsafe operation. The place is valid.
macro_rules! get {
    ($api:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let mut result = bytemuck::Zeroable::zeroed();
        $crate::sys::call!($api, $function($($argument,)* &raw mut result))
            .map(|()| result)
    }};
}

/// Calls a function of the table that fills a structure, which the last argument names and which
/// says what it is: the structure where it returned success.
///
/// Expands to one unsafe operation. The place is valid.
macro_rules! fill {
    ($api:expr, $function:ident($($argument:expr),* $(,)?), $structure:expr) => {{
        let mut result = $structure;
        $crate::sys::call!($api, $function($($argument,)* &raw mut result))
            .map(|()| result)
    }};
}

pub(super) use call;
pub(super) use fill;
pub(super) use get;

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LevelZeroFailure {
    /// The function.
    pub(super) call: &'static str,
    /// What it returned.
    pub(super) code: ze_result_t,
}

pub(super) type DriverResult<T = ()> = Result<T, LevelZeroFailure>;

pub(super) fn outcome(call: &'static str, code: ze_result_t) -> DriverResult {
    if code == ZE_RESULT_SUCCESS { Ok(()) } else { Err(LevelZeroFailure { call, code }) }
}

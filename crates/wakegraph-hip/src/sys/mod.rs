//! The vendor's types, and the functions of its libraries: the only place that names them.
//!
//! AMD's libraries are loaded at run time, so that nothing is needed to build.
#![expect(unsafe_code, reason = "loads the libraries and calls them")]

mod driver;
#[cfg(test)]
mod headers;
mod hiprtc;
mod types;

pub(super) use driver::{DRIVER_LIBRARIES, Driver};
pub(super) use hiprtc::{Hiprtc, hiprtc};
pub(super) use types::*;
use wakegraph_hal::support::streams::CallFailure;

/// What a function returns.
pub(super) type Code = hipError_t;

/// Calls a function of a table: `Ok` where it returned success.
///
/// Expands to one unsafe operation.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::sys::outcome(stringify!($function), ($table.$function)($($argument),*))
    };
}

/// Calls a function of a table that writes its result, a number or a pointer, to the place that its
/// first argument names: the result where it returned success.
///
/// Expands to one unsafe operation. The place is valid.
macro_rules! get {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let mut result = bytemuck::Zeroable::zeroed();
        $crate::sys::call!($table, $function(&raw mut result, $($argument),*)).map(|()| result)
    }};
}

pub(super) use call;
pub(super) use get;

/// Whose codes they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HipLibrary {}

/// A call that did not succeed.
pub(super) type HipFailure = CallFailure<HipLibrary>;

pub(super) fn outcome(call: &'static str, code: Code) -> Result<(), HipFailure> {
    HipFailure::check(call, code)
}

/// Declares a table of functions, and how to fill it from a library.
macro_rules! table {
    (
        $(#[$attribute:meta])* $table:ident;
        required: { $($function:ident ($($argument:ty),* $(,)?) $(-> $result:ty)?;)+ }
        optional: { $($newer:ident ($($newer_argument:ty),* $(,)?);)* }
    ) => {
        $(#[$attribute])*
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(in crate) struct $table {
            $(pub(in crate) $function:
                unsafe extern "C" fn($($argument),*) -> $crate::sys::result!($($result)?),)+
            $(pub(in crate) $newer:
                Option<unsafe extern "C" fn($($newer_argument),*) -> Code>,)*
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).finish_non_exhaustive()
            }
        }

        /// The functions, with the types of their arguments.
        #[cfg(test)]
        pub(super) const DECLARATIONS: &[(&str, &[&str])] = &[
            $((stringify!($function), &[$(stringify!($argument)),*]),)+
            $((stringify!($newer), &[$(stringify!($newer_argument)),*]),)*
        ];

        impl $table {
            /// The library stays loaded for good. The error is the name of a function that it does
            /// not have.
            pub(in crate) fn fill(library: libloading::Library) -> Result<Self, &'static str> {
                let table = Self {
                    $($function: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe { library.get(stringify!($function)) };
                        *found.map_err(|_| stringify!($function))?
                    },)+
                    $($newer: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe { library.get(stringify!($newer)) };
                        found.ok().map(|function| *function)
                    },)*
                };
                // The functions are used for as long as the process lives.
                std::mem::forget(library);
                Ok(table)
            }
        }
    };
}

/// What a function of a table returns: a code, unless it says something else.
macro_rules! result {
    () => {
        Code
    };
    ($result:ty) => {
        $result
    };
}
use result;
use table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_the_functions_is_an_error_that_names_one() {
        let library = wakegraph_hal::support::library::open(&["libc.so.6"]).unwrap();
        assert_eq!(Driver::fill(library).err(), Some("hipDriverGetVersion"));
    }
}

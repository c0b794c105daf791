//! The vendor's types, and the functions of its libraries: the only place that names them.
//!
//! This module declares and resolves them itself: `cudarc` has one version of CUDA in a build, which is
//! the application's to choose, and panics where the library, or a function, is missing.
#![expect(unsafe_code, reason = "loads the libraries and calls them")]

mod driver;
mod nvrtc;
mod types;

pub(super) use driver::{DRIVER_LIBRARIES, Driver};
pub(super) use nvrtc::{Nvrtc, nvrtc};
pub(super) use types::*;
use wakegraph_hal::support::streams::CallFailure;

/// What a function returns.
pub(super) type Code = CUresult;

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
pub(super) enum CudaLibrary {}

/// A call that did not succeed.
pub(super) type CudaFailure = CallFailure<CudaLibrary>;

pub(super) fn outcome(call: &'static str, code: Code) -> Result<(), CudaFailure> {
    CudaFailure::check(call, code)
}

/// The failure of a call to a function that the driver is too old for.
pub(super) fn missing(call: &'static str) -> CudaFailure {
    CudaFailure::new(call, CUDA_ERROR_NOT_SUPPORTED)
}

/// Declares a table of functions, and how to fill it from a library.
macro_rules! table {
    (
        $(#[$attribute:meta])* $table:ident;
        required: { $($function:ident = $symbol:literal ($($argument:ty),* $(,)?);)+ }
        optional: { $($newer:ident = $newer_symbol:literal ($($newer_argument:ty),* $(,)?);)* }
    ) => {
        $(#[$attribute])*
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(in crate) struct $table {
            $(pub(in crate) $function: unsafe extern "C" fn($($argument),*) -> Code,)+
            $(pub(in crate) $newer:
                Option<unsafe extern "C" fn($($newer_argument),*) -> Code>,)*
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).finish_non_exhaustive()
            }
        }

        impl $table {
            /// The library stays loaded for good. The error is the name of a function that it does
            /// not have.
            pub(in crate) fn fill(library: libloading::Library) -> Result<Self, &'static str> {
                let table = Self {
                    $($function: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> Code>($symbol)
                        };
                        *found.map_err(|_| stringify!($function))?
                    },)+
                    $($newer: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($newer_argument),*) -> Code>($newer_symbol)
                        };
                        found.ok().map(|function| *function)
                    },)*
                };
                // The functions are used for as long as the process lives.
                std::mem::forget(library);
                Ok(table)
            }

            /// A table for tests without the library: each function does what the fake says to a
            /// call of this name. The optional ones are missing.
            #[cfg(test)]
            #[allow(dead_code, non_snake_case, reason = "not every library has a fake; the vendor's names")]
            pub(in crate) fn fake() -> Self {
                $(unsafe extern "C" fn $function($(_: $argument),*) -> Code {
                    $crate::tests::fake::called(stringify!($function))
                })+
                Self { $($function,)+ $($newer: None,)* }
            }
        }
    };
}
use table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_the_functions_is_an_error_that_names_one() {
        let library = wakegraph_hal::support::library::open(&["libc.so.6"]).unwrap();
        assert_eq!(Driver::fill(library).err(), Some("cuInit"));
    }
}

//! The offline compiler of Intel's GPUs, which need not be there.
#![allow(non_snake_case, reason = "the vendor's names")]

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::sync::OnceLock;

use wakegraph_hal::support::library::open;

/// The compiler's functions.
#[derive(Debug)]
pub(crate) struct Ocloc {
    /// Runs the compiler with a command line, and with files in memory: sources and headers, each as
    /// a number, contents, lengths and names. The outputs come in the same form.
    pub(crate) oclocInvoke: unsafe extern "C" fn(
        u32,
        *const *const c_char,
        u32,
        *const *const u8,
        *const u64,
        *const *const c_char,
        u32,
        *const *const u8,
        *const u64,
        *const *const c_char,
        *mut u32,
        *mut *mut *mut u8,
        *mut *mut u64,
        *mut *mut *mut c_char,
    ) -> c_int,
    /// Frees the outputs.
    pub(crate) oclocFreeOutput:
        unsafe extern "C" fn(*mut u32, *mut *mut *mut u8, *mut *mut u64, *mut *mut *mut c_char) -> c_int,
}

/// Names another library than the system's compiler.
const LIBRARY_VARIABLE: &str = "WAKEGRAPH_OCLOC_LIBRARY";

const NAMES: &[&str] = if cfg!(windows) { &["ocloc64.dll"] } else { &["libocloc.so", "libocloc.so.1"] };

/// The compiler, loaded by the first call; the error says what could not be.
pub(crate) fn ocloc() -> Result<&'static Ocloc, &'static str> {
    static OCLOC: OnceLock<Result<Ocloc, String>> = OnceLock::new();
    OCLOC.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Ocloc, String> {
    let paths = match std::env::var_os(LIBRARY_VARIABLE) {
        Some(path) => vec![PathBuf::from(path)],
        None => NAMES.iter().map(PathBuf::from).collect(),
    };
    let library = open(&paths)?;
    let lacks = |error: libloading::Error| format!("it is too old: {error}");
    // SAFETY: this is how the vendor's header declares the function.
    let invoke = unsafe { library.get("oclocInvoke") }.map(|function| *function).map_err(lacks)?;
    // SAFETY: as above.
    let free = unsafe { library.get("oclocFreeOutput") }.map(|function| *function).map_err(lacks)?;
    // The functions are used for as long as the process lives.
    std::mem::forget(library);
    Ok(Ocloc { oclocInvoke: invoke, oclocFreeOutput: free })
}

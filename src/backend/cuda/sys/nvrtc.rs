//! The run-time compiler, which need not be there.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use super::*;
use crate::hal::support::library::open;

table! {
    /// The run-time compiler.
    Nvrtc;
    required: {
    nvrtcGetNumSupportedArchs = "nvrtcGetNumSupportedArchs"(*mut c_int);
    nvrtcGetSupportedArchs = "nvrtcGetSupportedArchs"(*mut c_int);
    nvrtcCreateProgram = "nvrtcCreateProgram"(
        *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    nvrtcDestroyProgram = "nvrtcDestroyProgram"(*mut nvrtcProgram);
    nvrtcCompileProgram = "nvrtcCompileProgram"(nvrtcProgram, c_int, *const *const c_char);
    nvrtcGetProgramLogSize = "nvrtcGetProgramLogSize"(nvrtcProgram, *mut usize);
    nvrtcGetProgramLog = "nvrtcGetProgramLog"(nvrtcProgram, *mut c_char);
    nvrtcGetCUBINSize = "nvrtcGetCUBINSize"(nvrtcProgram, *mut usize);
    nvrtcGetCUBIN = "nvrtcGetCUBIN"(nvrtcProgram, *mut c_char);
    nvrtcGetPTXSize = "nvrtcGetPTXSize"(nvrtcProgram, *mut usize);
    nvrtcGetPTX = "nvrtcGetPTX"(nvrtcProgram, *mut c_char);
    }
    optional: {
    }
}

/// The compiler, loaded by the first call; the error says what could not be.
pub(in crate::backend::cuda) fn nvrtc() -> Result<&'static Nvrtc, &'static str> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    let nvrtc = NVRTC.get_or_init(|| {
        Nvrtc::fill(open(NAMES)?).map_err(|function| format!("it is too old: it has no {function}"))
    });
    nvrtc.as_ref().map_err(String::as_str)
}

/// The newest first; then where the toolkit's installer puts it.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    &[
        "libnvrtc.so.13",
        "libnvrtc.so.12",
        "libnvrtc.so.11.2",
        "libnvrtc.so",
        "/usr/local/cuda/lib64/libnvrtc.so",
    ]
};

//! The run-time compiler, which need not be there.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use wakegraph_hal::support::library::open;

use super::*;

table! {
    /// The run-time compiler.
    Nvrtc;
    required: {
    nvrtcVersion = "nvrtcVersion"(*mut c_int, *mut c_int);
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

/// The compiler, loaded by the first call; the error says what could not be. `driver` gives the driver's
/// version, if there is one.
pub(crate) fn nvrtc(driver: impl FnOnce() -> Option<c_int>) -> Result<&'static Nvrtc, &'static str> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    NVRTC.get_or_init(|| choose(NAMES, driver(), load)).as_ref().map_err(String::as_str)
}

/// The first compiler that is not of a newer CUDA than the driver, which may refuse the code of newer ones.
/// The first of those serves where there is no other.
fn choose<T>(
    names: &[&str],
    driver: Option<c_int>,
    load: impl Fn(&str) -> Result<(c_int, T), String>,
) -> Result<T, String> {
    let (mut newer, mut reasons) = (None, Vec::new());
    for name in names {
        match load(name) {
            Ok((major, compiler)) if driver.is_none_or(|driver| major <= driver / 1000) => {
                return Ok(compiler);
            }
            Ok((_, compiler)) => newer = newer.or(Some(compiler)),
            Err(reason) => reasons.push(reason),
        }
    }
    newer.ok_or_else(|| reasons.join("; "))
}

/// A compiler, and the number before the point in its version.
fn load(name: &str) -> Result<(c_int, Nvrtc), String> {
    let nvrtc =
        Nvrtc::fill(open(&[name])?).map_err(|function| format!("{name} is too old: it has no {function}"))?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for numbers.
    unsafe { call!(nvrtc, nvrtcVersion(&raw mut major, &raw mut minor)) }
        .map_err(|failure| format!("{name} does not tell its version: code {}", failure.code))?;
    Ok((major, nvrtc))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_not_newer_than_the_driver() {
        let chosen = |installed: &[(&'static str, c_int)], driver| {
            let load = |name: &str| {
                let found = installed.iter().find(|(installed, _)| *installed == name);
                found.map(|&(name, major)| (major, name)).ok_or_else(|| format!("{name} is not there"))
            };
            choose(&["so.13", "so.12", "so"], driver, load)
        };
        let both = [("so.13", 13), ("so.12", 12)];
        assert_eq!(chosen(&both, Some(13_000)), Ok("so.13"));
        assert_eq!(chosen(&both, Some(12_090)), Ok("so.12"));
        assert_eq!(chosen(&both, None), Ok("so.13"));
        assert_eq!(chosen(&[("so.13", 13), ("so", 12)], Some(12_020)), Ok("so"), "whatever it is called");
        assert_eq!(chosen(&[("so.13", 13), ("so", 14)], Some(12_020)), Ok("so.13"), "there is no other");
        assert!(chosen(&[], Some(12_020)).unwrap_err().contains("so.12 is not there"));
    }
}

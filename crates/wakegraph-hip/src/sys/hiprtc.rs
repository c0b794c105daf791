//! The run-time compiler, which need not be there.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use wakegraph_hal::support::library::open;

use super::*;

table! {
    /// The run-time compiler.
    Hiprtc;
    required: {
    hiprtcCreateProgram(
        *mut hiprtcProgram, *const c_char, *const c_char, c_int, *mut *const c_char, *mut *const c_char
    );
    hiprtcDestroyProgram(*mut hiprtcProgram);
    hiprtcCompileProgram(hiprtcProgram, c_int, *mut *const c_char);
    hiprtcGetProgramLogSize(hiprtcProgram, *mut usize);
    hiprtcGetProgramLog(hiprtcProgram, *mut c_char);
    hiprtcGetCodeSize(hiprtcProgram, *mut usize);
    hiprtcGetCode(hiprtcProgram, *mut c_char);
    hiprtcGetErrorString(hiprtcResult) -> *const c_char;
    }
    optional: {
    }
}

/// The compiler, loaded by the first call; the error says what could not be. `driver` gives the driver's
/// version, if there is one.
pub(crate) fn hiprtc(driver: impl FnOnce() -> Option<c_int>) -> Result<&'static Hiprtc, &'static str> {
    static HIPRTC: OnceLock<Result<Hiprtc, String>> = OnceLock::new();
    let hiprtc = HIPRTC.get_or_init(|| {
        Hiprtc::fill(open(&names(driver()))?)
            .map_err(|function| format!("it is too old: it has no {function}"))
    });
    hiprtc.as_ref().map_err(String::as_str)
}

/// The libraries of the driver's own version first: it may refuse the code of newer ones.
fn names(driver: Option<c_int>) -> Vec<&'static str> {
    let mut names = NAMES.to_vec();
    if let Some(driver) = driver {
        let own = format!(".so.{}", driver / 10_000_000);
        names.sort_by_key(|name| !name.ends_with(&own));
    }
    names
}

/// Up to version 5, the functions are in the runtime's library itself.
const NAMES: &[&str] = if cfg!(windows) {
    &["hiprtc0701.dll", "hiprtc0604.dll", "hiprtc0507.dll"]
} else {
    &[
        "libhiprtc.so",
        "libhiprtc.so.7",
        "libhiprtc.so.6",
        "libhiprtc.so.5",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libhiprtc.so",
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(windows))]
    fn the_compiler_of_the_drivers_version_comes_first() {
        assert_eq!(names(Some(60_443_484))[..2], ["libhiprtc.so.6", "libhiprtc.so"]);
        assert_eq!(names(Some(50_731_921))[..3], ["libhiprtc.so.5", "libamdhip64.so.5", "libhiprtc.so"]);
        assert_eq!(names(None), NAMES);
    }
}

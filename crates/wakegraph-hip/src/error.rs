//! Loads the driver, and turns its codes into errors.
#![expect(unsafe_code, reason = "initialises the driver, and asks for the names of its codes")]

use std::ffi::{CStr, c_char, c_int};

use wakegraph_hal::support::library::open;
use wakegraph_hal::support::streams::DriverCodes;
use wakegraph_hal::util::TryOnce;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::release;
use super::sys::{
    Code, DRIVER_LIBRARIES, Driver, HipFailure, HipLibrary, call, get, hipErrorDeinitialized,
    hipErrorInvalidDevice, hipErrorNoDevice, hipErrorNotReady, hipSuccess,
};

static DRIVER: TryOnce<Driver> = TryOnce::new();

/// The oldest version that has all that this backend needs, as the driver counts: 5.5.0.
const OLDEST: c_int = 50_500_000;

/// The driver, loaded and initialised by the first call that succeeds.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable), with the library's name and the remedy.
pub(super) fn driver() -> Result<&'static Driver> {
    DRIVER.get_or_make(load)
}

fn load() -> Result<Driver> {
    let library = open(DRIVER_LIBRARIES).map_err(|reasons| {
        unavailable("AMD's library libamdhip64 cannot be loaded")
            .help("install ROCm 5.5 or newer, or put the folder of libamdhip64.so on the library path")
            .caused_by(reasons)
    })?;
    let driver = Driver::fill(library)
        .map_err(|name| too_old(&format!("the HIP runtime is too old: libamdhip64 has no {name}")))?;
    check_version(version(&driver).map_err(|failure| not_started(&driver, failure))?)?;
    // SAFETY: the only flag there is is 0.
    unsafe { call!(driver, hipInit(0)) }.map_err(|failure| not_started(&driver, failure))?;
    release::stop_at_exit();
    Ok(driver)
}

/// The driver's version, 60443484 for 6.4.
pub(super) fn version(driver: &Driver) -> Result<c_int, HipFailure> {
    // SAFETY: the function needs no device; the place is valid.
    unsafe { get!(driver, hipDriverGetVersion()) }
}

fn check_version(version: c_int) -> Result<()> {
    if version >= OLDEST {
        return Ok(());
    }
    Err(too_old(&format!("the HIP runtime is too old: libamdhip64 is of version {}", version_text(version))))
}

/// A version in the driver's numbers, such as 6.4 for 60443484.
pub(super) fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 10_000_000, version / 100_000 % 100)
}

fn too_old(why: &str) -> Error {
    unavailable(why).help("install ROCm 5.5 or newer")
}

fn not_started(driver: &Driver, HipFailure { call, code, .. }: HipFailure) -> Error {
    let (name, reason) = (text(driver.hipGetErrorName, code), init_reason(code));
    unavailable(&format!("libamdhip64 is there, and {call} failed with {name} ({code}): {reason}"))
        .help("see whether rocminfo lists a GPU, and whether this user is in the groups render and video")
}

fn init_reason(code: Code) -> &'static str {
    match code {
        // Versions before 6 say one or the other.
        hipErrorNoDevice | hipErrorInvalidDevice => "there is no device, or libamd_comgr is not there",
        _ => "the driver could not be started",
    }
}

fn unavailable(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

/// The kind of error that a failure stands for.
fn kind(HipFailure { call, code, .. }: HipFailure) -> ErrorKind {
    match code {
        2 => ErrorKind::OutOfMemory,
        // A launch that the driver refuses, as one with too large a work-group.
        719 if takes_launch(call) => ErrorKind::Driver,
        // Uncorrectable error of memory, illegal address, timeout, destroyed context,
        // assert, launch failure. Where the driver does not end the process, nothing works after these.
        214 | 700 | 702 | 709 | 710 | 719 => ErrorKind::DeviceLost,
        // The process exits; there is no device.
        hipErrorDeinitialized | hipErrorNoDevice | hipErrorInvalidDevice => ErrorKind::Unavailable,
        801 => ErrorKind::FeatureNotSupported,
        _ => ErrorKind::Driver,
    }
}

/// Whether the function is given the parameters of a launch, which it checks.
fn takes_launch(call: &str) -> bool {
    matches!(call, "hipGraphAddKernelNode" | "hipGraphExecKernelNodeSetParams" | "hipModuleLaunchKernel")
}

impl DriverCodes for HipLibrary {
    const SUCCESS: u32 = hipSuccess;
    const NOT_READY: u32 = hipErrorNotReady;
    const UNLOADED: u32 = hipErrorDeinitialized;

    fn error(failure: HipFailure) -> Error {
        let HipFailure { call, code, .. } = failure;
        let (name, text) = describe(code);
        let error = Error::new(kind(failure), format!("{call} failed with {name} ({code}): {text}"));
        match error.kind() {
            _ if code == hipErrorDeinitialized => error
                .help("the process exits, and the driver is unloaded: end the work before `main` returns"),
            ErrorKind::OutOfMemory => error.help("free memory, or work in smaller pieces"),
            ErrorKind::DeviceLost => error.help(
                "find the kernel that goes beyond its arguments (AMD_LOG_LEVEL=3 names the last ones \
                 launched); HIP works again only in a new process",
            ),
            _ => error,
        }
    }
}

/// The driver's own name and text.
fn describe(code: Code) -> (String, String) {
    let Some(driver) = DRIVER.get() else { return ("an error".into(), "the driver is gone".into()) };
    (text(driver.hipGetErrorName, code), text(driver.hipGetErrorString, code))
}

/// Text that a function of AMD's libraries has for a code.
pub(super) fn text(function: unsafe extern "C" fn(Code) -> *const c_char, code: Code) -> String {
    // SAFETY: the function takes any number, and needs no device.
    let text = unsafe { function(code) };
    if text.is_null() {
        return "an unknown error".to_owned();
    }
    // SAFETY: the text is the library's own, ends in NUL and lives as long as the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_faults_mean_a_lost_device() {
        let kind = |code| kind(HipFailure::new("hipEventQuery", code));
        for code in [700, 702, 710, 719] {
            assert_eq!(kind(code), ErrorKind::DeviceLost, "{code}");
        }
        assert_eq!(kind(2), ErrorKind::OutOfMemory);
        assert_eq!(kind(1), ErrorKind::Driver);
        assert_eq!((kind(100), kind(101)), (ErrorKind::Unavailable, ErrorKind::Unavailable));
        let refused = HipFailure::new("hipGraphAddKernelNode", 719);
        assert_eq!(super::kind(refused), ErrorKind::Driver, "the launch is at fault");
        let error = Error::from(HipFailure::new("hipGraphLaunch", 700));
        assert!(error.message().contains("hipGraphLaunch") && error.message().contains("(700)"), "{error}");
    }

    #[test]
    fn an_old_version_is_refused_with_the_remedy() {
        check_version(50_530_202).unwrap();
        let error = check_version(50_221_153).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("version 5.2"), "{error}");
        assert!(error.to_string().contains("ROCm 5.5 or newer"), "{error}");
    }
}

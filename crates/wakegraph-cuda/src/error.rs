//! Loads the driver, and turns its codes into errors.
#![expect(unsafe_code, reason = "initialises the driver, and asks for the names of its codes")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use wakegraph_hal::support::library::open;
use wakegraph_hal::support::streams::DriverCodes;
use wakegraph_hal::util::TryOnce;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::sys::{
    self, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_NOT_READY, Code, CudaFailure, CudaLibrary, DRIVER_LIBRARIES,
    Driver, call, get,
};

static DRIVER: TryOnce<Driver> = TryOnce::new();

/// The driver, loaded and initialised by the first call that succeeds.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable), with the library's name and the remedy.
pub(super) fn driver() -> Result<&'static Driver> {
    DRIVER.get_or_make(load)
}

fn load() -> Result<Driver> {
    let library = open(DRIVER_LIBRARIES).map_err(|reasons| {
        unavailable("the NVIDIA driver's library libcuda cannot be loaded")
            .help("install the NVIDIA driver (version 525 or newer), or put its folder on the library path")
            .caused_by(reasons)
    })?;
    let driver = Driver::fill(library).map_err(|name| {
        unavailable(&format!("the NVIDIA driver is too old: libcuda has no {name}"))
            .help("install a driver for CUDA 12.0 or newer (version 525 or newer)")
    })?;
    // SAFETY: the only flag there is is 0.
    unsafe { call!(driver, cuInit(0)) }.map_err(|CudaFailure { call, code, .. }| {
        let reason = init_reason(code);
        unavailable(&format!("libcuda is there, and {call} failed with code {code}: {reason}"))
            .help("see whether nvidia-smi lists a GPU that this process may use")
    })?;
    Ok(driver)
}

/// The driver's version, 13000 for CUDA 13.0.
pub(super) fn version(driver: &Driver) -> Result<c_int, CudaFailure> {
    // SAFETY: the driver is initialised.
    unsafe { get!(driver, cuDriverGetVersion()) }
}

fn init_reason(code: Code) -> &'static str {
    match code {
        34 => "it is the toolkit's stub, not a driver",
        100 => "there is no device",
        802 => "the system is not ready: with NVSwitch, the fabric manager has to run first",
        803 => "the library and the kernel's module are of different versions",
        804 => "this libcuda is that of the package cuda-compat, which does not support the GPU",
        999 => "mostly the kernel's module nvidia_uvm is not loaded, or the files /dev/nvidia* are not there",
        _ => "the driver could not be started",
    }
}

fn unavailable(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

/// The kind of error that a code stands for.
fn kind(code: Code) -> ErrorKind {
    match code {
        2 => ErrorKind::OutOfMemory,
        // Uncorrectable errors of memory and NVLink, a contained exception; illegal address,
        // timeout, destroyed context, assert, hardware stack, illegal instruction, misaligned address,
        // invalid address space, invalid program counter, launch failure, tensor leak; MPS has ended the
        // client; an error of an external device: the context cannot be used any more.
        214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911 => ErrorKind::DeviceLost,
        // The process exits; no device, or none that this process may use.
        CUDA_ERROR_DEINITIALIZED | 46 | 100 | 101 => ErrorKind::Unavailable,
        801 => ErrorKind::FeatureNotSupported,
        _ => ErrorKind::Driver,
    }
}

impl DriverCodes for CudaLibrary {
    const SUCCESS: u32 = sys::CUDA_SUCCESS;
    const NOT_READY: u32 = CUDA_ERROR_NOT_READY;
    const UNLOADED: u32 = CUDA_ERROR_DEINITIALIZED;

    fn error(CudaFailure { call, code, .. }: CudaFailure) -> Error {
        let (name, text) = describe(code);
        let error = Error::new(kind(code), format!("{call} failed with {name} ({code}): {text}"));
        match error.kind() {
            _ if code == CUDA_ERROR_DEINITIALIZED => error
                .help("the process exits, and the driver is unloaded: end the work before `main` returns"),
            _ if OF_OTHER_CUDA.contains(&code) => error.help(
                "the code is for other GPUs, or of a newer CUDA than the driver: install a newer driver, or \
                 put the libnvrtc of the driver's version on the library path",
            ),
            ErrorKind::OutOfMemory => error.help("free memory, or work in smaller pieces"),
            ErrorKind::DeviceLost => error.help(
                "find the kernel that goes beyond its arguments, on any CUDA device of the process \
                 (compute-sanitizer finds it); CUDA works again only in a new process",
            ),
            _ => error,
        }
    }
}

/// Invalid image, no binary for the GPU, unsupported version of PTX.
const OF_OTHER_CUDA: [Code; 3] = [200, 209, 222];

/// The driver's own name and text.
fn describe(code: Code) -> (String, String) {
    let Some(driver) = DRIVER.get() else { return ("an error".into(), "the driver is gone".into()) };
    let ask = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
        let mut text: *const c_char = ptr::null();
        // SAFETY: the pointer is valid for a pointer; the function needs no context.
        let outcome = unsafe { function(code, &raw mut text) };
        if outcome != sys::CUDA_SUCCESS || text.is_null() {
            return "an unknown error".to_owned();
        }
        // SAFETY: the text is the driver's own, ends in NUL and lives as long as the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    (ask(driver.cuGetErrorName), ask(driver.cuGetErrorString))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_does_not_start_says_why() {
        for (code, found) in [(802, "fabric manager"), (804, "cuda-compat"), (999, "nvidia_uvm")] {
            assert!(init_reason(code).contains(found), "{code}");
        }
    }

    #[test]
    fn codes_that_end_a_context_mean_a_lost_device() {
        for code in [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911] {
            assert_eq!(kind(code), ErrorKind::DeviceLost, "{code}");
        }
        assert_eq!(kind(2), ErrorKind::OutOfMemory);
        assert_eq!(kind(1), ErrorKind::Driver);
        assert_eq!(kind(CUDA_ERROR_DEINITIALIZED), ErrorKind::Unavailable, "the process exits");
        let error = Error::from(CudaFailure::new("cuGraphLaunch", 700));
        assert!(error.message().contains("cuGraphLaunch") && error.message().contains("(700)"), "{error}");
    }
}

//! Programs: the run-time compiler hipRTC turns HIP C++ into a code object, and the driver loads it.
#![expect(unsafe_code, reason = "calls the compiler and the driver")]

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::kernel_cache;
use wakegraph_hal::support::library::keep_handlers;
use wakegraph_hal::support::sources::ProgramCache;
use wakegraph_hal::support::streams::retry_with_room;
use wakegraph_hal::{CodeOrigin, Compilation, Error, ErrorKind, Result};

use super::context::{HipContext, HipObject};
use super::error::{driver, text, version};
use super::memory::HipMemoryPool;
use super::sys::{
    self, Code, HIPRTC_ERROR_COMPILATION, HipFailure, Hiprtc, call, get, hipErrorInvalidImage,
    hipErrorInvalidKernelFile, hipErrorInvalidValue, hipErrorNoBinaryForGpu, hipErrorNotFound,
    hipErrorSharedObjectInitFailed, hipFunction_attribute, hipFunction_t, hiprtcProgram, ihipModule_t,
    outcome,
};

/// The code that this process has compiled or found, by source and architecture.
static PROGRAMS: ProgramCache<(Box<str>, Box<str>), [u8]> = ProgramCache::new(128);

/// Has [`compile`] compile the source of this code again.
pub(super) fn forget(code: &[u8]) {
    PROGRAMS.forget(code);
}

/// Compiles `source` for devices of this architecture (such as `gfx90a:sramecc+:xnack-`), each source
/// once per kind of device. `hipModuleLoadData` takes the result.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without hipRTC; [`Driver`](ErrorKind::Driver) with the
/// compiler's log.
pub(super) fn compile(name: &str, source: &str, architecture: &str) -> Result<(Arc<[u8]>, Compilation)> {
    PROGRAMS.get_or_compile((source.into(), architecture.into()), || {
        let (code, origin) = keep_handlers(|| compile_now(name, source, architecture))?;
        Ok((code.into(), origin))
    })
}

/// The compiler that suits the driver.
fn hiprtc() -> Result<&'static Hiprtc, &'static str> {
    sys::hiprtc(driver_version)
}

fn driver_version() -> Option<c_int> {
    driver().ok().and_then(|driver| version(driver).ok())
}

fn compile_now(name: &str, source: &str, architecture: &str) -> Result<(Vec<u8>, CodeOrigin)> {
    let hiprtc = hiprtc().map_err(|reason| {
        let why = format!("kernel '{name}' is C, and the HIP run-time compiler hipRTC cannot be loaded");
        let remedy = format!(
            "put libhiprtc (of ROCm, mostly in /opt/rocm/lib) on the library path, or give a code object for \
             {architecture}"
        );
        Error::new(ErrorKind::Unavailable, why).help(remedy).caused_by(reason.to_owned())
    })?;
    // The compiler is a part of the driver's release.
    let release = driver_version().unwrap_or_default().to_string();
    let key = [b"hip", release.as_bytes(), architecture.as_bytes(), source.as_bytes()];
    kernel_cache::get_or_compile(&key, || run_compiler(hiprtc, name, source, architecture))
}

fn run_compiler(hiprtc: &'static Hiprtc, name: &str, source: &str, architecture: &str) -> Result<Vec<u8>> {
    let c_string = |text: &str| {
        CString::new(text).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("kernel '{name}': the source holds a NUL"))
        })
    };
    let program = HiprtcCompilation::create(hiprtc, &c_string(source)?, &c_string(&format!("{name}.hip"))?)
        .map_err(|failure| broken(hiprtc, failure))?;
    let option = format!("--offload-arch={architecture}");
    if let Err(failure) = program.compile(&[c_string(&option)?]) {
        if failure.code != HIPRTC_ERROR_COMPILATION {
            return Err(broken(hiprtc, failure));
        }
        let log = program.log().unwrap_or_else(|_| "the compiler gave no log".into());
        let why = format!("kernel '{name}' does not compile ({option}, code {})", failure.code);
        return Err(Error::new(ErrorKind::Driver, why).caused_by(log));
    }
    program.code().map_err(|failure| broken(hiprtc, failure))
}

fn broken(hiprtc: &Hiprtc, HipFailure { call, code, .. }: HipFailure) -> Error {
    let name = text(hiprtc.hiprtcGetErrorString, code);
    Error::new(ErrorKind::Driver, format!("{call} of the HIP run-time compiler failed with {name} ({code})"))
}

/// A program inside the compiler.
struct HiprtcCompilation {
    hiprtc: &'static Hiprtc,
    raw: hiprtcProgram,
}

impl HiprtcCompilation {
    fn create(hiprtc: &'static Hiprtc, source: &CString, name: &CString) -> Result<Self, HipFailure> {
        let (source, name, none) = (source.as_ptr(), name.as_ptr(), ptr::null_mut());
        // SAFETY: both texts end in NUL; there are no headers.
        let raw = unsafe { get!(hiprtc, hiprtcCreateProgram(source, name, 0, none, none)) }?;
        Ok(Self { hiprtc, raw })
    }

    fn compile(&self, options: &[CString]) -> Result<(), HipFailure> {
        let mut options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = options.len() as c_int;
        // SAFETY: the options are as many texts, which end in NUL.
        unsafe { call!(self.hiprtc, hiprtcCompileProgram(self.raw, count, options.as_mut_ptr())) }
    }

    fn log(&self) -> Result<String, HipFailure> {
        let Hiprtc { hiprtcGetProgramLogSize: size, hiprtcGetProgramLog: get, .. } = *self.hiprtc;
        let log = self.output(("hiprtcGetProgramLogSize", size), ("hiprtcGetProgramLog", get))?;
        Ok(String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).into())
    }

    fn code(&self) -> Result<Vec<u8>, HipFailure> {
        let Hiprtc { hiprtcGetCodeSize: size, hiprtcGetCode: get, .. } = *self.hiprtc;
        self.output(("hiprtcGetCodeSize", size), ("hiprtcGetCode", get))
    }

    /// One of the program's outputs: `size` gives its length, and `get` its bytes.
    fn output(
        &self,
        size: (&'static str, unsafe extern "C" fn(hiprtcProgram, *mut usize) -> Code),
        get: (&'static str, unsafe extern "C" fn(hiprtcProgram, *mut c_char) -> Code),
    ) -> Result<Vec<u8>, HipFailure> {
        let mut len = 0;
        // SAFETY: the pointer is valid for a number.
        outcome(size.0, unsafe { size.1(self.raw, &raw mut len) })?;
        let mut bytes = vec![0u8; len];
        // SAFETY: there is room for as many bytes.
        outcome(get.0, unsafe { get.1(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for HiprtcCompilation {
    fn drop(&mut self) {
        // SAFETY: created by `create`, destroyed once.
        let outcome = unsafe { call!(self.hiprtc, hiprtcDestroyProgram(&raw mut self.raw)) };
        if let Err(failure) = outcome {
            tracing::warn!(target: "wakegraph", code = failure.code, "{} failed", failure.call);
        }
    }
}

/// A function, and the loaded code that it is in.
#[derive(Debug)]
pub(super) struct HipFunction {
    pub(super) raw: hipFunction_t,
    module: HipModule,
}

/// Loaded code.
#[derive(Debug)]
pub(super) struct HipModule {
    object: HipObject<ihipModule_t>,
    /// After the module, which is unloaded on the same thread.
    _code: ModuleCode,
}

/// The code object of a module. The driver reads it as long as the module is loaded.
#[derive(Debug)]
struct ModuleCode {
    code: Arc<[u8]>,
    context: Arc<HipContext>,
}

impl Drop for ModuleCode {
    fn drop(&mut self) {
        let code = Arc::clone(&self.code);
        self.context.releases.later(move |_| {
            drop(code);
            Ok(())
        });
    }
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for HipFunction {}
// SAFETY: as for `Send`.
unsafe impl Sync for HipFunction {}

impl HipFunction {
    /// The function with this entry point. Errors name the kernel. The caller has bound the context.
    pub(super) fn of(module: HipModule, entry: &str, kernel: &str) -> Result<Self> {
        let entry = CString::new(entry)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "the kernel's name holds a NUL"))?;
        let object = &module.object;
        // SAFETY: the code is loaded, the name ends in NUL.
        match unsafe { get!(object.driver(), hipModuleGetFunction(object.raw(), entry.as_ptr())) } {
            Ok(raw) => Ok(Self { raw, module }),
            Err(failure) if failure.code == hipErrorNotFound => {
                let why = format!("the code has no kernel '{kernel}'");
                Err(Error::new(ErrorKind::Driver, why).help(
                    "declare the kernel under the name it has in the code, which must be `extern \"C\"`",
                ))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) fn context(&self) -> &Arc<HipContext> {
        self.module.object.context()
    }

    pub(super) fn attribute(&self, attribute: hipFunction_attribute) -> Result<usize, HipFailure> {
        // SAFETY: the function is loaded, its context bound.
        let value: c_int =
            unsafe { get!(self.module.object.driver(), hipFuncGetAttribute(attribute, self.raw)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

/// Loads a code object. Errors name the kernel. The caller has bound the context.
pub(super) fn module(
    pool: &HipMemoryPool,
    code: &Arc<[u8]>,
    kernel: &str,
    architecture: &str,
) -> Result<HipModule> {
    let (room, context) = (|| pool.trim(), pool.context());
    let object = retry_with_room(room, || load_module(context, code, kernel, architecture))?;
    let (code, context) = (Arc::clone(code), Arc::clone(context));
    Ok(HipModule { object, _code: ModuleCode { code, context } })
}

fn load_module(
    context: &Arc<HipContext>,
    code: &[u8],
    kernel: &str,
    architecture: &str,
) -> Result<HipObject<ihipModule_t>> {
    let addresses = context.addresses.hold_to_allocate();
    let loaded = HipObject::create_by(context, |driver, place| {
        // SAFETY: the image is as long as its own headers say, or the driver refuses it.
        unsafe { call!(driver, hipModuleLoadData(place, code.as_ptr().cast())) }
    });
    drop(addresses);
    loaded.map_err(|failure| {
        let error = Error::from(failure);
        let why = format!("kernel '{kernel}' cannot be loaded: {}", error.message());
        let error = Error::new(error.kind(), why);
        match is_other_code(failure) {
            true => error.help(format!(
                "give a code object for {architecture}, or source (`hip_c:`, `c:`), which hipRTC compiles"
            )),
            false => error,
        }
    })
}

/// Whether the failure says that the bytes are no code for this device.
fn is_other_code(failure: HipFailure) -> bool {
    matches!(
        failure.code,
        hipErrorInvalidValue
            | hipErrorInvalidImage
            | hipErrorNoBinaryForGpu
            | hipErrorInvalidKernelFile
            | hipErrorSharedObjectInitFailed
    )
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::dialect;

    use super::*;

    const ARCHITECTURE: &str = "gfx1030";

    /// Runs where the compiler is installed; needs no device.
    #[test]
    fn compiles_the_dialect_and_shows_the_compilers_errors() {
        if hiprtc().is_err() {
            let error = compile("k", "", ARCHITECTURE).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("libhiprtc"), "{error}");
            return;
        }
        dialect::test_compiler(dialect::HIP, |source| {
            compile("k", source, ARCHITECTURE).map(|(code, _)| code)
        });
    }
}

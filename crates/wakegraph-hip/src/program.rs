//! Programs: the run-time compiler hipRTC turns HIP C++ into a code object.
#![expect(unsafe_code, reason = "calls the compiler")]

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::program_cache::ProgramCache;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::error::{driver, text, version};
use super::sys::{
    self, Code, HIPRTC_ERROR_COMPILATION, HipFailure, Hiprtc, call, get, hiprtcProgram, outcome,
};

/// Compiles `source` for devices of this architecture (such as `gfx90a:sramecc+:xnack-`), each source
/// once per kind of device. `hipModuleLoadData` takes the result.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without hipRTC; [`Driver`](ErrorKind::Driver) with the
/// compiler's log.
pub(super) fn compile(name: &str, source: &str, architecture: &str) -> Result<Arc<[u8]>> {
    static PROGRAMS: ProgramCache<(Box<str>, Box<str>), [u8]> = ProgramCache::new(128);
    PROGRAMS.get_or_compile((source.into(), architecture.into()), || {
        Ok(compile_now(name, source, architecture)?.into())
    })
}

/// The compiler that suits the driver.
fn hiprtc() -> Result<&'static Hiprtc, &'static str> {
    sys::hiprtc(|| driver().ok().and_then(|driver| version(driver).ok()))
}

fn compile_now(name: &str, source: &str, architecture: &str) -> Result<Vec<u8>> {
    let hiprtc = hiprtc().map_err(|reason| {
        let why = format!("kernel '{name}' is C, and the HIP run-time compiler hipRTC cannot be loaded");
        let remedy = format!(
            "put libhiprtc (of ROCm, mostly in /opt/rocm/lib) on the library path, or give a code object for \
             {architecture}"
        );
        Error::new(ErrorKind::Unavailable, why).help(remedy).caused_by(reason.to_owned())
    })?;
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

#[cfg(test)]
mod tests {
    use wakegraph_hal::{AccessMode, Param, ParamKind, dialect};

    use super::*;

    const ARCHITECTURE: &str = "gfx1030";

    /// Where the compiler is installed; it needs no device.
    #[test]
    fn compiles_the_dialect_and_shows_the_compilers_errors() {
        if hiprtc().is_err() {
            let error = compile("k", "", ARCHITECTURE).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("libhiprtc"), "{error}");
            return;
        }
        let param = |name: &'static str, kind| Param { name: name.into(), kind };
        let params = [
            param("tile", ParamKind::Local { element_size: 2 }),
            param("x", ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 }),
            param("a", ParamKind::Value { size: 4 }),
        ];
        let source = |declared: &str| {
            let body = "{ if (LEN(tile) && x[LEN(x) - 1] > a) tile[0] = 1; }";
            let (prelude, entry) = (dialect::HIP, dialect::entry_point("k", &params));
            format!("{prelude}KERNEL(k, ({declared})) {body}{entry}")
        };
        let good = source("LOCAL_SLICE(u16, tile), SLICE(const float, x), float a");
        let first = compile("k", &good, ARCHITECTURE).unwrap();
        assert!(!first.is_empty());
        assert!(Arc::ptr_eq(&first, &compile("k", &good, ARCHITECTURE).unwrap()), "compiled once");
        let without_lengths = source("u16 *tile, SLICE(const float, x), float a");
        let error = compile("k", &without_lengths, ARCHITECTURE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.to_string().contains("slices are SLICE and LOCAL_SLICE"), "{error}");
        for (declared, says) in [
            (
                "LOCAL_SLICE(u32, tile), SLICE(const float, x), float a",
                "0, tile, is declared with elements of 2",
            ),
            (
                "LOCAL_SLICE(u16, tile), SLICE(const double, x), float a",
                "1, x, is declared with elements of 4",
            ),
            ("LOCAL_SLICE(u16, tile), SLICE(float, x), float a", "1, x, is declared read only"),
            ("LOCAL_SLICE(u16, tile), SLICE(const float, x), double a", "2, a, is declared as a value of 4"),
        ] {
            let error = compile("k", &source(declared), ARCHITECTURE).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        let names = "#define type 1\n#define value 2\n#define p0 3\n#define n0 4\n#define wg 5\n";
        let (prelude, entry) = (dialect::HIP, dialect::entry_point("k", &params));
        let taken =
            good.replace(prelude, &format!("{prelude}{names}")).replace(&entry, &format!(" // \\{entry}"));
        assert!(!compile("k", &taken, ARCHITECTURE).unwrap().is_empty());
        assert_eq!(compile("k", "\0", ARCHITECTURE).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

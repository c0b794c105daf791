//! Compiles OpenCL C to SPIR-V with Intel's offline compiler.
#![expect(unsafe_code, reason = "calls the compiler")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::program_cache::ProgramCache;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::sys::{self, Ocloc};

/// The language of a source: an option of the compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Language {
    /// The portable dialect.
    OpenclC12,
    /// OpenCL C without a prelude.
    OpenclC30,
}

impl Language {
    fn option(self) -> &'static CStr {
        match self {
            Self::OpenclC12 => c"-cl-std=CL1.2",
            Self::OpenclC30 => c"-cl-std=CL3.0",
        }
    }
}

/// Compiles `source` for the product with this number, each source once per product.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without the compiler; [`Driver`](ErrorKind::Driver) with
/// its log when the source does not compile.
pub(super) fn compile(kernel: &str, source: &str, language: Language, product: u32) -> Result<Arc<[u8]>> {
    static PROGRAMS: ProgramCache<(Box<str>, Language, u32), [u8]> = ProgramCache::new(128);
    PROGRAMS.get_or_compile((source.into(), language, product), || {
        Ok(compile_now(kernel, source, language, product)?.into())
    })
}

fn compile_now(kernel: &str, source: &str, language: Language, product: u32) -> Result<Vec<u8>> {
    let ocloc = sys::ocloc().map_err(|reason| {
        let why = format!("kernel '{kernel}' is C, and Intel's offline compiler libocloc cannot be loaded");
        Error::new(ErrorKind::Unavailable, why)
            .help("install it (package intel-ocloc), or give SPIR-V")
            .caused_by(reason.to_owned())
    })?;
    let (code, outputs) = OclocOutputs::of(ocloc, source, language, product);
    let binary = outputs.with_ending(".spv").filter(|_| code == 0);
    binary.map(<[u8]>::to_vec).ok_or_else(|| {
        let log = outputs.with_ending("stdout.log").map(String::from_utf8_lossy).unwrap_or_default();
        let log = log.trim_end_matches(['\0', '\n']);
        let why = format!("kernel '{kernel}' does not compile ({product:#x}, code {code}):\n{log}");
        Error::new(ErrorKind::Driver, why).help("correct the kernel's source")
    })
}

/// What the compiler has written, as files in memory.
struct OclocOutputs {
    ocloc: &'static Ocloc,
    count: u32,
    contents: *mut *mut u8,
    lens: *mut u64,
    names: *mut *mut c_char,
}

impl OclocOutputs {
    /// Runs the compiler; gives its exit code, too.
    fn of(ocloc: &'static Ocloc, source: &str, language: Language, product: u32) -> (c_int, Self) {
        /// Nothing says that the compiler may run on several threads at once.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock();
        let (file, device) = (c"kernel.cl", format!("{product:#x}\0"));
        let device = CStr::from_bytes_until_nul(device.as_bytes()).unwrap_or_default();
        let line = [
            c"ocloc",
            c"compile",
            c"-q",
            c"-spv_only",
            c"-file",
            file,
            c"-device",
            device,
            c"-options",
            language.option(),
        ];
        let line = line.map(CStr::as_ptr);
        // The compiler takes the source for a text that ends in NUL.
        let source = [source.as_bytes(), b"\0"].concat();
        let (content, len, name) = (source.as_ptr(), source.len() as u64, file.as_ptr());
        let mut outputs = Self {
            ocloc,
            count: 0,
            contents: ptr::null_mut(),
            lens: ptr::null_mut(),
            names: ptr::null_mut(),
        };
        // SAFETY: as many arguments as said, one source, and no headers; all places are valid.
        let code = unsafe {
            (ocloc.oclocInvoke)(
                line.len() as u32,
                line.as_ptr(),
                1,
                &raw const content,
                &raw const len,
                &raw const name,
                0,
                ptr::null(),
                ptr::null(),
                ptr::null(),
                &raw mut outputs.count,
                &raw mut outputs.contents,
                &raw mut outputs.lens,
                &raw mut outputs.names,
            )
        };
        (code, outputs)
    }

    /// The first output whose name ends so.
    fn with_ending(&self, ending: &str) -> Option<&[u8]> {
        (0..self.count as usize).find_map(|index| {
            // SAFETY: the compiler has written as many names as `count` says.
            let name = unsafe { self.names.wrapping_add(index).read() };
            // SAFETY: the names end in NUL, and live as long as `self`.
            let name = unsafe { CStr::from_ptr(name) };
            if !name.to_bytes().ends_with(ending.as_bytes()) {
                return None;
            }
            // SAFETY: as for the names.
            let content = unsafe { self.contents.wrapping_add(index).read() };
            // SAFETY: as for the names.
            let len = unsafe { self.lens.wrapping_add(index).read() };
            if content.is_null() {
                return None;
            }
            // SAFETY: the output has so many bytes, and lives as long as `self`.
            Some(unsafe { std::slice::from_raw_parts(content, usize::try_from(len).ok()?) })
        })
    }
}

impl Drop for OclocOutputs {
    fn drop(&mut self) {
        let Self { ocloc, count, contents, lens, names } = self;
        // SAFETY: these are the compiler's outputs, freed once.
        unsafe { (ocloc.oclocFreeOutput)(count, contents, lens, names) };
    }
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::dialect;
    use wakegraph_hal::support::spirv;

    use super::*;

    /// A product that every version of the compiler knows: Tiger Lake.
    const PRODUCT: u32 = 0x9a49;

    /// Where the compiler is installed; it needs no device.
    #[test]
    fn compiles_the_dialect_and_shows_the_compilers_errors() {
        let compile = |source: &str, language| compile("k", source, language, PRODUCT);
        if sys::ocloc().is_err() {
            let error = compile("", Language::OpenclC30).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("intel-ocloc"), "{error}");
            return;
        }
        let source = format!("{}KERNEL(k, (SLICE(float, x), float a)) {{ x[0] = a; }}", dialect::OPENCL);
        let binary = compile(&source, Language::OpenclC12).unwrap();
        assert_eq!(spirv::fault(&binary), None);
        let params = spirv::params(&binary, "wg_k_k").unwrap();
        assert_eq!(
            params,
            [spirv::SpirvParam::Buffer, spirv::SpirvParam::Value(8), spirv::SpirvParam::Value(4)]
        );
        assert!(Arc::ptr_eq(&binary, &compile(&source, Language::OpenclC12).unwrap()));
        let plain = compile("kernel void k(global int *x) { *x = 1; }", Language::OpenclC30).unwrap();
        assert_eq!(spirv::params(&plain, "k").unwrap(), [spirv::SpirvParam::Buffer]);
        let error = compile("kernel void k() { nonsense; }", Language::OpenclC30).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.to_string().contains("nonsense"), "{error}");
    }
}

//! Programs: modules, built once for each code and device, and cached for further kernels of the
//! same code. C is compiled to SPIR-V by Intel's offline compiler first.
#![expect(unsafe_code, reason = "calls the driver and the compiler")]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::kernel_cache;
use wakegraph_hal::support::launch::no_variant;
use wakegraph_hal::support::library::keep_handlers;
use wakegraph_hal::support::sources::ProgramCache;
use wakegraph_hal::support::spirv;
use wakegraph_hal::{CodeOrigin, Compilation, Error, ErrorKind, KernelDesc, Result, dialect};

use super::context::LevelZeroContext;
use super::driver::list;
use super::error::describe;
use super::sys::{self, BuildLog, DriverResult, LevelZeroFailure, Module, Ocloc, Owned, call};

/// Has the compiler address whole allocations above 4 GiB.
const LARGE_BUFFERS: &CStr = c"-ze-opt-greater-than-4GB-buffer-required";

/// The code of a kernel for a device.
#[derive(Debug)]
pub(super) struct KernelCode<'a> {
    /// SPIR-V.
    pub(super) binary: Cow<'a, [u8]>,
    /// The kernel's name in it.
    pub(super) symbol: String,
    /// Whether it is in the portable dialect, where each slice is followed by its length.
    pub(super) portable: bool,
    /// How the SPIR-V was made. The driver's own compiler is a part of loading it.
    pub(super) compilation: Compilation,
}

impl AsRef<[u8]> for KernelCode<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.binary
    }
}

/// The variant for the device, compiled to SPIR-V.
///
/// # Errors
/// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) without a variant; those of the
/// compiler.
pub(super) fn code<'a>(context: &LevelZeroContext, desc: &'a KernelDesc<'_>) -> Result<KernelCode<'a>> {
    let (name, sources, product) = (desc.name, desc.sources, context.product);
    let own =
        |binary, compilation| KernelCode { binary, symbol: name.to_owned(), portable: false, compilation };
    if let Some(binary) = &sources.spirv {
        return Ok(own(Cow::Borrowed(&**binary), Compilation::default()));
    }
    if let Some(source) = &sources.opencl_c {
        let (binary, compilation) = compile(name, source, Language::OpenclC30, product)?;
        return Ok(own(Cow::Owned(binary.to_vec()), compilation));
    }
    let Some(source) = &sources.c else {
        let remedy = "add SPIR-V (`spirv:`) or a source in the portable C dialect (`c:`)";
        return Err(no_variant(desc).help(remedy));
    };
    let (binary, compilation) = compile(name, &dialect::opencl(source), Language::OpenclC12, product)?;
    let (binary, symbol) = (Cow::Owned(binary.to_vec()), dialect::entry_name(name));
    Ok(KernelCode { binary, symbol, portable: true, compilation })
}

/// Whether the source in the portable dialect compiles with this behind it.
///
/// # Errors
/// Those of the compiler.
pub(super) fn compiles(context: &LevelZeroContext, desc: &KernelDesc<'_>, end: &str) -> Result<()> {
    let source = dialect::opencl(desc.sources.c.as_deref().unwrap_or_default()) + end;
    compile(desc.name, &source, Language::OpenclC12, context.product).map(drop)
}

/// The module of this SPIR-V, built the first time; `kernel` names it in errors.
///
/// # Errors
/// [`Driver`](ErrorKind::Driver) with the build log when it cannot be built.
pub(super) fn module(context: &LevelZeroContext, binary: &[u8], kernel: &str) -> Result<Arc<Owned<Module>>> {
    let build = || Ok((Arc::new(keep_handlers(|| build(context, binary, kernel))?), CodeOrigin::Compiled));
    context.modules.get_or_compile(binary.to_vec(), build).map(|(module, _)| module)
}

fn build(context: &LevelZeroContext, binary: &[u8], kernel: &str) -> Result<Owned<Module>> {
    if let Some(fault) = spirv::fault(binary) {
        return Err(spirv::no_module(binary, kernel, fault));
    }
    let mut desc = sys::ze_module_desc_t::new();
    desc.format = sys::ZE_MODULE_FORMAT_IL_SPIRV;
    desc.inputSize = binary.len();
    desc.pInputModule = binary.as_ptr();
    desc.pBuildFlags = match context.features.relaxed_limits {
        true => LARGE_BUFFERS.as_ptr(),
        false => ptr::null(),
    };
    let (api, raw, device) = (context.api, context.raw(), context.device);
    let (mut module, mut log) = (ptr::null_mut(), ptr::null_mut());
    let places = (&raw mut module, &raw mut log);
    // SAFETY: context and device are of one driver; the module's bytes and options live through the
    // call.
    let built = unsafe { call!(api, zeModuleCreate(raw, device, &raw const desc, places.0, places.1)) };
    // SAFETY: the driver has just created the log for this object.
    let log = (!log.is_null()).then(|| unsafe { Owned::new(api, log) });
    match built {
        // SAFETY: the driver has just created the module for this object.
        Ok(()) => Ok(unsafe { Owned::new(api, module) }),
        Err(LevelZeroFailure {
            code:
                code @ (sys::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE
                | sys::ZE_RESULT_ERROR_MODULE_LINK_FAILURE
                | sys::ZE_RESULT_ERROR_INVALID_NATIVE_BINARY),
            ..
        }) => {
            let log = match log.map(|log| log_text(context, &log)) {
                Some(Ok(text)) => text,
                Some(Err(failure)) => {
                    format!("there is no log: {} returned {}", failure.call, describe(failure.code))
                }
                None => "there is no log".to_owned(),
            };
            let code = describe(code);
            let why = format!("kernel '{kernel}' has SPIR-V that does not compile ({code}):\n{log}");
            Err(Error::new(ErrorKind::Driver, why).help(spirv::VALIDATE))
        }
        Err(failure) => Err(failure.into()),
    }
}

fn log_text(context: &LevelZeroContext, log: &Owned<BuildLog>) -> DriverResult<String> {
    let (api, mut size) = (context.api, 0);
    // SAFETY: without a place for the text, the function tells its length.
    unsafe { call!(api, zeModuleBuildLogGetString(log.raw(), &raw mut size, ptr::null_mut())) }?;
    let mut text = vec![0u8; size];
    let (size, place) = (&raw mut size, text.as_mut_ptr().cast::<c_char>());
    // SAFETY: there is room for as many bytes as `size` says.
    unsafe { call!(api, zeModuleBuildLogGetString(log.raw(), size, place)) }?;
    // The compiler says the same once for each attempt.
    let (text, mut lines) = (String::from_utf8_lossy(&text), Vec::new());
    for line in text.trim_end_matches('\0').lines() {
        if !line.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    Ok(lines.join("\n"))
}

/// The names of the module's kernels.
pub(super) fn kernel_names(context: &LevelZeroContext, module: &Owned<Module>) -> DriverResult<Vec<String>> {
    let names = list(ptr::null::<c_char>(), |count, places| {
        // SAFETY: the module is alive; there is room for as many as `count` says.
        unsafe { call!(context.api, zeModuleGetKernelNames(module.raw(), count, places)) }
    })?;
    let names = names.into_iter().filter(|name| !name.is_null());
    // SAFETY: the names end in NUL, and live as long as the module.
    Ok(names.map(|name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()).collect())
}

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

/// The code that this process has compiled or found.
static PROGRAMS: ProgramCache<(Box<str>, Language, u32), [u8]> = ProgramCache::new(128);

/// Has [`code`] compile the source of this code again.
pub(super) fn forget(code: &[u8]) {
    PROGRAMS.forget(code);
}

/// Compiles `source` for the product with this number, each source once per product.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without the compiler; [`Driver`](ErrorKind::Driver) with
/// its log when the source does not compile.
pub(super) fn compile(
    kernel: &str,
    source: &str,
    language: Language,
    product: u32,
) -> Result<(Arc<[u8]>, Compilation)> {
    PROGRAMS.get_or_compile((source.into(), language, product), || {
        let (code, origin) = keep_handlers(|| compile_now(kernel, source, language, product))?;
        Ok((code.into(), origin))
    })
}

fn compile_now(
    kernel: &str,
    source: &str,
    language: Language,
    product: u32,
) -> Result<(Vec<u8>, CodeOrigin)> {
    let ocloc = sys::ocloc().map_err(|reason| {
        let why = format!("kernel '{kernel}' is C, and Intel's offline compiler libocloc cannot be loaded");
        Error::new(ErrorKind::Unavailable, why)
            .help("install it (package intel-ocloc), or give SPIR-V")
            .caused_by(reason.to_owned())
    })?;
    // The compiler does not tell its version, but every driver takes SPIR-V of an older one.
    let options = format!("{} {product:#x}", language.option().to_string_lossy());
    let key = [b"level zero", options.as_bytes(), source.as_bytes()];
    kernel_cache::get_or_compile(&key, || run_compiler(ocloc, kernel, source, language, product))
}

fn run_compiler(
    ocloc: &'static Ocloc,
    kernel: &str,
    source: &str,
    language: Language,
    product: u32,
) -> Result<Vec<u8>> {
    let (code, outputs) = OclocOutputs::of(ocloc, source, language, product);
    let binary = outputs.with_ending(".spv").filter(|_| code == 0);
    binary.map(<[u8]>::to_vec).ok_or_else(|| {
        let log = outputs.with_ending("stdout.log").map(String::from_utf8_lossy).unwrap_or_default();
        let log = log.trim_end_matches(['\0', '\n']);
        let why = format!("kernel '{kernel}' does not compile ({product:#x}, code {code}):\n{log}");
        Error::new(ErrorKind::Driver, why).help("correct the kernel's source")
    })
}

/// Outputs of the compiler, as files in memory.
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

    /// Runs where the compiler is installed; needs no device.
    #[test]
    fn compiles_the_dialect_and_shows_the_compilers_errors() {
        let compile = |source: &str, language| compile("k", source, language, PRODUCT).map(|(code, _)| code);
        if sys::ocloc().is_err() {
            let error = compile("", Language::OpenclC30).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("intel-ocloc"), "{error}");
            return;
        }
        let source = dialect::opencl("KERNEL(k, (SLICE(float, x), float a)) { x[0] = a; }");
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

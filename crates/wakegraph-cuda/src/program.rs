//! Programs: the run-time compiler NVRTC turns CUDA C++ into a binary, or into PTX where it does not know the
//! device yet; and the driver loads it.
#![expect(unsafe_code, reason = "calls the compiler and the driver")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::{fmt, ptr};

use wakegraph_hal::support::kernel_cache;
use wakegraph_hal::support::library::{file_key, file_of, keep_handlers, search_key};
use wakegraph_hal::support::sources::ProgramCache;
use wakegraph_hal::support::streams::retry_with_room;
use wakegraph_hal::{CodeOrigin, Compilation, Error, ErrorKind, Result};

use super::context::{CudaContext, CudaObject};
use super::error::{driver, version};
use super::memory::MemoryPool;
use super::sys::{
    self, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CUDA_ERROR_NOT_FOUND, CUfunction,
    CUfunction_attribute, CUmod_st, Code, CudaFailure, NVRTC_LIBRARIES, Nvrtc, call, get, nvrtcProgram,
    outcome,
};

/// The options for a compilation.
type Options = &'static [&'static str];

/// The code that this process has compiled or found.
static PROGRAMS: ProgramCache<(Box<str>, Options, u32), [u8]> = ProgramCache::new(128);

/// Has [`compile`] compile the source of this code again.
pub(super) fn forget(code: &[u8]) {
    PROGRAMS.forget(code);
}

/// Compiles `source` for devices of this compute capability (90 for 9.0), each source once per kind
/// of device. `cuModuleLoadDataEx` takes the result.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without NVRTC; [`Driver`](ErrorKind::Driver) with the
/// compiler's log.
pub(super) fn compile(
    name: &str,
    source: &str,
    options: Options,
    capability: u32,
) -> Result<(Arc<[u8]>, Compilation)> {
    PROGRAMS.get_or_compile((source.into(), options, capability), || {
        let (code, origin) = compile_now(name, source, options, capability)?;
        Ok((code.into(), origin))
    })
}

/// The compiler that suits the driver.
fn nvrtc() -> Result<&'static Nvrtc, &'static str> {
    sys::nvrtc(|| driver().ok().and_then(|driver| version(driver).ok()))
}

fn compile_now(name: &str, source: &str, options: Options, capability: u32) -> Result<(Vec<u8>, CodeOrigin)> {
    if let Some(code) = Compiler::kept().and_then(|kept| kept.task(source, options, capability).on_disk()) {
        return Ok((code, CodeOrigin::Disk));
    }
    keep_handlers(|| {
        let nvrtc = nvrtc().map_err(|reason| lacks_compiler(name, reason))?;
        let compiler = Compiler::loaded(nvrtc).map_err(broken)?;
        let task = compiler.task(source, options, capability);
        kernel_cache::get_or_compile(&task.key(), || run_compiler(nvrtc, name, &task))
    })
}

fn lacks_compiler(name: &str, reason: &str) -> Error {
    let why = format!("kernel '{name}' is C, and the CUDA run-time compiler NVRTC cannot be loaded");
    let remedy = "put libnvrtc (of the CUDA toolkit or the package nvidia-cuda-nvrtc) on the library path, or \
                  give PTX";
    Error::new(ErrorKind::Unavailable, why).help(remedy).caused_by(reason.to_owned())
}

/// The compiler's properties that its outputs depend on.
#[derive(PartialEq, Eq, Debug)]
struct Compiler {
    version: String,
    /// The devices that it knows, by their compute capabilities.
    capabilities: Vec<u32>,
}

impl Compiler {
    /// The compiler that this process would load, if an earlier one has [loaded](Self::loaded) the same file.
    /// It takes 5 ms to load, which a process need not that finds all its kernels on disk.
    fn kept() -> Option<&'static Self> {
        static KEPT: OnceLock<Option<Compiler>> = OnceLock::new();
        let read = || {
            let file = kernel_cache::find(&[COMPILER_FILE, &searched()?])?;
            let contents = file_key(Path::new(str::from_utf8(&file).ok()?))?;
            let text = String::from_utf8(kernel_cache::find(&[COMPILER, &file, &contents])?).ok()?;
            Self::parse(&text)
        };
        KEPT.get_or_init(read).as_ref()
    }

    /// The compiler that has been loaded. Later processes find what it is on disk.
    fn loaded(nvrtc: &'static Nvrtc) -> Result<Self, CudaFailure> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for numbers.
        unsafe { call!(nvrtc, nvrtcVersion(&raw mut major, &raw mut minor)) }?;
        let compiler = Self { version: format!("{major}.{minor}"), capabilities: supported(nvrtc)? };
        let file = file_of(nvrtc.nvrtcVersion as *const c_void);
        let file = file.as_ref().and_then(|file| Some((file.to_str()?.as_bytes(), file_key(file)?)));
        if Self::kept() != Some(&compiler)
            && let Some(((file, contents), searched)) = file.zip(searched())
        {
            kernel_cache::keep(&[COMPILER_FILE, &searched], file);
            kernel_cache::keep(&[COMPILER, file, &contents], compiler.to_string().as_bytes());
        }
        Ok(compiler)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let version = words.next()?.to_owned();
        Some(Self { version, capabilities: words.map(|word| word.parse().ok()).collect::<Option<_>>()? })
    }

    /// A compilation for devices of this capability.
    fn task<'a>(&'a self, source: &'a str, options: Options, capability: u32) -> CompileTask<'a> {
        let target = CompileTarget::choose(capability, &self.capabilities);
        let options =
            options.iter().map(|option| format!("{option} ")).collect::<String>() + &target.option();
        CompileTask { version: &self.version, source, options, target }
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.version)?;
        self.capabilities.iter().try_for_each(|capability| write!(f, " {capability}"))
    }
}

/// Under these keys the cache has the compiler's file, and what it is.
const COMPILER_FILE: &[u8] = b"the file of NVRTC";
const COMPILER: &[u8] = b"NVRTC";

/// Everything that decides which compiler is loaded.
fn searched() -> Option<Vec<u8>> {
    let driver = driver().ok().and_then(|driver| version(driver).ok());
    let mut key = search_key(NVRTC_LIBRARIES)?;
    key.extend(format!("{driver:?}").into_bytes());
    Some(key)
}

/// Everything that the output of a compilation depends on.
struct CompileTask<'a> {
    version: &'a str,
    source: &'a str,
    /// With a space between two.
    options: String,
    target: CompileTarget,
}

impl CompileTask<'_> {
    fn key(&self) -> [&[u8]; 4] {
        [b"cuda", self.version.as_bytes(), self.options.as_bytes(), self.source.as_bytes()]
    }

    fn on_disk(&self) -> Option<Vec<u8>> {
        kernel_cache::find(&self.key())
    }
}

fn run_compiler(nvrtc: &'static Nvrtc, name: &str, task: &CompileTask<'_>) -> Result<Vec<u8>> {
    let text = |text: &str| {
        CString::new(text).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("kernel '{name}': the source holds a NUL"))
        })
    };
    let program = NvrtcCompilation::create(nvrtc, &text(task.source)?, &text(&format!("{name}.cu"))?)
        .map_err(broken)?;
    if let Err(failure) = program.compile(&task.options.split(' ').map(text).collect::<Result<Vec<_>>>()?) {
        let log = program.log().unwrap_or_else(|_| "the compiler gave no log".into());
        let architecture = task.target.option();
        let why = format!("kernel '{name}' does not compile ({architecture}, code {})", failure.code);
        return Err(Error::new(ErrorKind::Driver, why).caused_by(log));
    }
    program.code(task.target).map_err(broken)
}

/// Target of a compilation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CompileTarget {
    /// The device itself.
    Binary(u32),
    /// An older device, in the language that the driver translates.
    Ptx(u32),
}

impl CompileTarget {
    /// `supported` are the capabilities that the compiler knows.
    fn choose(capability: u32, supported: &[u32]) -> Self {
        if supported.contains(&capability) {
            return Self::Binary(capability);
        }
        let older = supported.iter().copied().filter(|&known| known < capability).max();
        // For a device that is older than all the compiler knows, its own error says most.
        Self::Ptx(older.unwrap_or(capability))
    }

    fn option(self) -> String {
        match self {
            Self::Binary(capability) => format!("--gpu-architecture=sm_{capability}"),
            Self::Ptx(capability) => format!("--gpu-architecture=compute_{capability}"),
        }
    }
}

fn broken(failure: CudaFailure) -> Error {
    let CudaFailure { call, code, .. } = failure;
    Error::new(ErrorKind::Driver, format!("{call} of the CUDA run-time compiler failed with code {code}"))
}

fn supported(nvrtc: &Nvrtc) -> Result<Vec<u32>, CudaFailure> {
    // SAFETY: the function only counts.
    let count: c_int = unsafe { get!(nvrtc, nvrtcGetNumSupportedArchs()) }?;
    let mut all: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many.
    unsafe { call!(nvrtc, nvrtcGetSupportedArchs(all.as_mut_ptr())) }?;
    Ok(all.into_iter().filter_map(|known| u32::try_from(known).ok()).collect())
}

/// A program inside the compiler.
struct NvrtcCompilation {
    nvrtc: &'static Nvrtc,
    raw: nvrtcProgram,
}

impl NvrtcCompilation {
    fn create(nvrtc: &'static Nvrtc, source: &CString, name: &CString) -> Result<Self, CudaFailure> {
        let (source, name, none) = (source.as_ptr(), name.as_ptr(), ptr::null());
        // SAFETY: both texts end in NUL; there are no headers.
        let raw = unsafe { get!(nvrtc, nvrtcCreateProgram(source, name, 0, none, none)) }?;
        Ok(Self { nvrtc, raw })
    }

    fn compile(&self, options: &[CString]) -> Result<(), CudaFailure> {
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = options.len() as c_int;
        // SAFETY: the options are as many texts, which end in NUL.
        unsafe { call!(self.nvrtc, nvrtcCompileProgram(self.raw, count, options.as_ptr())) }
    }

    fn log(&self) -> Result<String, CudaFailure> {
        let Nvrtc { nvrtcGetProgramLogSize: size, nvrtcGetProgramLog: get, .. } = *self.nvrtc;
        let log = self.output(("nvrtcGetProgramLogSize", size), ("nvrtcGetProgramLog", get))?;
        Ok(String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).into())
    }

    fn code(&self, target: CompileTarget) -> Result<Vec<u8>, CudaFailure> {
        let nvrtc = self.nvrtc;
        let (size, get) = match target {
            CompileTarget::Binary(_) => {
                (("nvrtcGetCUBINSize", nvrtc.nvrtcGetCUBINSize), ("nvrtcGetCUBIN", nvrtc.nvrtcGetCUBIN))
            }
            // With the NUL at the end.
            CompileTarget::Ptx(_) => {
                (("nvrtcGetPTXSize", nvrtc.nvrtcGetPTXSize), ("nvrtcGetPTX", nvrtc.nvrtcGetPTX))
            }
        };
        self.output(size, get)
    }

    /// One of the program's outputs: `size` gives its length, and `get` its bytes.
    fn output(
        &self,
        size: (&'static str, unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Code),
        get: (&'static str, unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Code),
    ) -> Result<Vec<u8>, CudaFailure> {
        let mut len = 0;
        // SAFETY: the pointer is valid for a number.
        outcome(size.0, unsafe { size.1(self.raw, &raw mut len) })?;
        let mut bytes = vec![0u8; len];
        // SAFETY: there is room for as many bytes.
        outcome(get.0, unsafe { get.1(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for NvrtcCompilation {
    fn drop(&mut self) {
        // SAFETY: created by `create`, destroyed once.
        let outcome = unsafe { call!(self.nvrtc, nvrtcDestroyProgram(&raw mut self.raw)) };
        if let Err(failure) = outcome {
            tracing::warn!(target: "wakegraph", code = failure.code, "{} failed", failure.call);
        }
    }
}

/// A function, and the loaded code that it is in.
#[derive(Debug)]
pub(super) struct CudaFunction {
    pub(super) raw: CUfunction,
    module: CudaObject<CUmod_st>,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for CudaFunction {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaFunction {}

impl CudaFunction {
    /// The function with this entry point. Errors name the kernel. The caller has bound the context.
    pub(super) fn of(module: CudaObject<CUmod_st>, entry: &str, kernel: &str) -> Result<Self> {
        let entry = CString::new(entry)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "the kernel's name holds a NUL"))?;
        // Some drivers load the function only now.
        let found = module.context().confined(|| {
            // SAFETY: the code is loaded, the name ends in NUL.
            unsafe { get!(module.driver(), cuModuleGetFunction(module.raw(), entry.as_ptr())) }
        });
        match found {
            Ok(raw) => Ok(Self { raw, module }),
            Err(failure) if failure.code == CUDA_ERROR_NOT_FOUND => {
                let why = format!("the code has no kernel '{kernel}'");
                Err(Error::new(ErrorKind::Driver, why).help(
                    "declare the kernel under the name it has in the code, which must be `extern \"C\"`",
                ))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.module.context()
    }

    pub(super) fn attribute(&self, attribute: CUfunction_attribute) -> Result<usize, CudaFailure> {
        // SAFETY: the function is loaded, its context bound.
        let value: c_int = unsafe { get!(self.module.driver(), cuFuncGetAttribute(attribute, self.raw)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

/// Loads the code, a binary or PTX with a NUL at its end. Errors name the kernel. The caller has bound the
/// context.
pub(super) fn module(pool: &MemoryPool, code: &[u8], kernel: &str) -> Result<CudaObject<CUmod_st>> {
    retry_with_room(|| pool.trim(), || load_module(pool.context(), code, kernel))
}

fn load_module(context: &Arc<CudaContext>, code: &[u8], kernel: &str) -> Result<CudaObject<CUmod_st>> {
    let mut log = vec![0u8; 8 << 10];
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
    let (count, options, values) = (options.len() as c_uint, options.as_mut_ptr(), values.as_mut_ptr());
    let image = code.as_ptr().cast();
    let loaded = CudaObject::create_by(context, |driver, place| {
        context.confined(|| {
            // SAFETY: the image is a binary or a text that ends in NUL; the options are as many, and
            // the log as long, as they say.
            unsafe { call!(driver, cuModuleLoadDataEx(place, image, count, options, values)) }
        })
    });
    loaded.map_err(|failure| {
        let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
        let error = Error::from(failure);
        let why = format!("kernel '{kernel}' cannot be loaded: {}", error.message());
        let error = Error::new(error.kind(), why);
        match text.is_empty() {
            true => error,
            false => error.caused_by(String::from_utf8_lossy(text).into_owned()),
        }
    })
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use wakegraph_hal::{Kernel as _, KernelCache, KernelDesc, KernelSources, dialect};

    use super::super::kernel::CudaKernel;
    use super::super::open_device;
    use super::super::sys::CUDA_ERROR_INVALID_VALUE;
    use super::super::tests::fake;
    use super::*;

    /// Held while the process has a cache.
    static CACHED: Mutex<()> = Mutex::new(());

    #[test]
    fn compiles_for_the_device_or_the_newest_before_it() {
        assert_eq!(CompileTarget::choose(90, &[75, 80, 90]), CompileTarget::Binary(90));
        assert_eq!(CompileTarget::choose(103, &[75, 90, 100]), CompileTarget::Ptx(100));
        assert_eq!(CompileTarget::choose(50, &[75, 90]), CompileTarget::Ptx(50));
    }

    #[test]
    fn an_error_names_the_compiler_that_is_missing() {
        let error = lacks_compiler("k", "no such file");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("libnvrtc"), "{error}");
    }

    #[test]
    #[ignore = "needs NVRTC: scripts/nvrtc.sh fetches it"]
    fn compiles_the_dialect_and_shows_the_compilers_errors() {
        // The device's own code, and PTX for a device that the compiler does not know.
        for capability in [90, 9999] {
            dialect::test_compiler(dialect::CUDA, |source| {
                compile("k", source, &[], capability).map(|(code, _)| code)
            });
        }
    }

    #[test]
    #[ignore = "needs NVRTC: scripts/nvrtc.sh fetches it"]
    fn a_source_is_compiled_once_per_kind_of_device() {
        let source = |number: u32| format!("extern \"C\" __global__ void k(int *x) {{ *x = {number}; }}");
        let compile = |number, capability| compile("k", &source(number), &[], capability);
        let (first, compilation) = compile(1, 90).unwrap();
        assert_ne!(compilation.origin, CodeOrigin::Memory);
        assert_eq!(compile(1, 90).unwrap().1.origin, CodeOrigin::Memory);
        let load = |number, capability| compile(number, capability).map(|(code, _)| code);
        assert!(Arc::ptr_eq(&first, &load(1, 90).unwrap()));
        assert!(!Arc::ptr_eq(&first, &load(2, 90).unwrap()));
        assert!(!Arc::ptr_eq(&first, &load(1, 80).unwrap()));
    }

    #[test]
    #[ignore = "needs NVRTC: scripts/nvrtc.sh fetches it"]
    #[cfg(unix)]
    fn a_later_process_finds_the_code_on_disk() {
        use std::os::unix::fs::MetadataExt as _;
        let _cached = CACHED.lock();
        let folder = std::env::temp_dir().join(format!("wakegraph-cuda-kernels-{}", std::process::id()));
        KernelCache::at(&folder).enable().unwrap();
        let source = "extern \"C\" __global__ void on_disk(int *x) { *x = 42; }";
        // Other tests of this process may keep their kernels there, too. The code has the kernel's name.
        let has_name = |code: Vec<u8>| code.windows(7).any(|part| part == b"on_disk");
        let files = || {
            let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
            let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "kernel"));
            let own = files.filter(|file| has_name(std::fs::read(file).unwrap()));
            own.map(|file| std::fs::metadata(file).unwrap().ino()).collect::<Vec<_>>()
        };
        let compile = || compile_now("on_disk", source, dialect::cuda_options(source), 90).unwrap();
        let (first, origin) = compile();
        assert_eq!(origin, CodeOrigin::Compiled);
        let kept = files();
        assert_eq!(kept.len(), 1);
        assert_eq!(compile(), (first, CodeOrigin::Disk));
        // A compilation would have replaced the file.
        assert_eq!(files(), kept);
        KernelCache::disable();
        // Another test may just keep a kernel.
        std::fs::remove_dir_all(folder).ok();
    }

    #[test]
    #[ignore = "needs NVRTC: scripts/nvrtc.sh fetches it"]
    #[cfg(target_os = "linux")]
    fn a_process_that_finds_its_kernels_on_disk_loads_no_compiler() {
        const FOLDER: &str = "WAKEGRAPH_TEST_KERNEL_FOLDER";
        const NAME: &str = "program::tests::a_process_that_finds_its_kernels_on_disk_loads_no_compiler";
        if let Some(folder) = std::env::var_os(FOLDER) {
            KernelCache::at(folder).enable().unwrap();
            let (_, origin) =
                compile_now("found", "extern \"C\" __global__ void found() {}", &[], 90).unwrap();
            let is_loaded = std::fs::read_to_string("/proc/self/maps").unwrap().contains("libnvrtc");
            println!("CHILD {origin:?} {is_loaded}");
            return;
        }
        let folder = std::env::temp_dir().join(format!("wakegraph-cuda-no-compiler-{}", std::process::id()));
        let searched = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let start = |searched: &str| {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child
                .args(["--exact", NAME, "--ignored", "--nocapture"])
                .env(FOLDER, &folder)
                .env("LD_LIBRARY_PATH", searched);
            let output = String::from_utf8(child.output().unwrap().stdout).unwrap();
            output.split("CHILD ").nth(1).and_then(|line| line.lines().next()).unwrap_or(&output).to_owned()
        };
        assert_eq!(start(&searched), "Compiled true");
        assert_eq!(start(&searched), "Disk false");
        // Another folder might have another compiler.
        let elsewhere = format!("{}:{searched}", folder.display());
        assert_eq!(start(&elsewhere), "Disk true");
        assert_eq!(start(&elsewhere), "Disk false");
        std::fs::write(folder.join("libnvrtc.so.13"), "not a library").unwrap();
        assert_eq!(start(&elsewhere), "Disk true");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[ignore = "needs NVRTC: scripts/nvrtc.sh fetches it"]
    fn only_code_that_the_driver_refuses_is_compiled_again() {
        let _cached = CACHED.lock();
        let folder = std::env::temp_dir().join(format!("wakegraph-cuda-refused-{}", std::process::id()));
        KernelCache::at(&folder).enable().unwrap();
        let device = open_device(fake::driver(), 0).unwrap();
        let source = "extern \"C\" __global__ void refused() {}";
        let (sources, capability) = (KernelSources::new().cuda_c(source), device.inner().compute_capability);
        let desc = KernelDesc::new("renamed", &[], &sources);
        // As in a process that has just started.
        let load = || {
            forget(&compile(desc.name, source, &[], capability).unwrap().0);
            CudaKernel::load(device.inner(), &desc).map(|kernel| kernel.compilation().origin)
        };
        assert_eq!(load().unwrap(), CodeOrigin::Disk);
        fake::fail("cuModuleGetFunction", 1, CUDA_ERROR_NOT_FOUND);
        assert!(load().unwrap_err().message().contains("no kernel 'renamed'"));
        assert_eq!(load().unwrap(), CodeOrigin::Disk);
        fake::fail("cuModuleLoadDataEx", 1, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(load().unwrap(), CodeOrigin::Compiled);
        KernelCache::disable();
        std::fs::remove_dir_all(folder).ok();
    }
}

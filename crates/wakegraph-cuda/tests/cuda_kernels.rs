//! Every kernel in the portable dialect that the tests, examples and benches have, compiled by NVIDIA's
//! NVRTC for several generations of GPUs. No GPU is needed. `scripts/nvrtc.sh` fetches the compiler; where
//! it is absent, each test is ignored by name.
#![expect(unsafe_code, reason = "calls the run-time compiler")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../tests/support/dialect_sources.rs"]
mod dialect_sources;

use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::process::ExitCode;

use libloading::Library;
use libtest_mimic::{Arguments, Completion, Trial};
use wakegraph::hal::dialect;

const ARCHITECTURES: [&str; 5] = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100"];

fn main() -> ExitCode {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/nvrtc/libnvrtc.so.12");
    let trials = ARCHITECTURES.map(|architecture| {
        let path = path.clone();
        Trial::ignorable_test(format!("{architecture}/all_kernels_compile"), move || {
            if !path.exists() {
                return Ok(Completion::ignored_with("no NVRTC: scripts/nvrtc.sh fetches it"));
            }
            // SAFETY: NVIDIA's library, whose initialization takes no parameters.
            let library = unsafe { Library::new(path) }?;
            dialect_sources::compile_all(dialect::CUDA, |source| compile(&library, source, architecture))?;
            Ok(Completion::Completed)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

type Create = extern "C" fn(
    *mut usize,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = extern "C" fn(usize, c_int, *const *const c_char) -> c_int;
type Get<T> = extern "C" fn(usize, *mut T) -> c_int;
type Destroy = extern "C" fn(*mut usize) -> c_int;

fn compile(library: &Library, source: &str, architecture: &str) -> Result<(), String> {
    let source = CString::new(source).unwrap();
    let architecture = format!("--gpu-architecture={architecture}");
    let options = dialect::CUDA_OPTIONS.iter().copied().chain([&*architecture]);
    let options: Vec<_> = options.map(|option| CString::new(option).unwrap()).collect();
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: this is how the vendor's headers declare the function.
    let create = unsafe { library.get::<Create>("nvrtcCreateProgram") }.unwrap();
    // SAFETY: as above.
    let compile = unsafe { library.get::<Compile>("nvrtcCompileProgram") }.unwrap();
    // SAFETY: as above.
    let log_size = unsafe { library.get::<Get<usize>>("nvrtcGetProgramLogSize") }.unwrap();
    // SAFETY: as above.
    let log = unsafe { library.get::<Get<u8>>("nvrtcGetProgramLog") }.unwrap();
    // SAFETY: as above.
    let destroy = unsafe { library.get::<Destroy>("nvrtcDestroyProgram") }.unwrap();
    let (mut program, none) = (0, std::ptr::null());
    assert_eq!(create(&mut program, source.as_ptr(), c"kernels.cu".as_ptr(), 0, none, none), 0);
    let compiled = compile(program, options.len() as c_int, options.as_ptr()) == 0;
    let mut len = 0;
    assert_eq!(log_size(program, &mut len), 0);
    let mut text = vec![0; len];
    assert_eq!(log(program, text.as_mut_ptr()), 0);
    assert_eq!(destroy(&mut program), 0);
    if compiled { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) }
}

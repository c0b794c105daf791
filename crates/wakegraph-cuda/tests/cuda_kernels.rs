//! Every kernel in the portable dialect that the tests, examples and benches have, compiled by NVIDIA's
//! NVRTC for several generations of GPUs; and what it contracts. No GPU is needed. `scripts/nvrtc.sh`
//! fetches the compiler; where it is absent, each test is ignored by name.
#![expect(unsafe_code, reason = "calls the run-time compiler")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../tests/support/dialect_sources.rs"]
mod dialect_sources;

use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::process::ExitCode;

use libloading::Library;
use libtest_mimic::{Arguments, Completion, Trial};
use wakegraph::hal::{Param, ParamKind, dialect};
use wakegraph::memory::AccessMode;

const ARCHITECTURES: [&str; 5] = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100"];

fn main() -> ExitCode {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/nvrtc/libnvrtc.so.12");
    let trials = ARCHITECTURES.into_iter().flat_map(|architecture| {
        let trial = |name, test: fn(&Library, &str) -> Result<(), String>| {
            let path = path.clone();
            Trial::ignorable_test(format!("{architecture}/{name}"), move || {
                if !path.exists() {
                    return Ok(Completion::ignored_with("no NVRTC: scripts/nvrtc.sh fetches it"));
                }
                // SAFETY: NVIDIA's library, whose initialization takes no parameters.
                let library = unsafe { Library::new(path) }?;
                test(&library, architecture)?;
                Ok(Completion::Completed)
            })
        };
        [
            trial("all_kernels_compile", all_kernels_compile),
            trial("strict_sources_are_not_contracted", strict_sources_are_not_contracted),
        ]
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn all_kernels_compile(library: &Library, architecture: &str) -> Result<(), String> {
    dialect_sources::compile_all(dialect::CUDA, |source| compile(library, source, architecture).map(drop))
}

fn strict_sources_are_not_contracted(library: &Library, architecture: &str) -> Result<(), String> {
    let params = [(); 3].map(|()| Param { name: "p".into(), kind: ParamKind::Value { size: 4 } });
    let out = ParamKind::Buffer { access: AccessMode::Write, element_size: 4, element_align: 4 };
    let params = [&params[..], &[Param { name: "out".into(), kind: out }]].concat();
    let kernel = "KERNEL(k, (float a, float b, float c, SLICE(float, out))) { out[0] = a * b + c; }";
    for (pragma, contracts) in [("", true), ("#pragma STDC FP_CONTRACT OFF\n", false)] {
        let source = [dialect::CUDA, pragma, kernel, &dialect::entry_point("k", &params)].concat();
        let ptx = compile(library, &source, architecture)?;
        let has = ["fma.rn.f32", "mul.f32", "add.f32"]
            .map(|name| ptx.contains(name) || ptx.contains(&name.replace(".f32", ".rn.f32")));
        if has != [contracts, !contracts, !contracts] {
            return Err(format!("{pragma}{has:?} in\n{ptx}"));
        }
    }
    Ok(())
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

/// The PTX of a source, or the compiler's log.
fn compile(library: &Library, source: &str, architecture: &str) -> Result<String, String> {
    let architecture = format!("--gpu-architecture={architecture}");
    let options = dialect::cuda_options(source).iter().copied().chain([&*architecture]);
    let source = CString::new(source).unwrap();
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
    // SAFETY: as above.
    let ptx_size = unsafe { library.get::<Get<usize>>("nvrtcGetPTXSize") }.unwrap();
    // SAFETY: as above.
    let ptx = unsafe { library.get::<Get<u8>>("nvrtcGetPTX") }.unwrap();
    let (mut program, none) = (0, std::ptr::null());
    assert_eq!(create(&mut program, source.as_ptr(), c"kernels.cu".as_ptr(), 0, none, none), 0);
    let compiled = compile(program, options.len() as c_int, options.as_ptr()) == 0;
    let (size, read) = if compiled { (ptx_size, ptx) } else { (log_size, log) };
    let mut len = 0;
    assert_eq!(size(program, &mut len), 0);
    let mut text = vec![0; len];
    assert_eq!(read(program, text.as_mut_ptr()), 0);
    assert_eq!(destroy(&mut program), 0);
    let text = String::from_utf8_lossy(&text).into_owned();
    if compiled { Ok(text) } else { Err(text) }
}

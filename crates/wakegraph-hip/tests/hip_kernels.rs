//! Every kernel in the portable dialect that the tests, examples and benches have, compiled by AMD's hipRTC
//! for several generations of GPUs. No GPU is needed. `scripts/hip.sh` fetches the versions; where they are
//! absent, each test is ignored by name.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls the run-time compiler")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../tests/support/dialect_sources.rs"]
mod dialect_sources;
#[path = "../../../tests/support/hip_stack.rs"]
mod hip_stack;

use std::ffi::{CString, c_char, c_int};
use std::process::ExitCode;
use std::sync::Arc;

use hip_stack::{HipStack, InFront, VERSIONS};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::hal::dialect;

/// Names the architecture that a process is to compile for.
const CHILD: &str = "WAKEGRAPH_HIP_KERNELS";

const ARCHITECTURES: [&str; 5] = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

fn main() -> ExitCode {
    if let Ok(architecture) = std::env::var(CHILD) {
        return match dialect_sources::compile_all(dialect::HIP, |source| compile(source, &architecture)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(log) => {
                println!("{log}");
                ExitCode::FAILURE
            }
        };
    }
    let mut trials = vec![Trial::test("kernels_are_found", || Ok(dialect_sources::are_found()?))];
    for version in VERSIONS {
        let stack = HipStack::prepare_with(version, InFront::Nothing).map(Arc::new);
        for architecture in ARCHITECTURES {
            let is_newer = architecture == "gfx1201" && version.starts_with("5.");
            let stack = match is_newer {
                true => Err(format!("the compiler of HIP {version} is older than {architecture}")),
                false => stack.clone(),
            };
            let name = format!("{version}/{architecture}/all_kernels_compile");
            trials.push(Trial::ignorable_test(name, move || match &stack {
                Ok(stack) => run(stack, architecture).map(|()| Completion::Completed),
                Err(why) => Ok(Completion::ignored_with(why.clone())),
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run(stack: &HipStack, architecture: &str) -> Result<(), Failed> {
    let output = stack.command().env(CHILD, architecture).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stdout).into_owned().into()),
    }
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

fn compile(source: &str, architecture: &str) -> Result<(), String> {
    let names = ["libhiprtc.so.6", "libamdhip64.so.5"];
    // SAFETY: AMD's libraries, whose initialization takes no parameters.
    let library = names.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok()).unwrap();
    let library = Box::leak(Box::new(library));
    let (source, option) =
        (CString::new(source).unwrap(), CString::new(format!("--offload-arch={architecture}")).unwrap());
    let (mut program, none) = (0, std::ptr::null());
    // SAFETY: this is how the vendor's headers declare the function.
    let create = unsafe { library.get::<Create>("hiprtcCreateProgram") }.unwrap();
    // SAFETY: as above.
    let compile = unsafe { library.get::<Compile>("hiprtcCompileProgram") }.unwrap();
    // SAFETY: as above.
    let log_size = unsafe { library.get::<Get<usize>>("hiprtcGetProgramLogSize") }.unwrap();
    // SAFETY: as above.
    let log = unsafe { library.get::<Get<u8>>("hiprtcGetProgramLog") }.unwrap();
    assert_eq!(create(&mut program, source.as_ptr(), c"kernels.hip".as_ptr(), 0, none, none), 0);
    if compile(program, 1, &option.as_ptr()) == 0 {
        return Ok(());
    }
    let mut len = 0;
    assert_eq!(log_size(program, &mut len), 0);
    let mut text = vec![0; len];
    assert_eq!(log(program, text.as_mut_ptr()), 0);
    Err(String::from_utf8_lossy(&text).into_owned())
}

//! Every kernel in the portable dialect that the tests, examples and benches have, compiled by AMD's hipRTC for
//! several generations of GPUs. No GPU is needed. `scripts/hip.sh` fetches the versions; where they are absent,
//! each test is ignored by name.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "calls the run-time compiler")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/hip_stack.rs"]
mod hip_stack;

use std::collections::HashSet;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use hip_stack::{HipStack, InFront, VERSIONS};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::AccessMode;
use wakegraph::hal::{Param, ParamKind, dialect};

/// Names the architecture that a process is to compile for.
const CHILD: &str = "WAKEGRAPH_HIP_KERNELS";

const ARCHITECTURES: [&str; 5] = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// Where kernels are: in files of their own, and in Rust's string literals.
const FOLDERS: [&str; 4] = ["examples", "tests", "benches", "src/backend/hip"];

/// Files with kernels that are wrong on purpose, or not written out.
const LEFT_OUT: [&str; 5] = [
    "tests/opencl.rs",
    "tests/conformance/hal/bench.rs",
    "tests/hip_kernels.rs",
    "tests/hip.rs",
    "tests/hip_faults.rs",
];

fn main() -> ExitCode {
    if let Ok(architecture) = std::env::var(CHILD) {
        return compile_all(&architecture);
    }
    let mut trials = vec![Trial::test("kernels_are_found", || {
        let (sources, kernels) =
            (sources(), sources().iter().map(|source| kernels(&source.text).len()).sum::<usize>());
        match sources.len() >= 25 && kernels >= 60 {
            true => Ok(()),
            false => Err(format!("{} sources with {kernels} kernels", sources.len()).into()),
        }
    })];
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

struct Source {
    /// Where it is.
    place: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true if entry.file_name() != "target" => folders.push(entry.path()),
                true => {}
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let place = file.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let is_in = |end: &str| file.extension().is_some_and(|extension| extension == end);
        if LEFT_OUT.contains(&&*place) || !(is_in("c") || is_in("rs")) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let texts = if is_in("c") { vec![text] } else { literals(&text) };
        let texts = texts.into_iter().filter(|text| text.contains("KERNEL("));
        sources.extend(texts.map(|text| Source { place: place.clone(), text }));
    }
    sources
}

/// The string literals that begin with a kernel.
fn literals(rust: &str) -> Vec<String> {
    rust.split("\"KERNEL(").skip(1).map(|rest| format!("KERNEL({}", literal(rest))).collect()
}

/// A string literal up to its end.
fn literal(rest: &str) -> String {
    let mut text = String::new();
    let mut all = rest.chars().peekable();
    while let Some(next) = all.next().filter(|&next| next != '"') {
        match (next, all.peek()) {
            ('\\', Some('n')) => {
                all.next();
                text.push('\n');
            }
            // The line goes on.
            ('\\', Some('\n')) => while all.next_if(|next| next.is_whitespace()).is_some() {},
            ('\\', Some(_)) => text.extend(all.next()),
            _ => text.push(next),
        }
    }
    text
}

/// The kernels of a source, with their parameters.
fn kernels(source: &str) -> Vec<(String, Vec<Param>)> {
    let mut kernels = Vec::new();
    for declared in source.split("KERNEL(").skip(1) {
        // Others are parts of macros, which declare some for several types.
        let name = declared.split_once(',').filter(|(name, _)| !name.contains('#'));
        let Some((name, rest)) = name else { continue };
        let rest = rest.trim_start().trim_start_matches('(');
        let (mut depth, mut params) = (0, vec![String::new()]);
        for next in rest.chars() {
            match next {
                ')' if depth == 0 => break,
                ',' if depth == 0 => params.push(String::new()),
                _ => {
                    depth += i32::from(next == '(') - i32::from(next == ')');
                    params.last_mut().unwrap().push(next);
                }
            }
        }
        let params = params.iter().map(|param| param.trim()).filter(|param| !param.is_empty());
        kernels.push((name.trim().to_owned(), params.map(param).collect()));
    }
    kernels
}

/// A parameter by its declaration. Sizes do not matter to the entry point.
fn param(declared: &str) -> Param {
    let kind = match declared {
        _ if declared.starts_with("LOCAL_SLICE(") => ParamKind::Local { element_size: 4 },
        _ if declared.starts_with("SLICE(") => {
            ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 }
        }
        _ => ParamKind::Value { size: 4 },
    };
    Param { name: "p".into(), kind }
}

/// Compiles all kernels, many at a time, and prints what is wrong.
fn compile_all(architecture: &str) -> ExitCode {
    let mut rest = sources();
    while !rest.is_empty() {
        // Names of kernels are unique in a program. Files also have functions and macros, so there is one in each.
        let (mut names, mut places) = (HashSet::new(), HashSet::new());
        let (mut program, mut later) = (dialect::HIP.to_owned(), Vec::new());
        for source in rest {
            let kernels = kernels(&source.text);
            let is_new = kernels.iter().all(|(name, _)| !names.contains(name));
            let is_file = source.place.ends_with(".c");
            let has_file = places.iter().any(|place: &String| place.ends_with(".c"));
            if !is_new || is_file && has_file {
                later.push(source);
                continue;
            }
            program += &format!("\n#line 1 \"{}\"\n{}\n", source.place, source.text);
            for (name, params) in kernels {
                program += &dialect::entry_point(&name, &params);
                names.insert(name);
            }
            places.insert(source.place);
        }
        if let Err(log) = compile(&program, architecture) {
            println!("{log}");
            return ExitCode::FAILURE;
        }
        rest = later;
    }
    ExitCode::SUCCESS
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

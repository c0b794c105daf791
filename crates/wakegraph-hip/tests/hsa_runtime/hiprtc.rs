//! hipRTC in front of AMD's. Every source goes to AMD's, which compiles it for the GPU, and then to
//! `g++`, for the host.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use libloading::Library;

use crate::code_objects::Elf;
use crate::host_kernels::{self, PREFIX};
use crate::settings::{self, abort};
use crate::{calls, raw};

/// HIP's words for a C++ compiler.
const HEADER: &str = include_str!("host_hip.h");

/// What a program was made of.
struct Program {
    source: String,
    name: String,
}

static PROGRAMS: Mutex<Option<HashMap<usize, Program>>> = Mutex::new(None);

/// A function of AMD's library.
fn amd<F: Copy>(name: &str) -> F {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let Some(path) = &settings::get().hiprtc else { abort("WAKEGRAPH_HSA_HIPRTC names no library") };
        // SAFETY: AMD's library; its initialization takes no parameters.
        let library = unsafe { Library::new(path) };
        library.unwrap_or_else(|error| abort(format_args!("{}: {error}", path.display())))
    });
    // SAFETY: each caller names the type that AMD's documentation gives.
    let function = unsafe { library.get::<F>(name.as_bytes()) };
    *function.unwrap_or_else(|error| abort(format_args!("{name}: {error}")))
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
type Get = extern "C" fn(usize, *mut c_void) -> c_int;

/// What a call returns that fails: `HIPRTC_ERROR_INTERNAL_ERROR`.
const INTERNAL_ERROR: c_int = 11;

macro_rules! hand_over {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(program: usize, result: *mut c_void) -> c_int {
            match calls::fails(stringify!($name)) {
                true => INTERNAL_ERROR,
                false => amd::<Get>(stringify!($name))(program, result),
            }
        }
    )* };
}

hand_over! { hiprtcGetCodeSize hiprtcGetCode hiprtcGetProgramLogSize hiprtcGetProgramLog }

#[unsafe(no_mangle)]
extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    amd::<extern "C" fn(*mut c_int, *mut c_int) -> c_int>("hiprtcVersion")(major, minor)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(code: c_int) -> *const c_char {
    amd::<extern "C" fn(c_int) -> *const c_char>("hiprtcGetErrorString")(code)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcCreateProgram(
    program: *mut usize,
    source: *const c_char,
    name: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> c_int {
    if calls::fails("hiprtcCreateProgram") {
        return INTERNAL_ERROR;
    }
    let result = amd::<Create>("hiprtcCreateProgram")(program, source, name, count, headers, names);
    if result == 0 {
        let made = Program { source: raw::text(source), name: raw::text(name) };
        PROGRAMS.lock().unwrap().get_or_insert_default().insert(raw::read(program), made);
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcDestroyProgram(program: *mut usize) -> c_int {
    PROGRAMS.lock().unwrap().get_or_insert_default().remove(&raw::read(program));
    if calls::fails("hiprtcDestroyProgram") {
        return INTERNAL_ERROR;
    }
    amd::<extern "C" fn(*mut usize) -> c_int>("hiprtcDestroyProgram")(program)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcCompileProgram(program: usize, count: c_int, options: *const *const c_char) -> c_int {
    if calls::fails("hiprtcCompileProgram") {
        return INTERNAL_ERROR;
    }
    let result = amd::<Compile>("hiprtcCompileProgram")(program, count, options);
    if result == 0 {
        let options: Vec<String> = raw::list(options, count as usize).into_iter().map(raw::text).collect();
        let mut programs = PROGRAMS.lock().unwrap();
        let source = programs.get_or_insert_default().get(&program);
        compile(source.unwrap_or_else(|| abort("an unknown program is compiled")), &code(program), &options);
    }
    result
}

/// What AMD's library has made of a program.
fn code(program: usize) -> Vec<u8> {
    let mut bytes = 0_usize;
    amd::<Get>("hiprtcGetCodeSize")(program, (&raw mut bytes).cast());
    let mut code = vec![0_u8; bytes];
    amd::<Get>("hiprtcGetCode")(program, code.as_mut_ptr().cast());
    code
}

/// Makes the library with the kernels for the host, unless it is there.
fn compile(program: &Program, code: &[u8], options: &[String]) {
    let Some(elf) = Elf::of(code) else { abort("hipRTC's code is no ELF file") };
    let made = host_kernels::path(elf.hash());
    if made.exists() {
        return;
    }
    let mut source = format!("{HEADER}\n#line 1 \"{}\"\n{}\n", program.name, program.source);
    for name in host_kernels::names(code) {
        source += &format!("WAKEGRAPH_KERNEL({PREFIX}{name}, {name})\n");
    }
    source += &dynamic_memory(&program.source);
    let folder = made.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).unwrap();
    let stem = format!("{}-{:x}", std::process::id(), settings::random());
    let (input, output) = (folder.join(format!("{stem}.cpp")), folder.join(format!("{stem}.so")));
    std::fs::write(&input, source).unwrap();
    run_compiler(&input, &output, options);
    // Another process may have made the same meanwhile.
    std::fs::rename(&output, &made).unwrap();
    let _ = std::fs::remove_file(&input);
}

fn run_compiler(input: &Path, output: &PathBuf, options: &[String]) {
    let mut compiler = Command::new("g++");
    compiler.args([
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-shared",
        "-w",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
    ]);
    compiler.args(["-fno-gnu-unique", "-fvisibility=hidden"]);
    compiler.args(
        options.iter().filter(|option| ["-D", "-I", "-std"].iter().any(|kind| option.starts_with(kind))),
    );
    // The compiler is the system's, and so are its libraries.
    compiler.arg("-o").arg(output).arg(input).env_remove("LD_LIBRARY_PATH");
    let result = compiler.output().unwrap_or_else(|error| abort(format_args!("g++: {error}")));
    if !result.status.success() {
        abort(format_args!(
            "g++ does not take {}:\n{}",
            input.display(),
            String::from_utf8_lossy(&result.stderr)
        ));
    }
}

/// Definitions for arrays that a source declares as `extern __shared__`: large enough for any
/// launch.
fn dynamic_memory(source: &str) -> String {
    let mut definitions = String::new();
    for declaration in source.split("extern __shared__").skip(1) {
        let declared = declaration.split(';').next().unwrap_or_default();
        let name = declared.trim_end().trim_end_matches([']', '[', ' ']);
        definitions += &format!("thread_local {name}[65536];\n");
    }
    definitions
}

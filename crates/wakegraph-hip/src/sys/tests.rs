//! The libraries' names; and the declarations, compared with the vendor's headers: sizes, offsets, numbers
//! and functions.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::types::{LAYOUTS, NUMBERS};
use super::*;

/// The folders with headers: where `scripts/hip.sh` puts them, and where `libamdhip64-dev` and AMD's
/// own packages do.
fn include_folders() -> Vec<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/hip/headers");
    let versions = std::fs::read_dir(unpacked).into_iter().flatten().flatten();
    let unpacked = versions.map(|version| version.path().join("usr/include"));
    let installed = ["/usr/include", "/opt/rocm/include"].map(PathBuf::from);
    let has_headers = |folder: &PathBuf| folder.join("hip/hip_runtime_api.h").is_file();
    unpacked.chain(installed).filter(has_headers).collect()
}

/// The C type that a Rust type stands for.
fn c_type(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(target));
    }
    let base = match rust {
        "c_char" => "char",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_void" => "void",
        "f32" => "float",
        "u64" => "unsigned long long",
        "usize" => "size_t",
        vendors => vendors,
    };
    base.to_owned()
}

/// A program whose compilation fails where a declaration is not that of the headers. What older
/// headers do not have yet is left out.
fn program(headers: &str) -> String {
    let has = |name: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        headers.match_indices(name).any(|(at, _)| !headers[at + name.len()..].starts_with(is_word))
    };
    let mut program = String::from(
        "#include <stddef.h>\n#include <hip/hip_runtime_api.h>\n#include <hip/hiprtc.h>\n\
         #include <hip/hip_version.h>\n",
    );
    for (name, size, fields) in LAYOUTS {
        writeln!(program, "_Static_assert(sizeof({name}) == {size}, \"{name}\");").unwrap();
        // What is reserved has a name in newer versions.
        for (field, offset) in fields.iter().filter(|(field, _)| *field != "reserved") {
            let field = if *field == "type_" { "type" } else { field };
            writeln!(program, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");")
                .unwrap();
        }
    }
    let (old, new) = (hipDeviceProp_t::ARCHITECTURE_BEFORE_6, hipDeviceProp_t::ARCHITECTURE_R0600);
    writeln!(
        program,
        "_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == (HIP_VERSION_MAJOR < 6 ? {old} : {new}), \
         \"gcnArchName\");\n_Static_assert(sizeof(hipDeviceProp_t) <= {}, \"hipDeviceProp_t\");",
        size_of::<hipDeviceProp_t>()
    )
    .unwrap();
    for (name, value) in NUMBERS.iter().filter(|(name, _)| has(name)) {
        writeln!(program, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    for (library, declarations) in [("hip", Driver::DECLARATIONS), ("hiprtc", Hiprtc::DECLARATIONS)] {
        for (name, arguments) in declarations.iter().filter(|(name, _)| has(name)) {
            let result = match (library, *name) {
                (_, "hipGetErrorName" | "hipGetErrorString" | "hiprtcGetErrorString") => "const char *",
                ("hip", _) => "hipError_t",
                _ => "hiprtcResult",
            };
            let arguments: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
            let arguments = arguments.join(", ");
            writeln!(
                program,
                "_Static_assert(__builtin_types_compatible_p(__typeof__({name}), {result}({arguments})), \
                 \"{name}\");"
            )
            .unwrap();
        }
    }
    program
}

#[test]
fn the_declarations_are_those_of_the_headers() {
    let folders = include_folders();
    if folders.is_empty() {
        eprintln!("not compared: there is no hip/hip_runtime_api.h (scripts/hip.sh fetches three versions)");
        return;
    }
    for include in folders {
        let read = |name: &str| std::fs::read_to_string(include.join("hip").join(name)).unwrap();
        let headers = read("hip_runtime_api.h") + &read("hiprtc.h");
        let source = std::env::temp_dir().join(format!("wakegraph-hip-headers-{}.c", std::process::id()));
        std::fs::write(&source, program(&headers)).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-fsyntax-only", "-D__HIP_PLATFORM_AMD__", "-I"]).arg(&include).arg(&source);
        let compiler = compiler.output();
        let _ = std::fs::remove_file(&source);
        let Ok(compiler) = compiler else {
            eprintln!("not compared: there is no C compiler");
            return;
        };
        let output = String::from_utf8_lossy(&compiler.stderr);
        assert!(compiler.status.success(), "{}: {output}", include.display());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_without_the_functions_is_an_error_that_names_one() {
    let library = open(&["libc.so.6"]).unwrap();
    assert_eq!(Driver::fill(library).err(), Some("hipDriverGetVersion"));
}

#[test]
#[cfg(not(windows))]
fn the_compiler_of_the_drivers_version_comes_first() {
    assert_eq!(names(Some(60_443_484))[..2], ["libhiprtc.so.6", "libhiprtc.so"]);
    assert_eq!(names(Some(50_731_921))[..3], ["libhiprtc.so.5", "libamdhip64.so.5", "libhiprtc.so"]);
    assert_eq!(names(None), NAMES);
}

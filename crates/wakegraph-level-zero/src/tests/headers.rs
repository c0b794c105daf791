//! Compares the declarations with the vendor's headers: sizes, offsets, numbers and functions.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sys::{DECLARATIONS, LAYOUTS, NUMBERS};

/// Where the headers are: where `scripts/level-zero.sh` puts them, or where `libze-dev` does.
fn include_folder() -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/level-zero/include");
    [unpacked, PathBuf::from("/usr/include")]
        .into_iter()
        .find(|folder| folder.join("level_zero/ze_api.h").is_file())
}

/// The C type that a Rust type stands for.
fn c_type(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return if target.starts_with('*') {
            format!("{} const *", c_type(target))
        } else {
            format!("const {} *", c_type(target))
        };
    }
    let base = match rust {
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "c_char" => "char",
        "c_void" => "void",
        vendors => vendors,
    };
    base.to_owned()
}

/// A program whose compilation fails where a declaration is not that of the headers. What older
/// headers do not have yet is left out.
fn program(header: &str) -> String {
    let has = |name: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        header.match_indices(name).any(|(at, _)| !header[at + name.len()..].starts_with(is_word))
    };
    let mut program = String::from("#include <stddef.h>\n#include <level_zero/ze_api.h>\n");
    for (name, size, fields) in LAYOUTS.iter().filter(|(name, ..)| has(name)) {
        writeln!(program, "_Static_assert(sizeof({name}) == {size}, \"{name}\");").unwrap();
        for (field, offset) in *fields {
            let field = if *field == "type_" { "type" } else { field };
            writeln!(program, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");")
                .unwrap();
        }
    }
    for (name, value) in NUMBERS.iter().filter(|(name, _)| has(name)) {
        writeln!(program, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    for (name, arguments) in DECLARATIONS.iter().filter(|(name, _)| has(name)) {
        let arguments: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
        let arguments = arguments.join(", ");
        writeln!(
            program,
            "_Static_assert(__builtin_types_compatible_p(__typeof__({name}), ze_result_t({arguments})), \
             \"{name}\");"
        )
        .unwrap();
    }
    program
}

#[test]
fn the_declarations_are_those_of_the_headers() {
    let Some(include) = include_folder() else {
        eprintln!("not compared: there is no level_zero/ze_api.h (package libze-dev)");
        return;
    };
    let header = std::fs::read_to_string(include.join("level_zero/ze_api.h")).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/level-zero");
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join(format!("headers-{}.c", std::process::id()));
    std::fs::write(&source, program(&header)).unwrap();
    let compiler = Command::new("cc").arg("-fsyntax-only").arg("-I").arg(&include).arg(&source).output();
    let _ = std::fs::remove_file(&source);
    let Ok(compiler) = compiler else {
        eprintln!("not compared: there is no C compiler");
        return;
    };
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
}

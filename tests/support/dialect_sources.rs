//! Every kernel in the portable dialect that the tests, examples and benches have, for compilers that need no
//! device.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use wakegraph::hal::{Param, ParamKind, dialect};
use wakegraph::memory::AccessMode;

/// Where kernels are: in files of their own, and in Rust's string literals.
const FOLDERS: [&str; 10] = [
    "examples",
    "tests",
    "benches",
    "crates/wakegraph-conformance/src",
    "crates/wakegraph-cuda/tests",
    "crates/wakegraph-hip/src",
    "crates/wakegraph-hip/tests",
    "crates/wakegraph-level-zero/tests",
    "crates/wakegraph-nccl/tests",
    "crates/wakegraph-opencl/tests",
];

/// Files with kernels that are wrong on purpose, or not written out.
const LEFT_OUT: [&str; 5] = [
    "crates/wakegraph-opencl/tests/opencl.rs",
    "crates/wakegraph-conformance/src/hal/bench.rs",
    "tests/support/dialect_sources.rs",
    "crates/wakegraph-hip/tests/hip.rs",
    "crates/wakegraph-hip/tests/hip_faults.rs",
];

/// Whether the kernels that are known to be there are found.
#[allow(dead_code, reason = "each test binary uses its part")]
pub(crate) fn are_found() -> Result<(), String> {
    let sources = sources();
    let kernels: usize = sources.iter().map(|source| kernels(&source.text).len()).sum();
    match sources.len() >= 25 && kernels >= 60 {
        true => Ok(()),
        false => Err(format!("{} sources with {kernels} kernels", sources.len())),
    }
}

/// Compiles all kernels, many at a time, behind the prelude; gives the log if something is wrong.
pub(crate) fn compile_all(prelude: &str, compile: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    let mut rest = sources();
    while !rest.is_empty() {
        // Names of kernels are unique in a program. Files also have functions and macros, so there is one
        // in each.
        let (mut names, mut places) = (HashSet::new(), HashSet::new());
        let (mut program, mut later) = (prelude.to_owned(), Vec::new());
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
        compile(&program)?;
        rest = later;
    }
    Ok(())
}

struct Source {
    /// Where it is.
    place: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
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

/// The string literals that begin with a kernel. One whose name a format fills in is not written out.
fn literals(rust: &str) -> Vec<String> {
    let literals = rust.split("\"KERNEL(").skip(1).filter(|rest| !rest.starts_with('{'));
    literals.map(|rest| format!("KERNEL({}", literal(rest))).collect()
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

/// A parameter by its declaration, with the bytes of its C type.
fn param(declared: &str) -> Param {
    let slice = declared.strip_prefix("LOCAL_SLICE(").or(declared.strip_prefix("SLICE("));
    let (of_type, name) = match slice {
        Some(slice) => slice.trim_end_matches(')').split_once(',').unwrap(),
        None => declared.rsplit_once([' ', '*']).unwrap(),
    };
    let access = if of_type.contains("const") { AccessMode::Read } else { AccessMode::ReadWrite };
    let kind = match (slice, declared.starts_with("LOCAL")) {
        (None, _) => ParamKind::Value { size: size_of_type(of_type) },
        (Some(_), true) => ParamKind::Local { element_size: size_of_type(of_type) },
        (Some(_), false) => {
            let element_size = size_of_type(of_type);
            ParamKind::Buffer { access, element_size, element_align: element_size }
        }
    };
    Param { name: name.trim().to_owned().into(), kind }
}

fn size_of_type(name: &str) -> usize {
    match name.trim_start_matches("const ").trim() {
        "u8" | "i8" | "char" => 1,
        "u16" | "i16" | "short" | "f16" | "bf16" => 2,
        "u32" | "i32" | "int" | "float" | "Pixel" => 4,
        "u64" | "i64" | "double" => 8,
        "struct Params" | "struct DoubleParams" => 16,
        other => panic!("how large is {other}?"),
    }
}

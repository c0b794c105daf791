//! The layers of the crate: a module imports only from its own row of [`ROWS`] and from rows above it, and no
//! modules import each other in a circle.
//!
//! The test reads the source as text and follows re-exports. Unit tests are exempt.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The layers, lowest first. The longest prefix of a file's path decides its row.
const ROWS: &[&[&str]] = &[
    &["sync", "util"],
    &["graph"],
    &["plan", "backend"],
    &["runtime/completion"],
    &["runtime/resource"],
    &["runtime/execution"],
    &["runtime/builder"],
    &["runtime/finalize"],
    &["runtime/queue"],
    &["runtime/update"],
    &["runtime"],
    &["service"],
    &["rooms", "lib", "guide"],
];

/// Modules that must not import from each other although their rows allow it.
const STRANGERS: &[(&str, &str)] = &[("plan", "backend"), ("backend", "graph")];

#[test]
fn modules_import_only_from_their_own_and_lower_layers() {
    let source = Source::read();
    let (mut found, mut report) = (BTreeSet::new(), String::new());
    for (module, file) in &source.files {
        let from = path_of(module);
        for path in &file.uses {
            let Some(to) = source.resolve(path, 0).map(|module| path_of(module)) else { continue };
            if !may_import(&from, &to) && found.insert((from.clone(), to.clone())) {
                report += &format!("  {from} imports {to}\n");
            }
        }
    }
    assert!(report.is_empty(), "imports from higher layers or between strangers:\n{report}");
}

/// But for the module of a folder, whose types the modules of the folder share.
#[test]
fn modules_do_not_import_each_other_in_circles() {
    let source = Source::read();
    let mut circles: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for (module, file) in &source.files {
        let imports = file.uses.iter().filter_map(|path| source.resolve(path, 0));
        circles.insert(module, imports.filter(|to| !module.starts_with(to)).map(Vec::as_slice).collect());
    }
    // What imports nothing, or is imported by nothing, is in no circle.
    loop {
        let before = circles.len();
        let imported: BTreeSet<_> = circles.values().flatten().copied().collect();
        circles.retain(|module, imports| imported.contains(module) && !imports.is_empty());
        let left: BTreeSet<_> = circles.keys().copied().collect();
        circles.values_mut().for_each(|imports| imports.retain(|to| left.contains(to)));
        if circles.len() == before {
            break;
        }
    }
    let report: Vec<_> = circles.keys().map(|module| path_of(module)).collect();
    assert!(report.is_empty(), "these import each other: {report:?}");
}

fn may_import(from: &str, to: &str) -> bool {
    let are = |a: &str, b: &str| is_within(from, a) && is_within(to, b);
    let strangers = STRANGERS.iter().any(|(a, b)| are(a, b) || are(b, a));
    row(to) <= row(from) && !strangers
}

fn row(path: &str) -> usize {
    let rows = ROWS.iter().enumerate().flat_map(|(row, prefixes)| prefixes.iter().map(move |p| (row, p)));
    let best = rows.filter(|(_, prefix)| is_within(path, prefix)).max_by_key(|(_, prefix)| prefix.len());
    best.unwrap_or_else(|| panic!("{path} has no row")).0
}

fn is_within(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path of a module as the tables name it; the crate's root is `lib`.
fn path_of(module: &[String]) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("/") }
}

/// A module: the paths that it uses, and what it re-exports under which name.
#[derive(Default)]
struct File {
    uses: Vec<Vec<String>>,
    exports: BTreeMap<String, Vec<String>>,
}

/// All modules but tests, by path.
struct Source {
    files: BTreeMap<Vec<String>, File>,
}

impl Source {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut texts = BTreeMap::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                if path.is_dir() && name != "tests" {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
                    let inner = path.strip_prefix(&root).unwrap().with_extension("");
                    let mut module: Vec<_> =
                        inner.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                    module.pop_if(|last| last == "mod" || last == "lib");
                    texts.insert(module, code(&std::fs::read_to_string(path).unwrap()));
                }
            }
        }
        let mut source =
            Self { files: texts.keys().map(|module| (module.clone(), File::default())).collect() };
        for (module, text) in texts {
            let file = source.scan(&module, &text);
            source.files.insert(module, file);
        }
        source
    }

    /// Finds the paths in `use` declarations, and those in the code that begin with `crate` or `super`.
    fn scan(&self, module: &[String], text: &str) -> File {
        let mut file = File::default();
        for declaration in text.split(';') {
            let Some(start) =
                declaration.find("use ").filter(|&at| !is_word(declaration[..at].chars().last()))
            else {
                continue;
            };
            let is_export = declaration[..start].rsplit('\n').next().unwrap().contains("pub");
            for path in expand(&declaration[start + 4..]) {
                let name = path.last().unwrap().clone();
                let Some(path) = self.absolute(module, path) else { continue };
                if is_export {
                    file.exports.insert(name, path.clone());
                }
                file.uses.push(path);
            }
        }
        for first in ["crate::", "super::"] {
            for (at, _) in text.match_indices(first) {
                let before = text[..at].chars().last();
                if !is_word(before) && before != Some('$') && before != Some(':') {
                    let end = text[at..].find(|c: char| !is_word(Some(c)) && c != ':').unwrap_or(0);
                    let path = text[at..at + end].split("::").filter(|part| !part.is_empty());
                    file.uses.extend(self.absolute(module, path.map(str::to_owned).collect()));
                }
            }
        }
        file
    }

    /// The path from the crate's root; none for paths into other crates.
    fn absolute(&self, module: &[String], path: Vec<String>) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let (base, skip) = match path.first()?.as_str() {
            "crate" => (0, 1),
            "self" => (module.len(), 1),
            "super" => (module.len().checked_sub(supers)?, supers),
            _ => (module.len(), 0),
        };
        let absolute = [&module[..base], &path[skip..]].concat();
        let is_ours = skip > 0 || self.files.contains_key(&absolute[..base + 1]);
        is_ours.then_some(absolute)
    }

    /// The module that defines what a path names.
    fn resolve<'a>(&'a self, path: &'a [String], depth: usize) -> Option<&'a Vec<String>> {
        let prefixes = (0..=path.len()).rev().map(|length| &path[..length]);
        let (module, file) = prefixes.filter_map(|prefix| self.files.get_key_value(prefix)).next()?;
        let export = path.get(module.len()).and_then(|name| file.exports.get(name));
        match export.filter(|export| *export != path && depth < 8) {
            Some(export) => self.resolve(export, depth + 1),
            None => Some(module),
        }
    }
}

/// The paths of a use tree: `a::{b, c::d as e}` names `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let parts = |path: &str| -> Vec<String> {
        path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![parts(tree.split(" as ").next().unwrap())]
            .into_iter()
            .filter(|p| !p.is_empty())
            .collect();
    };
    let mut depth = 0;
    let rest = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let branches = rest.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    branches.flat_map(expand).map(|branch| [parts(head), branch].concat()).collect()
}

/// The text without comments and without the unit tests at its end.
fn code(text: &str) -> String {
    let is_test_module = |at: usize| {
        let mut lines = text[at..].lines().skip_while(|line| line.is_empty() || line.starts_with("#["));
        lines.next().is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    let tests = ["\n#[cfg(test)]", "\n#[cfg(all(test,"]
        .map(|attribute| text.match_indices(attribute).map(|(at, _)| at).find(|&at| is_test_module(at)));
    let end = tests.into_iter().flatten().min().unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

//! Checks `docs/features.md`: each test that a row names exists, no backend that the row names ignores it,
//! and for each cell there is one that runs on its backend.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;

use parking_lot::Mutex;

use wakegraph_conformance::{Need, Test};

const PAGE: &str = include_str!("../../../../docs/features.md");
/// The columns between the first and the last one, as the page heads them, with the backends' own names.
const COLUMNS: [(&str, &str); 5] =
    [("host", "host"), ("OpenCL", "opencl"), ("CUDA", "cuda"), ("Level Zero", "level_zero"), ("HIP", "hip")];

/// The tests that ran to their end, and those that a device ignored, by backend.
static OUTCOMES: LazyLock<Mutex<HashMap<(&'static str, String), bool>>> = LazyLock::new(Mutex::default);

/// Takes note that a backend has run a test, or ignored it.
pub(crate) fn record(backend: &'static str, test: &Test, ran: bool) {
    let name = format!("{}/{}", test.topic, test.name);
    *OUTCOMES.lock().entry((backend, name)).or_default() |= ran;
}

/// A cell that says that a backend has a feature, and the tests that its row names for this backend.
struct Cell {
    row: &'static str,
    backend: &'static str,
    state: &'static str,
    tests: Vec<&'static str>,
}

fn cells() -> Result<Vec<Cell>, String> {
    let mut all = Vec::new();
    for line in PAGE.lines().filter(|line| line.starts_with('|') && line.contains('`')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [row, states @ .., tests] = &cells[..] else { return Err(format!("no cells: {line}")) };
        if states.len() != COLUMNS.len() {
            return Err(format!("{} states in {line}", states.len()));
        }
        for (&state, (head, backend)) in states.iter().zip(COLUMNS) {
            match state {
                "yes" | "runtime" | "fake" | "untested" => {}
                "no" => continue,
                other => return Err(format!("no state: {other} in {line}")),
            }
            // Names are between backticks; backends may follow in parentheses.
            let pieces: Vec<&str> = tests.split('`').collect();
            let is_for = |piece: &[&str]| {
                let only = piece.get(1).and_then(|after| after.strip_prefix(" ("));
                let mut only =
                    only.and_then(|only| only.split(')').next()).into_iter().flat_map(|o| o.split(", "));
                only.clone().next().is_none() || only.any(|one| one == head)
            };
            let tests = pieces[1..].chunks(2).filter(|piece| is_for(piece)).map(|piece| piece[0]).collect();
            all.push(Cell { row, backend, state, tests });
        }
    }
    Ok(all)
}

/// Tests with a driver of their own in the place of the vendor's, so that no device of the backend runs them.
const ON_A_FAKE_DRIVER: &str = "crates/wakegraph-cuda/src/tests/";

/// Tests of NCCL's collectives, which CUDA's devices run.
const OF_NCCL: &str = "crates/wakegraph-nccl/tests/";

/// The backend that the tests of a file run on. Files that are no backend's run on the host device and on the
/// fake one.
fn backend_of(file: &str) -> &'static str {
    if file.starts_with(ON_A_FAKE_DRIVER) {
        return "fake";
    }
    if file.starts_with(OF_NCCL) {
        return "cuda";
    }
    let start = ["tests/", "crates/wakegraph-"].iter().find_map(|folder| file.strip_prefix(folder));
    let named = COLUMNS
        .iter()
        .find(|(_, backend)| start.is_some_and(|name| name.replace('-', "_").starts_with(backend)));
    named.map_or("host", |(_, backend)| backend)
}

/// Whether the file has such a test. Test binaries without the standard harness name their tests by strings:
/// whole, or as a driver's call and the rest.
fn is_test(file: &str, function: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file).with_extension("rs");
    let source = std::fs::read_to_string(&path).unwrap_or_default();
    if source.contains("libtest_mimic") {
        let of_a_call = function.split_once('_').is_some_and(|(call, rest)| {
            source.contains(&format!("\"{call}\"")) && source.contains(&format!("{{call}}_{rest}\""))
        });
        return of_a_call || ["\"", "/"].iter().any(|start| source.contains(&format!("{start}{function}\"")));
    }
    let before = source.split_once(&format!("fn {function}(")).map(|(before, _)| before);
    let attributes = before.map(|before| before.rsplit('}').next().unwrap_or_default());
    // CI has NVRTC, and runs the tests that need it.
    let runs = |text: &str| !text.contains("#[ignore") || text.contains("#[ignore = \"needs NVRTC");
    attributes.is_some_and(|text| text.contains("test") && runs(text))
}

/// What the page claims of tests that do not exist, that no device of a backend can run, or that run on other
/// backends only. `abilities`: each backend with what a device of it can do.
pub(crate) fn check(tests: &[Test], abilities: &[(&str, &[Need])]) -> Result<(), String> {
    let known: HashMap<String, &Test> =
        tests.iter().map(|test| (format!("{}/{}", test.topic, test.name), test)).collect();
    let cells = cells()?;
    let mut wrong: Vec<String> = Vec::new();
    for Cell { row, backend, state, tests } in &cells {
        let mut runs_there = false;
        for &test in tests {
            if let Some((file, function)) = test.split_once("::") {
                let runs_on = backend_of(file);
                runs_there |= match *state {
                    "fake" => ["fake", "host"].contains(&runs_on),
                    _ => runs_on == *backend,
                };
                if !is_test(file, function) {
                    wrong.push(format!("{row}: {test} is no test"));
                }
                continue;
            }
            runs_there = true;
            let Some(needs) = known.get(test).map(|test| test.needs) else {
                wrong.push(format!("{row}: no test has the name {test}"));
                continue;
            };
            // What only an open device tells is checked when all tests have run.
            let runs = |can: &[Need]| needs.iter().all(|need| need.is_told_by_device() || need.is_in(can));
            let mut own = abilities.iter().filter(|(one, _)| one == backend).map(|(_, can)| *can);
            // Devices of OpenCL are listed only where there are some.
            if own.clone().any(|can| !can.is_empty()) && !own.any(runs) {
                wrong.push(format!("{row}: {test} is ignored on {backend}"));
            }
        }
        if !runs_there && *state != "untested" {
            wrong.push(format!("{row}: no test that it names runs on {backend}"));
        }
    }
    let rows: HashSet<_> = cells.iter().map(|cell| cell.row).collect();
    assert!(rows.len() > 80, "only {} rows were read", rows.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// After all tests: what the page claims of tests that all devices of a backend have ignored.
pub(crate) fn check_outcomes() -> Result<(), String> {
    let outcomes = OUTCOMES.lock();
    let mut wrong = Vec::new();
    for Cell { row, backend, tests, .. } in cells()? {
        let is_ignored = |test: &&str| outcomes.get(&(backend, (*test).to_owned())).is_some_and(|ran| !ran);
        let ignored = tests.into_iter().filter(is_ignored);
        wrong.extend(ignored.map(|test| format!("{row}: {test} was ignored on {backend}")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

//! Checks `docs/features.md`: each test that a row names exists, and no backend that the row names ignores it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::registry::{Need, Test};

const PAGE: &str = include_str!("../../docs/features.md");
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

/// A test that a row names, for one backend.
struct Claim {
    row: &'static str,
    backend: &'static str,
    test: &'static str,
}

fn claims() -> Result<Vec<Claim>, String> {
    let mut claims = Vec::new();
    for line in PAGE.lines().filter(|line| line.starts_with('|') && line.contains('`')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [row, states @ .., tests] = &cells[..] else { return Err(format!("no cells: {line}")) };
        if states.len() != COLUMNS.len() {
            return Err(format!("{} states in {line}", states.len()));
        }
        for (state, (head, backend)) in states.iter().zip(COLUMNS) {
            match *state {
                "yes" | "runtime" | "untested" => {}
                "no" => continue,
                other => return Err(format!("no state: {other} in {line}")),
            }
            // Names are between backticks; backends may follow in parentheses.
            let pieces: Vec<&str> = tests.split('`').collect();
            for piece in pieces[1..].chunks(2) {
                let only = piece.get(1).and_then(|after| after.strip_prefix(" ("));
                let mut only =
                    only.and_then(|only| only.split(')').next()).into_iter().flat_map(|o| o.split(", "));
                if only.clone().next().is_none() || only.any(|one| one == head) {
                    claims.push(Claim { row, backend, test: piece[0] });
                }
            }
        }
    }
    Ok(claims)
}

/// What the page claims of tests that do not exist, or that no device of a backend can run. `abilities`: each
/// backend with what a device of it can do.
pub(crate) fn check(tests: &[Test], abilities: &[(&str, &[Need])]) -> Result<(), String> {
    let known: HashMap<String, &Test> =
        tests.iter().map(|test| (format!("{}/{}", test.topic, test.name), test)).collect();
    let claims = claims()?;
    let mut wrong: Vec<String> = Vec::new();
    for Claim { row, backend, test } in &claims {
        if let Some((file, function)) = test.split_once("::") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file).with_extension("rs");
            let source = std::fs::read_to_string(&path).unwrap_or_default();
            let before = source.split_once(&format!("fn {function}(")).map(|(before, _)| before);
            let attributes = before.map(|before| before.rsplit('}').next().unwrap_or_default());
            // Test binaries without the standard harness name their tests by strings.
            let is_listed = source.contains("libtest_mimic") && source.contains(&format!("\"{function}\""));
            let is_test = attributes.is_some_and(|text| text.contains("test") && !text.contains("#[ignore"));
            if !is_listed && !is_test {
                wrong.push(format!("{row}: {test} is no test"));
            }
            continue;
        }
        let Some(needs) = known.get(*test).map(|test| test.needs) else {
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
    let rows: HashSet<_> = claims.iter().map(|claim| claim.row).collect();
    assert!(rows.len() > 80, "only {} rows were read", rows.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// After all tests: what the page claims of tests that all devices of a backend have ignored.
pub(crate) fn check_outcomes() -> Result<(), String> {
    let outcomes = OUTCOMES.lock();
    let ignored = claims()?.into_iter().filter(|Claim { backend, test, .. }| {
        outcomes.get(&(*backend, (*test).to_owned())).is_some_and(|ran| !ran)
    });
    let wrong: Vec<_> = ignored
        .map(|Claim { row, backend, test }| format!("{row}: {test} was ignored on {backend}"))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

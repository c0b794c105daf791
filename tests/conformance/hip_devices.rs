//! HIP's devices: AMD's own runtime in two versions over the HSA runtime of `tests/hsa_runtime`, which plays two GPUs:
//! one device, two devices, and one beside a host device. And the first device of the system's own runtime, if it has one.
//!
//! The runtime needs a newer C library than the system may have, so each version's tests run in a copy of this program,
//! after all others: a process with the linker and the libraries of that version, which runs nothing else and is given
//! the same arguments. That takes many minutes, so a filter that begins with `hip/` or `WAKEGRAPH_REQUIRE` has to ask for
//! it.

#![expect(unsafe_code, reason = "ends the process of a child")]

use std::ffi::c_int;
use std::io::Write as _;

use libtest_mimic::Arguments;
use wakegraph::{Error, ErrorKind, backend};

use crate::hip_stack::{HipStack, VERSIONS};
use crate::registry::{Devices, Need, Variant};

const ONE: &[Need] = &[Need::Results, Need::Doubles];
const TWO: &[Need] = &[Need::Results, Need::Doubles, Need::TwoDevices];

/// Names the version whose tests a process is to run.
const CHILD: &str = "WAKEGRAPH_CONFORMANCE_HIP";

fn variant(device: impl Into<String>, can: &'static [Need], open: impl Fn() -> Devices + 'static) -> Variant {
    let device = device.into().into();
    Variant { backend: "hip", device, can, is_required_with_backend: true, open: Box::new(open) }
}

/// The system's own device. The versions that this process does not run are there by name, with the reason.
pub(crate) fn variants() -> Vec<Variant> {
    let own = variant("0", ONE, || Ok(vec![backend::open("hip:0")?]));
    let mut variants = vec![Variant { is_required_with_backend: false, ..own }];
    for version in VERSIONS {
        if let Err(reason) = HipStack::check(version).and_then(|()| check_asked_for(version)) {
            let absent = move || Err(Error::new(ErrorKind::Unavailable, reason.clone()));
            variants.push(variant(version, ONE, absent));
        }
    }
    variants
}

/// In a process that runs the tests of one version: its devices, and no others.
pub(crate) fn variants_of_child() -> Option<Vec<Variant>> {
    let version = std::env::var(CHILD).ok()?;
    let open = |selectors: &'static [&str]| {
        move || selectors.iter().map(|selector| backend::open(selector)).collect::<Devices>()
    };
    Some(vec![
        variant(&*version, ONE, open(&["hip:0"])),
        variant(format!("{version}-two-devices"), TWO, open(&["hip:0", "hip:1"])),
        variant(format!("{version}-and-host"), TWO, open(&["hip:0", "host:0"])),
    ])
}

/// Says why the tests of a version do not run, unless they are asked for.
fn check_asked_for(version: &str) -> Result<(), String> {
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default();
    let is_asked_for = match Arguments::from_args().filter {
        Some(filter) => {
            let name = format!("hip/{version}");
            filter.starts_with(&name) || name.starts_with(&filter) && filter.starts_with("hip")
        }
        None => required.split(',').any(|name| name.trim() == "hip"),
    };
    let how = format!("takes minutes: ask for it by the filter hip/{version} or WAKEGRAPH_REQUIRE=hip");
    is_asked_for.then_some(()).ok_or(how)
}

/// Runs the tests of each version that is there, if they are asked for. Whether all have passed.
pub(crate) fn run_children() -> bool {
    let is_child = std::env::var_os(CHILD).is_some();
    let mut all_passed = true;
    for version in VERSIONS {
        if is_child || check_asked_for(version).is_err() {
            continue;
        }
        let Ok(stack) = HipStack::prepare(version) else { continue };
        let mut process = stack.command();
        process.args(std::env::args_os().skip(1)).env(CHILD, version).env("WAKEGRAPH_HSA_GPUS", "2");
        match process.status() {
            Ok(status) if status.success() => {}
            outcome => {
                eprintln!("the tests on HIP {version} have failed: {outcome:?}");
                all_passed = false;
            }
        }
    }
    all_passed
}

unsafe extern "C" {
    fn _exit(code: c_int) -> !;
}

/// Ends a process that [`run_children`] has started. HIP's threads do not survive the destructors of its library, which
/// would run otherwise.
pub(crate) fn leave_child(has_failed: bool) {
    if std::env::var_os(CHILD).is_some() {
        let _ = std::io::stdout().flush();
        // SAFETY: nothing has to happen any more in this process.
        unsafe { _exit(c_int::from(has_failed)) }
    }
}

//! HIP's devices: AMD's own runtime in two versions over the HSA runtime of
//! `crates/wakegraph-hip/tests/hsa_runtime`, which plays two GPUs: one device, two devices with and without
//! access to each other's memory, one beside a host device, and the other ways in which the runtime can
//! launch graphs. And the first device of the system's own runtime, if it has one.
//!
//! The runtime needs a newer C library than the system may have, and reads its settings when it starts. So
//! tests run in copies of this program, after all others: each is a process with the linker and the libraries
//! of a version, which runs nothing else and is given the same arguments. That takes many minutes, so a
//! filter that begins with `hip/` or `WAKEGRAPH_REQUIRE` has to ask for it.

#![expect(unsafe_code, reason = "ends the process of a child")]

use std::ffi::c_int;
use std::io::Write as _;

use libtest_mimic::Arguments;
use wakegraph::{Error, ErrorKind, backend};

use crate::hip_stack::HipStack;
use wakegraph_conformance::{Devices, Need, Variant};

const ONE: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles];
const TWO: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles, Need::TwoDevices];

/// Names the process of [`PROCESSES`] that a copy of this program is.
const CHILD: &str = "WAKEGRAPH_CONFORMANCE_HIP";

/// A process with a version of the runtime.
struct HipProcess {
    /// Also how the names of its devices begin.
    name: &'static str,
    version: &'static str,
    environment: &'static [(&'static str, &'static str)],
    devices: &'static [HipDevices],
}

/// The end of a name, and the devices that it stands for.
type HipDevices = (&'static str, &'static [Need], &'static [&'static str]);

const ONE_DEVICE: HipDevices = ("", ONE, &["hip:0"]);
const TWO_DEVICES: HipDevices = ("-two-devices", TWO, &["hip:0", "hip:1"]);
const AND_HOST: HipDevices = ("-and-host", TWO, &["hip:0", "host:0"]);
const ALL: &[HipDevices] = &[ONE_DEVICE, TWO_DEVICES, AND_HOST];
const WITHOUT_PEERS: HipDevices = ("", TWO, &["hip:0", "hip:1"]);

const PROCESSES: &[HipProcess] = &[
    HipProcess { name: "6.4.3", version: "6.4.3", environment: &[], devices: ALL },
    HipProcess {
        name: "6.4.3-two-devices-without-peer-access",
        version: "6.4.3",
        environment: &[("WAKEGRAPH_HSA_PEERS", "0")],
        devices: &[WITHOUT_PEERS],
    },
    HipProcess {
        name: "6.4.3-packet-capture-off",
        version: "6.4.3",
        environment: &[("DEBUG_CLR_GRAPH_PACKET_CAPTURE", "0")],
        devices: &[ONE_DEVICE],
    },
    HipProcess {
        name: "6.4.3-packet-capture-on",
        version: "6.4.3",
        environment: &[("DEBUG_CLR_GRAPH_PACKET_CAPTURE", "1")],
        devices: &[ONE_DEVICE],
    },
    HipProcess { name: "5.7.1", version: "5.7.1", environment: &[], devices: ALL },
];

impl HipProcess {
    /// The names of its devices, as tests have them.
    fn names(&self) -> impl Iterator<Item = String> {
        self.devices.iter().map(|(end, ..)| format!("{}{end}", self.name))
    }

    /// Says why the tests on none of its devices run, unless they are asked for.
    fn check_asked_for(&self) -> Result<(), String> {
        let mut reason = Ok(());
        for name in self.names() {
            reason = check_asked_for(&name);
            if reason.is_ok() {
                break;
            }
        }
        reason
    }
}

fn variant(device: impl Into<String>, can: &'static [Need], open: impl Fn() -> Devices + 'static) -> Variant {
    let device = device.into().into();
    Variant { backend: "hip", device, can, is_required_with_backend: true, open: Box::new(open) }
}

/// What the devices of all processes can do.
pub(crate) fn abilities() -> impl Iterator<Item = &'static [Need]> {
    PROCESSES.iter().flat_map(|process| process.devices).map(|(_, can, _)| *can)
}

/// The system's own device. The devices that no process of these tests plays are there by name, with the
/// reason.
pub(crate) fn variants() -> Vec<Variant> {
    let own = variant("0", ONE, || Ok(vec![backend::open("hip:0")?]));
    let mut variants = vec![Variant { is_required_with_backend: false, ..own }];
    for process in PROCESSES {
        if let Err(reason) = HipStack::check(process.version).and_then(|()| process.check_asked_for()) {
            for (name, (_, can, _)) in process.names().zip(process.devices) {
                let reason = reason.clone();
                let absent = move || Err(Error::new(ErrorKind::Unavailable, reason.clone()));
                variants.push(variant(name, can, absent));
            }
        }
    }
    variants
}

/// In a process of [`PROCESSES`]: its devices, and no others.
pub(crate) fn variants_of_child() -> Option<Vec<Variant>> {
    let own = std::env::var(CHILD).ok()?;
    let process = PROCESSES.iter().find(|process| process.name == own).expect("one of the processes");
    let open = |selectors: &'static [&str]| {
        move || selectors.iter().map(|selector| backend::open(selector)).collect::<Devices>()
    };
    let variants = process.names().zip(process.devices);
    Some(variants.map(|(name, (_, can, selectors))| variant(name, can, open(selectors))).collect())
}

/// Says why the tests on these devices do not run, unless they are asked for.
fn check_asked_for(devices: &str) -> Result<(), String> {
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default();
    let name = format!("hip/{devices}");
    let is_asked_for = match Arguments::from_args().filter {
        Some(filter) => {
            let tests = format!("{name}/");
            filter.starts_with(&tests) || tests.starts_with(&filter) && filter.starts_with("hip")
        }
        None => required.split(',').map(str::trim).any(|listed| listed == "hip" || listed == name),
    };
    let how = format!("takes minutes: ask for it by the filter {name} or WAKEGRAPH_REQUIRE={name}");
    is_asked_for.then_some(()).ok_or(how)
}

/// Runs the processes whose tests are asked for, if their version is there. Whether all have passed.
pub(crate) fn run_children() -> bool {
    let is_child = std::env::var_os(CHILD).is_some();
    let mut all_passed = true;
    for process in PROCESSES {
        if is_child || process.check_asked_for().is_err() {
            continue;
        }
        let Ok(stack) = HipStack::prepare(process.version) else { continue };
        let mut command = stack.command();
        command.args(std::env::args_os().skip(1)).env(CHILD, process.name).env("WAKEGRAPH_HSA_GPUS", "2");
        match command.envs(process.environment.iter().copied()).status() {
            Ok(status) if status.success() => {}
            outcome => {
                eprintln!("the tests on HIP {} have failed: {outcome:?}", process.name);
                all_passed = false;
            }
        }
    }
    all_passed
}

unsafe extern "C" {
    fn _exit(code: c_int) -> !;
}

/// Ends a process that [`run_children`] has started. HIP's threads do not survive the destructors of its
/// library, which would run otherwise.
pub(crate) fn leave_child(has_failed: bool) {
    if std::env::var_os(CHILD).is_some() {
        let _ = std::io::stdout().flush();
        // SAFETY: nothing has to happen any more in this process.
        unsafe { _exit(c_int::from(has_failed)) }
    }
}

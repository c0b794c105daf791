//! Work that goes back and forth between two GPUs, which wait for each other without the host.

use wakegraph::hal::MemoryKind;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range, WakePolicy};

use crate::raw::{Raw, RawGraph};
use crate::support::{Contender, Report, Row};
use crate::{One, POLICIES, bump, memory_of, runtimes};

/// Kernels in the chain, on the two devices in turn.
const STEPS: usize = 10;

pub(crate) fn rows(report: &mut Report, first: &Device, raw: &Raw) {
    let runtimes = runtimes();
    let all = runtimes.iter().flat_map(|(flavour, _)| POLICIES.map(|(policy, _)| names(policy, flavour)));
    if !all.flatten().any(|name| report.wants(&name)) {
        return;
    }
    let second = match Device::open("cuda:1") {
        Ok(device) => device,
        Err(error) => {
            eprintln!("two_devices: nothing to measure: {error}");
            return;
        }
    };
    let devices = [first, &second];
    let raw = [raw, &Raw::open(&second)];
    for (flavour, runtime) in runtimes {
        for (policy_name, policy) in POLICIES {
            devices.iter().for_each(|device| device.set_wake_policy(policy));
            let [name, with_copies] = names(policy_name, flavour);
            let row = Row::new(&name).limit(1.15);
            let ours = Several::new(|| One(back_and_forth(devices)));
            report.race(row, &runtime, ours, Several::new(|| Relay::new(raw)));
            if reach_each_other(devices) {
                let row = Row::new(&with_copies).limit(1.15);
                let ours = Several::new(|| One(handed_over(devices)));
                report.race(row, &runtime, ours, Several::new(|| Relay::with_copies(raw)));
            } else {
                eprintln!("two_devices_copies: nothing to measure: the devices have no direct path");
            }
        }
    }
    devices.iter().for_each(|device| device.set_wake_policy(WakePolicy::default()));
}

fn names(policy: &str, flavour: &str) -> [String; 2] {
    ["two_devices", "two_devices_copies"].map(|row| format!("{row}_{policy}_{flavour}"))
}

/// Whether each can copy from the other's memory; from then on it may.
fn reach_each_other([a, b]: [&Device; 2]) -> bool {
    let reaches = |device: &Device, other: &Device| {
        let desc = wakegraph::hal::MemoryDesc::new(64, MemoryKind::Device);
        let memory = other.hal().allocate(&desc).expect("a little memory");
        device.hal().can_access(&*memory)
    };
    reaches(a, b) && reaches(b, a)
}

/// Each kernel after the one before, which runs on the other device.
fn back_and_forth(devices: [&Device; 2]) -> ExecutableGraph {
    let memory = devices.map(memory_of);
    let mut graph = Graph::new(devices[0]);
    let mut last = None;
    for step in 0..STEPS {
        let node = graph.launch(bump(1, &memory[step % 2]), Range::linear(1)).after(last);
        last = Some(node.id());
    }
    graph.finalize().expect("a valid graph")
}

/// Each kernel on what the one before has made, copied from the other device.
fn handed_over(devices: [&Device; 2]) -> ExecutableGraph {
    let memory: Vec<Buffer<u32>> = (0..STEPS).map(|step| memory_of(devices[step % 2])).collect();
    let mut graph = Graph::new(devices[0]);
    graph.launch(bump(1, &memory[0]), Range::linear(1));
    for step in 1..STEPS {
        graph.copy(&memory[step - 1], &memory[step]);
        graph.launch(bump(1, &memory[step]), Range::linear(1));
    }
    graph.finalize().expect("a valid graph")
}

/// Several of the same, a few calls each in turn: which streams a graph got decides, as long as it
/// lives, whether it takes 40 or 53 us by hand.
struct Several<T> {
    all: Vec<T>,
    calls: usize,
}

/// Each turn of a row, of 50 calls, comes to all.
const SEVERAL: usize = 10;
const CALLS_EACH: usize = 5;

impl<T> Several<T> {
    fn new(one: impl Fn() -> T) -> Self {
        Self { all: (0..SEVERAL).map(|_| one()).collect(), calls: 0 }
    }
}

impl<T: Contender> Contender for Several<T> {
    async fn once(&mut self) {
        let index = self.calls / CALLS_EACH % SEVERAL;
        self.calls += 1;
        self.all[index].once().await;
    }
}

/// The same by hand: a stream a device, and events between them.
struct Relay {
    steps: Vec<RawGraph>,
}

impl Relay {
    fn new(raw: [&Raw; 2]) -> Self {
        Self { steps: (0..STEPS).map(|step| raw[step % 2].chain(1)).collect() }
    }

    fn with_copies(raw: [&Raw; 2]) -> Self {
        let mut steps = vec![raw[0].chain(1)];
        for step in 1..STEPS {
            let next = raw[step % 2].copied_from(&steps[step - 1]);
            steps.push(next);
        }
        Self { steps }
    }
}

impl Contender for Relay {
    async fn once(&mut self) {
        for (index, step) in self.steps.iter().enumerate() {
            step.bind();
            let before = index.checked_sub(1).map(|before| &self.steps[before]);
            step.relay(&self.steps[index % 2], before);
        }
        self.steps[(STEPS - 1) % 2].synchronize();
    }
}

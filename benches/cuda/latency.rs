//! One submission at a time.

use tokio::runtime::Runtime;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range};

use crate::raw::{Raw, RawGraph};
use crate::support::load::Load;
use crate::support::{Contender, Report, Row};
use crate::{One, POLICIES, bump, chain_on, memory_of, runtimes};

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    for (flavour, runtime) in runtimes() {
        for (policy_name, policy) in POLICIES {
            device.set_wake_policy(policy);
            let limit = if policy_name == "latency" { 1.0 } else { 1.3 };
            for (len, rounds) in [(1, 200), (10, 200), (100, 60)] {
                let name = format!("chain_{len}_{policy_name}_{flavour}");
                let row = Row::new(&name).limit(limit).rounds(rounds, 50);
                let x = memory_of(device);
                let (ours, base) = (One(chain_on(device, len, &x)), Synchronized(raw.chain_on(len, &x)));
                report.race(row, &runtime, ours, base);
            }
            let name = format!("host_hop_{policy_name}_{flavour}");
            let row = Row::new(&name).limit(1.0);
            let x = memory_of(device);
            let base = Twice(raw.chain_on(1, &x), raw.chain_on(1, &x));
            report.race(row, &runtime, One(hop(device, &x)), base);
        }
        device.set_wake_policy(wakegraph::WakePolicy::default());
        busy(report, device, raw, flavour, &runtime);
    }
    without_context(report, device, raw);
}

/// A submission on a thread that has no context beside one on a thread that has ours.
fn without_context(report: &mut Report, device: &Device, raw: &Raw) {
    let x = memory_of(device);
    let [ours, base] = [false, true].map(|is_current| {
        let exec = One(chain_on(device, 1, &x));
        InContext { exec, raw: raw.clone(), is_current }
    });
    device.set_wake_policy(wakegraph::WakePolicy::Latency);
    let row = Row::new("chain_1_without_context").limit(1.1);
    report.race(row, &crate::support::current_thread(), ours, base);
    device.set_wake_policy(wakegraph::WakePolicy::default());
    raw.make_current(true);
}

struct InContext {
    exec: One,
    raw: Raw,
    is_current: bool,
}

impl Contender for InContext {
    async fn once(&mut self) {
        self.raw.make_current(self.is_current);
        self.exec.once().await;
    }
}

/// The shortest rows, while another program keeps every core busy.
fn busy(report: &mut Report, device: &Device, raw: &Raw, flavour: &str, runtime: &Runtime) {
    let (chain_1, hop_name) = (format!("busy_chain_1_{flavour}"), format!("busy_hop_{flavour}"));
    if !report.wants(&chain_1) && !report.wants(&hop_name) {
        return;
    }
    let _load = Load::on_every_core();
    let row = |name| Row::new(name).limit(1.2).rounds(50, 50);
    let x = memory_of(device);
    report.race(row(&chain_1), runtime, One(chain_on(device, 1, &x)), Synchronized(raw.chain_on(1, &x)));
    let base = Twice(raw.chain_on(1, &x), raw.chain_on(1, &x));
    report.race(row(&hop_name), runtime, One(hop(device, &x)), base);
}

/// Kernel, async host task, kernel.
fn hop(device: &Device, x: &Buffer<u32>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    let first = graph.launch(bump(1, x), Range::linear(1)).id();
    let task = graph.host_task((), async |()| ()).after([first]).id();
    graph.launch(bump(1, x), Range::linear(1)).after([task]);
    graph.finalize().expect("a valid graph")
}

/// Launch and synchronize.
pub(crate) struct Synchronized(pub(crate) RawGraph);

impl Contender for Synchronized {
    async fn once(&mut self) {
        self.0.bind();
        self.0.launch();
        self.0.synchronize();
    }
}

/// Two launches with the host in between.
struct Twice(RawGraph, RawGraph);

impl Contender for Twice {
    async fn once(&mut self) {
        self.0.bind();
        self.0.launch();
        self.0.synchronize();
        self.1.launch();
        self.1.synchronize();
    }
}

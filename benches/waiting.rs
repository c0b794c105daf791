//! What it costs to wait for long work on a device that does not notify: CPU, time, polls. No
//! device is needed: it is one whose calls cost about what a GPU's do, and whose work takes 10 ms.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `wait_N_POLICY_RUNTIME_cpu` | CPU microseconds of the process for a round of N submissions, each awaited by a task | enqueue, sleep until shortly before the end, poll each | for the current-thread runtime, in `main`: what two shared cores take, and a fifth |
//! | `…_late` | microseconds from when the last is over until all tasks have seen it | the same | none |
//! | `…_polls` | polls of events in a round | the same | none |
//! | `…_threads` | CPU microseconds of the runtime's threads; in place of the base, of the reactor | | none |
//! | `…_switches` | how often a thread went to sleep in a round | the same | none |
//!
//! `RUNTIME` is `current` or `multi`, and with `_task` the reactor runs there, too.
//!
//! Medians over rounds: the time that threads spend is theirs whatever else the machine does, how
//! late they are is not.
#![expect(unsafe_code, reason = "the base enqueues by hand, and reads the CPU clock")]

mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::{Report, cpu};
use tokio::runtime::{Builder, Runtime};
use wakegraph::hal::{
    self, CommandBuffer, CommandBufferDesc, EventDesc, QueueDesc, QueueOrder, Signal, WaitList,
};
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions, FakeTiming};
use wakegraph::{Device, ExecutableGraph, Graph, WakePolicy};

const WORK: Duration = Duration::from_millis(10);
/// As measured on one H200.
const TIMING: FakeTiming = FakeTiming {
    work: WORK,
    enqueue: Duration::from_nanos(2700),
    pending_status: Duration::from_nanos(250),
    final_status: Duration::from_nanos(1200),
};
/// How long before the last end the base begins to poll.
const EARLY: Duration = Duration::from_micros(80);

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let workers =
        Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a tokio runtime");
    for (flavour, runtime, on_runtime) in [
        ("current", &support::current_thread(), false),
        ("multi", &workers, false),
        ("current_task", &support::current_thread(), true),
        ("multi_task", &workers, true),
    ] {
        for (count, policy, name, limit) in [
            (1, WakePolicy::Balanced, "balanced", Some(180.0)),
            (1, WakePolicy::Latency, "latency", None),
            (1, WakePolicy::Efficient, "efficient", Some(100.0)),
            (8, WakePolicy::Balanced, "balanced", None),
            (64, WakePolicy::Balanced, "balanced", Some(650.0)),
            (64, WakePolicy::Latency, "latency", None),
            (64, WakePolicy::Efficient, "efficient", Some(650.0)),
        ] {
            let name = format!("wait_{count}_{name}_{flavour}");
            if report.wants(&name) {
                row(
                    &mut report,
                    &name,
                    runtime,
                    on_runtime,
                    count,
                    policy,
                    limit.filter(|_| flavour == "current"),
                );
            }
        }
    }
    report.finish()
}

fn row(
    report: &mut Report,
    name: &str,
    runtime: &Runtime,
    on_runtime: bool,
    count: usize,
    policy: WakePolicy,
    limit: Option<f64>,
) {
    let rounds = report.reduced(60);
    let (hal, control) = FakeDevice::open(FakeOptions::new().timing(TIMING));
    let device = Device::from_hal(hal.clone());
    device.set_wake_policy(policy);
    if on_runtime {
        device.run_reactor_on(runtime.handle()).expect("a runtime with timers");
    }
    let execs: Vec<_> = (0..count).map(|_| exec(&device)).collect();
    let ours = measure(rounds, &control, || runtime.block_on(all(&execs)));
    let by_hand: Vec<_> = (0..count).map(|_| ByHand::new(&*hal)).collect();
    let base = measure(rounds, &control, || by_hand_round(&by_hand));
    let mut figure = |what: &str, ours: f64, base: f64, unit: &str, limit: Option<f64>| {
        report.figure(&format!("{name}_{what}"), ours, base, unit, limit.is_some_and(|limit| ours > limit));
    };
    figure("cpu", ours.cpu, base.cpu, "us", limit);
    figure("late", ours.late, base.late, "us", None);
    figure("polls", ours.polls, base.polls, "polls", None);
    figure("threads", ours.cpu - ours.reactor, ours.reactor, "us", None);
    figure("switches", ours.switches, base.switches, "switches", None);
}

fn exec(device: &Device) -> ExecutableGraph {
    let x = device.buffer::<u32>(16).expect("a small buffer");
    let mut graph = Graph::new(device);
    graph.fill(&x, 1);
    graph.finalize().expect("a valid graph")
}

/// Submits all, each from a task of its own, as a service would. Gives when the last of them was submitted.
async fn all(execs: &[ExecutableGraph]) -> Instant {
    let run = |exec: ExecutableGraph| async move {
        let submission = exec.submit();
        let submitted = Instant::now();
        submission.await.expect("a run");
        submitted
    };
    let tasks: Vec<_> = execs.iter().map(|exec| tokio::spawn(run(exec.clone()))).collect();
    let mut last = Instant::now();
    for task in tasks {
        last = last.max(task.await.expect("no panic"));
    }
    last
}

/// What one would write by hand for one piece of work.
struct ByHand {
    queue: Arc<dyn hal::Queue>,
    event: Arc<dyn hal::Event>,
    buffer: Box<dyn CommandBuffer>,
}

impl ByHand {
    fn new(device: &dyn hal::Device) -> Self {
        // Empty: what it does is all the same here.
        let mut buffer = device.create_command_buffer(&CommandBufferDesc::new()).expect("a buffer");
        buffer.finalize().expect("a valid buffer");
        Self {
            queue: device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).expect("a queue"),
            event: device.create_event(&EventDesc::new()).expect("an event"),
            buffer,
        }
    }

    fn enqueue(&self) {
        let signal = Signal::new(&self.event);
        // SAFETY: the buffer has no command that could touch memory.
        unsafe { self.buffer.enqueue(&*self.queue, WaitList::NONE, signal) }.expect("an enqueue");
    }
}

fn by_hand_round(all: &[ByHand]) -> Instant {
    all.iter().for_each(ByHand::enqueue);
    let last = Instant::now();
    thread::sleep((WORK - EARLY).saturating_sub(last.elapsed()));
    for one in all {
        while !one.event.status().is_final() {
            std::hint::spin_loop();
        }
    }
    last
}

/// Of a round.
struct Measured {
    cpu: f64,
    reactor: f64,
    late: f64,
    polls: f64,
    switches: f64,
}

fn measure(rounds: usize, control: &FakeControl, mut round: impl FnMut() -> Instant) -> Measured {
    let mut all: [Vec<f64>; 5] = Default::default();
    // The first ones teach the predictions.
    for index in 0..rounds + 20 {
        let (threads, polls, cpu) = (Threads::now(), control.polls(), cpu::seconds());
        let last = round();
        let late = last.elapsed().as_secs_f64() * 1e6 - WORK.as_secs_f64() * 1e6;
        let cpu = cpu::seconds() - cpu;
        let after = Threads::now();
        let values = [
            cpu * 1e6,
            after.reactor - threads.reactor,
            late,
            (control.polls() - polls) as f64,
            after.switches - threads.switches,
        ];
        if index >= 20 {
            all.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        }
    }
    let [cpu, reactor, late, polls, switches] = all.each_ref().map(|values| support::median(values));
    Measured { cpu, reactor, late, polls, switches }
}

/// What the process' threads have done so far.
#[derive(Default)]
struct Threads {
    /// Microseconds of CPU of the threads that poll devices.
    reactor: f64,
    /// Voluntary context switches of all.
    switches: f64,
}

impl Threads {
    /// Nothing where the system does not tell.
    fn now() -> Self {
        let mut threads = Self::default();
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return threads };
        for task in tasks.flatten() {
            let read = |what: &str| std::fs::read_to_string(task.path().join(what)).unwrap_or_default();
            if read("comm").starts_with("wakegraph-react") {
                let on_cpu = read("schedstat").split(' ').next().and_then(|time| time.parse().ok());
                threads.reactor += on_cpu.unwrap_or(0.0) / 1e3;
            }
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            threads.switches += line.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0);
        }
        threads
    }
}

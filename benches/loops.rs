//! A loop of 1,000 iterations that the runtime drives, beside one that is written by hand around two
//! executables: the body, and a copy of the flag to the host. And a loop about which a GPU decides,
//! beside one of CUDA's own. The same of a switch with four bodies.
//!
//! | row | body | limit |
//! |---|---|---|
//! | `loop_1000_host_*` | a kernel and a host task, on the host device | 1.1 |
//! | `loop_1000_opencl:N_*` | a kernel, on each OpenCL device without loops of its own | 1.1 |
//! | `loop_1000_cuda_*` | a kernel; the base is a conditional node by hand, which nothing can stop | |
//! | `switch_4_host_*` | a kernel; the host device decides, where the base has two submissions | |
//! | `switch_4_opencl:N_*` | a kernel, on each OpenCL device without switches of its own | 1.2 |
//! | `switch_4_cuda_*` | a kernel; the base is a conditional node by hand | |
//!
//! Figures are per iteration, and per run of a switch. Each row runs in a tokio runtime of the current thread
//! and in one of two workers.

#![expect(unsafe_code, reason = "declares device code")]

#[path = "support/raw_cuda_control.rs"]
mod raw_cuda_control;
mod support;

use std::process::ExitCode;

use raw_cuda_control::RawControl;
use support::{Contender, Report, Row};
use wakegraph::capabilities::CommandKinds;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, HostBuffer, Range};

const ITERATIONS: u32 = 1000;
/// Bodies of a switch.
const BODIES: u32 = 4;

wakegraph::kernel! {
    /// x = x - 1
    fn count_down(x: &mut [u32]) {
        item: |i, x| x[i] -= 1,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(count_down, (SLICE(u32, x))) { x[GLOBAL_ID(0)] -= 1; }" },
    }
    /// x = (x + 1) % numbers
    fn turn(numbers: u32, x: &mut [u32]) {
        item: |i, numbers, x| x[i] = (x[i] + 1) % numbers,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(turn, (u32 numbers, SLICE(u32, x))) {
                         x[GLOBAL_ID(0)] = (x[GLOBAL_ID(0)] + 1) % numbers;
                     }" },
    }
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let host = Device::open("host:0").expect("a host device");
    rows(&mut report, "host", &host, true);
    switches(&mut report, "host", &host, None);
    if let Ok(device) = Device::open("cuda:0") {
        for (flavour, runtime) in [("current", support::current_thread()), ("multi", support::multi_thread())]
        {
            let name = format!("loop_1000_cuda_{flavour}");
            let row = Row::new(&name).rounds(20, 5).operations(ITERATIONS as usize);
            report.race(row, &runtime, ByGraph::new(&device, false), ByDriver::new(&device));
            // The driver has such nodes from CUDA 12.8 on.
            if device.capabilities().commands.contains(CommandKinds::SWITCH) {
                let name = format!("switch_4_cuda_{flavour}");
                let row = Row::new(&name).rounds(100, 50);
                report.race(row, &runtime, SwitchByGraph::new(&device), SwitchByDriver::new(&device));
            }
        }
    }
    for index in 0.. {
        let Ok(device) = Device::open(&format!("opencl:{index}")) else { break };
        println!("{device:?}");
        if !device.capabilities().commands.contains(CommandKinds::WHILE) {
            rows(&mut report, &format!("opencl:{index}"), &device, false);
        }
        if !device.capabilities().commands.contains(CommandKinds::SWITCH) {
            switches(&mut report, &format!("opencl:{index}"), &device, Some(1.2));
        }
    }
    report.finish()
}

fn rows(report: &mut Report, name: &str, device: &Device, has_task: bool) {
    for (flavour, runtime) in [("current", support::current_thread()), ("multi", support::multi_thread())] {
        let name = format!("loop_1000_{name}_{flavour}");
        let row = Row::new(&name).limit(1.1).rounds(20, 1).operations(ITERATIONS as usize);
        report.race(row, &runtime, ByGraph::new(device, has_task), ByHand::new(device, has_task));
    }
}

fn switches(report: &mut Report, name: &str, device: &Device, limit: Option<f64>) {
    for (flavour, runtime) in [("current", support::current_thread()), ("multi", support::multi_thread())] {
        let name = format!("switch_4_{name}_{flavour}");
        let row = Row::new(&name).rounds(100, 20);
        let row = limit.map_or(row, |limit| row.limit(limit));
        report.race(row, &runtime, SwitchByGraph::new(device), SwitchByHand::new(device));
    }
}

/// The flag of a loop, the executable that sets it to the number of iterations, and the loop's body.
struct Parts {
    flag: Buffer<u32>,
    start: ExecutableGraph,
    body: Graph,
}

impl Parts {
    fn new(device: &Device, has_task: bool) -> Self {
        let flag = device.buffer::<u32>(1).expect("a small buffer");
        let mut start = Graph::new(device);
        start.fill(&flag, ITERATIONS);
        let mut body = Graph::new(device);
        body.launch(count_down(&flag), Range::linear(1));
        if has_task {
            body.host_task((), async |()| {});
        }
        Self { flag, start: start.finalize().expect("a valid graph"), body }
    }
}

struct ByGraph {
    start: ExecutableGraph,
    exec: ExecutableGraph,
}

impl ByGraph {
    fn new(device: &Device, has_task: bool) -> Self {
        let Parts { flag, start, body } = Parts::new(device, has_task);
        let mut graph = Graph::new(device);
        graph.while_nonzero(&flag, &body);
        Self { start, exec: graph.finalize().expect("a valid graph") }
    }
}

impl Contender for ByGraph {
    async fn once(&mut self) {
        self.start.submit().await.expect("a run");
        self.exec.submit().await.expect("a run");
    }
}

/// CUDA's own loop.
struct ByDriver {
    by_hand: RawControl,
    _flag: Buffer<u32>,
}

impl ByDriver {
    fn new(device: &Device) -> Self {
        let flag = device.buffer::<u32>(1).expect("a small buffer");
        let address = flag.address().expect("an address") as u64;
        Self { by_hand: RawControl::counting(address), _flag: flag }
    }
}

impl Contender for ByDriver {
    async fn once(&mut self) {
        self.by_hand.run_from(ITERATIONS);
    }
}

struct ByHand {
    start: ExecutableGraph,
    body: ExecutableGraph,
    read: ExecutableGraph,
    word: HostBuffer<u32>,
}

impl ByHand {
    fn new(device: &Device, has_task: bool) -> Self {
        let Parts { flag, start, body } = Parts::new(device, has_task);
        let word = device.host_buffer::<u32>(1).expect("a small buffer");
        let mut read = Graph::new(device);
        read.copy(&flag, &word);
        let [body, read] = [body, read].map(|graph| graph.finalize().expect("a valid graph"));
        Self { start, body, read, word }
    }
}

impl Contender for ByHand {
    async fn once(&mut self) {
        self.start.submit().await.expect("a run");
        loop {
            self.read.submit().await.expect("a run");
            if self.word.read().await[0] == 0 {
                return;
            }
            self.body.submit().await.expect("a run");
        }
    }
}

/// The body of a switch: a kernel that makes the index that of the next body.
fn turning(index: &Buffer<u32>) -> Graph {
    let mut body = Graph::new(index.device());
    body.launch(turn(BODIES, index), Range::linear(1));
    body
}

struct SwitchByGraph(ExecutableGraph);

impl SwitchByGraph {
    fn new(device: &Device) -> Self {
        let index = device.buffer::<u32>(1).expect("a small buffer");
        let bodies = [(); BODIES as usize].map(|()| turning(&index));
        let mut graph = Graph::new(device);
        graph.switch(&index, &bodies);
        Self(graph.finalize().expect("a valid graph"))
    }
}

impl Contender for SwitchByGraph {
    async fn once(&mut self) {
        self.0.submit().await.expect("a run");
    }
}

/// CUDA's own switch.
struct SwitchByDriver {
    by_hand: RawControl,
    _index: Buffer<u32>,
}

impl SwitchByDriver {
    fn new(device: &Device) -> Self {
        let index = device.buffer::<u32>(1).expect("a small buffer");
        let address = index.address().expect("an address") as u64;
        Self { by_hand: RawControl::turning(address, BODIES), _index: index }
    }
}

impl Contender for SwitchByDriver {
    async fn once(&mut self) {
        self.by_hand.run();
    }
}

/// A copy of the index to the host, then the body's executable.
struct SwitchByHand {
    bodies: Vec<ExecutableGraph>,
    read: ExecutableGraph,
    word: HostBuffer<u32>,
}

impl SwitchByHand {
    fn new(device: &Device) -> Self {
        let index = device.buffer::<u32>(1).expect("a small buffer");
        let word = device.host_buffer::<u32>(1).expect("a small buffer");
        let mut read = Graph::new(device);
        read.copy(&index, &word);
        let bodies = (0..BODIES).map(|_| turning(&index).finalize().expect("a valid graph")).collect();
        Self { bodies, read: read.finalize().expect("a valid graph"), word }
    }
}

impl Contender for SwitchByHand {
    async fn once(&mut self) {
        self.read.submit().await.expect("a run");
        let index = self.word.read().await[0] as usize;
        self.bodies[index].submit().await.expect("a run");
    }
}

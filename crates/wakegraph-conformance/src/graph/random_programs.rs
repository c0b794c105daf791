//! Random programs: a few executables over the same memory, submitted, updated and switched between
//! submissions, against a model that runs the nodes one after the other in the order in which they
//! were added. Nodes are added one by one or recorded, and instead of a submission, queues may run the
//! same commands, among submissions in flight.
//!
//! `WAKEGRAPH_RANDOM_PROGRAMS` sets how many programs each test runs, `WAKEGRAPH_RANDOM_SEED` the
//! first seed, and `WAKEGRAPH_RANDOM_THREADS` how many threads share them.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use wakegraph::capabilities::CommandKinds;
use wakegraph::hal::{MemoryDesc, MemoryKind, UpdateCapabilities};
use wakegraph::kernel::KernelCall;
use wakegraph::memory::{Advice, Layout, RectCopy};
use wakegraph::plan::{ExecutionOrder, PartitionPolicy};
use wakegraph::{
    Buffer, Device, ErrorKind, Event, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, NodeId, Queue,
    Range, read, write,
};

use crate::kernels::{axpy, fold, mix, raise};
use crate::random::{Random, from_environment};
use crate::suite::{Need, Setup, tests};

// Updates bring parts of buffers that no edge orders after other parts of the same buffer.
tests!("graph/random_programs":
    &[Need::Results] => [with_scratch_memory],
    &[Need::Results, Need::ConcurrentParts] => [one_executable, several_executables],
    &[Need::Results, Need::ConcurrentParts, Need::TwoDevices] => [on_two_devices]);

/// How many programs each test runs, unless the environment says: with the devices of `.ci/run`, 10,000
/// over all tests.
const PROGRAMS: u64 = 110;
/// Elements of a buffer. As an image: 6 rows of 4.
const LEN: usize = 24;
const COLUMNS: usize = 4;
const ROWS: usize = LEN / COLUMNS;
const BUFFERS: usize = 4;
const HOST_BUFFERS: usize = 3;

fn one_executable(setup: &Setup) {
    check(&setup.devices[..1], setup, 1, false);
}

fn several_executables(setup: &Setup) {
    check(&setup.devices[..1], setup, 3, false);
}

fn with_scratch_memory(setup: &Setup) {
    check(&setup.devices[..1], setup, 2, true);
}

fn on_two_devices(setup: &Setup) {
    check(&setup.devices[..2], setup, 2, false);
}

fn check(devices: &[Device], setup: &Setup, executables: usize, scratch: bool) {
    let programs = from_environment("WAKEGRAPH_RANDOM_PROGRAMS").unwrap_or(PROGRAMS);
    let first = from_environment("WAKEGRAPH_RANDOM_SEED").unwrap_or(0);
    let threads = from_environment("WAKEGRAPH_RANDOM_THREADS").unwrap_or(1);
    let (next, wrong) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let work = || {
        setup.block_on(async {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + programs {
                    break;
                }
                let compared = Program::new(seed, devices, executables, scratch).run().await;
                if let Err(difference) = compared {
                    wrong.lock().unwrap().push((seed, difference));
                }
            }
        });
    };
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let wrong = wrong.into_inner().unwrap();
    if let Some((_, difference)) = wrong.first() {
        let seeds: Vec<_> = wrong.iter().map(|(seed, _)| seed).collect();
        panic!("{} of {programs} programs are wrong: seeds {seeds:?}; the first: {difference}", wrong.len());
    }
}

/// A range of elements of a buffer or of a host buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    buffer: usize,
    start: usize,
    end: usize,
}

impl Part {
    fn random(random: &mut Random, buffer: usize) -> Self {
        let start = random.below(LEN);
        Self { buffer, start, end: random.within(start + 1..=LEN) }
    }

    /// A part of one of these buffers, as long as `len`, that does not touch `other`.
    fn beside(random: &mut Random, buffers: &[usize], len: usize, other: Option<Self>) -> Self {
        loop {
            let start = random.below(LEN - len + 1);
            let part = Self { buffer: pick(random, buffers), start, end: start + len };
            let overlaps = |other: Self| {
                part.buffer == other.buffer && part.start.max(other.start) < part.end.min(other.end)
            };
            if !other.is_some_and(overlaps) {
                return part;
            }
        }
    }

    fn len(self) -> usize {
        self.end - self.start
    }

    fn of<T>(self, buffers: &[[T; LEN]]) -> &[T] {
        &buffers[self.buffer][self.start..self.end]
    }

    fn of_mut<T>(self, buffers: &mut [[T; LEN]]) -> &mut [T] {
        &mut buffers[self.buffer][self.start..self.end]
    }
}

fn pick<T: Copy>(random: &mut Random, items: &[T]) -> T {
    items[random.below(items.len())]
}

fn word(random: &mut Random) -> u32 {
    random.next() as u32
}

/// A launch over all elements of the part that it writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kernel {
    Mix { n: u32, x: Part },
    Add { n: u32, x: Part },
    Axpy { a: u32, x: Part, y: Part },
    Fold { x: Part, y: Part },
}

impl Kernel {
    fn random(random: &mut Random, world: &World) -> Self {
        let buffer = random.below(BUFFERS);
        let near = world.beside(buffer);
        let (n, y) = (word(random), Part::random(random, buffer));
        match random.below(5) {
            0 | 1 => Self::Mix { n, x: y },
            2 => Self::Add { n, x: y },
            3 => Self::Axpy { a: n, x: Part::beside(random, &near, y.len(), Some(y)), y },
            _ => Self::Fold { x: Part::beside(random, &near, y.len(), Some(y)), y },
        }
    }

    /// The part that it writes.
    fn out(self) -> Part {
        match self {
            Self::Mix { x, .. } | Self::Add { x, .. } => x,
            Self::Axpy { y, .. } | Self::Fold { y, .. } => y,
        }
    }

    fn uses(self) -> Vec<Use> {
        let used = |part, writes| Use { part, writes };
        match self {
            Self::Mix { x, .. } | Self::Add { x, .. } => vec![used(x, true)],
            Self::Axpy { x, y, .. } | Self::Fold { x, y } => vec![used(x, false), used(y, true)],
        }
    }

    fn range(self) -> Range {
        Range::linear(if matches!(self, Self::Fold { .. }) { 1 } else { self.out().len() })
    }

    fn call(self, world: &World) -> KernelCall {
        match self {
            Self::Mix { n, x } => mix(n, world.part(x)),
            Self::Add { n, x } => raise(n, world.part(x)),
            Self::Axpy { a, x, y } => axpy(a, world.part(x), world.part(y)),
            Self::Fold { x, y } => fold(world.part(x), world.part(y)),
        }
    }

    fn run(self, model: &mut Model) {
        let buffers = &mut model.buffers;
        match self {
            Self::Mix { n, x } => x.of_mut(buffers).iter_mut().for_each(|x| *x = mixed(*x, n)),
            Self::Add { n, x } => x.of_mut(buffers).iter_mut().for_each(|x| *x = x.wrapping_add(n)),
            Self::Axpy { a, x, y } => {
                let x = x.of(buffers).to_vec();
                let added = |y: &mut u32, x: u32| *y = y.wrapping_add(a.wrapping_mul(x));
                y.of_mut(buffers).iter_mut().zip(x).for_each(|(y, x)| added(y, x));
            }
            Self::Fold { x, y } => {
                let sum = x.of(buffers).iter().fold(0u32, |sum, x| sum.wrapping_add(*x));
                y.of_mut(buffers).iter_mut().for_each(|y| *y = mixed(*y, sum));
            }
        }
    }

    fn with_number(self, number: u32) -> Self {
        match self {
            Self::Mix { x, .. } => Self::Mix { n: number, x },
            Self::Add { x, .. } => Self::Add { n: number, x },
            Self::Axpy { x, y, .. } => Self::Axpy { a: number, x, y },
            fold @ Self::Fold { .. } => fold,
        }
    }

    /// Whether an update may put this in the place of the other: the same kernel, or a registered
    /// alternative.
    fn can_replace(self, other: Self) -> bool {
        let simple = |kernel| matches!(kernel, Self::Mix { .. } | Self::Add { .. });
        std::mem::discriminant(&self) == std::mem::discriminant(&other) || (simple(self) && simple(other))
    }
}

fn mixed(x: u32, n: u32) -> u32 {
    x.wrapping_mul(31).wrapping_add(n)
}

/// Calls the command of a step on a graph or a queue.
macro_rules! command {
    ($step:expr, $to:expr, $empty:ident, $world:expr, $form:expr) => {{
        let (step, to, world, form) = ($step, $to, $world, $form);
        match step {
            Step::Kernel(kernel) => to.launch(kernel.call(world), kernel.range()).into(),
            Step::Fill { x, pattern } => match pattern[..] {
                [value] => to.fill(&world.part(*x), value).into(),
                _ => to.fill_pattern(&world.part(*x), pattern).into(),
            },
            Step::Copy { from, to: dst } => to.copy(world.part(*from), world.part(*dst)).into(),
            Step::Rectangle { from, to: dst, extent, src: src_origin, dst: dst_origin } => {
                let layout = Layout::rows(COLUMNS);
                let copy = RectCopy::new(*extent, layout.origin(*src_origin), layout.origin(*dst_origin));
                to.copy_rect(&world.buffers[*from], &world.buffers[*dst], copy).into()
            }
            Step::Read { x, host } => to.copy(world.part(*x), world.host(*host)).into(),
            Step::Write { host, x } => to.copy(world.host(*host), world.part(*x)).into(),
            Step::Constant { x, numbers } => to.write(&world.part(*x), numbers).into(),
            Step::Task { from, to: dst, n, blocking } => {
                let (from, dst, n) = (world.host(*from), world.host(*dst), *n);
                match blocking {
                    false => to.host_task((read(&from), write(&dst)), async move |(from, mut to)| {
                        tokio::task::yield_now().await;
                        to.iter_mut().zip(&*from).for_each(|(to, from)| *to = task(*to, *from, n));
                    }),
                    true => to.host_task_blocking((read(&from), write(&dst)), move |(from, mut to)| {
                        to.iter_mut().zip(&*from).for_each(|(to, from)| *to = task(*to, *from, n));
                    }),
                }
                .into()
            }
            Step::Empty => to.$empty().into(),
            Step::Hint { x } if x.start.is_multiple_of(2) => to.prefetch(&world.part(*x)).into(),
            Step::Hint { x } => to.advise(&world.part(*x), Advice::PreferDevice).into(),
            Step::Sub(steps) => to.sub_graph(&form.graph(steps, world)).into(),
            Step::If { flag, then, otherwise } => {
                let (flag, then) = (world.part(*flag), form.graph(then, world));
                match otherwise {
                    Some(steps) => to.if_nonzero_else(&flag, &then, &form.graph(steps, world)).into(),
                    None => to.if_nonzero(&flag, &then).into(),
                }
            }
        }
    }};
}

/// How the nodes of a graph are added.
#[derive(Clone, Copy, Debug)]
enum Form {
    Explicit,
    Recorded { in_order: bool },
}

impl Form {
    fn random(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Explicit,
            other => Self::Recorded { in_order: other == 1 },
        }
    }

    /// Adds a node for each step, and edges beyond those that follow from the accesses.
    fn add(self, graph: &mut Graph, steps: &[Step], edges: &[(usize, usize)], world: &World) -> Vec<NodeId> {
        let nodes = match self {
            Self::Explicit => {
                let mut nodes: Vec<NodeId> = Vec::new();
                for step in steps {
                    nodes.push(step.add(graph, world));
                    for &(from, to) in edges.iter().filter(|edge| edge.1 + 1 == nodes.len()) {
                        graph.make_edge(nodes[from], nodes[to]).unwrap();
                    }
                }
                nodes
            }
            Self::Recorded { in_order } => {
                let queues = world.queues(in_order);
                let recording = graph.record(&queues).unwrap();
                let events = issue(steps, &vec![true; steps.len()], edges, world, &queues, self);
                drop(recording);
                events.iter().map(|event| event.as_ref().and_then(Event::node).unwrap()).collect()
            }
        };
        for (step, &node) in steps.iter().zip(&nodes) {
            let builder = graph.node_mut(node).unwrap();
            match step {
                Step::Kernel(Kernel::Mix { x, .. }) => _ = builder.alternative(raise(0, world.part(*x))),
                Step::Kernel(Kernel::Add { x, .. }) => _ = builder.alternative(mix(0, world.part(*x))),
                _ => {}
            }
        }
        nodes
    }

    fn graph(self, steps: &[Step], world: &World) -> Graph {
        let mut graph = Graph::new(world.buffers[0].device());
        self.add(&mut graph, steps, &[], world);
        graph
    }
}

/// Calls the commands of steps on queues, one for each device. Graphs inside are made in a form.
fn issue(
    steps: &[Step],
    enabled: &[bool],
    edges: &[(usize, usize)],
    world: &World,
    queues: &[Queue],
    form: Form,
) -> Vec<Option<Event>> {
    let mut events: Vec<Option<Event>> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let before = edges.iter().filter(|edge| edge.1 == index).filter_map(|edge| events[edge.0].as_ref());
        let queue = queues[step.place(world)].after(before);
        events.push(enabled[index].then(|| command!(step, queue, barrier, world, form)));
    }
    events
}

/// The work of a node.
#[derive(Clone, Debug)]
enum Step {
    Kernel(Kernel),
    Fill { x: Part, pattern: Vec<u32> },
    Copy { from: Part, to: Part },
    Rectangle { from: usize, to: usize, extent: [usize; 2], src: [usize; 2], dst: [usize; 2] },
    Read { x: Part, host: Part },
    Write { host: Part, x: Part },
    Constant { x: Part, numbers: Vec<u32> },
    Task { from: Part, to: Part, n: u32, blocking: bool },
    Empty,
    Hint { x: Part },
    Sub(Vec<Step>),
    If { flag: Part, then: Vec<Step>, otherwise: Option<Vec<Step>> },
}

/// The use of a part of a buffer by an updated kernel.
#[derive(Clone, Copy, Debug)]
struct Use {
    part: Part,
    writes: bool,
}

/// The memory of a program.
#[derive(Clone)]
struct World {
    devices: Vec<Device>,
    buffers: Vec<Buffer<u32>>,
    hosts: Vec<HostBuffer<u32>>,
    /// The device of each buffer.
    home: Vec<usize>,
    /// How many buffers the program can read: others are scratch memory of a graph.
    visible: usize,
}

/// The expected contents of the memory.
#[derive(Clone)]
struct Model {
    buffers: Vec<[u32; LEN]>,
    hosts: Vec<[u32; LEN]>,
}

impl World {
    fn new(devices: &[Device], random: &mut Random) -> (Self, Model) {
        let mut numbers = |count| (0..count).map(|_| [(); LEN].map(|()| word(random))).collect::<Vec<_>>();
        let model = Model { buffers: numbers(BUFFERS), hosts: numbers(HOST_BUFFERS) };
        let home: Vec<usize> = (0..BUFFERS).map(|index| index % devices.len()).collect();
        let buffers = model.buffers.iter().zip(&home);
        let hosts = model.hosts.iter().enumerate();
        let world = Self {
            devices: devices.to_vec(),
            buffers: buffers.map(|(numbers, &home)| devices[home].buffer_from(numbers).unwrap()).collect(),
            hosts: hosts.map(|(i, n)| devices[i % devices.len()].host_buffer_from(n).unwrap()).collect(),
            home,
            visible: BUFFERS,
        };
        (world, model)
    }

    fn part(&self, part: Part) -> Buffer<u32> {
        self.buffers[part.buffer].slice(part.start..part.end).unwrap()
    }

    fn host(&self, part: Part) -> HostBuffer<u32> {
        self.hosts[part.buffer].slice(part.start..part.end).unwrap()
    }

    /// A new queue for each device.
    fn queues(&self, in_order: bool) -> Vec<Queue> {
        let queue = |device: &Device| if in_order { device.queue() } else { device.out_of_order_queue() };
        self.devices.iter().map(|device| queue(device).unwrap()).collect()
    }

    /// The buffers on the device of this one.
    fn beside(&self, buffer: usize) -> Vec<usize> {
        (0..BUFFERS).filter(|&other| self.home[other] == self.home[buffer]).collect()
    }

    /// Compares the memory with the model.
    async fn compare(&self, model: &Model) -> Result<(), String> {
        for (index, expected) in model.buffers.iter().enumerate().take(self.visible) {
            let found = self.buffers[index].to_vec().await.unwrap();
            if found != expected {
                return Err(format!("buffer {index} holds {found:?}, expected {expected:?}"));
            }
        }
        for (index, expected) in model.hosts.iter().enumerate() {
            let found = self.hosts[index].read().await.to_vec();
            if found != expected {
                return Err(format!("host buffer {index} holds {found:?}, expected {expected:?}"));
            }
        }
        Ok(())
    }
}

/// Which steps the graphs of a program may have.
#[derive(Clone, Copy)]
struct Mixture {
    tasks: bool,
    hints: bool,
    conditionals: bool,
    sub_graphs: bool,
}

impl Mixture {
    fn new(random: &mut Random, devices: &[Device], scratch: bool) -> Self {
        let commands =
            devices.iter().fold(CommandKinds::all(), |all, device| all & device.capabilities().commands);
        let desc = MemoryDesc::new(64, MemoryKind::Device);
        let has_usm =
            |device: &Device| device.hal().allocate(&desc).is_ok_and(|memory| memory.usm().is_some());
        Self {
            tasks: !random.chance(3),
            // Scratch memory is its graph's alone: no hints about it, and no bodies that use it.
            hints: !scratch
                && commands.contains(CommandKinds::USM_PREFETCH | CommandKinds::USM_ADVISE)
                && devices.iter().all(has_usm),
            conditionals: !scratch,
            sub_graphs: !scratch,
        }
    }
}

impl Step {
    fn random(random: &mut Random, world: &World, mixture: Mixture, depth: usize) -> Self {
        const ALL: [usize; BUFFERS] = [0, 1, 2, 3];
        const HOSTS: [usize; HOST_BUFFERS] = [0, 1, 2];
        let buffer = random.below(BUFFERS);
        let x = Part::random(random, buffer);
        match random.below(28) {
            8..=10 => {
                let size =
                    (1..=4).filter(|size| x.len().is_multiple_of(*size)).nth(random.below(4)).unwrap_or(1);
                Self::Fill { x, pattern: (0..size).map(|_| word(random)).collect() }
            }
            11..=13 => Self::Copy { from: x, to: Part::beside(random, &ALL, x.len(), Some(x)) },
            14 => {
                let extent = [random.within(1..=COLUMNS), random.within(1..=ROWS)];
                let mut origin =
                    || [random.below(COLUMNS - extent[0] + 1), random.below(ROWS - extent[1] + 1)];
                let (src, dst) = (origin(), origin());
                let to = (buffer + random.within(1..=BUFFERS - 1)) % BUFFERS;
                Self::Rectangle { from: buffer, to, extent, src, dst }
            }
            15 | 16 => Self::Read { x, host: Part::beside(random, &HOSTS, x.len(), None) },
            17 | 18 => Self::Write { host: Part::beside(random, &HOSTS, x.len(), None), x },
            19 => Self::Constant { x, numbers: (0..x.len()).map(|_| word(random)).collect() },
            20 | 21 if mixture.tasks => {
                let host = random.below(HOST_BUFFERS);
                let to = Part::random(random, host);
                let from = Part::beside(random, &HOSTS, to.len(), Some(to));
                Self::Task { from, to, n: word(random), blocking: random.chance(3) }
            }
            22 => Self::Empty,
            23 if mixture.hints => Self::Hint { x },
            24 | 25 if mixture.sub_graphs && depth < 3 => {
                Self::Sub(Self::list(random, world, mixture, depth + 1))
            }
            26 if mixture.conditionals && depth < 3 => {
                let flag = Part { end: x.start + 1, ..x };
                let then = Self::list(random, world, mixture, depth + 1);
                let otherwise = random.chance(2).then(|| Self::list(random, world, mixture, depth + 1));
                Self::If { flag, then, otherwise }
            }
            _ => Self::Kernel(Kernel::random(random, world)),
        }
    }

    fn list(random: &mut Random, world: &World, mixture: Mixture, depth: usize) -> Vec<Self> {
        (0..random.within(1..=4)).map(|_| Self::random(random, world, mixture, depth)).collect()
    }

    fn add(&self, graph: &mut Graph, world: &World) -> NodeId {
        command!(self, graph, empty, world, Form::Explicit)
    }

    /// The device whose queue gets it.
    fn place(&self, world: &World) -> usize {
        let buffer = match self {
            Self::Kernel(kernel) => kernel.out().buffer,
            Self::Fill { x, .. } | Self::Constant { x, .. } | Self::Hint { x } => x.buffer,
            Self::Read { x, .. } | Self::Write { x, .. } | Self::Copy { to: x, .. } => x.buffer,
            Self::Rectangle { to, .. } => *to,
            Self::Task { .. } | Self::Empty | Self::Sub(_) | Self::If { .. } => 0,
        };
        world.home[buffer]
    }

    fn run(&self, model: &mut Model) {
        let Model { buffers, hosts } = model;
        match self {
            Self::Kernel(kernel) => kernel.run(model),
            Self::Fill { x, pattern } => {
                x.of_mut(buffers).iter_mut().zip(pattern.iter().cycle()).for_each(|(x, value)| *x = *value);
            }
            Self::Copy { from, to } => {
                let numbers = from.of(buffers).to_vec();
                to.of_mut(buffers).copy_from_slice(&numbers);
            }
            Self::Rectangle { from, to, extent, src, dst } => {
                let old = buffers[*from];
                for (row, column) in (0..extent[1]).flat_map(|row| (0..extent[0]).map(move |x| (row, x))) {
                    let at = |origin: &[usize; 2]| column + origin[0] + COLUMNS * (row + origin[1]);
                    buffers[*to][at(dst)] = old[at(src)];
                }
            }
            Self::Read { x, host } => host.of_mut(hosts).copy_from_slice(x.of(buffers)),
            Self::Write { host, x } => x.of_mut(buffers).copy_from_slice(host.of(hosts)),
            Self::Constant { x, numbers } => x.of_mut(buffers).copy_from_slice(numbers),
            Self::Task { from, to, n, .. } => {
                let from = from.of(hosts).to_vec();
                to.of_mut(hosts).iter_mut().zip(from).for_each(|(to, from)| *to = task(*to, from, *n));
            }
            Self::Empty | Self::Hint { .. } => {}
            Self::Sub(steps) => steps.iter().for_each(|step| step.run(model)),
            Self::If { flag, then, otherwise } => {
                let taken = if flag.of(buffers)[0] != 0 { Some(then) } else { otherwise.as_ref() };
                taken.into_iter().flatten().for_each(|step| step.run(model));
            }
        }
    }

    /// Copies the nodes with other numbers, for an update of everything.
    fn renumbered(&self, random: &mut Random) -> Self {
        let all = |steps: &[Self], random: &mut Random| -> Vec<Self> {
            steps.iter().map(|step| step.renumbered(random)).collect()
        };
        let new = |numbers: &[u32], random: &mut Random| numbers.iter().map(|_| word(random)).collect();
        match self {
            Self::Kernel(kernel) => Self::Kernel(kernel.with_number(word(random))),
            Self::Fill { x, pattern } => Self::Fill { x: *x, pattern: new(pattern, random) },
            Self::Constant { x, numbers } => Self::Constant { x: *x, numbers: new(numbers, random) },
            &Self::Task { from, to, blocking, .. } => Self::Task { from, to, n: word(random), blocking },
            Self::Sub(steps) => Self::Sub(all(steps, random)),
            Self::If { flag, then, otherwise } => Self::If {
                flag: *flag,
                then: all(then, random),
                otherwise: otherwise.as_ref().map(|steps| all(steps, random)),
            },
            other => other.clone(),
        }
    }

    fn can_be_disabled(&self, world: &World) -> bool {
        match self {
            Self::Kernel(_) | Self::Fill { .. } | Self::Read { .. } | Self::Write { .. } => true,
            // Between devices it may be a sub-graph.
            Self::Copy { from, to } => world.home[from.buffer] == world.home[to.buffer],
            Self::Rectangle { from, to, .. } => world.home[*from] == world.home[*to],
            _ => false,
        }
    }

    /// The parts of device buffers that it uses, and which of them it writes.
    fn uses(&self) -> Vec<Use> {
        let used = |part: Part, writes| Use { part, writes };
        let whole = |buffer, writes| used(Part { buffer, start: 0, end: LEN }, writes);
        match self {
            Self::Kernel(kernel) => kernel.uses(),
            Self::Fill { x, .. } | Self::Write { x, .. } | Self::Constant { x, .. } => vec![used(*x, true)],
            Self::Copy { from, to } => vec![used(*from, false), used(*to, true)],
            Self::Rectangle { from, to, .. } => vec![whole(*from, false), whole(*to, true)],
            Self::Read { x, .. } | Self::Hint { x } => vec![used(*x, false)],
            Self::Task { .. } | Self::Empty => Vec::new(),
            Self::Sub(steps) => steps.iter().flat_map(Self::uses).collect(),
            Self::If { flag, then, otherwise } => {
                let steps = then.iter().chain(otherwise.iter().flatten());
                steps.flat_map(Self::uses).chain([used(*flag, false)]).collect()
            }
        }
    }
}

/// The result of a host task for an element.
fn task(to: u32, from: u32, n: u32) -> u32 {
    to.wrapping_mul(33).wrapping_add(n.wrapping_mul(from))
}

/// A graph, its executable, and what that does now.
struct Subject {
    world: World,
    nodes: Vec<NodeId>,
    form: Form,
    /// Edges that the program adds to those that follow from the accesses.
    edges: Vec<(usize, usize)>,
    /// The pairs of nodes that are ordered, the earlier one first.
    ordered: BTreeSet<(usize, usize)>,
    /// The steps with which it was finalized.
    original: Vec<Step>,
    steps: Vec<Step>,
    enabled: Vec<bool>,
    exec: ExecutableGraph,
    updatable: bool,
}

impl Subject {
    fn new(random: &mut Random, world: &World, devices: &[Device], mixture: Mixture, scratch: bool) -> Self {
        let can_update =
            devices.iter().all(|device| device.capabilities().update == UpdateCapabilities::all());
        let updatable = can_update && !scratch && !random.chance(3);
        let mut graph = Graph::new(&devices[0]);
        let (mut world, mut steps) = (world.clone(), Vec::new());
        if scratch {
            world.visible = 2;
            for buffer in 2..BUFFERS {
                world.buffers[buffer] = graph.scratch(LEN).unwrap();
                // Scratch memory holds nothing before it is written.
                let x = Part { buffer, start: 0, end: LEN };
                steps.push(Step::Fill { x, pattern: vec![word(random)] });
            }
        }
        steps.extend((0..random.within(1..=25)).map(|_| Step::random(random, &world, mixture, 0)));
        let mut edges = Vec::new();
        for index in 1..steps.len() {
            if random.chance(5) {
                edges.push((random.below(index), index));
            }
        }
        let form = Form::random(random);
        let nodes = form.add(&mut graph, &steps, &edges, &world);
        let policies = [PartitionPolicy::Signature, PartitionPolicy::Fewest, PartitionPolicy::Eager];
        let orders = [ExecutionOrder::DepthFirst, ExecutionOrder::BreadthFirst];
        let can_profile = devices.iter().all(|device| device.capabilities().profiling);
        let options = FinalizeOptions::new()
            .partition(pick(random, &policies))
            .order(pick(random, &orders))
            .in_order(random.chance(5))
            .profiling(can_profile && random.chance(6))
            .updatable(updatable);
        let exec = graph.finalize_with(options).unwrap_or_else(|error| panic!("{error}: {steps:?}"));
        let mut ordered = BTreeSet::new();
        for (index, node) in nodes.iter().enumerate() {
            for before in graph.predecessors(*node).unwrap() {
                let earlier: Vec<_> =
                    ordered.iter().filter(|(_, to)| *to == before.index()).copied().collect();
                ordered.extend(earlier.into_iter().map(|(from, _)| (from, index)));
                ordered.insert((before.index(), index));
            }
        }
        let enabled = vec![true; nodes.len()];
        let original = steps.clone();
        Self { world, nodes, form, edges, ordered, original, steps, enabled, exec, updatable }
    }

    fn run(&self, model: &mut Model) {
        let steps = self.steps.iter().zip(&self.enabled);
        steps.filter(|(_, enabled)| **enabled).for_each(|(step, _)| step.run(model));
    }

    /// Calls what the executable does now on queues. `world` has buffers for the graph's scratch memory.
    fn run_eagerly(&self, world: &World, queues: &[Queue]) -> impl Iterator<Item = Event> {
        issue(&self.steps, &self.enabled, &self.edges, world, queues, self.form).into_iter().flatten()
    }

    /// Changes nodes at random: some, or all.
    async fn update(&mut self, random: &mut Random) {
        if random.chance(4) {
            self.update_all(random).await;
        } else {
            self.update_some(random).await;
        }
    }

    /// Updates from another graph with the same topology.
    async fn update_all(&mut self, random: &mut Random) {
        let steps: Vec<_> = self.original.iter().map(|step| step.renumbered(random)).collect();
        let mut graph = Graph::new(self.world.buffers[0].device());
        self.form.add(&mut graph, &steps, &self.edges, &self.world);
        let applied = self.exec.update_from(&graph);
        if random.chance(2) {
            applied.await.unwrap();
        }
        self.steps = steps;
        self.enabled.fill(true);
    }

    /// Changes arguments, kernels and memory of up to three nodes, and switches them on and off. An
    /// update which brings memory that no edge orders has to be refused, and then changes nothing.
    async fn update_some(&mut self, random: &mut Random) {
        let mut update = self.exec.update();
        let (mut steps, mut enabled) = (self.steps.clone(), self.enabled.clone());
        let mut changed = BTreeSet::new();
        for _ in 0..random.within(1..=3) {
            let node = random.below(self.nodes.len());
            let id = self.nodes[node];
            if let Step::Kernel(old) = steps[node] {
                let new = match random.below(3) {
                    0 => loop {
                        let new = Kernel::random(random, &self.world);
                        if new.can_replace(old) {
                            break new;
                        }
                    },
                    1 => match old {
                        Kernel::Mix { x, .. } => Kernel::Add { n: word(random), x },
                        Kernel::Add { x, .. } => Kernel::Mix { n: word(random), x },
                        other => other.with_number(word(random)),
                    },
                    _ => old.with_number(word(random)),
                };
                if self.world.home[new.out().buffer] != self.world.home[old.out().buffer] {
                    continue;
                }
                if new.range() != old.range() {
                    update = update.range(id, new.range());
                }
                update = update.launch(id, new.call(&self.world));
                changed.insert(node);
                steps[node] = Step::Kernel(new);
            }
            if steps[node].can_be_disabled(&self.world) && random.chance(3) {
                enabled[node] = !random.chance(2);
                update = update.enabled(id, enabled[node]);
            }
        }
        let applied = update.apply();
        if !self.orders(&steps, &changed) {
            let error = applied.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            return;
        }
        if random.chance(2) {
            applied.await.unwrap();
        }
        (self.steps, self.enabled) = (steps, enabled);
    }

    /// Whether edges order the changed nodes against all others with which they conflict.
    fn orders(&self, steps: &[Step], changed: &BTreeSet<usize>) -> bool {
        let conflict = |a: &Use, b: &Use| {
            let overlap = a.part.start.max(b.part.start) < a.part.end.min(b.part.end);
            a.part.buffer == b.part.buffer && overlap && (a.writes || b.writes)
        };
        changed.iter().all(|&node| {
            let mine = steps[node].uses();
            (0..steps.len()).filter(|&other| other != node).all(|other| {
                let theirs = steps[other].uses();
                self.ordered.contains(&(node.min(other), node.max(other)))
                    || !mine.iter().any(|mine| theirs.iter().any(|theirs| conflict(mine, theirs)))
            })
        })
    }
}

/// Executables over the same memory, and the random choices of what happens to them.
struct Program {
    random: Random,
    world: World,
    model: Model,
    subjects: Vec<Subject>,
    /// For commands that are not in a graph.
    queues: Vec<Queue>,
    /// Compares the memory after every submission, rather than with all in flight together.
    careful: bool,
}

impl Program {
    fn new(seed: u64, devices: &[Device], executables: usize, scratch: bool) -> Self {
        let mut random = Random::new(seed);
        let (mut world, model) = World::new(devices, &mut random);
        let mixture = Mixture::new(&mut random, devices, scratch);
        let subject = |_| Subject::new(&mut random, &world, devices, mixture, scratch);
        let subjects: Vec<_> = (0..executables).map(subject).collect();
        world.visible = subjects[0].world.visible;
        let queues = world.queues(random.chance(2));
        let careful = random.chance(2);
        Self { random, world, model, subjects, queues, careful }
    }

    async fn run(mut self) -> Result<(), String> {
        let (mut submissions, mut events) = (Vec::new(), Vec::new());
        for round in 0..3 * self.subjects.len() {
            let chosen = self.random.below(self.subjects.len());
            let subject = &mut self.subjects[chosen];
            if round > 0 && subject.updatable {
                subject.update(&mut self.random).await;
            }
            match self.random.chance(3) {
                true => events.extend(subject.run_eagerly(&self.world, &self.queues)),
                false => submissions.push(subject.exec.submit()),
            }
            subject.run(&mut self.model);
            if self.careful {
                for submission in submissions.drain(..) {
                    submission.await.unwrap();
                }
                for event in events.drain(..) {
                    event.await.unwrap();
                }
                let compared = self.world.compare(&self.model).await;
                let subject = &self.subjects[chosen];
                compared.map_err(|difference| {
                    let Subject { form, steps, enabled, .. } = subject;
                    format!("{difference} after round {round}, {form:?}: {steps:?}, enabled: {enabled:?}")
                })?;
            }
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        for event in events {
            event.await.unwrap();
        }
        self.world.compare(&self.model).await
    }
}

//! Reads bytes as a program over the public interface and compares what it does with the model. Commands
//! are added to graphs, recorded into them, or run by a queue.
//!
//! The fuzz target and the random test run the same programs. Every string of bytes is one: a byte
//! chooses a step, those that follow choose its operands, and what is missing is 0.

#[path = "model.rs"]
mod model;

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use model::{Command, LEN, Memory, Node, ON_DEVICE, ON_HOST, Slice, mixed};
use tokio::task::yield_now;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::plan::{ExecutionOrder, PartitionPolicy};
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions};
use wakegraph::update::Applied;
use wakegraph::{
    Buffer, Device, Error, ErrorKind, Event, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, NodeId,
    Queue, Range, Result, Submission, read, write,
};

wakegraph::kernel! {
    fn mix(n: u32, to: &mut [u32]) {
        group: |_, n, to| to.row(0, 0).iter_mut().for_each(|x| *x = mixed(*x, n)),
    }
    fn add(from: &[u32], to: &mut [u32]) {
        host: |_, from, to| to.iter_mut().zip(from.iter().cycle()).for_each(|(x, y)| *x = x.wrapping_add(*y)),
    }
}

/// Runs a program.
///
/// # Panics
/// Where the crate does something else than the model, and where something does not end.
pub(crate) fn run(bytes: &[u8]) {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let build = || tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let runtime = RUNTIME.get_or_init(build);
    runtime.block_on(Program::new(bytes).run());
}

/// How long anything may take.
const TIME_LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 3600 } else { 20 });
/// How many steps a program has at most.
const STEPS: usize = 64;
/// How many nodes a graph has at most.
const NODES: usize = 24;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first.into()
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.next() % bound
    }

    fn flag(&mut self) -> bool {
        self.next() % 2 == 1
    }
}

/// A graph under construction.
struct Draft {
    graph: Graph,
    nodes: Vec<Node>,
    ids: Vec<NodeId>,
    /// Whether a node was refused, so that the graph cannot be finalized.
    is_wrong: bool,
}

impl Draft {
    fn new(device: &Device) -> Self {
        let graph = Graph::new(device);
        Self { graph, nodes: Vec::new(), ids: Vec::new(), is_wrong: false }
    }

    fn push(&mut self, id: NodeId, command: Command) {
        self.ids.push(id);
        self.nodes.push(command.into());
    }
}

struct Executable {
    exec: Option<ExecutableGraph>,
    /// What it does after all updates that have been settled.
    nodes: Vec<Node>,
    ids: Vec<NodeId>,
    /// The nodes in an order that follows all edges: one may lead back to a node that was added earlier.
    order: Vec<usize>,
}

impl Executable {
    fn run(&self, memory: &mut Memory) {
        let nodes: Vec<_> = self.order.iter().map(|&node| self.nodes[node].clone()).collect();
        model::run(&nodes, memory);
    }
}

/// What has been asked for and not been compared with the model yet, in order.
enum Asked {
    Submission(Submitted),
    Update {
        executable: usize,
        change: Change,
        applied: Applied,
    },
    /// A command that a queue runs.
    Eager {
        event: Event,
        command: Command,
        is_wrong: bool,
    },
}

struct Submitted {
    executable: usize,
    number: usize,
    /// The numbers of the submissions in its wait list.
    after: Option<usize>,
    event: Event,
    /// `None` once it is detached.
    submission: Option<Submission>,
    cancelled: bool,
}

/// A change of one node.
enum Change {
    Enabled(usize, bool),
    Command(usize, Command),
}

struct Program<'a> {
    bytes: Bytes<'a>,
    device: Device,
    queue: Queue,
    control: Option<FakeControl>,
    buffers: Vec<Buffer<u32>>,
    host_buffers: Vec<HostBuffer<u32>>,
    memory: Memory,
    draft: Draft,
    executables: Vec<Executable>,
    asked: Vec<Asked>,
    /// How each submission has ended, by its number; `None` while that is not known.
    outcomes: Vec<Option<Result<(), ErrorKind>>>,
    /// Events of submissions to come after.
    events: Vec<Event>,
}

/// Devices that all programs share: starting threads takes longer than a program.
fn shared_device(polled: bool) -> Device {
    static DEVICES: [OnceLock<Device>; 2] = [OnceLock::new(), OnceLock::new()];
    let device = DEVICES[usize::from(polled)].get_or_init(|| {
        let options = HostOptions::new().threads(2).polled(polled);
        Device::from_hal(host::open(options).expect("a host device"))
    });
    device.clone()
}

macro_rules! with_operand {
    ($program:expr, $slice:expr, |$memory:ident| $body:expr) => {{
        let slice: Slice = $slice;
        let range = slice.start..slice.start + slice.len;
        if slice.is_on_host() {
            let $memory = &$program.host_buffers[slice.buffer - ON_DEVICE].slice(range).expect("a range");
            $body
        } else {
            let $memory = &$program.buffers[slice.buffer].slice(range).expect("a range");
            $body
        }
    }};
}

impl<'a> Program<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut bytes = Bytes(bytes);
        let (device, control) = match bytes.below(4) {
            0 | 1 => (shared_device(false), None),
            2 => (shared_device(true), None),
            _ => {
                let (device, control) =
                    FakeDevice::open(FakeOptions::new().manual(true).notifies(bytes.flag()));
                (Device::from_hal(device), Some(control))
            }
        };
        let queue = if bytes.flag() { device.queue() } else { device.out_of_order_queue() };
        Self {
            bytes,
            queue: queue.expect("a queue"),
            buffers: (0..ON_DEVICE).map(|_| device.buffer(LEN).expect("memory")).collect(),
            host_buffers: (0..ON_HOST).map(|_| device.host_buffer(LEN).expect("memory")).collect(),
            memory: [[Some(0); LEN]; ON_DEVICE + ON_HOST],
            draft: Draft::new(&device),
            device,
            control,
            executables: Vec::new(),
            asked: Vec::new(),
            outcomes: Vec::new(),
            events: Vec::new(),
        }
    }

    async fn run(mut self) {
        for _ in 0..STEPS {
            if self.bytes.0.is_empty() {
                break;
            }
            self.step().await;
        }
        if self.draft.nodes.is_empty() {
            self.settle().await;
        } else {
            self.finalize();
            self.submit(false);
        }
        self.check_all().await;
        if let Some(control) = &self.control {
            assert_eq!(control.pending(), 0, "the device has something in flight");
        }
    }

    async fn step(&mut self) {
        match self.bytes.below(22) {
            0..=6 => self.add_node(),
            7 => self.make_edge(),
            8 => self.finalize(),
            9..=10 => self.submit(false),
            11 => self.submit(true),
            12 => self.cancel(),
            13 => self.update(),
            14 => self.use_guard().await,
            15 => self.drop_something(),
            16 => self.poll_something(),
            17 => self.complete_some(),
            18 => self.settle().await,
            19..=20 => self.run_eagerly(),
            _ => self.check_all().await,
        }
    }

    fn slice(&mut self) -> Slice {
        let byte = self.bytes.next();
        let buffer = byte % (ON_DEVICE + ON_HOST);
        let [start, len] = [[0, 8], [0, 4], [4, 4], [2, 4], [0, 1], [6, 2]][byte / 5 % 6];
        Slice { buffer, start, len }
    }

    fn device_slice(&mut self) -> Slice {
        let slice = self.slice();
        Slice { buffer: slice.buffer % ON_DEVICE, ..slice }
    }

    fn add_node(&mut self) {
        if self.draft.nodes.len() < NODES {
            let mut draft = std::mem::replace(&mut self.draft, Draft::new(&self.device));
            self.add_node_to(&mut draft, 0);
            self.draft = draft;
        }
    }

    fn add_node_to(&mut self, draft: &mut Draft, depth: usize) {
        match self.bytes.below(18) {
            0..=2 => {
                let (to, n) = (self.slice(), self.bytes.next() as u32);
                let id = with_operand!(self, to, |to| draft.graph.launch(mix(n, to), Range::linear(1)).id());
                draft.push(id, Command::Mix { to, n });
            }
            3..=4 => {
                let (from, to) = (self.slice(), self.slice());
                let id = with_operand!(self, from, |x| with_operand!(self, to, |y| {
                    draft.graph.launch(add(x, y), Range::linear(1)).id()
                }));
                draft.is_wrong |= from.overlaps(to);
                draft.push(id, Command::Add { from, to });
            }
            5 => {
                let (to, value) = (self.device_slice(), self.bytes.next() as u32);
                let range = to.start..to.start + to.len;
                let id =
                    draft.graph.fill(&self.buffers[to.buffer].slice(range).expect("a range"), value).id();
                draft.push(id, Command::Fill { to, value });
            }
            6..=8 => {
                let (from, mut to) = (self.slice(), self.slice());
                if self.bytes.next() % 8 != 7 {
                    // Seldom wrong.
                    (to.start, to.len) = (to.start.min(LEN - from.len), from.len);
                }
                let id =
                    with_operand!(self, from, |x| with_operand!(self, to, |y| draft.graph.copy(x, y).id()));
                let both_on_host = from.is_on_host() && to.is_on_host();
                draft.is_wrong |= from.len != to.len || from.overlaps(to) || both_on_host;
                draft.push(id, Command::Copy { from, to });
            }
            9..=11 => self.add_host_task(draft),
            12 => {
                let id = draft.graph.empty().id();
                draft.push(id, Command::Empty);
            }
            13..=14 if depth < 2 => self.add_graph(draft, depth, false),
            15 if depth < 2 => self.add_graph(draft, depth, true),
            16..=17 => self.record(draft),
            _ => self.add_scratch(draft),
        }
    }

    /// A command that the queue runs at once, or records. Returns whether it is wrong as well.
    fn issue(&mut self) -> (Event, Command, bool) {
        let queue = self.queue.clone();
        let (kind, from, to) = (self.bytes.below(4), self.slice(), self.slice());
        let n = self.bytes.next() as u32;
        match kind {
            0 => {
                let event = with_operand!(self, to, |to| queue.launch(mix(n, to), Range::linear(1)));
                (event, Command::Mix { to, n }, false)
            }
            1 => {
                let event = with_operand!(self, from, |x| with_operand!(self, to, |y| {
                    queue.launch(add(x, y), Range::linear(1))
                }));
                (event, Command::Add { from, to }, from.overlaps(to))
            }
            2 => {
                let to = Slice { buffer: to.buffer % ON_DEVICE, ..to };
                let range = to.start..to.start + to.len;
                let event = queue.fill(&self.buffers[to.buffer].slice(range).expect("a range"), n);
                (event, Command::Fill { to, value: n }, false)
            }
            _ => {
                let to = Slice { start: to.start.min(LEN - from.len), len: from.len, ..to };
                let event = with_operand!(self, from, |x| with_operand!(self, to, |y| queue.copy(x, y)));
                let is_wrong = from.overlaps(to) || from.is_on_host() && to.is_on_host();
                (event, Command::Copy { from, to }, is_wrong)
            }
        }
    }

    fn run_eagerly(&mut self) {
        let (event, command, is_wrong) = self.issue();
        self.asked.push(Asked::Eager { event, command, is_wrong });
    }

    fn record(&mut self, draft: &mut Draft) {
        let recording = draft.graph.record([&self.queue]).expect("a queue that does not record");
        let (event, command, is_wrong) = self.issue();
        drop(recording);
        draft.is_wrong |= is_wrong;
        draft.push(event.node().expect("a recorded command"), command);
    }

    fn add_host_task(&mut self, draft: &mut Draft) {
        let (place, n) = (self.bytes.below(ON_HOST), self.bytes.next() as u32);
        let whole = |place| Slice { buffer: ON_DEVICE + place, start: 0, len: LEN };
        let buffer = &self.host_buffers[place];
        let (id, command) = match self.bytes.below(8) {
            0 => {
                let fails = async |()| Err::<(), _>(std::io::Error::other("a failure on purpose"));
                (draft.graph.host_task((), fails).id(), Command::Fails)
            }
            1 => {
                let blocking = move |(mut x,): (wakegraph::HostMut<u32>,)| {
                    x.iter_mut().for_each(|x| *x = mixed(*x, n));
                };
                let id = draft.graph.host_task_blocking((write(buffer),), blocking).id();
                (id, Command::Mix { to: whole(place), n })
            }
            2 | 3 => {
                let other = (place + 1) % ON_HOST;
                let task = async move |(from, mut to): (wakegraph::HostRef<u32>, wakegraph::HostMut<u32>)| {
                    yield_now().await;
                    to.iter_mut().zip(from.iter()).for_each(|(x, y)| *x = x.wrapping_add(*y));
                };
                let id = draft.graph.host_task((read(&self.host_buffers[other]), write(buffer)), task).id();
                (id, Command::Add { from: whole(other), to: whole(place) })
            }
            _ => {
                let task = async move |(mut x,): (wakegraph::HostMut<u32>,)| {
                    yield_now().await;
                    x.iter_mut().for_each(|x| *x = mixed(*x, n));
                };
                (draft.graph.host_task((write(buffer),), task).id(), Command::Mix { to: whole(place), n })
            }
        };
        draft.push(id, command);
    }

    /// A graph inside a node.
    fn add_graph(&mut self, draft: &mut Draft, depth: usize, conditional: bool) {
        let mut child = Draft::new(&self.device);
        for _ in 0..self.bytes.below(4) {
            self.add_node_to(&mut child, depth + 1);
        }
        draft.is_wrong |= child.is_wrong;
        if conditional {
            let flag = Slice { len: 1, ..self.slice() };
            let id = with_operand!(self, flag, |flag| draft.graph.if_nonzero(flag, &child.graph).id());
            draft.push(id, Command::If { flag, then: child.nodes });
        } else {
            let id = draft.graph.sub_graph(&child.graph).id();
            draft.push(id, Command::All(child.nodes));
        }
    }

    /// Through a scratch buffer from one slice to another.
    fn add_scratch(&mut self, draft: &mut Draft) {
        let (from, n) = (self.device_slice(), self.bytes.next() as u32);
        let mut to = self.device_slice();
        (to.start, to.len) = (to.start.min(LEN - from.len), from.len);
        let mut child = Graph::new(&self.device);
        let scratch = child.scratch::<u32>(from.len).expect("a scratch buffer");
        with_operand!(self, from, |from| child.copy(from, &scratch).id());
        child.launch(mix(n, &scratch), Range::linear(1));
        with_operand!(self, to, |to| child.copy(&scratch, to).id());
        let id = draft.graph.sub_graph(&child).id();
        let through = Command::Copy { from, to };
        draft.push(
            id,
            Command::All(vec![through.into(), Command::Mix { to, n }.into(), Command::Scratch.into()]),
        );
    }

    fn make_edge(&mut self) {
        if self.draft.ids.is_empty() {
            return;
        }
        let len = self.draft.ids.len();
        let (from, to) = (self.bytes.below(len), self.bytes.below(len));
        let [from, to] = [from, to].map(|index| self.draft.ids[index]);
        let is_cycle = from == to || reaches(&self.draft.graph, to, from);
        let result = self.draft.graph.make_edge(from, to);
        match result {
            Ok(()) => {
                assert!(!is_cycle, "an edge closes a cycle");
                assert!(self.draft.graph.successors(from).expect("a node").contains(&to));
            }
            Err(error) => {
                assert!(is_cycle, "an edge is refused: {error}");
                let kind = if from == to { ErrorKind::InvalidArgument } else { ErrorKind::Cycle };
                assert_eq!(error.kind(), kind, "{error}");
            }
        }
    }

    fn finalize(&mut self) {
        let byte = self.bytes.next();
        let policies = [PartitionPolicy::Signature, PartitionPolicy::Fewest, PartitionPolicy::Eager];
        let options = FinalizeOptions::new()
            .updatable(byte & 1 != 0)
            .profiling(byte & 2 != 0)
            .in_order(byte & 12 == 12)
            .order(if byte & 16 != 0 { ExecutionOrder::BreadthFirst } else { ExecutionOrder::DepthFirst })
            .partition(policies[byte / 32 % 3]);
        let Draft { nodes, ids, is_wrong, graph, .. } =
            std::mem::replace(&mut self.draft, Draft::new(&self.device));
        // Some mistakes are seen at once, others by the device.
        assert!(graph.errors().is_empty() || is_wrong, "{:?}: {nodes:?}", graph.errors());
        match graph.finalize_with(options) {
            Ok(exec) => {
                assert!(!is_wrong, "a wrong graph is finalized: {nodes:?}");
                let order = order(&graph, &ids);
                self.executables.push(Executable { exec: Some(exec), nodes, ids, order });
            }
            Err(error) => assert!(is_wrong, "{error}: {nodes:?}"),
        }
    }

    fn submit(&mut self, after: bool) {
        if self.executables.is_empty() {
            return;
        }
        let executable = self.bytes.below(self.executables.len());
        let Some(exec) = &self.executables[executable].exec else { return };
        let after = (after && !self.events.is_empty()).then(|| self.bytes.below(self.events.len()));
        let submission = match after {
            Some(earlier) => exec.prepare().after_event(&self.events[earlier]).submit(),
            None => exec.submit(),
        };
        let (number, event) = (self.events.len(), submission.event());
        self.events.push(event.clone());
        self.outcomes.push(None);
        let submitted =
            Submitted { executable, number, after, event, submission: Some(submission), cancelled: false };
        self.asked.push(Asked::Submission(submitted));
    }

    /// A submission that has not been settled.
    fn some_submission(&mut self) -> Option<&mut Submitted> {
        let byte = self.bytes.next();
        let submissions = self.asked.iter_mut().filter_map(|asked| match asked {
            Asked::Submission(submitted) => Some(submitted),
            Asked::Update { .. } | Asked::Eager { .. } => None,
        });
        let mut all: Vec<_> = submissions.collect();
        if all.is_empty() { None } else { Some(all.swap_remove(byte % all.len())) }
    }

    fn cancel(&mut self) {
        let Some(submitted) = self.some_submission() else { return };
        if let Some(submission) = &submitted.submission {
            submitted.cancelled = true;
            submission.cancel();
        }
    }

    fn update(&mut self) {
        if self.executables.is_empty() {
            return;
        }
        let executable = self.bytes.below(self.executables.len());
        let Executable { exec: Some(exec), nodes, ids, .. } = &self.executables[executable] else { return };
        if ids.is_empty() {
            return;
        }
        let (exec, node) = (exec.clone(), self.bytes.next() % ids.len());
        let (id, command) = (ids[node], nodes[node].command.clone());
        let update = exec.update();
        let (update, change) = match (self.bytes.below(3), command) {
            (0, Command::Mix { .. }) => {
                let (to, n) = (self.slice(), self.bytes.next() as u32);
                let update = with_operand!(self, to, |to| update.launch(id, mix(n, to)));
                (update, Change::Command(node, Command::Mix { to, n }))
            }
            (0, Command::Add { .. }) => {
                let (from, to) = (self.slice(), self.slice());
                let update =
                    with_operand!(self, from, |x| with_operand!(self, to, |y| update.launch(id, add(x, y))));
                (update, Change::Command(node, Command::Add { from, to }))
            }
            (which, _) => (update.enabled(id, which == 1), Change::Enabled(node, which == 1)),
        };
        let applied = update.apply();
        self.asked.push(Asked::Update { executable, change, applied });
    }

    async fn use_guard(&mut self) {
        let place = self.bytes.below(ON_HOST);
        let buffer = self.host_buffers[place].clone();
        let whole = ON_DEVICE + place;
        match self.bytes.below(4) {
            0 => {
                let guard = self.finish(buffer.read()).await;
                // With the guard there: nothing submitted before waits for it.
                self.settle().await;
                self.compare(whole, &guard);
            }
            1 => {
                let mut guard = self.finish(buffer.write()).await;
                self.settle().await;
                self.compare(whole, &guard);
                let n = self.bytes.next() as u32;
                guard.iter_mut().for_each(|x| *x = mixed(*x, n));
                self.memory[whole] = std::array::from_fn(|index| Some(guard[index]));
            }
            2 => {
                let result = buffer.try_write();
                let is_idle = self.asked.is_empty();
                assert!(result.is_ok() || !is_idle, "a guard is refused while nothing is in flight");
                let Ok(mut guard) = result else { return };
                self.settle().await;
                self.compare(whole, &guard);
                guard[0] = 7;
                self.memory[whole][0] = Some(7);
            }
            _ => {
                // Given up while it waits.
                let mut waiting = pin!(buffer.write());
                let _ = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
        }
    }

    fn drop_something(&mut self) {
        if self.bytes.flag() {
            if let Some(submitted) = self.some_submission() {
                submitted.submission = None;
            }
        } else if !self.executables.is_empty() {
            let executable = self.bytes.below(self.executables.len());
            self.executables[executable].exec = None;
        }
    }

    fn poll_something(&mut self) {
        if let Some(submitted) = self.some_submission() {
            let _ = submitted.event.is_finished();
            if let Some(submission) = &mut submitted.submission {
                let _ = Pin::new(submission).poll(&mut Context::from_waker(Waker::noop()));
            }
        }
    }

    fn complete_some(&mut self) {
        let count = self.bytes.below(4);
        if let Some(control) = &self.control {
            for _ in 0..count {
                control.complete_next(None);
            }
        }
    }

    /// Waits for something, and completes pending work on devices that do not complete it by themselves.
    async fn finish<F: Future>(&self, future: F) -> F::Output {
        let finished = async {
            let mut future = pin!(future);
            let Some(control) = &self.control else { return future.await };
            loop {
                if let Poll::Ready(output) = futures::poll!(&mut future) {
                    return output;
                }
                control.complete_all();
                yield_now().await;
            }
        };
        tokio::time::timeout(TIME_LIMIT, finished).await.expect("HANG: something does not end")
    }

    /// Waits for all that was asked for, and lets the model do the same in the same order.
    async fn settle(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            match asked {
                Asked::Submission(submitted) => {
                    let result = match submitted.submission {
                        Some(submission) => self.finish(submission).await,
                        None => self.finish(submitted.event.wait()).await,
                    };
                    assert_same(&result, &self.finish(submitted.event.wait()).await);
                    let nodes = &self.executables[submitted.executable].nodes;
                    let earlier = submitted.after.and_then(|number| self.outcomes[number]);
                    check_outcome(&result, earlier, submitted.cancelled, nodes);
                    self.outcomes[submitted.number] = Some(result.as_ref().copied().map_err(Error::kind));
                    match result {
                        Ok(()) => self.executables[submitted.executable].run(&mut self.memory),
                        Err(_) => model::forget(nodes, &mut self.memory),
                    }
                }
                Asked::Eager { event, command, is_wrong } => match self.finish(event.wait()).await {
                    Ok(()) => {
                        assert!(!is_wrong, "a wrong command runs: {command:?}");
                        model::run(&[command.into()], &mut self.memory);
                    }
                    Err(error) => assert!(is_wrong, "{error}: {command:?}"),
                },
                Asked::Update { executable, change, applied } => {
                    let result = self.finish(applied).await;
                    self.apply(executable, change, result);
                }
            }
        }
    }

    fn apply(&mut self, executable: usize, change: Change, result: Result<()>) {
        use ErrorKind as K;
        match result {
            Ok(()) => {
                let nodes = &mut self.executables[executable].nodes;
                match change {
                    Change::Enabled(node, enabled) => nodes[node].enabled = enabled,
                    Change::Command(node, command) => nodes[node].command = command,
                }
            }
            // Not updatable, a node that has nothing to change, memory that no edge orders, what
            // the device cannot.
            Err(error) => {
                let expected = [K::InvalidOperation, K::InvalidArgument, K::FeatureNotSupported];
                assert!(expected.contains(&error.kind()), "{error}");
            }
        }
    }

    async fn check_all(&mut self) {
        self.settle().await;
        for place in 0..ON_DEVICE {
            let elements = self.finish(self.buffers[place].to_vec()).await.expect("a copy");
            self.compare(place, &elements);
        }
        for place in 0..ON_HOST {
            let guard = self.finish(self.host_buffers[place].read()).await;
            self.compare(ON_DEVICE + place, &guard);
        }
    }

    /// Compares a buffer with the model, which learns what it did not know.
    fn compare(&mut self, buffer: usize, elements: &[u32]) {
        let expected = &mut self.memory[buffer];
        if self.control.is_none() {
            let same = expected.iter().zip(elements).all(|(expected, is)| expected.is_none_or(|x| x == *is));
            assert!(same, "buffer {buffer} holds {elements:?}, and not {expected:?}");
        }
        *expected = std::array::from_fn(|index| Some(elements[index]));
    }
}

/// The nodes by their indices, each behind all from which an edge leads to it, otherwise as they were added.
fn order(graph: &Graph, ids: &[NodeId]) -> Vec<usize> {
    let mut order = Vec::with_capacity(ids.len());
    while order.len() < ids.len() {
        let is_next = |node: &usize| {
            let mut others = (0..ids.len()).filter(|other| other != node && !order.contains(other));
            !order.contains(node)
                && !others.any(|other| graph.successors(ids[other]).expect("a node").contains(&ids[*node]))
        };
        let next = (0..ids.len()).find(is_next).expect("a graph without cycles");
        order.push(next);
    }
    order
}

/// Whether a path leads from one node to another.
fn reaches(graph: &Graph, from: NodeId, to: NodeId) -> bool {
    let (mut open, mut seen) = (vec![from], Vec::new());
    while let Some(node) = open.pop() {
        if node == to {
            return true;
        }
        if !seen.contains(&node) {
            seen.push(node);
            open.extend(graph.successors(node).expect("a node"));
        }
    }
    false
}

/// Whether a submission may end like this.
fn check_outcome(
    result: &Result<()>,
    earlier: Option<Result<(), ErrorKind>>,
    cancelled: bool,
    nodes: &[Node],
) {
    let fails = model::fails(nodes);
    match (result, earlier) {
        (Ok(()), earlier) => {
            assert!(!fails, "a submission succeeds although a task fails");
            assert!(!matches!(earlier, Some(Err(_))), "a submission succeeds after {earlier:?}");
        }
        (Err(error), Some(Err(kind))) if error.kind() == kind => {}
        (Err(error), _) => {
            let is_possible = match error.kind() {
                ErrorKind::Cancelled => cancelled,
                ErrorKind::HostTaskFailed => model::may_fail(nodes),
                _ => false,
            };
            assert!(is_possible, "unexpected: {error}");
        }
    }
}

fn assert_same<T: Debug>(one: &T, other: &T) {
    assert_eq!(format!("{one:?}"), format!("{other:?}"), "a submission ends in two ways");
}

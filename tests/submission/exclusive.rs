//! Random submissions, updates and guards on a few buffers that all of them share.
//!
//! The kernels stay inside until the test lets them go, and the test keeps its guards for as long
//! as it likes. So what is allowed to overlap does, and two things can be checked: nothing else
//! ever has a buffer that is being written, and everything has the result of being done one after
//! the other, in the order in which it was asked for.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::time::timeout;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::kernel::{RawCall, RawKernel};
use wakegraph::update::Applied;
use wakegraph::{
    Device, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, HostMut, HostRef, NodeId, Range, Submission,
};

/// Far longer than it takes until everything has ended, also on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(60);
const BUFFERS: usize = 3;
const EXECUTABLES: usize = 3;
const NODES: usize = 2;

/// What a kernel or guard does to a buffer: it mixes a number in, or reads what is there.
#[derive(Clone, Copy, Debug)]
struct Use {
    buffer: usize,
    writes: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Submit(usize),
    Update {
        executable: usize,
        node: usize,
        to: Use,
    },
    /// Is refused in its turn.
    FailingUpdate {
        executable: usize,
        node: usize,
        to: Use,
    },
    UpdateFrom {
        executable: usize,
        to: [Use; NODES],
    },
    /// Drops the executable, and finalizes another one.
    Replace {
        executable: usize,
        by: [Use; NODES],
        has_host_task: bool,
    },
    TryGuard(Use),
    /// Waits for a guard.
    Guard(Use),
    PollGuards,
    DropGuard(prop::sample::Index),
    GiveUpGuard(prop::sample::Index),
    /// Lets one kernel leave its buffer.
    LetGo,
    /// Gives everything else some time.
    Yield,
}

fn any_use() -> impl Strategy<Value = Use> {
    (0..BUFFERS, any::<bool>()).prop_map(|(buffer, writes)| Use { buffer, writes })
}

fn any_step() -> impl Strategy<Value = Step> {
    let one = || (0..EXECUTABLES, 0..NODES, any_use());
    let all = || (0..EXECUTABLES, [any_use(), any_use()]);
    prop_oneof![
        6 => (0..EXECUTABLES).prop_map(Step::Submit),
        4 => one().prop_map(|(executable, node, to)| Step::Update { executable, node, to }),
        1 => one().prop_map(|(executable, node, to)| Step::FailingUpdate { executable, node, to }),
        1 => all().prop_map(|(executable, to)| Step::UpdateFrom { executable, to }),
        1 => (all(), any::<bool>())
            .prop_map(|((executable, by), has_host_task)| Step::Replace { executable, by, has_host_task }),
        2 => any_use().prop_map(Step::TryGuard),
        2 => any_use().prop_map(Step::Guard),
        2 => Just(Step::PollGuards),
        2 => any::<prop::sample::Index>().prop_map(Step::DropGuard),
        1 => any::<prop::sample::Index>().prop_map(Step::GiveUpGuard),
        6 => Just(Step::LetGo),
        3 => Just(Step::Yield),
    ]
}

/// Who is in which buffer.
#[derive(Default)]
struct Arena {
    state: Mutex<ArenaState>,
    changed: Condvar,
}

#[derive(Default)]
struct ArenaState {
    buffers: Vec<Occupied>,
    waiting: usize,
    permits: usize,
    open: bool,
    overlaps: Vec<String>,
}

#[derive(Default)]
struct Occupied {
    address: usize,
    readers: usize,
    writers: usize,
}

/// A buffer is in use until this is dropped.
struct Inside {
    arena: Arc<Arena>,
    used: Use,
}

impl Arena {
    fn enter(self: &Arc<Self>, used: Use, who: &str) -> Inside {
        let mut state = self.state.lock();
        let Use { buffer, writes } = used;
        let Occupied { readers, writers, .. } = &mut state.buffers[buffer];
        let before = (*readers, *writers);
        *if writes { writers } else { readers } += 1;
        if before.1 > 0 || writes && before.0 > 0 {
            state
                .overlaps
                .push(format!("{who} ({used:?}) overlaps {} readers and {} writers", before.0, before.1));
        }
        Inside { arena: self.clone(), used }
    }

    /// A kernel enters, and is let go when the test says so.
    fn visit(self: &Arc<Self>, elements: &[u32], writes: bool) -> Inside {
        let address = elements.as_ptr() as usize;
        let found = self.state.lock().buffers.iter().position(|known| known.address == address);
        let inside = self.enter(Use { buffer: found.unwrap(), writes }, "a kernel");
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.wait_while(&mut state, |state| !state.open && state.permits == 0);
        state.permits = state.permits.saturating_sub(1);
        state.waiting -= 1;
        inside
    }

    /// Lets one kernel go that is inside.
    fn let_one_go(&self) {
        let mut state = self.state.lock();
        state.permits = state.waiting.min(state.permits + 1);
        self.changed.notify_one();
    }

    fn open(&self) {
        self.state.lock().open = true;
        self.changed.notify_all();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = self.arena.state.lock();
        let Occupied { readers, writers, .. } = &mut state.buffers[self.used.buffer];
        *if self.used.writes { writers } else { readers } -= 1;
    }
}

/// Lets everything go on when a test fails, too.
struct OpenWhenDropped(Arc<Arena>);

impl Drop for OpenWhenDropped {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn mixed(x: u32, n: u32) -> u32 {
    x.wrapping_mul(31).wrapping_add(n)
}

/// What the readers of one executable have seen, each with its number.
type Log = Arc<Mutex<Vec<(u32, u32)>>>;

/// An executable, and what its kernels do.
struct Executable {
    id: usize,
    exec: ExecutableGraph,
    nodes: [NodeId; NODES],
    has_host_task: bool,
    kernels: Kernels,
}

#[derive(Clone)]
struct Kernels {
    writer: Arc<RawKernel>,
    reader: Arc<RawKernel>,
}

impl Kernels {
    fn new(arena: &Arc<Arena>, log: &Log) -> Self {
        let visited = arena.clone();
        let writer = RawKernel::new("writer").value::<u32>("n").writes::<u32>("x").host(move |_, args| {
            let (n, x) = (args.value::<u32>()?, args.write::<u32>()?);
            let _inside = visited.visit(x, true);
            x[0] = mixed(x[0], n);
            Ok(())
        });
        let (visited, log) = (arena.clone(), log.clone());
        let reader = RawKernel::new("reader").value::<u32>("n").reads::<u32>("x").host(move |_, args| {
            let (n, x) = (args.value::<u32>()?, args.read::<u32>()?);
            let _inside = visited.visit(x, false);
            log.lock().push((n, x[0]));
            Ok(())
        });
        Self { writer, reader }
    }

    fn call(&self, writes: bool, n: u32, buffer: &HostBuffer<u32>) -> RawCall {
        let kernel = if writes { &self.writer } else { &self.reader };
        kernel.call().value(n).memory::<u32>(buffer)
    }
}

/// What was asked for, in order.
enum Event {
    Finalize {
        id: usize,
        nodes: [(Use, u32); NODES],
    },
    Update {
        id: usize,
        nodes: Vec<(usize, Use, u32)>,
    },
    Submit {
        id: usize,
    },
    /// With what it has seen; without, it was given up.
    Guard {
        used: Use,
        n: u32,
        seen: Option<u32>,
    },
}

/// A guard that the test holds.
enum Guard {
    Read(#[allow(dead_code, reason = "held")] HostRef<u32>),
    Write(HostMut<u32>),
}

type WaitForGuard = Pin<Box<dyn Future<Output = Guard> + Send>>;

/// One random history.
struct History {
    device: Device,
    arena: Arc<Arena>,
    buffers: Vec<HostBuffer<u32>>,
    executables: Vec<Executable>,
    logs: Vec<Log>,
    events: Vec<Event>,
    submissions: Vec<Submission>,
    updates: Vec<(Applied, bool)>,
    guards: Vec<(Inside, Guard)>,
    /// With the index of the event.
    waiting: Vec<(usize, WaitForGuard)>,
    /// Given to each kernel and guard.
    n: u32,
}

impl History {
    fn new(polled: bool) -> Self {
        let device = host::open(HostOptions::new().threads(3).polled(polled)).unwrap();
        let device = Device::from_hal(device);
        let buffers: Vec<_> = (0..BUFFERS).map(|_| device.host_buffer_from(&[1u32]).unwrap()).collect();
        let arena = Arc::new(Arena::default());
        for buffer in &buffers {
            let address = buffer.try_read().unwrap().as_ptr() as usize;
            arena.state.lock().buffers.push(Occupied { address, ..Occupied::default() });
        }
        let mut history = Self {
            device,
            arena,
            buffers,
            executables: Vec::new(),
            logs: Vec::new(),
            events: Vec::new(),
            submissions: Vec::new(),
            updates: Vec::new(),
            guards: Vec::new(),
            waiting: Vec::new(),
            n: 0,
        };
        for index in 0..EXECUTABLES {
            let uses = [Use { buffer: index % BUFFERS, writes: true }; NODES];
            let executable = history.finalize(uses, index > 0);
            history.executables.push(executable);
        }
        history
    }

    fn number(&mut self) -> u32 {
        self.n += 1;
        self.n
    }

    /// The first node, a host task if there is one, the second node. The edges are the same
    /// whatever the nodes use.
    fn graph(
        &mut self,
        kernels: &Kernels,
        uses: [Use; NODES],
        has_host_task: bool,
    ) -> (Graph, [NodeId; NODES], [(Use, u32); NODES]) {
        let numbered = uses.map(|used| (used, self.number()));
        let mut graph = Graph::new(&self.device);
        let add = |graph: &mut Graph, (Use { buffer, writes }, n): (Use, u32), after: Vec<NodeId>| {
            let call = |writes: bool| kernels.call(writes, n, &self.buffers[buffer]);
            graph.launch(call(writes), Range::linear(1)).after(after).alternative(call(!writes)).id()
        };
        let first = add(&mut graph, numbered[0], Vec::new());
        let between = match has_host_task {
            true => graph.host_task((), async |()| ()).after([first]).id(),
            false => first,
        };
        let second = add(&mut graph, numbered[1], vec![first, between]);
        (graph, [first, second], numbered)
    }

    fn finalize(&mut self, uses: [Use; NODES], has_host_task: bool) -> Executable {
        let (id, log) = (self.logs.len(), Log::default());
        let kernels = Kernels::new(&self.arena, &log);
        self.logs.push(log);
        let (graph, nodes, numbered) = self.graph(&kernels, uses, has_host_task);
        self.events.push(Event::Finalize { id, nodes: numbered });
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        Executable { id, exec, nodes, has_host_task, kernels }
    }

    fn update(&mut self, executable: usize, node: usize, to: Use, fails: bool) {
        let n = self.number();
        let Executable { id, exec, nodes, kernels, .. } = &self.executables[executable];
        let call = kernels.call(to.writes, n, &self.buffers[to.buffer]);
        let mut update = exec.update().launch(nodes[node], call);
        if fails {
            update = update.range(nodes[node], Range::new([1, 1]));
        } else {
            self.events.push(Event::Update { id: *id, nodes: vec![(node, to, n)] });
        }
        self.updates.push((update.apply(), fails));
    }

    fn acquired(&mut self, event: usize, mut guard: Guard) {
        let Event::Guard { used, n, seen } = &mut self.events[event] else { return };
        let inside = self.arena.enter(*used, "a guard");
        *seen = Some(match &mut guard {
            Guard::Read(guard) => guard[0],
            Guard::Write(guard) => {
                let before = guard[0];
                guard[0] = mixed(before, *n);
                before
            }
        });
        self.guards.push((inside, guard));
    }

    /// Adds a guard to what was asked for. The number is the event's.
    fn guard(&mut self, used: Use) -> usize {
        let n = self.number();
        self.events.push(Event::Guard { used, n, seen: None });
        self.events.len() - 1
    }

    async fn poll_guards(&mut self) {
        for (event, mut future) in std::mem::take(&mut self.waiting) {
            match futures::poll!(&mut future) {
                std::task::Poll::Ready(guard) => self.acquired(event, guard),
                std::task::Poll::Pending => self.waiting.push((event, future)),
            }
        }
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Submit(executable) => {
                let Executable { id, exec, .. } = &self.executables[executable];
                self.events.push(Event::Submit { id: *id });
                self.submissions.push(exec.submit());
            }
            Step::Update { executable, node, to } => self.update(executable, node, to, false),
            Step::FailingUpdate { executable, node, to } => self.update(executable, node, to, true),
            Step::UpdateFrom { executable, to } => {
                let Executable { id, has_host_task, ref kernels, .. } = self.executables[executable];
                let kernels = kernels.clone();
                let (graph, _, numbered) = self.graph(&kernels, to, has_host_task);
                let nodes = numbered.iter().enumerate().map(|(node, (to, n))| (node, *to, *n)).collect();
                self.events.push(Event::Update { id, nodes });
                self.updates.push((self.executables[executable].exec.update_from(&graph), false));
            }
            Step::Replace { executable, by, has_host_task } => {
                self.executables[executable] = self.finalize(by, has_host_task);
            }
            Step::TryGuard(used) => {
                let buffer = &self.buffers[used.buffer];
                let guard = match used.writes {
                    true => buffer.try_write().map(Guard::Write),
                    false => buffer.try_read().map(Guard::Read),
                };
                if let Ok(guard) = guard {
                    let event = self.guard(used);
                    self.acquired(event, guard);
                }
            }
            Step::Guard(used) => {
                let (event, buffer) = (self.guard(used), self.buffers[used.buffer].clone());
                let mut future: WaitForGuard = match used.writes {
                    true => Box::pin(async move { Guard::Write(buffer.write().await) }),
                    false => Box::pin(async move { Guard::Read(buffer.read().await) }),
                };
                // It takes its place when it is first polled.
                match futures::poll!(&mut future) {
                    std::task::Poll::Ready(guard) => self.acquired(event, guard),
                    std::task::Poll::Pending => self.waiting.push((event, future)),
                }
            }
            Step::PollGuards => self.poll_guards().await,
            Step::DropGuard(index) => {
                if !self.guards.is_empty() {
                    drop(self.guards.swap_remove(index.index(self.guards.len())));
                }
            }
            Step::GiveUpGuard(index) => {
                if !self.waiting.is_empty() {
                    drop(self.waiting.remove(index.index(self.waiting.len())));
                }
            }
            Step::LetGo => self.arena.let_one_go(),
            Step::Yield => {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Lets everything come to its end.
    async fn end(&mut self) {
        self.arena.open();
        self.guards.clear();
        for (event, guard) in std::mem::take(&mut self.waiting) {
            let guard = guard.await;
            self.acquired(event, guard);
            self.guards.clear();
        }
        for submission in self.submissions.drain(..) {
            submission.await.unwrap();
        }
        for (applied, fails) in self.updates.drain(..) {
            assert_eq!(applied.await.is_err(), fails);
        }
    }

    /// Compares with one thing done after the other.
    async fn check(&self) {
        assert_eq!(self.arena.state.lock().overlaps, [""; 0]);
        let mut buffers = [1u32; BUFFERS];
        let mut executables: Vec<Vec<(Use, u32)>> = vec![Vec::new(); self.logs.len()];
        let mut logs: Vec<Vec<(u32, u32)>> = vec![Vec::new(); self.logs.len()];
        for event in &self.events {
            match event {
                Event::Finalize { id, nodes } => executables[*id] = nodes.to_vec(),
                Event::Update { id, nodes } => {
                    for (node, to, n) in nodes {
                        executables[*id][*node] = (*to, *n);
                    }
                }
                Event::Submit { id } => {
                    for (Use { buffer, writes }, n) in &executables[*id] {
                        match writes {
                            true => buffers[*buffer] = mixed(buffers[*buffer], *n),
                            false => logs[*id].push((*n, buffers[*buffer])),
                        }
                    }
                }
                Event::Guard { seen: None, .. } => {}
                Event::Guard { used, n, seen: Some(seen) } => {
                    assert_eq!(*seen, buffers[used.buffer], "a guard has seen another value");
                    if used.writes {
                        buffers[used.buffer] = mixed(buffers[used.buffer], *n);
                    }
                }
            }
        }
        for (buffer, expected) in self.buffers.iter().zip(buffers) {
            assert_eq!(buffer.read().await[0], expected, "a buffer has another value");
        }
        for (log, expected) in self.logs.iter().zip(logs) {
            assert_eq!(*log.lock(), expected, "a kernel has seen another value");
        }
    }
}

fn run(polled: bool, steps: &[Step]) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let mut history = History::new(polled);
        let _open = OpenWhenDropped(history.arena.clone());
        for step in steps {
            history.step(step).await;
        }
        timeout(WATCHDOG, history.end()).await.expect("something waits for ever");
        history.check().await;
    });
    // Nothing is left to be waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn submissions_updates_and_guards_exclude_each_other(
        polled in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        run(polled, &steps);
    }
}

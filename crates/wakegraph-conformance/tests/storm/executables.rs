//! Random executables over the buffers of a round: steps of random programs, among tasks and kernels that
//! fail.
//!
//! Every command and task leaves the elements of a buffer equal to each other, and checks that it
//! finds them so: a command that runs beside a writer sees a buffer that is half old and half new.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use tokio::task::yield_now;
use wakegraph::kernel::RawKernel;
use wakegraph::plan::{ExecutionOrder, PartitionPolicy};
use wakegraph::{
    Buffer, Error, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, HostMut, HostRef, NodeId,
    Range, Result, read, write,
};
use wakegraph_conformance::programs::{Choices, LEN, Mixture, add_node};

use crate::faults::{Captured, Failure, OnDrop, panic_with, panic_with_bad_payload};
use crate::ledger::Account;
use crate::random::Random;
use crate::round::World;

#[expect(unsafe_code, reason = "the kernels' code is vouched for")]
mod kernels {
    use super::mix_on_host;
    wakegraph::kernel! {
        /// Every element becomes another function of itself.
        pub(crate) fn mix(n: u32, x: &mut [u32]) {
            host: |_, n, x| mix_on_host(n, x),
            // SAFETY: a work-item uses the element with its index, and a launch is bounded by the
            // slice's length.
            c: unsafe {
                "KERNEL(mix, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] = 31 * x[GLOBAL_ID(0)] + n; }"
            },
        }

        /// Counts runs.
        pub(crate) fn count(x: &mut [u32]) {
            host: |_, x| x.iter_mut().for_each(|x| *x += 1),
            // SAFETY: as above.
            c: unsafe { "KERNEL(count, (SLICE(u32, x))) { x[GLOBAL_ID(0)] += 1; }" },
        }
    }
}
pub(crate) use kernels::{count, mix};

fn mix_on_host(n: u32, x: &mut [u32]) {
    let value = uniform(x).wrapping_mul(31).wrapping_add(n);
    for (index, x) in x.iter_mut().enumerate() {
        *x = value;
        if index == LEN / 2 {
            thread::yield_now();
        }
    }
}

/// What is said where elements of a buffer differ.
pub(crate) const RACE: &str = "another command writes the buffer";

/// The value that all elements have.
pub(crate) fn uniform(elements: &[u32]) -> u32 {
    let value = elements[0];
    assert!(elements.iter().all(|&x| x == value), "{RACE}: {elements:?}");
    value
}

/// What a node does now and then instead of what it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Never,
    Fails,
    FailsWithErrorWhoseDropPanics,
    FailsWithErrorThatSubmits,
    Panics,
    PanicsWithBadPayload,
    CapturedDropPanics,
    CloningPanics,
}

/// Faults of host tasks, then those that kernels can have, too.
const FAULTS: [Fault; 7] = [
    Fault::FailsWithErrorWhoseDropPanics,
    Fault::FailsWithErrorThatSubmits,
    Fault::CapturedDropPanics,
    Fault::CloningPanics,
    Fault::Fails,
    Fault::Panics,
    Fault::PanicsWithBadPayload,
];
const OF_KERNELS: usize = 4;

/// How seldom a fault happens, by calls.
const ONE_IN: usize = 4;

/// An executable with what is known of it.
pub(crate) struct Entry {
    pub(crate) exec: ExecutableGraph,
    pub(crate) account: Arc<Account>,
    /// Counts its runs on the device.
    pub(crate) counter: Buffer<u32>,
    /// Kernel nodes that an update may change, and whether it is updatable.
    pub(crate) kernels: Vec<NodeId>,
    pub(crate) updatable: bool,
    pub(crate) profiled: bool,
}

/// A node's part in its faults.
#[derive(Clone)]
struct Troubled {
    account: Arc<Account>,
    world: Weak<World>,
    fault: Fault,
    calls: Arc<AtomicU64>,
}

impl Troubled {
    fn happens(&self, fault: Fault) -> bool {
        self.fault == fault && self.world.upgrade().is_some_and(|world| world.dice.chance(ONE_IN))
    }

    /// The number of a failure that is about to happen.
    fn raise(&self) -> u64 {
        let number = self.world.upgrade().map_or(0, |world| world.failures.next());
        self.account.raised.lock().push(number);
        number
    }

    /// What a value captured for one run does when it is dropped.
    fn on_drop_of_clone(&self) -> Option<OnDrop> {
        if self.happens(Fault::CloningPanics) {
            panic_with(self.raise());
        }
        let troubled = self.happens(Fault::CapturedDropPanics).then(|| self.clone());
        troubled.map(|troubled| -> OnDrop {
            Box::new(move || {
                if !thread::panicking() {
                    let number = troubled.raise();
                    troubled.account.raised_in_drops.lock().push(number);
                    panic_with(number);
                }
            })
        })
    }

    /// A value for the node's closure to capture. The one that stays with the executable is troublesome, too.
    fn captured(&self, random: &mut Random) -> Captured {
        let Some(world) = self.world.upgrade() else { unreachable!("the world is being built") };
        let (solo, failures) = (world.solo.clone(), self.world.clone());
        let on_drop: Option<OnDrop> = match random.below(16) {
            0 => Some(Box::new(move || panic_with(failures.upgrade().map_or(0, |w| w.failures.next())))),
            1 => Some(Box::new(move || solo.submit_and_drop())),
            2 => Some(Box::new(move || solo.submit_and_wait())),
            _ => None,
        };
        let troubled = self.clone();
        Captured::new(&world.census, on_drop, move || troubled.on_drop_of_clone())
    }

    /// The outcome of a host task's closure.
    fn outcome(&self) -> Result<(), Failure> {
        if self.happens(Fault::Panics) {
            panic_with(self.raise());
        }
        if self.happens(Fault::PanicsWithBadPayload) {
            self.account.raised_without_number.fetch_add(1, Ordering::SeqCst);
            panic_with_bad_payload();
        }
        let on_drop: Option<OnDrop> = if self.happens(Fault::Fails) {
            None
        } else if self.happens(Fault::FailsWithErrorWhoseDropPanics) {
            Some(Box::new(|| panic_with(0)))
        } else if self.happens(Fault::FailsWithErrorThatSubmits) {
            let world = self.world.clone();
            Some(Box::new(move || {
                if let Some(world) = world.upgrade() {
                    world.solo.submit_and_drop();
                }
            }))
        } else {
            return Ok(());
        };
        Err(Failure::new(self.raise(), on_drop))
    }

    async fn task<V: Views>(self, captured: Captured, mut views: V) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        views.use_them();
        let world = self.world.upgrade();
        let roll = world.as_ref().map_or(0, |world| world.dice.below(16));
        for _ in 0..roll % 4 {
            yield_now().await;
        }
        if let (8, Some(world)) = (roll, &world) {
            world.submit_from_a_task();
        }
        if roll == 9 {
            // The task is over when its views are, wherever they are dropped.
            tokio::spawn(async move {
                yield_now().await;
                drop(views);
            });
        }
        drop(world);
        let _captured = captured;
        self.outcome()
    }

    fn blocking_task<V: Views>(self, captured: Captured, mut views: V) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        views.use_them();
        let _captured = captured;
        self.outcome()
    }

    /// A kernel of the host's that writes its argument.
    fn kernel(self, captured: Captured) -> Arc<RawKernel> {
        RawKernel::new("troubled").writes::<u32>("x").host(move |_, args| {
            let _captured = &captured;
            mix_on_host(3, args.write::<u32>()?);
            if self.happens(Fault::Panics) {
                panic_with(self.raise());
            }
            if self.happens(Fault::PanicsWithBadPayload) {
                self.account.raised_without_number.fetch_add(1, Ordering::SeqCst);
                panic_with_bad_payload();
            }
            match self.happens(Fault::Fails) {
                true => Err(Error::new(ErrorKind::Driver, format!("a failure on purpose #{}", self.raise()))),
                false => Ok(()),
            }
        })
    }
}

/// What a host task is given.
trait Views: Send + 'static {
    fn use_them(&mut self);
}

impl Views for () {
    fn use_them(&mut self) {}
}

impl Views for (HostRef<u32>,) {
    fn use_them(&mut self) {
        uniform(&self.0);
    }
}

impl Views for (HostMut<u32>,) {
    fn use_them(&mut self) {
        mix_on_host(5, &mut self.0);
    }
}

impl Views for (HostRef<u32>, HostMut<u32>) {
    fn use_them(&mut self) {
        let n = uniform(&self.0);
        mix_on_host(n, &mut self.1);
    }
}

/// Adds a host task with one of the shapes of accesses.
fn add_task(graph: &mut Graph, random: &mut Random, troubled: Troubled, world: &World) -> NodeId {
    let captured = troubled.captured(random);
    let [one, other] = two_of(&world.host, random);
    macro_rules! task {
        ($accesses:expr) => {
            if random.chance(4) {
                graph.host_task_blocking($accesses, move |views| troubled.blocking_task(captured, views)).id()
            } else {
                graph.host_task($accesses, move |views| troubled.task(captured, views)).id()
            }
        };
    }
    match random.below(4) {
        0 => task!(()),
        1 => task!((read(one),)),
        2 => task!((write(one),)),
        _ => task!((read(one), write(other))),
    }
}

fn two_of<'a, T>(all: &'a [T], random: &mut Random) -> [&'a T; 2] {
    let first = random.below(all.len());
    let second = (first + 1 + random.below(all.len() - 1)) % all.len();
    [&all[first], &all[second]]
}

fn one_of<'a, T>(all: &'a [T], random: &mut Random) -> &'a T {
    &all[random.below(all.len())]
}

/// A random executable; an error only where the device is lost.
pub(crate) fn build(world: &Arc<World>, name: String, random: &mut Random) -> Result<Entry> {
    let device = &world.device;
    let nodes = random.within(1..=6);
    let only_on_devices = random.chance(3);
    let faulty = if random.chance(2) { Some(random.below(nodes)) } else { None };
    let several_faults = faulty.is_some() && random.chance(4);
    let account = Arc::new(Account::new(!several_faults));
    let counter = device.buffer::<u32>(LEN)?;
    let mixture = Mixture::uniform(!only_on_devices, world.kind.has_results());
    let mut graph = Graph::new(device);
    let (mut ids, mut kernels, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for node in 0..nodes {
        let is_faulty = several_faults || faulty == Some(node);
        let first = if only_on_devices { OF_KERNELS } else { 0 };
        let fault = match is_faulty {
            true => FAULTS[random.within(first..=FAULTS.len() - 1)],
            false => Fault::Never,
        };
        let calls = Arc::new(AtomicU64::new(0));
        let troubled =
            Troubled { account: account.clone(), world: Arc::downgrade(world), fault, calls: calls.clone() };
        let x: &Buffer<u32> = one_of(&world.device_memory, random);
        let host: &HostBuffer<u32> = one_of(&world.host, random);
        let kind = match (only_on_devices, is_faulty && world.kind.runs_closures()) {
            // Only closures can fail.
            (true, true) => 9,
            (true, false) => random.within(3..=9),
            (false, true) => random.below(3),
            (false, false) => random.below(10),
        };
        words.push(match kind {
            0..=2 => format!("task ({fault:?})"),
            _ => format!("kernel ({fault:?})"),
        });
        let id = match kind {
            0..=2 => {
                account.calls.lock().push(calls);
                add_task(&mut graph, random, troubled, world)
            }
            3..=7 => {
                let step = &mixture.nodes(&mut Choices::seeded(random.next()), 1)[0];
                words[node] = format!("{step:?}");
                add_node(&mut graph, &world.memory, step)
            }
            8 => {
                let id = graph.launch(mix(node as u32, x), Range::linear(LEN)).id();
                kernels.push(id);
                id
            }
            _ if world.kind.runs_closures() => {
                let kernel = troubled.clone().kernel(troubled.captured(random));
                let call = match random.chance(2) {
                    true => kernel.call().memory::<u32>(x),
                    false => kernel.call().memory::<u32>(host),
                };
                graph.launch(call, Range::linear(LEN)).id()
            }
            _ => graph.empty().id(),
        };
        for &earlier in &ids {
            if random.chance(6) {
                graph.make_edge(earlier, id).unwrap();
            }
        }
        ids.push(id);
    }
    // Whatever comes before has succeeded when the run is counted.
    graph.launch(count(&counter), Range::linear(LEN)).after_leaves();
    let (updatable, profiled) = (random.chance(2), random.chance(6));
    let options = FinalizeOptions::new()
        .updatable(updatable)
        .profiling(profiled)
        .in_order(random.chance(8))
        .order(if random.chance(2) { ExecutionOrder::DepthFirst } else { ExecutionOrder::BreadthFirst })
        .partition(match random.below(3) {
            0 => PartitionPolicy::Signature,
            1 => PartitionPolicy::Fewest,
            _ => PartitionPolicy::Eager,
        });
    let exec = graph.finalize_with(options)?;
    account.name.get_or_init(|| format!("{name} [{}]", words.join(", ")));
    Ok(Entry { exec, account, counter, kernels, updatable, profiled })
}

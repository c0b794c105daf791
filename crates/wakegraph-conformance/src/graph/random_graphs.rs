//! Random graphs of kernels, fills, copies and host tasks over few buffers: the result is that of
//! running the nodes one after the other in the order in which they were added.
//!
//! `WAKEGRAPH_RANDOM_GRAPHS` sets how many seeds each test has, `WAKEGRAPH_RANDOM_SEED` the first of them,
//! and `WAKEGRAPH_RANDOM_RUNS` how often each seed's graphs are submitted and their results checked (1): test
//! drivers carry out in random order what nothing orders, another one each time.

use wakegraph::plan::{ExecutionOrder, PartitionPolicy};
use wakegraph::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, Range, read, write};

use crate::kernels::{axpy, fold, mix};
use crate::random::{Random, from_environment};
use crate::suite::{Need, Setup, tests};

tests!("graph/random":
    &[Need::Results] => [on_one_device, with_host_tasks, several_executables_over_the_same_buffers],
    &[Need::Results, Need::TwoDevices] => [on_two_devices]);

const LEN: usize = 6;

/// Buffers on their devices, and what they should hold.
struct World {
    buffers: Vec<Buffer<u32>>,
    hosts: Vec<HostBuffer<u32>>,
    model: Vec<[u32; LEN]>,
    host_model: Vec<[u32; LEN]>,
}

impl World {
    fn new(devices: &[Device], random: &mut Random) -> Self {
        let mut numbers = || [(); LEN].map(|()| random.next() as u32);
        let model: Vec<_> = (0..4).map(|_| numbers()).collect();
        let host_model: Vec<_> = (0..2).map(|_| numbers()).collect();
        let device = |i: usize| &devices[i % devices.len()];
        let buffers = model.iter().enumerate();
        let hosts = host_model.iter().enumerate();
        Self {
            buffers: buffers.map(|(i, numbers)| device(i).buffer_from(numbers).unwrap()).collect(),
            hosts: hosts.map(|(i, numbers)| device(i).host_buffer_from(numbers).unwrap()).collect(),
            model,
            host_model,
        }
    }

    async fn check(&self, what: &str) {
        for (i, (buffer, model)) in self.buffers.iter().zip(&self.model).enumerate() {
            assert_eq!(buffer.to_vec().await.unwrap(), model, "{what}, buffer {i}");
        }
        for (i, (host, model)) in self.hosts.iter().zip(&self.host_model).enumerate() {
            assert_eq!(*host.read().await, model[..], "{what}, host buffer {i}");
        }
    }
}

/// One node: what it does to the model. Indices are of buffers, ranges of elements.
#[derive(Clone, Copy, Debug)]
enum Step {
    Mix { x: usize, from: usize, to: usize, n: u32 },
    Axpy { a: u32, x: usize, y: usize },
    Fold { x: usize, y: usize },
    Fill { x: usize, from: usize, to: usize, value: u32 },
    Copy { x: usize, y: usize },
    Read { x: usize, host: usize },
    Write { host: usize, x: usize },
    HostAdd { from: usize, to: usize },
}

/// Which steps a graph may have.
#[derive(Clone, Copy)]
struct Mixture {
    host_tasks: bool,
    /// Buffers `i` and `i + apart` live on one device: kernels and copies stay there, unless this is 1.
    devices: usize,
}

impl Step {
    fn random(random: &mut Random, mixture: Mixture) -> Self {
        let x = random.below(4);
        // A second buffer on the same device.
        let y = (x + mixture.devices * (1 + random.below(4 / mixture.devices - 1))) % 4;
        let from = random.below(LEN);
        let to = random.within(from + 1..=LEN);
        let (n, host) = (random.next() as u32, random.below(2));
        // Host memory serves the device that it was allocated for.
        let beside = (x + 4 - x % mixture.devices + host % mixture.devices) % 4;
        match random.below(if mixture.host_tasks { 8 } else { 7 }) {
            0 => Self::Mix { x, from, to, n },
            1 => Self::Axpy { a: n, x, y },
            2 => Self::Fold { x, y },
            3 => Self::Fill { x, from, to, value: n },
            4 => Self::Copy { x, y: if mixture.devices > 1 { (x + 1) % 4 } else { y } },
            5 => Self::Read { x: beside, host },
            6 => Self::Write { host, x: beside },
            _ => Self::HostAdd { from: host, to: 1 - host },
        }
    }

    fn add(self, graph: &mut Graph, world: &World) {
        let (buffers, hosts) = (&world.buffers, &world.hosts);
        let part = |x: usize, from, to| buffers[x].slice(from..to).unwrap();
        match self {
            Self::Mix { x, from, to, n } => {
                graph.launch(mix(n, part(x, from, to)), Range::linear(to - from));
            }
            Self::Axpy { a, x, y } => {
                graph.launch(axpy(a, &buffers[x], &buffers[y]), Range::linear(LEN));
            }
            Self::Fold { x, y } => {
                graph.launch(fold(&buffers[x], &buffers[y]), Range::linear(1));
            }
            Self::Fill { x, from, to, value } => {
                graph.fill(&part(x, from, to), value);
            }
            Self::Copy { x, y } => {
                graph.copy(&buffers[x], &buffers[y]);
            }
            Self::Read { x, host } => {
                graph.copy(&buffers[x], &hosts[host]);
            }
            Self::Write { host, x } => {
                graph.copy(&hosts[host], &buffers[x]);
            }
            Self::HostAdd { from, to } => {
                graph.host_task((read(&hosts[from]), write(&hosts[to])), async |(from, mut to)| {
                    tokio::task::yield_now().await;
                    to.iter_mut()
                        .zip(&*from)
                        .for_each(|(to, from)| *to = to.wrapping_mul(7).wrapping_add(*from));
                });
            }
        }
    }

    fn apply(self, world: &mut World) {
        let (model, hosts) = (&mut world.model, &mut world.host_model);
        let mixed = |x: u32, n: u32| x.wrapping_mul(31).wrapping_add(n);
        match self {
            Self::Mix { x, from, to, n } => model[x][from..to].iter_mut().for_each(|x| *x = mixed(*x, n)),
            Self::Axpy { a, x, y } => {
                let x = model[x];
                model[y].iter_mut().zip(x).for_each(|(y, x)| *y = y.wrapping_add(a.wrapping_mul(x)));
            }
            Self::Fold { x, y } => {
                let sum = model[x].iter().fold(0u32, |sum, x| sum.wrapping_add(*x));
                model[y].iter_mut().for_each(|y| *y = mixed(*y, sum));
            }
            Self::Fill { x, from, to, value } => model[x][from..to].fill(value),
            Self::Copy { x, y } => model[y] = model[x],
            Self::Read { x, host } => hosts[host] = model[x],
            Self::Write { host, x } => model[x] = hosts[host],
            Self::HostAdd { from, to } => {
                let from = hosts[from];
                hosts[to]
                    .iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to = to.wrapping_mul(7).wrapping_add(from));
            }
        }
    }
}

fn random_options(random: &mut Random) -> FinalizeOptions {
    let policies = [PartitionPolicy::Signature, PartitionPolicy::Fewest, PartitionPolicy::Eager];
    let orders = [ExecutionOrder::DepthFirst, ExecutionOrder::BreadthFirst];
    FinalizeOptions::new()
        .partition(policies[random.below(3)])
        .order(orders[random.below(2)])
        .in_order(random.chance(4))
        .profiling(random.chance(4))
}

fn check(setup: &Setup, devices: &[Device], host_tasks: bool, executables: usize, seeds: u64) {
    let mixture = Mixture { host_tasks, devices: devices.len() };
    let first = from_environment("WAKEGRAPH_RANDOM_SEED").unwrap_or(0);
    let seeds = from_environment("WAKEGRAPH_RANDOM_GRAPHS").unwrap_or(seeds);
    let runs = from_environment("WAKEGRAPH_RANDOM_RUNS").unwrap_or(1);
    setup.block_on(async {
        for seed in first..first + seeds {
            let random = &mut Random::new(seed);
            let world = &mut World::new(devices, random);
            let mut graphs = Vec::new();
            for _ in 0..executables {
                let steps: Vec<_> =
                    (0..random.within(1..=30)).map(|_| Step::random(random, mixture)).collect();
                let mut graph = Graph::new(&devices[0]);
                steps.iter().for_each(|step| step.add(&mut graph, world));
                let options = random_options(random);
                let exec = graph.finalize_with(options);
                graphs.push((exec.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{steps:?}")), steps));
            }
            for run in 0..runs {
                submit(&graphs, random, world).await;
                world.check(&format!("seed {seed}, run {run}")).await;
            }
        }
    });
}

/// Submits the graphs at once, in a random order: they run as if one after the other.
async fn submit(graphs: &[(ExecutableGraph, Vec<Step>)], random: &mut Random, world: &mut World) {
    let mut submissions = Vec::new();
    for _ in 0..2 * graphs.len() + 1 {
        let (exec, steps) = &graphs[random.below(graphs.len())];
        submissions.push(exec.submit());
        steps.iter().for_each(|step| step.apply(world));
    }
    for submission in submissions {
        submission.await.unwrap();
    }
}

fn on_one_device(setup: &Setup) {
    check(setup, &setup.devices[..1], false, 1, 40);
}

fn with_host_tasks(setup: &Setup) {
    check(setup, &setup.devices[..1], true, 1, 40);
}

fn several_executables_over_the_same_buffers(setup: &Setup) {
    check(setup, &setup.devices[..1], true, 3, 30);
}

fn on_two_devices(setup: &Setup) {
    check(setup, &setup.devices[..2], false, 2, 30);
    check(setup, &setup.devices[..2], true, 2, 30);
}

//! Random updates, of single nodes and of everything, of graphs that hold graphs, on every device.

use wakegraph::graph::NodePath;
use wakegraph::update::{Applied, CommandGroup, DynamicParam};
use wakegraph::{Buffer, ExecutableGraph, Graph, HostBuffer, HostMut, Range, write};

use super::updates::{can_update, finalize, mixed};
use crate::kernels::{add, mix};
use crate::random::Random;
use crate::suite::{Need, Setup, tests};

tests!("graph/nested_updates":
    &[Need::Results] => [random_updates_in_graphs_within_graphs]);

/// Elements of every buffer, which are equal, so that the model of a buffer is one number.
const LEN: usize = 4;
/// Buffers on devices; one on the host comes after them.
const ON_DEVICES: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Fill {
        to: usize,
        value: u32,
    },
    Copy {
        from: usize,
        to: usize,
    },
    Mix {
        to: usize,
        n: u32,
    },
    /// A mix, whose number is a dynamic parameter.
    Param {
        to: usize,
        n: u32,
    },
    /// A command group: a mix or an addition.
    Group {
        to: usize,
        n: u32,
        chosen: usize,
    },
    /// A mix of the buffer on the host.
    HostTask {
        n: u32,
    },
    SubGraph(Vec<Node>),
    If {
        taken: bool,
        body: Vec<Node>,
    },
    /// Counts down in a buffer of its own.
    While {
        rounds: u32,
        body: Vec<Node>,
    },
}

#[derive(Clone, Debug)]
struct Node {
    op: Op,
    enabled: bool,
}

/// The names of a node in updates.
struct Handle {
    path: NodePath,
    param: Option<DynamicParam<u32>>,
    group: Option<CommandGroup>,
}

struct Memory {
    buffers: [Buffer<u32>; ON_DEVICES],
    host: HostBuffer<u32>,
    /// 0 and 1.
    flags: Buffer<u32>,
    /// One for each depth.
    counters: Buffer<u32>,
}

impl Memory {
    fn new(setup: &Setup) -> Self {
        let (first, last) = (setup.device(), setup.devices.last().unwrap());
        Self {
            buffers: [first, first, last].map(|device| device.buffer(LEN).unwrap()),
            host: first.host_buffer(LEN).unwrap(),
            flags: first.buffer_from(&[0, 1]).unwrap(),
            counters: first.buffer(8).unwrap(),
        }
    }

    async fn contents(&self) -> Vec<Vec<u32>> {
        let mut contents = Vec::new();
        for buffer in &self.buffers {
            contents.push(buffer.to_vec().await.unwrap());
        }
        contents.push(self.host.read().await.to_vec());
        contents
    }
}

fn nodes(random: &mut Random, count: usize, depth: usize) -> Vec<Node> {
    let op = |random: &mut Random| {
        let (to, n) = (random.below(ON_DEVICES), random.below(1000) as u32);
        match random.below(if depth < 2 { 12 } else { 9 }) {
            0 => Op::Fill { to, value: n },
            1 | 2 => {
                let from = random.below(ON_DEVICES + 1);
                let other = (from + 1 + random.below(ON_DEVICES)) % (ON_DEVICES + 1);
                Op::Copy { from, to: other }
            }
            3 | 4 => Op::Mix { to, n },
            5 => Op::Param { to, n },
            6 | 7 => Op::Group { to, n, chosen: random.below(2) },
            8 => Op::HostTask { n },
            9 => Op::SubGraph(nodes(random, 2, depth + 1)),
            10 => Op::If { taken: random.chance(2), body: nodes(random, 2, depth + 1) },
            _ => Op::While { rounds: random.below(3) as u32, body: nodes(random, 2, depth + 1) },
        }
    };
    (0..count).map(|_| Node { op: op(random), enabled: true }).collect()
}

async fn mix_on_host(n: u32, mut x: HostMut<u32>) {
    tokio::task::yield_now().await;
    x.iter_mut().for_each(|x| *x = mixed(*x, &[n]));
}

/// The graph of the nodes, and the handles of those that hold no graphs, depth first.
fn build(setup: &Setup, memory: &Memory, nodes: &[Node], depth: usize) -> (Graph, Vec<Handle>) {
    let (mut graph, mut handles) = (Graph::new(setup.device()), Vec::new());
    let range = Range::linear(LEN);
    for node in nodes {
        let (mut param, mut group) = (None, None);
        let (holder, inner) = match &node.op {
            Op::Fill { to, value } => (graph.fill(&memory.buffers[*to], *value).id(), None),
            Op::Copy { from: ON_DEVICES, to } => (graph.copy(&memory.host, &memory.buffers[*to]).id(), None),
            Op::Copy { from, to: ON_DEVICES } => {
                (graph.copy(&memory.buffers[*from], &memory.host).id(), None)
            }
            Op::Copy { from, to } => (graph.copy(&memory.buffers[*from], &memory.buffers[*to]).id(), None),
            Op::Mix { to, n } => (graph.launch(mix(*n, &memory.buffers[*to]), range).id(), None),
            Op::Param { to, n } => {
                let n = param.insert(graph.param(*n));
                (graph.launch(mix(0, &memory.buffers[*to]), range).param("n", n).id(), None)
            }
            Op::Group { to, n, chosen } => {
                let x = &memory.buffers[*to];
                let alternatives = graph.command_group().launch(mix(*n, x), range).launch(add(*n, x), range);
                let group = group.insert(alternatives.build());
                group.choose(*chosen).unwrap();
                (graph.add_group(group).id(), None)
            }
            &Op::HostTask { n } => {
                let task = async move |(x,): (HostMut<u32>,)| mix_on_host(n, x).await;
                (graph.host_task((write(&memory.host),), task).id(), None)
            }
            Op::SubGraph(nodes) => {
                let (inner, within) = build(setup, memory, nodes, depth);
                (graph.sub_graph(&inner).id(), Some(within))
            }
            Op::If { taken, body } => {
                let (body, within) = build(setup, memory, body, depth);
                let flag = usize::from(*taken);
                let flag = memory.flags.slice(flag..=flag).unwrap();
                (graph.if_nonzero(&flag, &body).id(), Some(within))
            }
            Op::While { rounds, body } => {
                let counter = memory.counters.slice(depth..=depth).unwrap();
                let (mut body, within) = build(setup, memory, body, depth + 1);
                body.launch(add(u32::MAX, &counter), Range::linear(1));
                graph.fill(&counter, *rounds);
                (graph.while_nonzero(&counter, &body).id(), Some(within))
            }
        };
        match inner {
            None => handles.push(Handle { path: holder.into(), param, group }),
            Some(inner) => {
                handles.extend(inner.into_iter().map(|one| Handle { path: one.path.within(holder), ..one }))
            }
        }
    }
    (graph, handles)
}

fn run(nodes: &[Node], model: &mut [u32; ON_DEVICES + 1]) {
    for node in nodes.iter().filter(|node| node.enabled) {
        match node.op {
            Op::Fill { to, value } => model[to] = value,
            Op::Copy { from, to } => model[to] = model[from],
            Op::Mix { to, n } | Op::Param { to, n } | Op::Group { to, n, chosen: 0 } => {
                model[to] = mixed(model[to], &[n]);
            }
            Op::Group { to, n, .. } => model[to] = model[to].wrapping_add(n),
            Op::HostTask { n } => model[ON_DEVICES] = mixed(model[ON_DEVICES], &[n]),
            Op::SubGraph(ref nodes) => run(nodes, model),
            Op::If { taken, ref body } => (0..u32::from(taken)).for_each(|_| run(body, model)),
            Op::While { rounds, ref body } => (0..rounds).for_each(|_| run(body, model)),
        }
    }
}

/// The nodes that hold no graphs, depth first.
fn flattened(nodes: &mut [Node]) -> Vec<&mut Node> {
    let mut all = Vec::new();
    for node in nodes {
        match node.op {
            Op::SubGraph(_) | Op::If { .. } | Op::While { .. } => {
                let (Op::SubGraph(inner) | Op::If { body: inner, .. } | Op::While { body: inner, .. }) =
                    &mut node.op
                else {
                    continue;
                };
                all.extend(flattened(inner));
            }
            _ => all.push(node),
        }
    }
    all
}

/// Turns the node into one that a graph of the same topology may have in its place.
fn vary(node: &mut Node, random: &mut Random) {
    node.enabled = true;
    match &mut node.op {
        Op::Group { n, chosen, .. } => (*n, *chosen) = (random.below(1000) as u32, random.below(2)),
        Op::Fill { value: n, .. } | Op::Mix { n, .. } | Op::Param { n, .. } | Op::HostTask { n } => {
            *n = random.below(1000) as u32;
        }
        Op::Copy { .. } | Op::SubGraph(_) | Op::If { .. } | Op::While { .. } => {}
    }
}

/// Changes some nodes of the executable and of the model.
fn update(
    exec: &ExecutableGraph,
    memory: &Memory,
    nodes: &mut [Node],
    handles: &[Handle],
    random: &mut Random,
) -> Applied {
    let (mut update, mut nodes) = (exec.update(), flattened(nodes));
    for _ in 0..random.within(1..=3) {
        let (number, on, n) = (random.below(nodes.len()), random.chance(2), random.below(1000) as u32);
        let (node, handle) = (&mut *nodes[number], &handles[number]);
        update = match &mut node.op {
            Op::HostTask { n: now } => {
                *now = n;
                let task = async move |(x,): (HostMut<u32>,)| mix_on_host(n, x).await;
                update.host_task(handle.path.clone(), (write(&memory.host),), task)
            }
            Op::Group { chosen, .. } if on => {
                *chosen = n as usize % 2;
                update.choose(handle.group.as_ref().unwrap(), *chosen)
            }
            Op::Param { n: now, .. } if on => {
                *now = n;
                update.param(handle.param.as_ref().unwrap(), n)
            }
            Op::Mix { to, n: now } if on => {
                *now = n;
                update.launch(handle.path.clone(), mix(n, &memory.buffers[*to]))
            }
            Op::Fill { to, value } if on => {
                *value = n;
                update.fill(handle.path.clone(), &memory.buffers[*to], n)
            }
            _ => {
                node.enabled = n % 2 == 0;
                update.enabled(handle.path.clone(), node.enabled)
            }
        };
    }
    update.apply()
}

fn random_updates_in_graphs_within_graphs(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let memory = Memory::new(setup);
        let mut nodes = nodes(&mut random, 5, 0);
        let (graph, handles) = build(setup, &memory, &nodes, 0);
        let exec = finalize(&graph);
        let mut model = [0; ON_DEVICES + 1];
        setup.block_on(async {
            if handles.is_empty() {
                return;
            }
            let (mut updates, mut submissions) = (Vec::new(), Vec::new());
            for _ in 0..20 {
                if random.chance(4) {
                    flattened(&mut nodes).into_iter().for_each(|node| vary(node, &mut random));
                    updates.push(exec.update_from(&build(setup, &memory, &nodes, 0).0));
                } else {
                    updates.push(update(&exec, &memory, &mut nodes, &handles, &mut random));
                }
                submissions.push(exec.submit());
                run(&nodes, &mut model);
            }
            for update in updates {
                update.await.unwrap();
            }
            for submission in submissions {
                submission.await.unwrap();
            }
            let model = model.map(|number| vec![number; LEN]);
            assert_eq!(memory.contents().await, model, "seed {seed}: {nodes:?}");
        });
    }
}

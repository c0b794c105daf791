//! The memory of a program, and its steps as commands of graphs and queues.

use std::ops::Range as Indices;
use std::pin::Pin;

use tokio::task::yield_now;
use wakegraph::graph::NodePath;
use wakegraph::kernel::KernelCall;
use wakegraph::memory::{Advice, Layout, RectCopy};
use wakegraph::update::{CommandGroup, DynamicParam};
use wakegraph::{
    Buffer, Device, Event, Graph, HostBuffer, HostMut, HostRef, NodeId, Queue, Range, read, write,
};

use super::choices::Choices;
use super::generate::PARAMS;
use super::model::task;
use super::step::{BUFFERS, COLUMNS, Code, End, Kernel, LEN, Nest, Node, ON_DEVICES, Part, Step, Task};
use crate::kernels::{add, axpy, fold, mix, raise};

/// A buffer, or a part of one.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    Device(Buffer<u32>),
    Host(HostBuffer<u32>),
}

/// The devices of a program and its buffers on them.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) devices: Vec<Device>,
    pub(super) memory: Vec<Memory>,
    /// The device of each buffer.
    pub(super) homes: [usize; BUFFERS],
}

/// Calls a function with memory of either kind.
macro_rules! with {
    ($memory:expr, |$x:ident| $call:expr) => {
        match $memory {
            Memory::Device($x) => $call,
            Memory::Host($x) => $call,
        }
    };
}
pub(super) use with;

impl World {
    /// Buffers that take turns on the devices.
    pub(super) fn new(devices: &[Device], contents: &[[u32; LEN]; BUFFERS]) -> Self {
        let homes: [usize; BUFFERS] = std::array::from_fn(|buffer| match buffer < ON_DEVICES {
            true => buffer % devices.len(),
            false => (buffer - ON_DEVICES) % devices.len(),
        });
        let buffer = |(buffer, contents): (usize, &[u32; LEN])| {
            let device = &devices[homes[buffer]];
            match buffer < ON_DEVICES {
                true => Memory::Device(device.buffer_from(contents).unwrap()),
                false => Memory::Host(device.host_buffer_from(contents).unwrap()),
            }
        };
        let memory = contents.iter().enumerate().map(buffer).collect();
        Self { devices: devices.to_vec(), memory, homes }
    }

    /// These buffers of one device, which have [`LEN`] elements.
    pub fn of(device: &Device, buffers: &[Buffer<u32>], host_buffers: &[HostBuffer<u32>]) -> Self {
        let host = host_buffers.iter().cloned().map(Memory::Host);
        let memory = buffers.iter().cloned().map(Memory::Device).chain(host).collect();
        Self { devices: vec![device.clone()], memory, homes: [0; BUFFERS] }
    }

    pub(super) fn part(&self, part: Part) -> Memory {
        let range = part.start..part.end;
        match &self.memory[part.buffer] {
            Memory::Device(buffer) => Memory::Device(buffer.slice(range).unwrap()),
            Memory::Host(buffer) => Memory::Host(buffer.slice(range).unwrap()),
        }
    }

    pub(super) fn on_device(&self, part: Part) -> Buffer<u32> {
        let Memory::Device(buffer) = self.part(part) else { unreachable!("{part:?} is on a device") };
        buffer
    }

    pub(super) fn on_host(&self, part: Part) -> HostBuffer<u32> {
        let Memory::Host(buffer) = self.part(part) else { unreachable!("{part:?} is on the host") };
        buffer
    }

    /// A new queue for each device.
    pub(super) fn queues(&self, in_order: bool) -> Vec<Queue> {
        let queue = |device: &Device| if in_order { device.queue() } else { device.out_of_order_queue() };
        self.devices.iter().map(|device| queue(device).unwrap()).collect()
    }

    pub(super) fn call(&self, Kernel { code, n, from, to }: Kernel) -> KernelCall {
        let y = self.part(to);
        let x = from.map_or_else(|| y.clone(), |from| self.part(from));
        match code {
            Code::Mix => with!(y, |y| mix(n, y)),
            Code::Raise => with!(y, |y| raise(n, y)),
            Code::Axpy => with!(x, |x| with!(y, |y| axpy(n, x, y))),
            Code::Fold => with!(x, |x| with!(y, |y| fold(x, y))),
        }
    }

    /// The device whose queue gets a step.
    fn place(&self, step: &Step) -> usize {
        let buffer = match step {
            Step::Kernel { kernel, .. } => kernel.to.buffer,
            Step::Copy { from, to } if to.is_on_host() => from.buffer,
            Step::Fill { to: x, .. }
            | Step::Constant { to: x, .. }
            | Step::Hint { x }
            | Step::Copy { to: x, .. } => x.buffer,
            Step::Rectangle { to, .. } => *to,
            Step::Group { alternatives, .. } => alternatives[0].to.buffer,
            _ => 0,
        };
        self.homes[buffer]
    }

    /// Whether a node with this step can be switched off: between devices it may be several commands.
    pub(super) fn can_be_disabled(&self, step: &Step) -> bool {
        match step {
            Step::Kernel { .. } | Step::Fill { .. } => true,
            Step::Copy { from, to } => {
                from.is_on_host() || to.is_on_host() || self.homes[from.buffer] == self.homes[to.buffer]
            }
            Step::Rectangle { from, to, .. } => self.homes[*from] == self.homes[*to],
            _ => false,
        }
    }
}

type Views = (HostRef<u32>, HostMut<u32>);
type Done = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Task {
    fn compute(self, (from, to): &mut Views) {
        to.iter_mut().zip(&**from).for_each(|(to, from)| *to = task(*to, *from, self.n));
    }

    /// The closure of a task that does not block.
    pub(super) fn closure(self) -> impl FnOnce(Views) -> Done + Clone + Send + Sync + 'static {
        move |mut views| {
            Box::pin(async move {
                yield_now().await;
                self.compute(&mut views);
                if self.end == End::Later {
                    tokio::spawn(async move {
                        yield_now().await;
                        drop(views);
                    });
                }
            })
        }
    }
}

/// How the nodes of a graph are added: stretches one by one, or recorded by queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Nodes of a stretch.
    stretch: usize,
    begins_recorded: bool,
    in_order: bool,
}

impl Form {
    pub(super) fn random(choices: &mut Choices<'_>) -> Self {
        let stretch = choices.pick(&[usize::MAX, usize::MAX, 1, 3, 8]).unwrap_or(1);
        Self { stretch, begins_recorded: choices.chance(2), in_order: choices.chance(2) }
    }

    /// Nodes one by one.
    pub(super) fn one_by_one() -> Self {
        Self { stretch: usize::MAX, begins_recorded: false, in_order: false }
    }

    /// Queues record no command groups.
    fn is_recorded(self, index: usize, node: &Node) -> bool {
        let is_second = (index / self.stretch) % 2 == 1;
        is_second != self.begins_recorded && !matches!(node.step, Step::Group { .. })
    }
}

/// Indices of a node and of the nodes around it, from the outermost one, with the index of the body between
/// two.
pub(super) type Place = Vec<usize>;

/// The handles of what can be updated in a graph and in those inside it.
#[derive(Default)]
pub(super) struct Handles {
    pub(super) nodes: Vec<(Place, NodePath)>,
    /// Parameters, with the place around their graph.
    pub(super) params: Vec<(Place, usize, DynamicParam<u32>)>,
    pub(super) groups: Vec<(Place, CommandGroup)>,
}

impl Handles {
    /// The nodes lie inside another one.
    fn wrap(&mut self, nodes: Indices<usize>, outer: NodeId) {
        for (_, path) in &mut self.nodes[nodes] {
            *path = path.clone().within(outer);
        }
    }
}

/// Calls the command of a step on a graph or a queue.
macro_rules! command {
    ($builder:expr, $to:expr, $empty:ident, $index:expr, $step:expr) => {{
        let (world, to) = ($builder.world, $to);
        let builder = &mut *$builder;
        match $step {
            Step::Kernel { kernel, .. } => to.launch(world.call(*kernel), kernel.range()).into(),
            Step::Fill { to: part, pattern } => match pattern[..] {
                [value] => to.fill(&world.on_device(*part), value).into(),
                _ => to.fill_pattern(&world.on_device(*part), pattern).into(),
            },
            Step::Copy { from, to: part } => {
                with!(world.part(*from), |x| with!(world.part(*part), |y| to.copy(&x, &y).into()))
            }
            Step::Rectangle { from, to: other, extent, src, dst } => {
                let layout = Layout::rows(COLUMNS);
                let copy = RectCopy::new(*extent, layout.origin(*src), layout.origin(*dst));
                let [from, other] = [*from, *other].map(|buffer| world.on_device(Part::whole(buffer)));
                to.copy_rect(&from, &other, copy).into()
            }
            Step::Constant { to: part, numbers } => to.write(&world.on_device(*part), numbers).into(),
            &Step::Task(task) => {
                let (from, part) = (world.on_host(task.from), world.on_host(task.to));
                let accesses = (read(&from), write(&part));
                match task.end {
                    End::Blocking => {
                        to.host_task_blocking(accesses, move |mut views| task.compute(&mut views)).into()
                    }
                    End::WithFuture | End::Later => to.host_task(accesses, task.closure()).into(),
                }
            }
            Step::Fails => {
                let fails = async |()| Err::<(), _>(std::io::Error::other("a failure on purpose"));
                to.host_task((), fails).into()
            }
            Step::Empty => to.$empty().into(),
            Step::Hint { x } if x.start.is_multiple_of(2) => to.prefetch(&world.on_device(*x)).into(),
            Step::Hint { x } => to.advise(&world.on_device(*x), Advice::PreferDevice).into(),
            Step::Through { from, to: part, n } => to.sub_graph(&world.through(*from, *part, *n)).into(),
            Step::Nest { nest: Nest::Sub, bodies } => to.sub_graph(&builder.bodies($index, bodies)[0]).into(),
            Step::Nest { nest: Nest::If { flag }, bodies } => {
                let (flag, bodies) = (world.on_device(*flag), builder.bodies($index, bodies));
                match &bodies[..] {
                    [then, otherwise] => to.if_nonzero_else(&flag, then, otherwise).into(),
                    _ => to.if_nonzero(&flag, &bodies[0]).into(),
                }
            }
            Step::Nest { nest: Nest::Switch { index, chosen }, bodies } => {
                to.sub_graph(&builder.choose($index, *index, *chosen, bodies)).into()
            }
            Step::Nest { nest: Nest::While { counter, rounds }, bodies } => {
                to.sub_graph(&builder.repeat($index, *counter, *rounds, bodies)).into()
            }
            // Queues have no groups.
            Step::Group { alternatives, chosen } => {
                let kernel = alternatives[*chosen];
                to.launch(world.call(kernel), kernel.range()).into()
            }
        }
    }};
}

impl World {
    /// Copies a part through scratch memory.
    fn through(&self, from: Part, to: Part, n: u32) -> Graph {
        let mut graph = Graph::new(&self.devices[self.homes[from.buffer]]);
        let [first, second] = [(); 2].map(|()| graph.scratch::<u32>(from.len()).unwrap());
        graph.copy(self.on_device(from), &first);
        graph.launch(mix(n, &first), Range::linear(from.len()));
        graph.copy(&first, &second);
        graph.copy(&second, self.on_device(to));
        graph
    }
}

/// Builds graphs of steps.
pub(super) struct Builder<'w> {
    world: &'w World,
    form: Form,
    pub(super) handles: Handles,
    /// The place around the present graph.
    level: Place,
}

impl<'w> Builder<'w> {
    pub(super) fn new(world: &'w World, form: Form) -> Self {
        Self { world, form, handles: Handles::default(), level: Vec::new() }
    }

    /// Adds a node for each step, and edges beyond those that follow from the accesses, from an earlier to a
    /// later one.
    pub(super) fn add(&mut self, graph: &mut Graph, nodes: &[Node], edges: &[(usize, usize)]) -> Vec<NodeId> {
        let mut queues = Vec::new();
        let mut ids: Vec<NodeId> = Vec::new();
        // Where the handles of the nodes inside each node begin.
        let mut marks = Vec::new();
        while ids.len() < nodes.len() {
            let start = ids.len();
            let form = self.form;
            let recorded = (start..nodes.len()).take_while(|&index| form.is_recorded(index, &nodes[index]));
            match recorded.count() {
                0 => {
                    marks.push(self.handles.nodes.len());
                    ids.push(self.add_one(graph, start, &nodes[start].step));
                }
                count => {
                    if queues.is_empty() {
                        queues = self.world.queues(self.form.in_order);
                    }
                    let recording = graph.record(&queues).unwrap();
                    let events = self.issue(nodes, start..start + count, edges, &queues, &mut marks);
                    drop(recording);
                    ids.extend(events.iter().map(|event| event.as_ref().and_then(Event::node).unwrap()));
                }
            }
            for &(from, to) in edges.iter().filter(|(_, to)| (start..ids.len()).contains(to)) {
                graph.make_edge(ids[from], ids[to]).unwrap();
            }
        }
        marks.push(self.handles.nodes.len());
        for (index, &id) in ids.iter().enumerate() {
            self.handles.wrap(marks[index]..marks[index + 1], id);
            self.handles.nodes.push((self.place(index), id.into()));
        }
        self.refine(graph, nodes, &ids);
        ids
    }

    fn place(&self, index: usize) -> Place {
        self.level.iter().copied().chain([index]).collect()
    }

    fn add_one(&mut self, graph: &mut Graph, index: usize, step: &Step) -> NodeId {
        if let Step::Group { alternatives, chosen } = step {
            let group = alternatives.iter().fold(graph.command_group(), |group, kernel| {
                group.launch(self.world.call(*kernel), kernel.range())
            });
            let group = group.build();
            group.choose(*chosen).unwrap();
            let id = graph.add_group(&group).id();
            self.handles.groups.push((self.place(index), group));
            return id;
        }
        command!(self, graph, empty, index, step)
    }

    /// Calls the commands of nodes that are switched on, on queues, one for each device.
    pub(super) fn issue(
        &mut self,
        nodes: &[Node],
        indices: Indices<usize>,
        edges: &[(usize, usize)],
        queues: &[Queue],
        marks: &mut Vec<usize>,
    ) -> Vec<Option<Event>> {
        let start = indices.start;
        let mut events: Vec<Option<Event>> = Vec::new();
        for index in indices {
            marks.push(self.handles.nodes.len());
            let before = edges.iter().filter(|(from, to)| *to == index && *from >= start);
            let before = before.filter_map(|(from, _)| events.get(from - start)?.as_ref());
            let Node { step, enabled } = &nodes[index];
            let queue = queues[self.world.place(step)].after(before);
            events.push(enabled.then(|| command!(self, queue, barrier, index, step)));
        }
        events
    }

    /// The graphs inside the node with this index.
    fn bodies(&mut self, index: usize, bodies: &[Vec<Node>]) -> Vec<Graph> {
        let build = |(slot, nodes): (usize, &Vec<Node>)| {
            let mut graph = Graph::new(&self.world.devices[0]);
            self.level.extend([index, slot]);
            self.add(&mut graph, nodes, &[]);
            self.level.truncate(self.level.len() - 2);
            graph
        };
        bodies.iter().enumerate().map(build).collect()
    }

    /// A switch behind what sets its index.
    fn choose(&mut self, at: usize, index: Part, chosen: usize, bodies: &[Vec<Node>]) -> Graph {
        let mark = self.handles.nodes.len();
        let bodies = self.bodies(at, bodies);
        let index = self.world.on_device(index);
        let mut graph = Graph::new(&self.world.devices[0]);
        graph.fill(&index, chosen as u32);
        let id = graph.switch(index.slice(..1).unwrap(), &bodies).id();
        self.handles.wrap(mark..self.handles.nodes.len(), id);
        graph
    }

    /// A loop that counts down.
    fn repeat(&mut self, index: usize, counter: Part, rounds: u32, bodies: &[Vec<Node>]) -> Graph {
        let mark = self.handles.nodes.len();
        let mut body = self.bodies(index, bodies).remove(0);
        let (len, counter) = (counter.len(), self.world.on_device(counter));
        body.launch(add(u32::MAX, &counter), Range::linear(len));
        let mut graph = Graph::new(&self.world.devices[0]);
        graph.fill(&counter, rounds);
        let id = graph.while_nonzero(counter.slice(..1).unwrap(), &body).id();
        self.handles.wrap(mark..self.handles.nodes.len(), id);
        graph
    }

    /// Adds what queues cannot record: parameters, and the alternatives of kernels.
    fn refine(&mut self, graph: &mut Graph, nodes: &[Node], ids: &[NodeId]) {
        let mut params = [const { None::<DynamicParam<u32>> }; PARAMS];
        for (node, &id) in nodes.iter().zip(ids) {
            let Step::Kernel { kernel, param } = node.step else { continue };
            if let Some(other) = kernel.alternative() {
                graph.node_mut(id).unwrap().alternative(self.world.call(other.with_number(0)));
            }
            let (Some(index), Some(name)) = (param, kernel.number()) else { continue };
            let param = params[index].get_or_insert_with(|| graph.param::<u32>(kernel.n)).clone();
            graph.node_mut(id).unwrap().param(name, &param);
        }
        let made = params.into_iter().enumerate();
        let made = made.filter_map(|(index, param)| Some((self.level.clone(), index, param?)));
        self.handles.params.extend(made);
    }
}

/// Adds a node with a step to a graph.
pub fn add_node(graph: &mut Graph, world: &World, node: &Node) -> NodeId {
    let mut builder = Builder::new(world, Form::one_by_one());
    builder.add(graph, std::slice::from_ref(node), &[])[0]
}

//! The generator of steps.

use super::choices::Choices;
use super::step::{BUFFERS, COLUMNS, Code, End, Kernel, LEN, Nest, Node, ON_DEVICES, Part, ROWS, Step, Task};

/// Which steps a program may have, and where its buffers are.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// The device of each buffer.
    pub(super) homes: [usize; BUFFERS],
    /// Whether all parts are whole buffers, whose elements the steps keep equal to each other.
    pub(super) is_uniform: bool,
    pub(super) has_tasks: bool,
    /// Kernels over host memory.
    pub(super) has_host_operands: bool,
    pub(super) has_hints: bool,
    /// Sub-graphs, conditionals, loops and graphs with scratch memory.
    pub(super) has_bodies: bool,
    /// Loops, which do not end on a device that computes nothing.
    pub(super) has_loops: bool,
    /// Host tasks that fail.
    pub(super) has_failures: bool,
    /// Steps that the crate refuses.
    pub(super) has_mistakes: bool,
}

/// How deep steps lie in others.
const DEPTH: usize = 3;
/// How often a loop runs, at most.
const ROUNDS: usize = 3;
/// Largest number of lists that a step chooses from.
const LISTS: usize = 3;
/// Dynamic parameters of a graph.
pub(super) const PARAMS: usize = 2;

impl Mixture {
    /// Steps of one device that keep the elements of each buffer equal to each other.
    pub fn uniform(has_tasks: bool, has_loops: bool) -> Self {
        Self {
            homes: [0; BUFFERS],
            is_uniform: true,
            has_tasks,
            has_host_operands: false,
            has_hints: false,
            has_bodies: true,
            has_loops,
            has_failures: false,
            has_mistakes: false,
        }
    }

    /// A list of steps, at least one and not more than `most`.
    pub fn nodes(&self, choices: &mut Choices<'_>, most: usize) -> Vec<Node> {
        Generator { choices, mixture: self }.list(most, 0)
    }

    /// A kernel.
    pub(super) fn kernel(&self, choices: &mut Choices<'_>) -> Kernel {
        Generator { choices, mixture: self }.kernel()
    }

    /// A part of a buffer, of this length, that does not overlap the other.
    pub(super) fn beside(
        &self,
        choices: &mut Choices<'_>,
        buffer: usize,
        len: usize,
        other: Part,
    ) -> Option<Part> {
        Generator { choices, mixture: self }.beside(&[buffer], len, Some(other))
    }
}

struct Generator<'a, 'b> {
    choices: &'a mut Choices<'b>,
    mixture: &'a Mixture,
}

impl Generator<'_, '_> {
    fn list(&mut self, most: usize, depth: usize) -> Vec<Node> {
        let count = self.choices.within(1..=most);
        let mut nodes: Vec<Node> = (0..count).map(|_| self.step(depth).into()).collect();
        // Kernels that are bound to one parameter have one number.
        let values = [(); PARAMS].map(|()| self.choices.word());
        for node in &mut nodes {
            if let Step::Kernel { kernel, param: Some(param) } = &mut node.step {
                *kernel = kernel.with_number(values[*param]);
            }
        }
        nodes
    }

    fn part(&mut self, buffer: usize) -> Part {
        if self.mixture.is_uniform {
            return Part::whole(buffer);
        }
        let start = self.choices.below(LEN);
        Part { buffer, start, end: self.choices.within(start + 1..=LEN) }
    }

    /// A part of one of these buffers, as long as `len`, that does not overlap `other`.
    fn beside(&mut self, buffers: &[usize], len: usize, other: Option<Part>) -> Option<Part> {
        let starts =
            |&buffer: &usize| (0..=LEN - len).map(move |start| Part { buffer, start, end: start + len });
        let all = buffers.iter().flat_map(starts);
        let parts: Vec<_> = all.filter(|part| !other.is_some_and(|other| part.overlaps(other))).collect();
        self.choices.pick(&parts)
    }

    fn kernel(&mut self) -> Kernel {
        let usable = if self.mixture.has_host_operands { BUFFERS } else { ON_DEVICES };
        let buffer = self.choices.below(usable);
        let homes = &self.mixture.homes;
        let near: Vec<_> = (0..usable).filter(|&other| homes[other] == homes[buffer]).collect();
        let (kind, n, y) = (self.choices.below(5), self.choices.word(), self.part(buffer));
        let x = match self.mixture.has_mistakes && self.choices.chance(16) {
            true => Some(y),
            false => self.beside(&near, y.len(), Some(y)),
        };
        let (code, from) = match (kind, x) {
            (3, Some(x)) => (Code::Axpy, Some(x)),
            (4, Some(x)) => (Code::Fold, Some(x)),
            // The device may stop this one half-way.
            (2, _) if !self.mixture.is_uniform => (Code::Raise, None),
            _ => (Code::Mix, None),
        };
        Kernel { code, n, from, to: y }
    }

    fn step(&mut self, depth: usize) -> Step {
        let Mixture { has_tasks, has_hints, has_bodies, .. } = *self.mixture;
        let has_bodies = has_bodies && depth < DEPTH;
        let kind = self.choices.below(34);
        match kind {
            8..=10 => self.fill(),
            11..=17 => self.copy(kind),
            18 if !self.mixture.is_uniform => self.rectangle(),
            19 => {
                let buffer = self.choices.below(ON_DEVICES);
                let to = self.part(buffer);
                let count = if self.mixture.is_uniform { 1 } else { to.len() };
                let numbers: Vec<_> = (0..count).map(|_| self.choices.word()).collect();
                Step::Constant { to, numbers: numbers.into_iter().cycle().take(to.len()).collect() }
            }
            20 | 21 if has_tasks => self.task().map_or(Step::Empty, Step::Task),
            22 => Step::Empty,
            23 if has_hints => {
                let buffer = self.choices.below(ON_DEVICES);
                Step::Hint { x: self.part(buffer) }
            }
            24 | 25 if has_bodies => self.nest(Nest::Sub, depth),
            26 | 27 if has_bodies => {
                let buffer = self.choices.below(ON_DEVICES);
                let flag = self.part(buffer).first();
                self.nest(Nest::If { flag }, depth)
            }
            28 if has_bodies && self.choices.chance(2) => {
                let buffer = self.choices.below(ON_DEVICES);
                let (index, chosen) = (self.part(buffer), self.choices.below(LISTS + 1));
                self.nest(Nest::Switch { index, chosen }, depth)
            }
            28 if has_bodies && self.mixture.has_loops => {
                let buffer = self.choices.below(ON_DEVICES);
                let (counter, rounds) = (self.part(buffer), self.choices.below(ROUNDS + 1) as u32);
                self.nest(Nest::While { counter, rounds }, depth)
            }
            29 if has_bodies => match self.copy(0) {
                Step::Copy { from, to } if from.len() == to.len() && !to.is_on_host() => {
                    Step::Through { from, to, n: self.choices.word() }
                }
                other => other,
            },
            30 if has_bodies => self.group(),
            31 if self.mixture.has_failures && self.choices.chance(2) => Step::Fails,
            _ => {
                let kernel = self.kernel();
                let is_bound = kernel.number().is_some() && self.choices.chance(4);
                Step::Kernel { kernel, param: is_bound.then(|| self.choices.below(PARAMS)) }
            }
        }
    }

    fn fill(&mut self) -> Step {
        let buffer = self.choices.below(ON_DEVICES);
        let to = self.part(buffer);
        let sizes: Vec<usize> = (1..=4).filter(|size| to.len().is_multiple_of(*size)).collect();
        let size = if self.mixture.is_uniform { None } else { self.choices.pick(&sizes) };
        Step::Fill { to, pattern: (0..size.unwrap_or(1)).map(|_| self.choices.word()).collect() }
    }

    /// A copy between devices or on one, from the host where the kind is 14 or 15, and to the host where it
    /// is more.
    fn copy(&mut self, kind: usize) -> Step {
        const DEVICES: [usize; ON_DEVICES] = [0, 1, 2, 3];
        const HOST: [usize; BUFFERS - ON_DEVICES] = [4, 5, 6];
        let (from, to) = match kind {
            14 | 15 => (&HOST[..], &DEVICES[..]),
            16 | 17 => (&DEVICES[..], &HOST[..]),
            _ => (&DEVICES[..], &DEVICES[..]),
        };
        let buffer = from[self.choices.below(from.len())];
        let from = self.part(buffer);
        if self.mixture.has_mistakes && self.choices.chance(16) {
            let buffer = self.choices.below(BUFFERS);
            return Step::Copy { from, to: self.part(buffer) };
        }
        let to = self.beside(to, from.len(), Some(from));
        to.map_or(Step::Empty, |to| Step::Copy { from, to })
    }

    fn rectangle(&mut self) -> Step {
        let choices = &mut *self.choices;
        let from = choices.below(ON_DEVICES);
        let to = (from + choices.within(1..=ON_DEVICES - 1)) % ON_DEVICES;
        let extent = [choices.within(1..=COLUMNS), choices.within(1..=ROWS)];
        let mut origin = || [choices.below(COLUMNS - extent[0] + 1), choices.below(ROWS - extent[1] + 1)];
        let (src, dst) = (origin(), origin());
        Step::Rectangle { from, to, extent, src, dst }
    }

    fn task(&mut self) -> Option<Task> {
        const HOST: [usize; BUFFERS - ON_DEVICES] = [4, 5, 6];
        let buffer = HOST[self.choices.below(HOST.len())];
        let to = self.part(buffer);
        let from = self.beside(&HOST, to.len(), Some(to))?;
        let end = self.choices.pick(&[End::WithFuture, End::Blocking, End::Later])?;
        Some(Task { from, to, n: self.choices.word(), end })
    }

    fn nest(&mut self, nest: Nest, depth: usize) -> Step {
        let count = match nest {
            Nest::If { .. } => self.choices.within(1..=2),
            Nest::Switch { .. } => self.choices.within(0..=LISTS),
            Nest::Sub | Nest::While { .. } => 1,
        };
        let mut bodies: Vec<_> = (0..count).map(|_| self.list(4, depth + 1)).collect();
        if let Nest::While { counter, .. } = nest {
            // The loop alone counts.
            bodies[0].retain(|node| !node.step.writes(counter));
        }
        Step::Nest { nest, bodies }
    }

    fn group(&mut self) -> Step {
        let (first, count) = (self.kernel(), self.choices.within(2..=3));
        if first.is_wrong() {
            return first.into();
        }
        let alternative = first.alternative().filter(|_| !self.mixture.is_uniform).unwrap_or(first);
        let alternatives = (0..count).map(|_| {
            let kernel = if self.choices.chance(2) { alternative } else { first };
            kernel.with_number(self.choices.word())
        });
        Step::Group { alternatives: alternatives.collect(), chosen: self.choices.below(count) }
    }
}

/// Gives the nodes other numbers and switches all of them on; memory and structure stay.
pub(super) fn renumber(nodes: &mut [Node], choices: &mut Choices<'_>) {
    let values = [(); PARAMS].map(|()| choices.word());
    for node in nodes {
        node.enabled = true;
        renumber_step(&mut node.step, values, choices);
    }
}

fn renumber_step(step: &mut Step, values: [u32; PARAMS], choices: &mut Choices<'_>) {
    match step {
        Step::Kernel { kernel, param } => {
            *kernel = kernel.with_number(param.map_or_else(|| choices.word(), |param| values[param]));
        }
        Step::Fill { pattern: numbers, .. } | Step::Constant { numbers, .. } => {
            let first = choices.word();
            // Equal ones stay equal.
            numbers.iter_mut().for_each(|number| *number = number.wrapping_add(first));
        }
        Step::Task(Task { n, .. }) | Step::Through { n, .. } => *n = choices.word(),
        Step::Nest { nest: Nest::While { rounds, .. }, .. } => *rounds = choices.below(ROUNDS + 1) as u32,
        Step::Nest { nest: Nest::Switch { chosen, .. }, .. } => *chosen = choices.below(LISTS + 1),
        Step::Group { alternatives, chosen } => {
            alternatives.iter_mut().for_each(|kernel| kernel.n = choices.word());
            *chosen = choices.below(alternatives.len());
        }
        _ => {}
    }
    step.bodies_mut().iter_mut().for_each(|body| renumber(body, choices));
}

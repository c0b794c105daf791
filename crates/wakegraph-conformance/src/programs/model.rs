//! The model of a program: what its buffers hold when steps run one after the other.

use super::step::{BUFFERS, COLUMNS, Code, Kernel, LEN, Nest, Node, Part, Step, Task};

/// The expected contents of all buffers; `None` where a run failed that may or may not have written.
#[derive(Clone, Debug)]
pub(super) struct Model([[Option<u32>; LEN]; BUFFERS]);

impl Model {
    pub(super) fn new(contents: [[u32; LEN]; BUFFERS]) -> Self {
        Self(contents.map(|buffer| buffer.map(Some)))
    }

    /// Compares what a buffer holds, and learns what was not known.
    pub(super) fn compare(&mut self, buffer: usize, found: &[u32]) -> Result<(), String> {
        let expected = &mut self.0[buffer];
        if expected.iter().zip(found).any(|(expected, found)| expected.is_some_and(|x| x != *found)) {
            return Err(format!("buffer {buffer} holds {found:?}, expected {expected:?}"));
        }
        self.set(buffer, found);
        Ok(())
    }

    pub(super) fn set(&mut self, buffer: usize, contents: &[u32]) {
        self.0[buffer] = std::array::from_fn(|index| Some(contents[index]));
    }

    fn of(&mut self, part: Part) -> &mut [Option<u32>] {
        &mut self.0[part.buffer][part.start..part.end]
    }

    /// Changes each element, given those of another part, over and over.
    fn combine(&mut self, from: Part, to: Part, combined: impl Fn(u32, u32) -> u32) {
        let from = self.of(from).to_vec();
        for (to, from) in self.of(to).iter_mut().zip(from.iter().cycle()) {
            *to = to.zip(*from).map(|(to, from)| combined(to, from));
        }
    }

    fn map(&mut self, part: Part, mapped: impl Fn(u32) -> u32) {
        self.of(part).iter_mut().for_each(|x| *x = x.map(&mapped));
    }

    fn copy(&mut self, from: Part, to: Part) {
        let elements = self.of(from).to_vec();
        self.of(to).copy_from_slice(&elements);
    }

    fn set_part(&mut self, to: Part, numbers: &[u32]) {
        self.of(to).iter_mut().zip(numbers.iter().cycle()).for_each(|(x, number)| *x = Some(*number));
    }

    /// Runs the nodes that are switched on.
    pub(super) fn run<'n>(&mut self, nodes: impl IntoIterator<Item = &'n Node>) {
        nodes.into_iter().filter(|node| node.enabled).for_each(|node| self.step(&node.step));
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Kernel { kernel, .. } => self.kernel(*kernel),
            Step::Fill { to, pattern: numbers } | Step::Constant { to, numbers } => {
                self.set_part(*to, numbers);
            }
            Step::Copy { from, to } => self.copy(*from, *to),
            Step::Rectangle { from, to, extent, src, dst } => {
                let old = self.0[*from];
                for (row, column) in (0..extent[1]).flat_map(|row| (0..extent[0]).map(move |x| (row, x))) {
                    let at = |origin: &[usize; 2]| column + origin[0] + COLUMNS * (row + origin[1]);
                    self.0[*to][at(dst)] = old[at(src)];
                }
            }
            Step::Task(Task { from, to, n, .. }) => self.combine(*from, *to, |to, from| task(to, from, *n)),
            Step::Through { from, to, n } => {
                self.copy(*from, *to);
                self.map(*to, |x| mixed(x, *n));
            }
            Step::Fails | Step::Empty | Step::Hint { .. } => {}
            Step::Nest { nest, bodies } => self.nest(step, *nest, bodies),
            Step::Group { alternatives, chosen } => self.kernel(alternatives[*chosen]),
        }
    }

    fn nest(&mut self, step: &Step, nest: Nest, bodies: &[Vec<Node>]) {
        match nest {
            Nest::Sub => self.run(&bodies[0]),
            Nest::If { flag } => match self.of(flag)[0] {
                Some(0) => self.run(bodies.get(1).into_iter().flatten()),
                Some(_) => self.run(&bodies[0]),
                None => self.forget(step),
            },
            Nest::Switch { index, chosen } => {
                self.set_part(index, &[chosen as u32]);
                self.run(bodies.get(chosen).into_iter().flatten());
            }
            Nest::While { counter, rounds } => {
                for left in (1..=rounds).rev() {
                    self.set_part(counter, &[left]);
                    self.run(&bodies[0]);
                }
                self.set_part(counter, &[0]);
            }
        }
    }

    fn kernel(&mut self, Kernel { code, n, from, to }: Kernel) {
        let from = from.unwrap_or(to);
        match code {
            Code::Mix => self.map(to, |x| mixed(x, n)),
            Code::Raise => self.map(to, |x| x.wrapping_add(n)),
            Code::Axpy => self.combine(from, to, |y, x| y.wrapping_add(n.wrapping_mul(x))),
            Code::Fold => {
                let sum = self.of(from).iter().try_fold(0u32, |sum, x| x.map(|x| sum.wrapping_add(x)));
                self.of(to).iter_mut().for_each(|y| *y = y.zip(sum).map(|(y, sum)| mixed(y, sum)));
            }
        }
    }

    /// It is not known whether the step has run, as a whole or in part.
    pub(super) fn forget(&mut self, step: &Step) {
        for used in step.uses().into_iter().filter(|used| used.writes) {
            self.of(used.part).fill(None);
        }
    }
}

pub(super) fn mixed(x: u32, n: u32) -> u32 {
    x.wrapping_mul(31).wrapping_add(n)
}

/// The result of a host task for an element.
pub(super) fn task(to: u32, from: u32, n: u32) -> u32 {
    to.wrapping_mul(33).wrapping_add(n.wrapping_mul(from))
}

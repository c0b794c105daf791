//! The vocabulary of programs: parts of buffers, kernels, and the steps that nodes and commands of queues
//! carry out.

use std::fmt::{self, Debug};

use wakegraph::Range;

/// Elements of a buffer. As an image: 6 rows of 4.
pub const LEN: usize = 24;
/// Elements of a row.
pub(super) const COLUMNS: usize = 4;
/// Rows of an image.
pub(super) const ROWS: usize = LEN / COLUMNS;
/// Buffers on devices. Their indices come before those of buffers on the host.
pub const ON_DEVICES: usize = 4;
/// Buffers on the host.
pub const ON_HOST: usize = 3;
/// All buffers.
pub(super) const BUFFERS: usize = ON_DEVICES + ON_HOST;

/// A range of elements of a buffer.
#[derive(Clone, Copy, PartialEq)]
pub struct Part {
    pub(super) buffer: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}..{}]", self.buffer, self.start, self.end)
    }
}

impl Part {
    pub(super) fn whole(buffer: usize) -> Self {
        Self { buffer, start: 0, end: LEN }
    }

    pub(super) fn first(self) -> Self {
        Self { end: self.start + 1, ..self }
    }

    pub(super) fn len(self) -> usize {
        self.end - self.start
    }

    pub(super) fn is_on_host(self) -> bool {
        self.buffer >= ON_DEVICES
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.buffer == other.buffer && self.start.max(other.start) < self.end.min(other.end)
    }
}

/// The use of a part by a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) part: Part,
    pub(super) writes: bool,
}

impl Use {
    pub(super) fn conflicts(self, other: Self) -> bool {
        self.part.overlaps(other.part) && (self.writes || other.writes)
    }
}

/// The code of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Code {
    /// Multiplies and adds a number.
    Mix,
    /// Adds a number.
    Raise,
    /// Adds a multiple of one part to another.
    Axpy,
    /// Multiplies the elements of a part and adds the sum of another one's; it has no number.
    Fold,
}

/// A launch over all elements of the part that it writes.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub(super) code: Code,
    pub(super) n: u32,
    /// The part that it only reads.
    pub(super) from: Option<Part>,
    pub(super) to: Part,
}

impl Kernel {
    pub(super) fn range(self) -> Range {
        Range::linear(if self.code == Code::Fold { 1 } else { self.to.len() })
    }

    pub(super) fn is_wrong(self) -> bool {
        self.from.is_some_and(|from| from.overlaps(self.to))
    }

    pub(super) fn with_number(self, n: u32) -> Self {
        Self { n, ..self }
    }

    /// The name of the argument that a dynamic parameter can stand for.
    pub(super) fn number(self) -> Option<&'static str> {
        match self.code {
            Code::Mix | Code::Raise => Some("n"),
            Code::Axpy => Some("a"),
            Code::Fold => None,
        }
    }

    /// The other kernel that may take its place.
    pub(super) fn alternative(self) -> Option<Self> {
        let code = match self.code {
            Code::Mix => Code::Raise,
            Code::Raise => Code::Mix,
            Code::Axpy | Code::Fold => return None,
        };
        Some(Self { code, ..self })
    }

    /// Whether an update may put this in the place of the other, on the same kinds of memory.
    pub(super) fn can_replace(self, other: Self) -> bool {
        let is_known = |other: Self| self.code == other.code;
        let places = |kernel: Self| (kernel.to.is_on_host(), kernel.from.map(Part::is_on_host));
        (is_known(other) || other.alternative().is_some_and(is_known)) && places(self) == places(other)
    }
}

/// A host task that reads one part and changes another.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub(super) from: Part,
    pub(super) to: Part,
    pub(super) n: u32,
    pub(super) end: End,
}

/// The way in which a host task ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// It blocks a thread until then.
    Blocking,
    /// Its views are dropped with its future.
    WithFuture,
    /// Its view of what it writes is dropped later, by another task.
    Later,
}

/// The work of a node.
#[derive(Clone, Debug)]
pub enum Step {
    /// The number may be the value of one of the graph's parameters.
    Kernel {
        kernel: Kernel,
        param: Option<usize>,
    },
    Fill {
        to: Part,
        pattern: Vec<u32>,
    },
    Copy {
        from: Part,
        to: Part,
    },
    /// Copies some columns and rows of one buffer to another. Origins are columns and rows, too.
    Rectangle {
        from: usize,
        to: usize,
        extent: [usize; 2],
        src: [usize; 2],
        dst: [usize; 2],
    },
    /// Numbers that are part of the command.
    Constant {
        to: Part,
        numbers: Vec<u32>,
    },
    Task(Task),
    /// A host task that fails.
    Fails,
    Empty,
    Hint {
        x: Part,
    },
    /// Copies by way of two scratch buffers, and mixes.
    Through {
        from: Part,
        to: Part,
        n: u32,
    },
    /// Lists of steps, with what decides whether they run.
    Nest {
        nest: Nest,
        bodies: Vec<Vec<Node>>,
    },
    /// One of several kernels that use the same memory.
    Group {
        alternatives: Vec<Kernel>,
        chosen: usize,
    },
}

/// Condition on which the lists of steps in a step run.
#[derive(Clone, Copy, Debug)]
pub enum Nest {
    /// Nothing: the list runs, as a sub-graph.
    Sub,
    /// Where the flag is not 0, the first list runs, otherwise the second one, if there is one.
    If { flag: Part },
    /// The list with the number that a part is set to runs, if there is one.
    Switch { index: Part, chosen: usize },
    /// The list runs so many times, while a part counts down.
    While { counter: Part, rounds: u32 },
}

/// A step that can be switched off.
#[derive(Clone)]
pub struct Node {
    pub(super) step: Step,
    pub(super) enabled: bool,
}

impl Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = if self.enabled { "" } else { " (off)" };
        write!(f, "{:?}{off}", self.step)
    }
}

impl From<Step> for Node {
    fn from(step: Step) -> Self {
        Self { step, enabled: true }
    }
}

impl From<Kernel> for Step {
    fn from(kernel: Kernel) -> Self {
        Self::Kernel { kernel, param: None }
    }
}

impl Step {
    /// The lists of steps inside, which may run or not.
    pub(super) fn bodies(&self) -> &[Vec<Node>] {
        if let Self::Nest { bodies, .. } = self { bodies } else { &[] }
    }

    pub(super) fn bodies_mut(&mut self) -> &mut [Vec<Node>] {
        if let Self::Nest { bodies, .. } = self { bodies } else { &mut [] }
    }

    /// Removes the nodes inside that are switched off.
    pub(super) fn prune(&mut self) {
        for body in self.bodies_mut() {
            body.retain(|node| node.enabled);
            body.iter_mut().for_each(|node| node.step.prune());
        }
    }

    /// Calls a function with this step and all that are inside it.
    pub(super) fn visit(&self, see: &mut dyn FnMut(&Self)) {
        see(self);
        self.bodies().iter().flatten().for_each(|node| node.step.visit(see));
    }

    /// Whether this step, or one inside it, is one of these.
    pub(super) fn contains(&self, is_one: fn(&Self) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |step| found |= is_one(step));
        found
    }

    /// Whether the crate refuses it.
    pub(super) fn is_wrong(&self) -> bool {
        self.contains(|step| match step {
            Self::Kernel { kernel, .. } => kernel.is_wrong(),
            Self::Copy { from, to } => {
                from.len() != to.len() || from.overlaps(*to) || (from.is_on_host() && to.is_on_host())
            }
            _ => false,
        })
    }

    /// Whether a run of it fails in any case.
    pub(super) fn fails(&self) -> bool {
        match self {
            Self::Fails => true,
            Self::Nest {
                nest: Nest::If { .. } | Nest::Switch { .. } | Nest::While { rounds: 0, .. },
                ..
            } => false,
            Self::Nest { bodies, .. } => bodies.iter().flatten().any(|node| node.step.fails()),
            _ => false,
        }
    }

    /// Whether a run of it may fail.
    pub(super) fn may_fail(&self) -> bool {
        self.contains(|step| matches!(step, Self::Fails))
    }

    /// The parts of buffers that it uses, also those of nodes that are switched off.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut uses = Vec::new();
        self.visit(&mut |step| uses.extend(step.own_uses()));
        uses
    }

    fn own_uses(&self) -> impl Iterator<Item = Use> {
        let (read, written) = match self {
            Self::Kernel { kernel, .. } => (kernel.from, Some(kernel.to)),
            Self::Copy { from, to } | Self::Through { from, to, .. } | Self::Task(Task { from, to, .. }) => {
                (Some(*from), Some(*to))
            }
            Self::Rectangle { from, to, .. } => (Some(Part::whole(*from)), Some(Part::whole(*to))),
            Self::Fill { to, .. }
            | Self::Constant { to, .. }
            | Self::Nest { nest: Nest::While { counter: to, .. } | Nest::Switch { index: to, .. }, .. } => {
                (None, Some(*to))
            }
            Self::Hint { x } | Self::Nest { nest: Nest::If { flag: x }, .. } => (Some(*x), None),
            Self::Group { alternatives, .. } => (alternatives[0].from, Some(alternatives[0].to)),
            Self::Fails | Self::Empty | Self::Nest { .. } => (None, None),
        };
        let read = read.map(|part| Use { part, writes: false });
        read.into_iter().chain(written.map(|part| Use { part, writes: true }))
    }

    /// Whether it writes some of the part.
    pub(super) fn writes(&self, part: Part) -> bool {
        self.uses().iter().any(|used| used.writes && used.part.overlaps(part))
    }
}

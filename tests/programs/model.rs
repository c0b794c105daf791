//! What programs should do: buffers as lists of numbers, commands one after the other.

/// Elements of every buffer.
pub(crate) const LEN: usize = 8;
/// Buffers on the device, which come first, and on the host.
pub(crate) const ON_DEVICE: usize = 3;
pub(crate) const ON_HOST: usize = 2;

/// The contents of all buffers; `None` where a submission failed that may or may not have written.
pub(crate) type Memory = [[Option<u32>; LEN]; ON_DEVICE + ON_HOST];

/// Some elements of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    pub(crate) buffer: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Slice {
    pub(crate) fn is_on_host(self) -> bool {
        self.buffer >= ON_DEVICE
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let apart = self.start + self.len <= other.start || other.start + other.len <= self.start;
        self.buffer == other.buffer && !apart
    }

    fn of(self, memory: &mut Memory) -> &mut [Option<u32>] {
        &mut memory[self.buffer][self.start..self.start + self.len]
    }
}

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Empty,
    /// Nothing: marks a graph that has scratch buffers.
    Scratch,
    Fill {
        to: Slice,
        value: u32,
    },
    Copy {
        from: Slice,
        to: Slice,
    },
    /// Multiplies and adds, element by element.
    Mix {
        to: Slice,
        n: u32,
    },
    /// Adds the elements of one slice to those of another, over and over.
    Add {
        from: Slice,
        to: Slice,
    },
    /// A task of the host that fails.
    Fails,
    All(Vec<Node>),
    /// The commands, if the first element of the slice is not 0.
    If {
        flag: Slice,
        then: Vec<Node>,
    },
}

/// A command that can be switched off.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) command: Command,
    pub(crate) enabled: bool,
}

impl From<Command> for Node {
    fn from(command: Command) -> Self {
        Self { command, enabled: true }
    }
}

pub(crate) fn mixed(x: u32, n: u32) -> u32 {
    x.wrapping_mul(31).wrapping_add(n)
}

/// Runs the nodes in the order in which they were added: whatever conflicts runs in that order.
pub(crate) fn run(nodes: &[Node], memory: &mut Memory) {
    for node in nodes.iter().filter(|node| node.enabled) {
        match &node.command {
            Command::Empty | Command::Scratch | Command::Fails => {}
            Command::Fill { to, value } => to.of(memory).fill(Some(*value)),
            Command::Copy { from, to } => {
                let elements = from.of(memory).to_vec();
                to.of(memory).copy_from_slice(&elements);
            }
            Command::Mix { to, n } => {
                to.of(memory).iter_mut().for_each(|x| *x = x.map(|x| mixed(x, *n)));
            }
            Command::Add { from, to } => {
                let elements = from.of(memory).to_vec();
                for (x, y) in to.of(memory).iter_mut().zip(elements.iter().cycle()) {
                    *x = x.zip(*y).map(|(x, y)| x.wrapping_add(y));
                }
            }
            Command::All(nodes) => run(nodes, memory),
            Command::If { flag, then } => match flag.of(memory)[0] {
                Some(0) => {}
                Some(_) => run(then, memory),
                None => forget(then, memory),
            },
        }
    }
}

/// It is unknown which of the nodes have run.
pub(crate) fn forget(nodes: &[Node], memory: &mut Memory) {
    for node in nodes {
        match &node.command {
            Command::Empty | Command::Scratch | Command::Fails => {}
            Command::Fill { to, .. }
            | Command::Copy { to, .. }
            | Command::Mix { to, .. }
            | Command::Add { to, .. } => to.of(memory).fill(None),
            Command::All(nodes) | Command::If { then: nodes, .. } => forget(nodes, memory),
        }
    }
}

/// Whether a run of the nodes fails.
pub(crate) fn fails(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match &node.command {
        Command::Fails => true,
        Command::All(nodes) => fails(nodes),
        _ => false,
    })
}

/// Whether a run of the nodes may fail, depending on the flags of conditionals.
pub(crate) fn may_fail(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match &node.command {
        Command::Fails => true,
        Command::All(nodes) | Command::If { then: nodes, .. } => may_fail(nodes),
        _ => false,
    })
}

//! Programs: the immutable form of command-buffers, run in order or as a dependency-counted graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use smallvec::SmallVec;
use wakegraph_hal::{Command, CommandTimes};

use super::events::now;

/// Set in a counter when something it counted has failed.
const POISON: u32 = 1 << 31;

/// Commands with their order. Enqueues of one command-buffer never overlap, so the counters and
/// times of one run live here and every run resets them: running allocates nothing.
///
/// Cloned by an update when an earlier enqueue still needs the old values; the order, which no
/// update changes, and the counters are shared between the versions.
#[derive(Clone, Debug)]
pub(super) struct HostProgram {
    commands: Vec<Command>,
    /// Disabled commands; empty while none ever was.
    disabled: Vec<bool>,
    order: Arc<ProgramOrder>,
}

#[derive(Debug)]
struct ProgramOrder {
    graph: Option<ProgramGraph>,
    /// One for each command, where the command-buffer was created with profiling.
    times: Box<[CommandStamps]>,
    /// Whether all commands are hints or empty, and no times are taken.
    has_no_effect: bool,
}

/// Order of the commands, and how far a run has got.
#[derive(Debug)]
pub(super) struct ProgramGraph {
    /// `successors[starts[i]..starts[i + 1]]` are those of command `i`.
    starts: Box<[u32]>,
    successors: Box<[u32]>,
    /// For each command, how many it follows.
    predecessors: Box<[u32]>,
    roots: Box<[u32]>,
    waiting_for: Box<[AtomicU32]>,
    unfinished: AtomicU32,
}

#[derive(Debug, Default)]
struct CommandStamps {
    start: AtomicU64,
    end: AtomicU64,
}

/// How a command stands after something it waited for has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    Waiting,
    Ready,
}

/// Commands of one enqueue.
#[derive(Clone, Debug)]
pub(super) enum EnqueuedCommands {
    /// A command-buffer's.
    Program(Arc<HostProgram>),
    /// One outside command-buffers.
    One(Arc<Command>),
}

impl EnqueuedCommands {
    /// The program, if its order is a graph.
    pub(super) fn as_graph(&self) -> Option<&Arc<HostProgram>> {
        match self {
            Self::Program(program) => Some(program).filter(|program| program.graph().is_some()),
            Self::One(_) => None,
        }
    }

    /// Whether all commands are hints or empty, and no times are taken.
    pub(super) fn has_no_effect(&self) -> bool {
        match self {
            Self::Program(program) => program.order.has_no_effect,
            Self::One(command) => is_hint(command),
        }
    }

    /// The times of the commands of the run that has just ended.
    pub(super) fn times(&self) -> impl Iterator<Item = CommandTimes> {
        let program = match self {
            Self::Program(program) => Some(program),
            Self::One(_) => None,
        };
        program.into_iter().flat_map(|program| program.times())
    }
}

fn is_hint(command: &Command) -> bool {
    command.kind().row().has_no_effect
}

impl HostProgram {
    /// `after[i]` are the commands that command `i` follows, all of them smaller; ignored if `in_order`.
    pub(super) fn new(
        commands: Vec<Command>,
        after: &[SmallVec<[u32; 2]>],
        in_order: bool,
        profiling: bool,
    ) -> Self {
        let chain = || (1..commands.len()).all(|i| after[i].contains(&(i as u32 - 1)));
        let order = ProgramOrder {
            graph: (!in_order && !chain()).then(|| ProgramGraph::new(after)),
            times: (0..if profiling { commands.len() } else { 0 })
                .map(|_| CommandStamps::default())
                .collect(),
            has_no_effect: !profiling && commands.iter().all(is_hint),
        };
        Self { commands, disabled: Vec::new(), order: Arc::new(order) }
    }

    /// Other commands, all enabled, in the order of this one.
    pub(super) fn with_commands(&self, commands: Vec<Command>) -> Self {
        Self { commands, disabled: Vec::new(), order: Arc::clone(&self.order) }
    }

    /// The commands of `other` in the order of this one.
    pub(super) fn like(&self, other: &Self) -> Self {
        Self { order: Arc::clone(&self.order), ..other.clone() }
    }

    pub(super) fn commands(&self) -> &[Command] {
        &self.commands
    }

    pub(super) fn set_command(&mut self, index: usize, command: Command) {
        self.commands[index] = command;
    }

    pub(super) fn is_enabled(&self, index: usize) -> bool {
        !self.disabled.get(index).is_some_and(|disabled| *disabled)
    }

    pub(super) fn set_enabled(&mut self, index: usize, enabled: bool) {
        if enabled && self.disabled.is_empty() {
            return;
        }
        self.disabled.resize(self.commands.len(), false);
        self.disabled[index] = !enabled;
    }

    /// The order as a graph, or `None` when the commands run one after the other.
    pub(super) fn graph(&self) -> Option<&ProgramGraph> {
        self.order.graph.as_ref()
    }

    /// Runs `run` on command `index`, taking its times where they are wanted.
    pub(super) fn timed<R>(&self, index: usize, run: impl FnOnce(&Command) -> R) -> R {
        let Some(times) = self.order.times.get(index) else { return run(&self.commands[index]) };
        times.start.store(now(), Ordering::Relaxed);
        let result = run(&self.commands[index]);
        times.end.store(now(), Ordering::Relaxed);
        result
    }

    /// The times of the run that has just ended.
    fn times(&self) -> impl Iterator<Item = CommandTimes> {
        self.order.times.iter().map(|times| CommandTimes {
            start: times.start.load(Ordering::Relaxed),
            end: times.end.load(Ordering::Relaxed),
        })
    }
}

impl ProgramGraph {
    fn new(after: &[SmallVec<[u32; 2]>]) -> Self {
        let count = after.len();
        let mut starts = vec![0u32; count + 1];
        for &before in after.iter().flatten() {
            starts[before as usize + 1] += 1;
        }
        for i in 0..count {
            starts[i + 1] += starts[i];
        }
        let mut free = starts.clone();
        let mut successors = vec![0u32; starts[count] as usize];
        for (i, befores) in after.iter().enumerate() {
            for &before in befores {
                let next = &mut free[before as usize];
                successors[*next as usize] = i as u32;
                *next += 1;
            }
        }
        Self {
            starts: starts.into(),
            successors: successors.into(),
            predecessors: after.iter().map(|befores| befores.len() as u32).collect(),
            roots: (0..count as u32).filter(|&i| after[i as usize].is_empty()).collect(),
            waiting_for: (0..count).map(|_| AtomicU32::new(0)).collect(),
            unfinished: AtomicU32::new(0),
        }
    }

    /// Makes ready for a run. The run before has ended, and the lock of the pool lies between the two.
    pub(super) fn reset(&self) {
        for (counter, &count) in self.waiting_for.iter().zip(&self.predecessors) {
            counter.store(count, Ordering::Relaxed);
        }
        self.unfinished.store(self.predecessors.len() as u32, Ordering::Release);
    }

    pub(super) fn roots(&self) -> &[u32] {
        &self.roots
    }

    pub(super) fn successors(&self, command: u32) -> &[u32] {
        let command = command as usize;
        &self.successors[self.starts[command] as usize..self.starts[command + 1] as usize]
    }

    /// One of the commands that `command` follows has ended, or has `failed` (or did not run because
    /// others had).
    pub(super) fn count_down(&self, command: u32, failed: bool) -> Readiness {
        let counter = &self.waiting_for[command as usize];
        if failed {
            counter.fetch_or(POISON, Ordering::Relaxed);
        }
        // Acquire and release: the command that becomes ready sees what all its predecessors wrote.
        match counter.fetch_sub(1, Ordering::AcqRel) & !POISON {
            1 => Readiness::Ready,
            _ => Readiness::Waiting,
        }
    }

    /// Whether a ready command must not run.
    pub(super) fn is_poisoned(&self, command: u32) -> bool {
        self.waiting_for[command as usize].load(Ordering::Relaxed) & POISON != 0
    }

    /// A command has ended. True for the last one; who made it so sees what all others wrote.
    pub(super) fn finish_command(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

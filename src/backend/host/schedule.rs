//! What is in flight on a device and what may start: plain data, guarded by the one lock of the
//! [`pool`](super::pool).
//!
//! A *run* is one enqueue that is not done. It counts what it waits for. A *line* is a sequence of
//! runs of which each starts after the one before is done: each in-order queue has one, and each
//! command-buffer. A run is in at most one line of each sort and so has at most one follower of
//! each sort: following costs a field, never a list.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::completion::Completion;
use super::device;
use super::doze::Sleeper;
use super::pool::Dependent;
use super::program::Program;
use crate::hal::Notification;
use crate::util::deferred_drop::Failure;

/// Names a run while it is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunId(u32);

/// Names a line while its queue or command-buffer exists, or a run is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LineId(u32);

/// Names a queue, in order or not; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct QueueTag(u64);

/// The lines that a run is in: its in-order queue's, its command-buffer's.
pub(super) type Lines = [Option<LineId>; 2];

/// What to run and whom to tell.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) program: Arc<Program>,
    pub(super) event: Arc<Completion<Dependent>>,
    pub(super) notification: Option<Notification>,
    /// Whether to take times; without it no clock is read.
    pub(super) profiled: bool,
    pub(super) submitted: u64,
    pub(super) started: u64,
    /// What went wrong first: with something it waited for, or with one of its commands.
    pub(super) failure: Option<Failure>,
}

/// Something for a worker to do now.
#[derive(Debug)]
pub(super) enum Job {
    /// Run the program in order (or not at all, if it has failed already), then finish.
    Whole(RunId, Work),
    /// Start a program whose commands are a graph.
    Graph(RunId, Arc<Program>),
    /// Run this command of such a program.
    Command(RunId, Arc<Program>, u32),
}

#[derive(Clone, Copy, Debug)]
enum Ready {
    Run(RunId),
    Command(RunId, u32),
}

#[derive(Debug, Default)]
struct Run {
    work: Option<Work>,
    waiting_for: usize,
    queue: QueueTag,
    lines: Lines,
    followers: [Option<RunId>; 2],
    /// Markers that wait for this run, see [`Schedule::join`].
    joined_by: SmallVec<[RunId; 1]>,
}

#[derive(Debug)]
struct Line {
    last: Option<RunId>,
    /// Whether the queue or command-buffer still exists.
    owned: bool,
}

/// Runs, lines and the ready queue. Slots are reused, so that the steady state allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    ready: VecDeque<Ready>,
    runs: Vec<Run>,
    free_runs: Vec<RunId>,
    lines: Vec<Line>,
    free_lines: Vec<LineId>,
    queues: u64,
    /// Workers that sleep, the warmest last.
    pub(super) idle: Vec<Arc<Sleeper>>,
    /// Nobody can enqueue any more.
    pub(super) closed: bool,
}

impl Schedule {
    pub(super) fn add_queue(&mut self) -> QueueTag {
        self.queues += 1;
        QueueTag(self.queues)
    }

    pub(super) fn add_line(&mut self) -> LineId {
        let line = Line { last: None, owned: true };
        if let Some(id) = self.free_lines.pop() {
            self.lines[id.0 as usize] = line;
            return id;
        }
        self.lines.push(line);
        LineId(self.lines.len() as u32 - 1)
    }

    /// The line's owner is gone; the runs in it go on.
    pub(super) fn disown_line(&mut self, id: LineId) {
        let line = &mut self.lines[id.0 as usize];
        line.owned = false;
        if line.last.is_none() {
            self.free_lines.push(id);
        }
    }

    /// Whether no run is in any of the lines.
    pub(super) fn are_clear(&self, lines: Lines) -> bool {
        lines.iter().flatten().all(|id| self.lines[id.0 as usize].last.is_none())
    }

    /// Takes up a run that waits for `waits` calls of [`release`](Self::release) and for its lines.
    pub(super) fn admit(&mut self, work: Work, queue: QueueTag, lines: Lines, waits: usize) -> RunId {
        let id = self.free_runs.pop().unwrap_or_else(|| {
            self.runs.push(Run::default());
            RunId(self.runs.len() as u32 - 1)
        });
        let mut waiting_for = waits;
        for (sort, line) in lines.iter().enumerate() {
            let Some(line) = line else { continue };
            if let Some(last) = self.lines[line.0 as usize].last.replace(id) {
                self.run(last).followers[sort] = Some(id);
                waiting_for += 1;
            }
        }
        let run = self.run(id);
        *run = Run { work: Some(work), waiting_for, queue, lines, ..Run::default() };
        if waiting_for == 0 {
            self.ready.push_back(Ready::Run(id));
        }
        id
    }

    /// Takes up a marker, which waits for all runs of the queue that are in flight now.
    pub(super) fn join(&mut self, marker: Work, queue: QueueTag) {
        // In no queue, so that it does not find itself; one wait for the time of the search.
        let marker = self.admit(marker, QueueTag::default(), [None; 2], 1);
        let mut found = 0;
        for run in self.runs.iter_mut().filter(|run| run.queue == queue) {
            run.joined_by.push(marker);
            found += 1;
        }
        self.run(marker).waiting_for += found;
        self.release(marker, 1, None);
    }

    /// `count` of the things that the run waited for are final, one of them perhaps with an error.
    pub(super) fn release(&mut self, id: RunId, count: usize, failure: Option<Failure>) {
        if let Some(failure) = failure {
            self.fail(id, failure);
        }
        if self.count_down(id, count) {
            self.ready.push_back(Ready::Run(id));
        }
    }

    /// Remembers what went wrong first.
    pub(super) fn fail(&mut self, id: RunId, failure: Failure) {
        if let Some(work) = &mut self.run(id).work {
            work.failure.get_or_insert(failure);
        }
    }

    /// Puts a command of a started graph into the ready queue.
    pub(super) fn push_command(&mut self, id: RunId, command: u32) {
        self.ready.push_back(Ready::Command(id, command));
    }

    /// The oldest of what is ready.
    pub(super) fn pop(&mut self) -> Option<Job> {
        match self.ready.pop_front()? {
            Ready::Run(id) => self.start(id),
            Ready::Command(id, command) => {
                let work = self.run(id).work.as_ref()?;
                Some(Job::Command(id, Arc::clone(&work.program), command))
            }
        }
    }

    /// The work of a run whose last command is done.
    pub(super) fn take_work(&mut self, id: RunId) -> Option<Work> {
        self.run(id).work.take()
    }

    /// Forgets a run whose event is final, and frees what follows it. Gives back what the caller
    /// should go on with: a follower if `prefer_follower`, so that a line with many runs stays on
    /// one warm thread; else the oldest job.
    pub(super) fn retire(&mut self, id: RunId, prefer_follower: bool) -> Option<Job> {
        let Run { lines, followers, joined_by, .. } = std::mem::take(self.run(id));
        for line_id in lines.into_iter().flatten() {
            let line = &mut self.lines[line_id.0 as usize];
            if line.last == Some(id) {
                line.last = None;
                if !line.owned {
                    self.free_lines.push(line_id);
                }
            }
        }
        self.free_runs.push(id);
        for marker in joined_by {
            self.release(marker, 1, None);
        }
        let mut preferred = None;
        for follower in followers.into_iter().flatten() {
            if self.count_down(follower, 1) {
                if prefer_follower && preferred.is_none() {
                    preferred = Some(follower);
                } else {
                    self.ready.push_back(Ready::Run(follower));
                }
            }
        }
        match preferred {
            Some(follower) => self.start(follower),
            None => self.pop(),
        }
    }

    /// Jobs that nobody has taken.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether the workers can end.
    pub(super) fn is_over(&self) -> bool {
        self.closed && self.runs.len() == self.free_runs.len()
    }

    fn start(&mut self, id: RunId) -> Option<Job> {
        let slot = &mut self.run(id).work;
        let work = slot.as_mut()?;
        if work.profiled {
            work.started = device::now();
        }
        if work.failure.is_none() && work.program.graph().is_some() {
            return Some(Job::Graph(id, Arc::clone(&work.program)));
        }
        slot.take().map(|work| Job::Whole(id, work))
    }

    fn count_down(&mut self, id: RunId, count: usize) -> bool {
        let run = self.run(id);
        run.waiting_for -= count;
        run.waiting_for == 0
    }

    fn run(&mut self, id: RunId) -> &mut Run {
        &mut self.runs[id.0 as usize]
    }
}

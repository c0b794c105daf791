//! What is in flight on a device and what may start: plain data, which the
//! [`scheduler`](super::scheduler) locks.
//!
//! A *run* is one enqueue in flight. It counts what it waits for. A *serial chain* is a sequence of
//! runs each of which starts after the one before is done: each in-order queue has one, and each
//! command-buffer. A run is in at most one chain of each of these two sorts, and so has at most one
//! follower of each sort: a follower costs a field, never a list.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::parker::Parker;
use super::work::{Dependent, PoolWork, RunId};
use crate::backend::host::clock::now;
use crate::backend::host::completion::HostCompletion;
use crate::backend::host::program::HostProgram;
use crate::util::deferred_drop::Failure;

/// Names a serial chain while its queue or command-buffer exists, or a run is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChainId(u32);

/// Names a queue, in order or not; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueTag(u64);

/// The chains that a run is in: its in-order queue's, its command-buffer's.
pub(crate) type Chains = [Option<ChainId>; 2];

/// Something for a worker to do now.
#[derive(Debug)]
pub(super) enum HostJob {
    /// Run the commands in order (or not at all, if the run has failed already), then finish.
    Whole(RunId, PoolWork),
    /// Start a program whose commands are a graph.
    Graph(RunId, Arc<HostProgram>),
    /// Run this command of such a program.
    Command(RunId, Arc<HostProgram>, u32),
}

#[derive(Clone, Copy, Debug)]
enum ReadyItem {
    Run(RunId),
    Command(RunId, u32),
}

#[derive(Debug, Default)]
struct HostRun {
    work: Option<PoolWork>,
    waiting_for: usize,
    queue: QueueTag,
    chains: Chains,
    followers: [Option<RunId>; 2],
    /// Markers that wait for this run, see [`HostSchedule::join`].
    joined_by: SmallVec<[RunId; 1]>,
}

#[derive(Debug)]
struct SerialChain {
    last: Option<RunId>,
    /// Whether the queue or command-buffer still exists.
    owned: bool,
}

/// Runs, chains and the ready queue. Slots are reused, so that the steady state allocates nothing.
#[derive(Debug, Default)]
pub(super) struct HostSchedule {
    ready: VecDeque<ReadyItem>,
    runs: Vec<HostRun>,
    free_runs: Vec<RunId>,
    chains: Vec<SerialChain>,
    free_chains: Vec<ChainId>,
    queues: u64,
    /// Parked workers, the one that parked last at the end.
    pub(super) idle: Vec<Arc<Parker>>,
    /// Whether the device and all its queues and command-buffers are gone: nothing more can be
    /// enqueued.
    pub(super) closed: bool,
}

impl HostSchedule {
    pub(super) fn add_queue(&mut self) -> QueueTag {
        self.queues += 1;
        QueueTag(self.queues)
    }

    pub(super) fn add_chain(&mut self) -> ChainId {
        let chain = SerialChain { last: None, owned: true };
        if let Some(id) = self.free_chains.pop() {
            self.chains[id.0 as usize] = chain;
            return id;
        }
        self.chains.push(chain);
        ChainId(self.chains.len() as u32 - 1)
    }

    /// Releases a chain whose owner is gone. The runs in it go on.
    pub(super) fn release_chain(&mut self, id: ChainId) {
        let chain = &mut self.chains[id.0 as usize];
        chain.owned = false;
        if chain.last.is_none() {
            self.free_chains.push(id);
        }
    }

    /// Whether no run is in any of the chains.
    pub(super) fn are_empty(&self, chains: Chains) -> bool {
        chains.iter().flatten().all(|id| self.chains[id.0 as usize].last.is_none())
    }

    /// Adds a run that waits for its chains and until [`release`](Self::release) has counted `waits`
    /// events.
    pub(super) fn admit(&mut self, work: PoolWork, queue: QueueTag, chains: Chains, waits: usize) -> RunId {
        let id = self.free_runs.pop().unwrap_or_else(|| {
            self.runs.push(HostRun::default());
            RunId(self.runs.len() as u32 - 1)
        });
        let mut waiting_for = waits;
        for (sort, chain) in chains.iter().enumerate() {
            let Some(chain) = chain else { continue };
            if let Some(last) = self.chains[chain.0 as usize].last.replace(id) {
                self.run(last).followers[sort] = Some(id);
                waiting_for += 1;
            }
        }
        let run = self.run(id);
        *run = HostRun { work: Some(work), waiting_for, queue, chains, ..HostRun::default() };
        if waiting_for == 0 {
            self.ready.push_back(ReadyItem::Run(id));
        }
        id
    }

    /// Adds a marker, which waits for all runs of the queue that are in flight now.
    pub(super) fn join(&mut self, marker: PoolWork, queue: QueueTag) {
        // The marker is in no queue, so the search does not find it. It waits for the search, too.
        let marker = self.admit(marker, QueueTag::default(), [None; 2], 1);
        let mut found = 0;
        for run in self.runs.iter_mut().filter(|run| run.queue == queue) {
            run.joined_by.push(marker);
            found += 1;
        }
        self.run(marker).waiting_for += found;
        self.release(marker, 1, None);
    }

    /// Counts `count` of the events that the run waits for as final. `failure` becomes the run's, too.
    pub(super) fn release(&mut self, id: RunId, count: usize, failure: Option<Failure>) {
        if let Some(failure) = failure {
            self.fail(id, failure);
        }
        if self.count_down(id, count) {
            self.ready.push_back(ReadyItem::Run(id));
        }
    }

    /// Records the failure of a run, unless an earlier one is recorded.
    pub(super) fn fail(&mut self, id: RunId, failure: Failure) {
        if let Some(work) = &mut self.run(id).work {
            work.failure.get_or_insert(failure);
        }
    }

    /// Puts a command of a started graph into the ready queue.
    pub(super) fn push_command(&mut self, id: RunId, command: u32) {
        self.ready.push_back(ReadyItem::Command(id, command));
    }

    /// Takes the oldest ready job.
    pub(super) fn pop(&mut self) -> Option<HostJob> {
        match self.ready.pop_front()? {
            ReadyItem::Run(id) => self.start(id),
            ReadyItem::Command(id, command) => {
                let program = self.run(id).work.as_ref()?.commands.as_graph()?;
                Some(HostJob::Command(id, Arc::clone(program), command))
            }
        }
    }

    /// Takes the work of a run whose last command is done.
    pub(super) fn take_work(&mut self, id: RunId) -> Option<PoolWork> {
        self.run(id).work.take()
    }

    /// What a run signals, while it has work.
    pub(super) fn event(&mut self, id: RunId) -> Option<Arc<HostCompletion<Dependent>>> {
        self.run(id).work.as_ref().map(|work| Arc::clone(&work.event))
    }

    /// Removes a run whose event is final, and releases what follows it. Returns the job that the
    /// worker should go on with: a follower if `prefer_follower`, so that a chain of many runs stays
    /// on one warm thread; else the oldest job.
    pub(super) fn retire(&mut self, id: RunId, prefer_follower: bool) -> Option<HostJob> {
        let HostRun { chains, followers, joined_by, .. } = std::mem::take(self.run(id));
        for chain_id in chains.into_iter().flatten() {
            let chain = &mut self.chains[chain_id.0 as usize];
            if chain.last == Some(id) {
                chain.last = None;
                if !chain.owned {
                    self.free_chains.push(chain_id);
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
                    self.ready.push_back(ReadyItem::Run(follower));
                }
            }
        }
        match preferred {
            Some(follower) => self.start(follower),
            None => self.pop(),
        }
    }

    /// Whether a job waits for a worker.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many runs have been admitted and not retired.
    pub(super) fn in_flight(&self) -> usize {
        self.runs.len() - self.free_runs.len()
    }

    /// Whether the workers can end.
    pub(super) fn is_over(&self) -> bool {
        self.closed && self.in_flight() == 0
    }

    fn start(&mut self, id: RunId) -> Option<HostJob> {
        let slot = &mut self.run(id).work;
        let work = slot.as_mut()?;
        if work.profiled {
            work.started = now();
        }
        if let Some(program) = work.commands.as_graph().filter(|_| work.failure.is_none()) {
            return Some(HostJob::Graph(id, Arc::clone(program)));
        }
        slot.take().map(|work| HostJob::Whole(id, work))
    }

    fn count_down(&mut self, id: RunId, count: usize) -> bool {
        let run = self.run(id);
        run.waiting_for -= count;
        run.waiting_for == 0
    }

    fn run(&mut self, id: RunId) -> &mut HostRun {
        &mut self.runs[id.0 as usize]
    }
}

//! Schedule of the runs that are in flight on a device, and of those that may start: plain data, which the
//! [`scheduler`](super::scheduler) locks.
//!
//! A *run* is one enqueue in flight. It counts what it waits for. A *serial chain* is a sequence of
//! runs each of which starts after the one before has ended: each in-order queue has one, and each
//! command-buffer. A run is in at most one chain of each of these two sorts, and so has at most one
//! follower of each sort: a follower costs a field, never a list.

use std::array;
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Debug};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use wakegraph_hal::Notification;
use wakegraph_hal::util::deferred_drop::Failure;
use wakegraph_hal::util::panics::catch_and_log;

use super::parker::Parker;
use super::sharing::{Help, Helpers, Offer};
use crate::events::HostEvent;
use crate::events::now;
use crate::program::{EnqueuedCommands, HostProgram};

/// Names a serial chain while its queue or command-buffer exists, or a run is in it: its place among the
/// chains, counted from one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChainId(NonZeroU32);

impl ChainId {
    fn at(place: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place as u32))
    }

    fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

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
    /// Help another worker with what it runs.
    Help(Help),
}

#[derive(Clone, Copy, Debug)]
enum ReadyItem {
    Run(RunId),
    Command(RunId, u32),
}

#[derive(Debug, Default)]
struct HostRun {
    work: Option<PoolWork>,
    waiting_for: u32,
    queue: QueueTag,
    chains: Chains,
    followers: [Option<RunId>; 2],
}

/// Number of runs that are allocated at once. None of them moves when there come to be more, which would
/// take long under the schedule's lock.
const CHUNK: usize = 64;

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
    /// Work that others may help with.
    offers: Vec<Offer>,
    join_time: JoinTime,
    runs: Vec<Box<[HostRun; CHUNK]>>,
    free_runs: Vec<RunId>,
    chains: Vec<SerialChain>,
    free_chains: Vec<ChainId>,
    /// The markers that wait for a run, see [`join`](Self::join). Empty but while a queue is finished.
    joined_by: HashMap<RunId, SmallVec<[RunId; 1]>>,
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
            *self.chain(id) = chain;
            return id;
        }
        self.chains.push(chain);
        ChainId::at(self.chains.len() - 1)
    }

    /// Releases a chain whose owner is gone. The runs in it go on.
    pub(super) fn release_chain(&mut self, id: ChainId) {
        let chain = self.chain(id);
        chain.owned = false;
        if chain.last.is_none() {
            self.free_chains.push(id);
        }
    }

    /// Whether no run is in any of the chains.
    pub(super) fn are_empty(&self, chains: Chains) -> bool {
        chains.iter().flatten().all(|id| self.chains[id.place()].last.is_none())
    }

    /// Adds a run that waits for its chains and until [`release`](Self::release) has counted `waits`
    /// events.
    pub(super) fn admit(&mut self, work: PoolWork, queue: QueueTag, chains: Chains, waits: u32) -> RunId {
        let id = self.free_runs.pop().unwrap_or_else(|| self.add_runs());
        let mut waiting_for = waits;
        for (sort, chain) in chains.iter().enumerate() {
            let Some(chain) = chain else { continue };
            if let Some(last) = self.chain(*chain).last.replace(id) {
                self.run(last).followers[sort] = Some(id);
                waiting_for += 1;
            }
        }
        *self.run(id) = HostRun { work: Some(work), waiting_for, queue, chains, followers: [None; 2] };
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
        for (place, run) in self.runs.iter().flat_map(|chunk| &**chunk).enumerate() {
            if run.queue == queue {
                self.joined_by.entry(RunId::at(place)).or_default().push(marker);
                found += 1;
            }
        }
        self.run(marker).waiting_for += found;
        self.release(marker, 1, None);
    }

    /// Counts `count` of the events that the run waits for as final. `failure` becomes the run's, too.
    pub(super) fn release(&mut self, id: RunId, count: u32, failure: Option<Failure>) {
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

    /// Takes the oldest ready job, or helps where the fewest do.
    pub(super) fn pop(&mut self) -> Option<HostJob> {
        match self.ready.pop_front() {
            None => self.help().map(HostJob::Help),
            Some(ReadyItem::Run(id)) => self.start(id),
            Some(ReadyItem::Command(id, command)) => {
                let program = self.run(id).work.as_ref()?.commands.as_graph()?;
                Some(HostJob::Command(id, Arc::clone(program), command))
            }
        }
    }

    /// Takes the work of a run whose last command has ended.
    pub(super) fn take_work(&mut self, id: RunId) -> Option<PoolWork> {
        self.run(id).work.take()
    }

    /// The event that a run signals, while it has work.
    pub(super) fn event(&mut self, id: RunId) -> Option<Arc<HostEvent<Dependent>>> {
        self.run(id).work.as_ref().map(|work| Arc::clone(&work.event))
    }

    /// Removes a run whose event is final, and releases what follows it. Returns the job that the
    /// worker should go on with: a follower if `prefer_follower`, so that a chain of many runs stays
    /// on one warm thread; else the oldest job.
    pub(super) fn retire(&mut self, id: RunId, prefer_follower: bool) -> Option<HostJob> {
        let HostRun { chains, followers, .. } = std::mem::take(self.run(id));
        for chain_id in chains.into_iter().flatten() {
            let chain = self.chain(chain_id);
            if chain.last == Some(id) {
                chain.last = None;
                if !chain.owned {
                    self.free_chains.push(chain_id);
                }
            }
        }
        self.free_runs.push(id);
        if !self.joined_by.is_empty() {
            for marker in self.joined_by.remove(&id).unwrap_or_default() {
                self.release(marker, 1, None);
            }
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

    /// Number of parked workers that have something to do, as far as they are to be woken at once.
    pub(super) fn wakes(&self) -> usize {
        match () {
            () if self.offers.iter().any(Offer::has_room) => 2,
            () => usize::from(!self.ready.is_empty() || self.has_ended()),
        }
    }

    /// Offers what a worker runs to the others.
    pub(super) fn offer(&mut self, mut offer: Offer) {
        if self.idle.is_empty() {
            offer.made = None;
        }
        self.offers.push(offer);
    }

    /// Takes back what the worker with these helpers offers, if it still does.
    pub(super) fn withdraw(&mut self, helpers: &Arc<Helpers>) {
        self.offers.retain(|offer| !offer.is_of(helpers));
    }

    /// Whether a job waits, or an offer with fewer helpers, so that the helper had better leave.
    pub(super) fn has_better(&self, help: &Help) -> bool {
        let fewer = |offer: &Offer| offer.has_room() && offer.helpers() + 1 < help.helpers().count();
        !self.ready.is_empty() || self.offers.iter().any(fewer)
    }

    /// Work of one thread that is worth a second one.
    pub(super) fn worth_sharing(&self) -> Duration {
        self.join_time.worth_sharing()
    }

    fn help(&mut self) -> Option<Help> {
        let with_room = self.offers.iter_mut().filter(|offer| offer.has_room());
        let offer = with_room.min_by_key(|offer| offer.helpers())?;
        if let Some(made) = offer.made.take() {
            self.join_time.record(made.elapsed());
        }
        Some(offer.join())
    }

    /// Number of runs that have been admitted and not retired.
    pub(super) fn in_flight(&self) -> usize {
        self.runs.len() * CHUNK - self.free_runs.len()
    }

    /// Whether the workers can end.
    pub(super) fn has_ended(&self) -> bool {
        self.closed && self.in_flight() == 0
    }

    fn start(&mut self, id: RunId) -> Option<HostJob> {
        let slot = &mut self.run(id).work;
        let work = slot.as_mut()?;
        if work.profiled {
            work.event.set_profile(|profile| profile.start = now());
        }
        if let Some(program) = work.commands.as_graph().filter(|_| work.failure.is_none()) {
            return Some(HostJob::Graph(id, Arc::clone(program)));
        }
        slot.take().map(|work| HostJob::Whole(id, work))
    }

    fn count_down(&mut self, id: RunId, count: u32) -> bool {
        let run = self.run(id);
        run.waiting_for -= count;
        run.waiting_for == 0
    }

    /// Adds places for runs. Returns the first, and keeps the others for later.
    fn add_runs(&mut self) -> RunId {
        let first = self.runs.len() * CHUNK;
        self.runs.push(Box::new(array::from_fn(|_| HostRun::default())));
        self.free_runs.extend((first + 1..first + CHUNK).rev().map(RunId::at));
        RunId::at(first)
    }

    fn run(&mut self, id: RunId) -> &mut HostRun {
        let place = id.place();
        &mut self.runs[place / CHUNK][place % CHUNK]
    }

    fn chain(&mut self, id: ChainId) -> &mut SerialChain {
        &mut self.chains[id.place()]
    }
}

/// Time from an offer until a worker that was idle helps.
#[derive(Debug)]
struct JoinTime(Duration);

impl Default for JoinTime {
    fn default() -> Self {
        Self(Duration::from_micros(20))
    }
}

impl JoinTime {
    /// Records one. The bounds keep a single long pause from ending all sharing, which would end all
    /// measuring, too.
    fn record(&mut self, took: Duration) {
        let took = took.clamp(Duration::from_micros(5), Duration::from_micros(100));
        self.0 = (7 * self.0 + took) / 8;
    }

    /// The first half of the work has to take longer than it takes the helper to come.
    fn worth_sharing(&self) -> Duration {
        2 * self.0
    }
}

/// Names a run while it is in flight: its place among the runs, counted from one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RunId(NonZeroU32);

impl RunId {
    pub(super) fn at(place: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place as u32))
    }

    fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A schedule in which runs wait for events.
pub(super) trait ReleaseRuns: Send + Sync {
    /// Counts `count` of the events that `run` waits for as final. `failure` becomes the run's, too.
    fn release(&self, run: RunId, count: u32, failure: Option<Failure>);
}

/// A run that waits for an event, maybe on another device.
pub(crate) struct Dependent {
    pub(super) schedule: Arc<dyn ReleaseRuns>,
    pub(super) run: RunId,
    /// Whether the run needs the event's result, so that a failure spreads to it.
    pub(super) needs_result: bool,
}

impl Dependent {
    /// The failure that the run inherits from the event.
    pub(super) fn inherit(&self, failure: &Option<Failure>) -> Option<Failure> {
        failure.as_ref().filter(|_| self.needs_result).cloned()
    }

    pub(super) fn release(&self, failure: &Option<Failure>) {
        self.schedule.release(self.run, 1, self.inherit(failure));
    }
}

impl Debug for Dependent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependent").field("run", &self.run).finish_non_exhaustive()
    }
}

/// Commands to run, and what to signal after them.
#[derive(Debug)]
pub(crate) struct PoolWork {
    pub(super) commands: EnqueuedCommands,
    pub(super) event: Arc<HostEvent<Dependent>>,
    pub(super) notification: Option<Notification>,
    /// Whether to take times; without it no clock is read.
    pub(super) profiled: bool,
    /// The first failure: of a dependency, or of one of the commands.
    pub(super) failure: Option<Failure>,
}

/// How work ended, and what has to hear of it.
#[derive(Debug)]
pub(super) struct WorkOutcome {
    pub(super) dependents: SmallVec<[Dependent; 2]>,
    pub(super) failure: Option<Failure>,
    pub(super) notification: Option<Notification>,
}

impl PoolWork {
    pub(crate) fn new(
        commands: EnqueuedCommands,
        event: Arc<HostEvent<Dependent>>,
        notification: Option<Notification>,
        profiled: bool,
    ) -> Self {
        Self { commands, event, notification, profiled, failure: None }
    }

    /// Drops the commands, then makes the event final. Calls nothing that takes a lock of a schedule
    /// and no user's code but drops, so the schedule may be locked.
    pub(super) fn complete(self) -> WorkOutcome {
        let Self { commands, event, notification, profiled, failure } = self;
        if profiled {
            let end = now();
            event.set_profile(|profile| {
                profile.end = end;
                profile.commands.clear();
                profile.commands.extend(commands.times());
            });
        }
        drop_commands(commands);
        let dependents = event.complete(failure.as_ref().map_or(Ok(()), Err), profiled);
        WorkOutcome { dependents, failure, notification }
    }
}

/// Drops commands, whose kernels may hold values of the user's.
pub(super) fn drop_commands(commands: EnqueuedCommands) {
    catch_and_log("the drop of a kernel's values", || drop(commands));
}

/// Calls the notification, if any. No lock may be held.
pub(super) fn notify(notification: Option<Notification>) {
    if let Some(notification) = notification {
        catch_and_log("a notification of the host backend", || {
            notification.target.notify(notification.token);
            drop(notification);
        });
    }
}

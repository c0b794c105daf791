//! The items that wait for a batch: how they come in, leave, and become the next batch.
//!
//! An item that finds others in the queue takes the lock once, where it comes in. One that finds none lets go
//! of it to look for a slot of its own, and takes it again. A batch takes the lock when it is put together
//! and when it has ended, and an item of a caller that gives up takes it again to leave. No code of the
//! user's runs under the lock, and no value of the user's is dropped there.

use std::hash::RandomState;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use wakegraph_hal::util::Mutex;
use wakegraph_hal::{Error, ErrorKind, Priority, Result};

use crate::runtime::deadline;
use crate::service::deadline::{Deadline, exceeded};
use crate::service::drain::Drain;
use crate::service::fair_queue::{FairQueue, Position};
use crate::util::metrics::{Arrival, QueueMetrics};
use crate::util::panics;

/// The queue of a batcher, without the types of its pool and closure.
pub(super) struct ItemQueue<I, R> {
    /// Name of the pool, for errors.
    pool: Arc<str>,
    limits: BatchLimits<I>,
    /// Number of items that may wait.
    bound: usize,
    max_delay: Duration,
    pub(super) keys: RandomState,
    metrics: QueueMetrics,
    runner: Arc<dyn BatchRunner<I, R>>,
    drain: Drain,
    state: Mutex<ItemQueueState<I, R>>,
    /// Notified when an item is added or leaves, if there is a delay.
    more: Notify,
}

/// Limits of a batch's contents.
pub(super) struct BatchLimits<I> {
    pub(super) items: usize,
    pub(super) weight: u64,
    pub(super) weigh: Box<dyn Fn(&I) -> u64 + Send + Sync>,
}

struct ItemQueueState<I, R> {
    items: FairQueue<WaitingItem<I, R>>,
    /// Whether a task waits for a slot on their behalf. There is one as long as there are items.
    is_pulled: bool,
    /// Batches that have not ended, and items that are about to run by themselves.
    batches: usize,
}

struct WaitingItem<I, R> {
    item: I,
    weight: u64,
    deadline: Option<Deadline>,
    caller: Caller<R>,
    arrival: Arrival,
}

/// A caller who waits for a result.
pub(super) type Caller<R> = oneshot::Sender<Result<R>>;

/// Parameters of an item.
pub(super) struct ItemAsk {
    pub(super) priority: Priority,
    pub(super) key: u64,
    pub(super) deadline: Option<Deadline>,
}

/// A runner of batches in the slots of a pool.
pub(super) trait BatchRunner<I, R>: Send + Sync {
    /// Runs an item by itself if a slot is free, and gives it back otherwise.
    fn run_alone(&self, item: I, deadline: Option<Deadline>) -> Result<BoxFuture<'static, Result<R>>, I>;

    /// Spawns the task that waits for slots as long as items wait.
    fn spawn_puller(self: Arc<Self>, queue: Arc<ItemQueue<I, R>>, runtime: &Handle);
}

/// Result of an item's entry into a queue.
pub(super) enum EnteredItem<'a, I, R> {
    /// It has a slot for itself. The future runs it.
    Alone(BoxFuture<'static, Result<R>>, BatchCount<I, R>),
    Waiting(ItemWaiter<'a, I, R>),
}

/// Items that run together.
pub(super) struct Batch<I, R> {
    pub(super) items: Vec<I>,
    pub(super) callers: Vec<Caller<R>>,
    /// Time at which the last of its callers stops waiting.
    pub(super) deadline: Option<Deadline>,
    /// To be dropped when the callers have their answers.
    pub(super) count: BatchCount<I, R>,
}

impl<I, R> ItemQueue<I, R> {
    pub(super) fn new(
        pool: Arc<str>,
        limits: BatchLimits<I>,
        bound: usize,
        max_delay: Duration,
        runner: Arc<dyn BatchRunner<I, R>>,
    ) -> Self {
        let state = ItemQueueState { items: FairQueue::default(), is_pulled: false, batches: 0 };
        Self {
            limits,
            bound,
            max_delay,
            keys: RandomState::new(),
            metrics: QueueMetrics::new("batcher", &pool),
            runner,
            drain: Drain::new(format!("batcher of the pool '{pool}'")),
            state: Mutex::new(state),
            more: Notify::new(),
            pool,
        }
    }

    /// Lets an item in: into a slot of its own if one is free and nothing waits, otherwise into the queue.
    pub(super) fn enter(self: &Arc<Self>, ask: &ItemAsk, mut item: I) -> Result<EnteredItem<'_, I, R>> {
        let weight = self.limits.weigh(&item)?;
        // It has been accepted, and counts until it is in the queue.
        let mut count = None;
        let mut state = self.state.lock();
        self.drain.accepts()?;
        if self.max_delay.is_zero() && state.items.is_empty() && !state.is_pulled {
            let alone = self.count_batch(&mut state);
            drop(state);
            match self.runner.run_alone(item, ask.deadline) {
                Ok(run) => {
                    self.metrics.served(&self.metrics.arrival());
                    self.metrics.batch(1);
                    return Ok(EnteredItem::Alone(run, alone));
                }
                Err(back) => (item, count) = (back, Some(alone)),
            }
            state = self.state.lock();
        }
        let runtime = match self.admit(&state) {
            Ok(runtime) => runtime,
            Err(error) => {
                drop(state);
                self.refused(&error);
                return Err(error);
            }
        };
        let (caller, answer) = oneshot::channel();
        let arrival = self.metrics.arrival();
        let item = WaitingItem { item, weight, deadline: ask.deadline, caller, arrival };
        let position = state.items.push(ask.priority, ask.key, item);
        state.is_pulled = true;
        drop(state);
        drop(count);
        let waiter = ItemWaiter { queue: self, position, answer, has_left: false };
        self.entered(runtime);
        Ok(EnteredItem::Waiting(waiter))
    }

    /// The runtime for the puller, if there is none yet.
    ///
    /// # Errors
    /// [`Overloaded`](ErrorKind::Overloaded) if the queue is full.
    fn admit(&self, state: &ItemQueueState<I, R>) -> Result<Option<Handle>> {
        if state.items.len() >= self.bound {
            let why = format!("the queue of the batcher of the pool '{}' is full", self.pool);
            return Err(Error::new(ErrorKind::Overloaded, why)
                .help("try again later, or give the pool more slots or the batcher a longer queue"));
        }
        if state.is_pulled {
            return Ok(None);
        }
        Handle::try_current().map(Some).map_err(|_| {
            Error::new(ErrorKind::InvalidOperation, "a batch needs a tokio runtime")
                .help("call the batcher inside a runtime")
        })
    }

    fn refused(&self, error: &Error) {
        if error.kind() == ErrorKind::Overloaded {
            self.metrics.refused();
        }
    }

    /// An item is in the queue, and with a runtime the first one.
    fn entered(self: &Arc<Self>, runtime: Option<Handle>) {
        self.metrics.entered();
        self.changed();
        if let Some(runtime) = runtime {
            self.runner.clone().spawn_puller(self.clone(), &runtime);
        }
    }

    /// Items have come or gone: tells the puller if it gathers some.
    fn changed(&self) {
        if !self.max_delay.is_zero() {
            self.more.notify_one();
        }
    }

    /// The items whose turn it is, as many as one batch holds. Items whose time is over get their error. None
    /// ends the puller.
    pub(super) fn next_batch(self: &Arc<Self>) -> Option<Batch<I, R>> {
        let (mut taken, mut late, mut left) = (Vec::new(), Vec::new(), self.limits.weight);
        let mut state = self.state.lock();
        while taken.len() < self.limits.items
            && let Some(next) = state.items.peek()
        {
            let is_late = next.deadline.is_some_and(|deadline| deadline.has_passed());
            if !is_late && next.weight > left {
                break;
            }
            let Some(item) = state.items.pop() else { break };
            if is_late {
                late.push(item);
            } else {
                left -= item.weight;
                taken.push(item);
            }
        }
        state.is_pulled = !taken.is_empty();
        let count = self.count_batch(&mut state);
        drop(state);
        self.metrics.left(taken.len() + late.len());
        self.metrics.given_up(late.len());
        if !late.is_empty() {
            let error = self.late_in_queue();
            late.into_iter().for_each(|item| item.refuse(error.clone()));
        }
        if taken.is_empty() {
            return None;
        }
        self.metrics.batch(taken.len());
        taken.iter().for_each(|item| self.metrics.served(&item.arrival));
        Some(Batch::new(taken, count))
    }

    fn count_batch(self: &Arc<Self>, state: &mut ItemQueueState<I, R>) -> BatchCount<I, R> {
        state.batches += 1;
        BatchCount { queue: self.clone() }
    }

    /// The puller is gone with its runtime: drops the items that wait, which tells their callers.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_pulled = false;
        let dropped = state.items.take_all();
        drop(state);
        self.drain.work_left();
        self.metrics.left(dropped.len());
        self.metrics.given_up(dropped.len());
        drop_items(dropped.into_values());
    }

    /// Waits until the next batch is as full as it gets, or its time has passed.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) on a runtime without its timer.
    pub(super) async fn gather(&self) -> Result<()> {
        if self.max_delay.is_zero() {
            return Ok(());
        }
        let end = Instant::now().checked_add(self.max_delay);
        match select(pin!(self.is_full()), pin!(deadline::passed(end))).await {
            Either::Left(_) => Ok(()),
            Either::Right((timer, _)) => timer,
        }
    }

    /// Waits until there are items for a full batch, or none at all, or no more will come.
    async fn is_full(&self) {
        loop {
            let has_gathered = {
                let state = self.state.lock();
                let weight = state.items.iter().map(|waiting| waiting.weight).fold(0, u64::saturating_add);
                let is_full = state.items.len() >= self.limits.items || weight >= self.limits.weight;
                // A slot is not kept for callers who have all left.
                is_full || state.items.is_empty()
            };
            if has_gathered || self.drain.accepts().is_err() {
                return;
            }
            self.more.notified().await;
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().items.len()
    }

    pub(super) fn close(&self) {
        let state = self.state.lock();
        self.drain.close();
        drop(state);
        // A batch that is not full waits for nothing any more.
        self.more.notify_one();
    }

    pub(super) async fn drain(&self, limit: Duration) -> Result<()> {
        self.close();
        self.drain.wait(limit, || self.what_is_left()).await
    }

    /// The error of an item whose time is over before it is in a batch.
    pub(super) fn late_in_queue(&self) -> Error {
        let why = "the deadline passed while the item waited for a batch of the pool";
        self.with_what_is_left(exceeded(format!("{why} '{}'", self.pool)))
    }

    /// The error of a caller who stops waiting while the batch runs.
    pub(super) fn late_in_batch(&self) -> Error {
        let why = "the deadline passed while the item's batch ran in a slot of the pool";
        self.with_what_is_left(exceeded(format!("{why} '{}'", self.pool)))
    }

    fn with_what_is_left(&self, error: Error) -> Error {
        self.what_is_left().map_or(error.clone(), |left| error.with_note(&left))
    }

    fn what_is_left(&self) -> Option<String> {
        let state = self.state.lock();
        let (waiting, batches) = (state.items.len(), state.batches);
        drop(state);
        let is_empty = waiting == 0 && batches == 0;
        (!is_empty).then(|| format!("items waiting: {waiting}, batches running: {batches}"))
    }
}

impl<I> BatchLimits<I> {
    /// The weight of an item.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) for one that no batch can hold.
    fn weigh(&self, item: &I) -> Result<u64> {
        let weight = (self.weigh)(item);
        let (why, help) = match (self.items, self.weight) {
            (0, _) => ("no item fits: a batch holds 0 items".into(), "pass at least 1 to `max_items`"),
            (_, limit) if weight > limit => (
                format!("an item of weight {weight} never fits: a batch holds a weight of at most {limit}"),
                "split the item, or pass more to `max_weight`",
            ),
            _ => return Ok(weight),
        };
        Err(Error::new(ErrorKind::InvalidSize, why).help(help))
    }
}

impl<I, R> WaitingItem<I, R> {
    /// Tells the caller the error, and drops the item.
    fn refuse(self, error: Error) {
        let Self { item, caller, .. } = self;
        panics::catch_and_log("a waker", || _ = caller.send(Err(error)));
        drop_items([item]);
    }
}

/// Drops items of callers who have their answers or have gone. The drop of an item is the user's: its panic
/// harms no other item.
pub(super) fn drop_items<I>(items: impl IntoIterator<Item = I>) {
    items.into_iter().for_each(|item| panics::catch_and_log("the drop of an item", || drop(item)));
}

impl<I, R> Batch<I, R> {
    fn new(taken: Vec<WaitingItem<I, R>>, count: BatchCount<I, R>) -> Self {
        let deadline = Deadline::of_all(taken.iter().map(|item| item.deadline));
        let (items, callers) = taken.into_iter().map(|item| (item.item, item.caller)).unzip();
        Self { items, callers, deadline, count }
    }
}

/// One of the batches that have not ended.
pub(super) struct BatchCount<I, R> {
    queue: Arc<ItemQueue<I, R>>,
}

impl<I, R> Drop for BatchCount<I, R> {
    fn drop(&mut self) {
        self.queue.state.lock().batches -= 1;
        self.queue.drain.work_left();
    }
}

/// A caller whose item waits for a batch or is in one. The item leaves the queue when this is
/// dropped.
pub(super) struct ItemWaiter<'a, I, R> {
    queue: &'a ItemQueue<I, R>,
    position: Position,
    answer: oneshot::Receiver<Result<R>>,
    /// The item is known not to be in the queue any more.
    has_left: bool,
}

impl<I, R> ItemWaiter<'_, I, R> {
    pub(super) async fn answer(&mut self) -> Result<R> {
        let answer = (&mut self.answer).await;
        self.has_left = true;
        answer.unwrap_or_else(|_| {
            let why = "the tokio runtime of a batch shut down before the batch had ended";
            Err(Error::new(ErrorKind::Cancelled, why))
        })
    }

    /// Gives up because of `error`, which holds for an item in a batch.
    pub(super) fn give_up(mut self, error: Error) -> Error {
        let in_queue = match error.kind() {
            ErrorKind::DeadlineExceeded => self.queue.late_in_queue(),
            _ => error.clone(),
        };
        if self.leave() { in_queue } else { error }
    }

    /// Takes the item out of the queue. Returns whether it was there.
    fn leave(&mut self) -> bool {
        if std::mem::replace(&mut self.has_left, true) {
            return false;
        }
        let item = self.queue.state.lock().items.remove(self.position);
        let Some(item) = item else { return false };
        self.queue.drain.work_left();
        self.queue.metrics.left(1);
        self.queue.metrics.given_up(1);
        self.queue.changed();
        drop(item);
        true
    }
}

impl<I, R> Drop for ItemWaiter<'_, I, R> {
    fn drop(&mut self) {
        self.leave();
    }
}

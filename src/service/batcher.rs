//! Requests that share runs: a batch forms when a slot becomes free.

use std::fmt::{self, Debug};
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use wakegraph_hal::{Error, ErrorKind, Priority, Result, setters};

use crate::runtime::deadline;
use crate::service::fair_queue::{FairQueue, Position};
use crate::service::pool::{DEFAULT_QUEUE, ExecutablePool};
use crate::service::pool_guard::PoolGuard;
use crate::util::metrics::{QueueMetrics, Tally};
use crate::util::panics;

/// Collects the items of many callers into batches, and runs each batch in one slot of a pool.
///
/// A batch forms by pull: when a slot becomes free, it takes the items that wait, up to a
/// [count](BatcherBuilder::max_items) and a [weight](BatcherBuilder::max_weight). So a lone caller
/// never waits for others, and under load batches are as large as they can be. Items of callers
/// that have gone by then are not in it.
///
/// The closure gets the slot and the items, writes them into the slot's host buffer, submits, and
/// returns one result per item, in their order. It runs once for each batch. If it fails or panics,
/// all callers of the batch get the error.
///
/// Clones are handles to the same batcher.
///
/// ```
/// use wakegraph::service::{Batcher, ExecutablePool};
/// use wakegraph::{Graph, HostBuffer, Range, Result};
///
/// wakegraph::kernel! {
///     fn square(x: &mut [u32]) { item: |i, x| x[i] *= x[i] }
/// }
///
/// const ITEMS: usize = 64;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let pool = ExecutablePool::new(2, |slot| {
///     let device = slot.device()?;
///     let items: HostBuffer<u32> = device.host_buffer(ITEMS)?;
///     let mut graph = Graph::new(&device);
///     graph.launch(square(&items), Range::linear(ITEMS));
///     Ok((graph.finalize()?, items))
/// });
/// let batcher = Batcher::new(&pool, ITEMS, async |slot, items: Vec<u32>| {
///     slot.write().await[..items.len()].copy_from_slice(&items);
///     slot.submit().await?;
///     Ok(slot.read().await[..items.len()].to_vec())
/// });
/// let (three, four) = tokio::join!(batcher.call(3), batcher.call(4));
/// assert_eq!((three?, four?), (9, 16));
/// # Ok(())
/// # }
/// ```
pub struct Batcher<I, R> {
    inner: Arc<dyn Batches<I, R>>,
}

/// Options of a [`Batcher`].
#[must_use = "a builder does nothing until `build`"]
pub struct BatcherBuilder<T, I> {
    pool: ExecutablePool<T>,
    limits: Limits<I>,
    queue: usize,
    max_delay: Duration,
}

/// Limits of a batch's contents.
struct Limits<I> {
    items: usize,
    weight: u64,
    weigh: fn(&I) -> u64,
}

impl<T: Send + 'static, I: Send + 'static> BatcherBuilder<T, I> {
    /// The most items in a batch, 64 unless set.
    pub fn max_items(mut self, items: usize) -> Self {
        self.limits.items = items;
        self
    }

    /// The most that the items of a batch weigh together, where `weigh` gives the weight of one:
    /// its tokens, its pixels, its bytes. An item that weighs more than this is refused at once.
    pub fn max_weight(mut self, weight: u64, weigh: fn(&I) -> u64) -> Self {
        (self.limits.weight, self.limits.weigh) = (weight, weigh);
        self
    }

    /// Builds the batcher. `run` runs a batch; see [`Batcher`].
    pub fn build<F, Fut, R>(self, run: F) -> Batcher<I, R>
    where
        F: FnOnce(PoolGuard<T>, Vec<I>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
        R: Send + 'static,
    {
        let Self { pool, limits, queue, max_delay } = self;
        let waiting = ItemQueue { items: FairQueue::default(), is_pulled: false };
        let waiting = Arc::new(WaitingItems { waiting: Mutex::new(waiting), more: Notify::new() });
        Batcher {
            inner: Arc::new(BatcherInner {
                metrics: QueueMetrics::new("batcher", &pool.inner.name),
                pool,
                run,
                limits,
                queue,
                max_delay,
                keys: RandomState::new(),
                waiting,
            }),
        }
    }
}

setters! {
    BatcherBuilder<T, I> {
        /// Sets how many items may wait for a batch, 1,024 unless set.
        queue: usize,
        /// Sets how long a batch that is not full waits for more items once a slot is free: nothing unless
        /// set. Larger batches cost a lone caller that time. Under load there is no need for it,
        /// because items gather while the slots are busy.
        ///
        /// Needs the timer of the tokio runtime, as a [deadline](crate::SubmitBuilder::deadline) does:
        /// calls fail with [`Unavailable`](ErrorKind::Unavailable) without.
        max_delay: Duration,
    }
}

impl<T: Send + 'static> ExecutablePool<T> {
    /// Options of a [`Batcher`] over this pool: how much a batch holds, the length of the queue, a
    /// delay.
    pub fn batcher<I: Send + 'static>(&self) -> BatcherBuilder<T, I> {
        let limits = Limits { items: 64, weight: u64::MAX, weigh: |_| 1 };
        BatcherBuilder { pool: self.clone(), limits, queue: DEFAULT_QUEUE, max_delay: Duration::ZERO }
    }
}

impl<I: Send + 'static, R: Send + 'static> Batcher<I, R> {
    /// A batcher whose batches hold up to `max_items` items. `run` runs a batch. See
    /// [`ExecutablePool::batcher`] for more options.
    pub fn new<T, F, Fut>(pool: &ExecutablePool<T>, max_items: usize, run: F) -> Self
    where
        T: Send + 'static,
        F: FnOnce(PoolGuard<T>, Vec<I>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
    {
        pool.batcher().max_items(max_items).build(run)
    }

    /// Runs an item in the next batch and returns its result.
    ///
    /// Needs a tokio runtime, except where the item does not have to wait for a slot. A task on the runtime
    /// of one caller waits for slots on behalf of all of them. So call on runtimes that are driven all the
    /// time: one that only `block_on` drives now and then holds up the callers of others, and the slot that
    /// the task has been given.
    ///
    /// # Errors
    /// [`Overloaded`](ErrorKind::Overloaded) at once when the queue is full;
    /// [`InvalidSize`](ErrorKind::InvalidSize) at once for an item that no batch can hold; those of
    /// the closure; those of [acquiring](ExecutablePool::acquire) a slot, for every item of the
    /// batch.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before the item is in a batch, the item never is.
    /// Afterwards the batch runs on for its other callers, and the result is dropped. If the item
    /// has the batch for itself, dropping the future drops the future of the closure. A batch whose
    /// callers have all gone before it begins does not run; one that has begun runs to its end.
    pub async fn call(&self, item: I) -> Result<R> {
        self.prepare().call(item).await
    }

    /// Prepares a call with a priority or fairly by key, as [`ExecutablePool::prepare`] does.
    pub fn prepare(&self) -> CallBuilder<'_, I, R> {
        CallBuilder { batcher: self, priority: Priority::Normal, key: 0 }
    }

    /// Returns the number of items that wait for a batch.
    pub fn waiting(&self) -> usize {
        self.inner.waiting()
    }
}

/// A call of a batcher, see [`Batcher::prepare`].
#[must_use = "nothing happens until `call`"]
pub struct CallBuilder<'a, I, R> {
    batcher: &'a Batcher<I, R>,
    priority: Priority,
    key: u64,
}

impl<I: Send + 'static, R: Send + 'static> CallBuilder<'_, I, R> {
    /// Sets the urgency of the item among those that wait for a batch.
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Sets the owner of the item. Owners with items of the same priority in the queue take turns,
    /// however many each has.
    pub fn key(self, key: impl Hash) -> Self {
        Self { key: self.batcher.inner.keys().hash_one(key), ..self }
    }

    /// Calls as [`Batcher::call`] does.
    ///
    /// # Errors
    /// As [`Batcher::call`].
    ///
    /// # Cancel safety
    /// As [`Batcher::call`].
    pub async fn call(self, item: I) -> Result<R> {
        match self.batcher.inner.clone().enter(self.priority, self.key, item)? {
            EnteredItem::Alone(run) => run.await,
            EnteredItem::Waiting(mut waiter) => waiter.result().await,
        }
    }
}

/// Result of an item's entry into a batcher.
enum EnteredItem<I, R> {
    /// It has a slot for itself. The future runs it.
    Alone(BoxFuture<'static, Result<R>>),
    Waiting(ItemWaiter<I, R>),
}

/// A batcher without the types of its pool and closure.
trait Batches<I, R>: Send + Sync {
    fn enter(self: Arc<Self>, priority: Priority, key: u64, item: I) -> Result<EnteredItem<I, R>>;
    fn keys(&self) -> &RandomState;
    fn waiting(&self) -> usize;
}

struct BatcherInner<T, I, R, F> {
    pool: ExecutablePool<T>,
    run: F,
    limits: Limits<I>,
    /// Number of items that may wait.
    queue: usize,
    max_delay: Duration,
    keys: RandomState,
    metrics: QueueMetrics,
    waiting: Arc<WaitingItems<I, R>>,
}

/// The items that wait for a batch.
struct WaitingItems<I, R> {
    waiting: Mutex<ItemQueue<I, R>>,
    /// Notified when an item is added.
    more: Notify,
}

struct ItemQueue<I, R> {
    items: FairQueue<WaitingItem<I, R>>,
    /// Whether a task waits for a slot on their behalf. There is one as long as there are items.
    is_pulled: bool,
}

struct WaitingItem<I, R> {
    item: I,
    weight: u64,
    caller: oneshot::Sender<Result<R>>,
    _tally: Tally,
}

impl<T, I, R, F, Fut> Batches<I, R> for BatcherInner<T, I, R, F>
where
    T: Send + 'static,
    I: Send + 'static,
    R: Send + 'static,
    F: FnOnce(PoolGuard<T>, Vec<I>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
{
    fn enter(self: Arc<Self>, priority: Priority, key: u64, item: I) -> Result<EnteredItem<I, R>> {
        let weight = (self.limits.weigh)(&item);
        if weight > self.limits.weight || self.limits.items == 0 {
            return Err(self.limits.too_large(weight));
        }
        let mut waiting = self.waiting.waiting.lock();
        if waiting.items.is_empty()
            && !waiting.is_pulled
            && self.max_delay.is_zero()
            && let Some(slot) = self.pool.try_made()
        {
            drop(waiting);
            return Ok(EnteredItem::Alone(run_alone(self.run.clone(), slot, item).boxed()));
        }
        if waiting.items.len() >= self.queue {
            self.metrics.refused();
            return Err(Error::new(ErrorKind::Overloaded, "the queue of the batcher is full")
                .help("try again later, or give the pool more slots or the batcher a longer queue"));
        }
        let runtime = tokio::runtime::Handle::try_current();
        let runtime = runtime.map_err(|_| {
            Error::new(ErrorKind::InvalidOperation, "a batch needs a tokio runtime")
                .help("call the batcher inside a runtime")
        })?;
        let (caller, result) = oneshot::channel();
        let item = WaitingItem { item, weight, caller, _tally: self.metrics.waiting() };
        let position = waiting.items.push(priority, key, item);
        let pulls = !std::mem::replace(&mut waiting.is_pulled, true);
        drop(waiting);
        self.waiting.more.notify_one();
        let waiter = ItemWaiter { waiting: self.waiting.clone(), position, result };
        if pulls {
            let puller = Puller { batcher: self, has_ended: false };
            runtime.spawn(puller.pull());
        }
        Ok(EnteredItem::Waiting(waiter))
    }

    fn keys(&self) -> &RandomState {
        &self.keys
    }

    fn waiting(&self) -> usize {
        self.waiting.waiting.lock().items.len()
    }
}

impl<I> Limits<I> {
    fn too_large(&self, weight: u64) -> Error {
        let (why, help) = match (self.items, self.weight) {
            (0, _) => ("no item fits: a batch holds 0 items".into(), "pass at least 1 to `max_items`"),
            (_, limit) => (
                format!("an item of weight {weight} never fits: a batch holds a weight of at most {limit}"),
                "split the item, or pass more to `max_weight`",
            ),
        };
        Error::new(ErrorKind::InvalidSize, why).help(help)
    }
}

/// Runs an item that has a slot for itself.
async fn run_alone<T, I, R, Fut>(
    run: impl FnOnce(PoolGuard<T>, Vec<I>) -> Fut,
    slot: PoolGuard<T>,
    item: I,
) -> Result<R>
where
    T: Send + 'static,
    Fut: Future<Output = Result<Vec<R>>>,
{
    let mut results = run_batch(run, slot, vec![item], 1).await?;
    results.pop().ok_or_else(|| wrong_count(0, 1))
}

/// Runs the closure; its panic becomes an error.
async fn run_batch<T, I, R, Fut>(
    run: impl FnOnce(PoolGuard<T>, Vec<I>) -> Fut,
    slot: PoolGuard<T>,
    items: Vec<I>,
    count: usize,
) -> Result<Vec<R>>
where
    T: Send + 'static,
    Fut: Future<Output = Result<Vec<R>>>,
{
    let results = AssertUnwindSafe(async { run(slot, items).await }).catch_unwind().await;
    let results = results.map_err(|panic| {
        let why = format!("the closure that runs a batch panicked: {}", panics::message(panic));
        Error::new(ErrorKind::HostTaskPanicked, why)
    })??;
    if results.len() == count { Ok(results) } else { Err(wrong_count(results.len(), count)) }
}

fn wrong_count(results: usize, items: usize) -> Error {
    let why = format!("the closure of a batcher returned {results} results for {items} items");
    Error::new(ErrorKind::InvalidSize, why).help("return one result for each item, in their order")
}

/// The task that waits for slots as long as items wait. When its runtime drops it, the items that
/// wait are dropped, and their callers get an error.
struct Puller<T, I, R, F> {
    batcher: Arc<BatcherInner<T, I, R, F>>,
    /// It found no item, so that the next one starts another puller.
    has_ended: bool,
}

impl<T, I, R, F, Fut> Puller<T, I, R, F>
where
    T: Send + 'static,
    I: Send + 'static,
    R: Send + 'static,
    F: FnOnce(PoolGuard<T>, Vec<I>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
{
    async fn pull(mut self) {
        let inner = self.batcher.clone();
        loop {
            let mut slot = inner.pool.acquire_beside_queue().await;
            if slot.is_ok()
                && let Err(error) = inner.gather().await
            {
                slot = Err(error);
            }
            let Some((items, callers)) = inner.next_batch() else {
                self.has_ended = true;
                return;
            };
            match slot {
                Ok(slot) => drop(tokio::spawn(run_and_answer(inner.run.clone(), slot, items, callers))),
                Err(error) => answer(callers, Err(error)),
            }
        }
    }
}

impl<T, I, R, F> Drop for Puller<T, I, R, F> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut waiting = self.batcher.waiting.waiting.lock();
        waiting.is_pulled = false;
        let dropped = std::mem::take(&mut waiting.items);
        drop(waiting);
        drop(dropped);
    }
}

async fn run_and_answer<T, I, R, Fut>(
    run: impl FnOnce(PoolGuard<T>, Vec<I>) -> Fut,
    slot: PoolGuard<T>,
    items: Vec<I>,
    callers: Vec<oneshot::Sender<Result<R>>>,
) where
    T: Send + 'static,
    Fut: Future<Output = Result<Vec<R>>>,
{
    // They may have gone since the batch was put together.
    if callers.iter().all(oneshot::Sender::is_closed) {
        return;
    }
    let results = run_batch(run, slot, items, callers.len()).await;
    answer(callers, results);
}

fn answer<R>(callers: Vec<oneshot::Sender<Result<R>>>, results: Result<Vec<R>>) {
    // A caller that has gone does not want its result. Neither the panic of its result's drop nor that of a
    // waker keeps the others waiting.
    let send = |caller: oneshot::Sender<Result<R>>, result| {
        panics::catch_and_log("a waker or the drop of a result", || drop(caller.send(result)));
    };
    match results {
        Ok(results) => callers.into_iter().zip(results).for_each(|(caller, one)| send(caller, Ok(one))),
        Err(error) => callers.into_iter().for_each(|caller| send(caller, Err(error.clone()))),
    }
}

impl<T, I, R, F> BatcherInner<T, I, R, F> {
    /// The items whose turn it is, as many as one batch holds, and their callers. None ends the
    /// puller.
    #[expect(clippy::type_complexity, reason = "the two lists are used apart")]
    fn next_batch(&self) -> Option<(Vec<I>, Vec<oneshot::Sender<Result<R>>>)> {
        let mut waiting = self.waiting.waiting.lock();
        let (mut items, mut callers, mut left) = (Vec::new(), Vec::new(), self.limits.weight);
        while items.len() < self.limits.items && waiting.items.peek().is_some_and(|next| next.weight <= left)
        {
            let Some(WaitingItem { item, weight, caller, .. }) = waiting.items.pop() else { break };
            left -= weight;
            items.push(item);
            callers.push(caller);
        }
        if items.is_empty() {
            waiting.is_pulled = false;
            return None;
        }
        Some((items, callers))
    }

    /// Waits until the batch is as full as it gets, or its time has passed.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) on a runtime without its timer.
    async fn gather(&self) -> Result<()> {
        if self.max_delay.is_zero() {
            return Ok(());
        }
        let end = Instant::now().checked_add(self.max_delay);
        match select(pin!(self.is_full()), pin!(deadline::passed(end))).await {
            Either::Left(_) => Ok(()),
            Either::Right((timer, _)) => timer,
        }
    }

    /// Waits until there are items for a full batch.
    async fn is_full(&self) {
        loop {
            let is_full = {
                let waiting = self.waiting.waiting.lock();
                let weight = waiting.items.iter().map(|waiting| waiting.weight).fold(0, u64::saturating_add);
                waiting.items.len() >= self.limits.items || weight >= self.limits.weight
            };
            if is_full {
                return;
            }
            self.waiting.more.notified().await;
        }
    }
}

/// A caller whose item waits for a batch or is in one. The item leaves the queue when this is
/// dropped.
struct ItemWaiter<I, R> {
    waiting: Arc<WaitingItems<I, R>>,
    position: Position,
    result: oneshot::Receiver<Result<R>>,
}

impl<I, R> ItemWaiter<I, R> {
    async fn result(&mut self) -> Result<R> {
        (&mut self.result).await.unwrap_or_else(|_| {
            let why = "the tokio runtime of a batch shut down before the batch had ended";
            Err(Error::new(ErrorKind::Cancelled, why))
        })
    }
}

impl<I, R> Drop for ItemWaiter<I, R> {
    fn drop(&mut self) {
        let item = self.waiting.waiting.lock().items.remove(self.position);
        drop(item);
    }
}

impl<I, R> Clone for Batcher<I, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<I: Send + 'static, R: Send + 'static> Debug for Batcher<I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl<T, I> Debug for BatcherBuilder<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatcherBuilder")
            .field("max_items", &self.limits.items)
            .field("max_weight", &self.limits.weight)
            .field("queue", &self.queue)
            .field("max_delay", &self.max_delay)
            .finish_non_exhaustive()
    }
}

impl<I, R> Debug for CallBuilder<'_, I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder").field("priority", &self.priority).finish_non_exhaustive()
    }
}

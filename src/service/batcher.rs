//! Requests that share runs: a batch forms when a slot becomes free.

use std::fmt::{self, Debug};
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wakegraph_hal::{Priority, Result, setters};

use crate::service::batch_run::PoolRunner;
use crate::service::callers::Callers;
use crate::service::deadline::{Deadline, until};
use crate::service::item_queue::{BatchLimits, EnteredItem, ItemAsk, ItemQueue};
use crate::service::pool::{DEFAULT_QUEUE, ExecutablePool};
use crate::service::pool_guard::PoolGuard;

/// Collects the items of many callers into batches, and runs each batch in one slot of a pool.
///
/// A batch forms by pull: when a slot becomes free, it takes the items that wait, up to a
/// [count](BatcherBuilder::max_items) and a [weight](BatcherBuilder::max_weight). So a lone caller
/// never waits for others, and under load batches are as large as they can be. Items of callers
/// that have gone by then are not in it.
///
/// The closure gets the slot and the items, writes them into the slot's host buffer, submits, and
/// returns one result per item, in their order. It runs once for each batch. If it fails or panics,
/// all callers of the batch get the error. It can [see](BatcherBuilder::build_with_callers) whose callers
/// still wait.
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
    queue: Arc<ItemQueue<I, R>>,
}

/// Options of a [`Batcher`].
#[must_use = "a builder does nothing until `build`"]
pub struct BatcherBuilder<T, I> {
    pool: ExecutablePool<T>,
    limits: BatchLimits<I>,
    queue: usize,
    max_delay: Duration,
}

impl<T: Send + 'static, I: Send + 'static> BatcherBuilder<T, I> {
    /// The most items in a batch, 64 unless set.
    pub fn max_items(mut self, items: usize) -> Self {
        self.limits.items = items;
        self
    }

    /// The most that the items of a batch weigh together, where `weigh` gives the weight of one:
    /// its tokens, its pixels, its bytes. An item that weighs more than this is refused at once.
    pub fn max_weight(mut self, weight: u64, weigh: impl Fn(&I) -> u64 + Send + Sync + 'static) -> Self {
        (self.limits.weight, self.limits.weigh) = (weight, Box::new(weigh));
        self
    }

    /// Builds the batcher. `run` runs a batch; see [`Batcher`].
    pub fn build<F, Fut, R>(self, run: F) -> Batcher<I, R>
    where
        F: FnOnce(PoolGuard<T>, Vec<I>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
        R: Send + 'static,
    {
        self.build_with_callers(move |slot, items, _callers| run(slot, items))
    }

    /// Builds the batcher. `run` runs a batch, and can ask who still waits: for work that has several steps,
    /// of which those of an item whose caller has given up can be left out. It returns a result for such an
    /// item all the same.
    ///
    /// ```
    /// use wakegraph::service::{Batcher, Callers, ExecutablePool, PoolGuard};
    /// use wakegraph::{HostBuffer, Result};
    ///
    /// /// One more token of a text.
    /// async fn step(slot: &PoolGuard<HostBuffer<u32>>, text: &mut Vec<u32>) -> Result<()> {
    ///     slot.write().await[0] = text.len() as u32;
    ///     slot.submit().await?;
    ///     text.push(slot.read().await[0]);
    ///     Ok(())
    /// }
    ///
    /// # fn example(pool: &ExecutablePool<HostBuffer<u32>>) -> Batcher<u32, Vec<u32>> {
    /// pool.batcher().build_with_callers(async |slot, prompts: Vec<u32>, callers: Callers| {
    ///     let mut texts: Vec<Vec<u32>> = prompts.into_iter().map(|prompt| vec![prompt]).collect();
    ///     for _ in 0..100 {
    ///         for (item, text) in texts.iter_mut().enumerate() {
    ///             if callers.is_waiting(item) {
    ///                 step(&slot, text).await?;
    ///             }
    ///         }
    ///     }
    ///     Ok(texts)
    /// })
    /// # }
    /// ```
    pub fn build_with_callers<F, Fut, R>(self, run: F) -> Batcher<I, R>
    where
        F: FnOnce(PoolGuard<T>, Vec<I>, Callers) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
        R: Send + 'static,
    {
        let Self { pool, limits, queue, max_delay } = self;
        let name = pool.inner.name.clone();
        let runner = Arc::new(PoolRunner { pool, run });
        Batcher { queue: Arc::new(ItemQueue::new(name, limits, queue, max_delay, runner)) }
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
        /// calls fail with [`Unavailable`](crate::ErrorKind::Unavailable) without.
        max_delay: Duration,
    }
}

impl<T: Send + 'static> ExecutablePool<T> {
    /// Options of a [`Batcher`] over this pool: how much a batch holds, the length of the queue, a
    /// delay.
    pub fn batcher<I: Send + 'static>(&self) -> BatcherBuilder<T, I> {
        let limits = BatchLimits { items: 64, weight: u64::MAX, weigh: Box::new(|_| 1) };
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
    /// [`Overloaded`](crate::ErrorKind::Overloaded) at once when the queue is full;
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) at once for an item that no batch can hold;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) at once when the batcher is [closed](Self::close);
    /// those of the closure; those of [acquiring](ExecutablePool::acquire) a slot, for every item of the
    /// batch.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before the item is in a batch, the item never is.
    /// Afterwards the batch runs on for its other callers, and the result is dropped. A batch whose callers
    /// have all gone is given up: it does not begin, or the future of the closure is dropped, and with it
    /// what has been submitted [`cancel_on_drop`](crate::Submission::cancel_on_drop).
    pub async fn call(&self, item: I) -> Result<R> {
        self.prepare().call(item).await
    }

    /// Prepares a call with a deadline, with a priority or fairly by key, as [`ExecutablePool::prepare`]
    /// does.
    pub fn prepare(&self) -> CallBuilder<'_, I, R> {
        let ask = ItemAsk { priority: Priority::Normal, key: 0, deadline: None };
        CallBuilder { queue: &self.queue, ask }
    }

    /// Returns the number of items that wait for a batch.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Takes no more items: from now on, calls fail with [`Unavailable`](crate::ErrorKind::Unavailable) at
    /// once, for all handles of this batcher. Items that were accepted before get their results.
    pub fn close(&self) {
        self.queue.close();
    }

    /// [Closes](Self::close) the batcher, and waits until all callers have their results, for `limit` at
    /// most. Its batches need slots, so drain a batcher before its pool.
    ///
    /// # Errors
    /// [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) with the number of items and batches that
    /// are left. They go on. [`Unavailable`](crate::ErrorKind::Unavailable) on a tokio runtime without its
    /// timer, if something is left.
    ///
    /// # Cancel safety
    /// The batcher stays closed. Call it again to go on waiting.
    pub async fn drain(&self, limit: Duration) -> Result<()> {
        self.queue.drain(limit).await
    }
}

/// A call of a batcher, see [`Batcher::prepare`].
#[must_use = "nothing happens until `call`"]
pub struct CallBuilder<'a, I, R> {
    queue: &'a Arc<ItemQueue<I, R>>,
    ask: ItemAsk,
}

impl<I: Send + 'static, R: Send + 'static> CallBuilder<'_, I, R> {
    /// Sets the urgency of the item among those that wait for a batch.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.ask.priority = priority;
        self
    }

    /// Sets the owner of the item. Owners with items of the same priority in the queue take turns,
    /// however many each has.
    pub fn key(mut self, key: impl Hash) -> Self {
        self.ask.key = self.queue.keys.hash_one(key);
        self
    }

    /// Sets until when the result is worth anything, as a time of [`std::time`] or of [`tokio::time`].
    ///
    /// The call resolves to [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) then, and the error says
    /// whether the item waited for its batch or was in one. A batch forms without items whose time is over.
    /// One whose callers have all left is given up, as [`call`](Batcher::call) says. If all items of a batch
    /// have deadlines, the last one is also that of what the closure submits; see
    /// [`AcquireBuilder::deadline`](super::AcquireBuilder::deadline).
    pub fn deadline(mut self, at: impl Into<Instant>) -> Self {
        self.ask.deadline = Some(Deadline::at(at));
        self
    }

    /// Calls as [`Batcher::call`] does.
    ///
    /// # Errors
    /// As [`Batcher::call`]. [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) at its
    /// [deadline](Self::deadline), for which a call that has to wait needs the timer of the tokio runtime:
    /// [`Unavailable`](crate::ErrorKind::Unavailable) without.
    ///
    /// # Cancel safety
    /// As [`Batcher::call`].
    pub async fn call(self, item: I) -> Result<R> {
        if self.ask.deadline.is_some_and(|deadline| deadline.has_passed()) {
            return Err(self.queue.late_in_queue());
        }
        let end = self.ask.deadline.map(|deadline| deadline.instant());
        let late_in_batch = || self.queue.late_in_batch();
        match self.queue.enter(&self.ask, item)? {
            EnteredItem::Alone(run, _count) => until(end, run, late_in_batch).await?,
            EnteredItem::Waiting(mut waiter) => match until(end, waiter.answer(), late_in_batch).await {
                Ok(result) => result,
                Err(error) => Err(waiter.give_up(error)),
            },
        }
    }
}

impl<I, R> Clone for Batcher<I, R> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
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
        f.debug_struct("CallBuilder").field("priority", &self.ask.priority).finish_non_exhaustive()
    }
}

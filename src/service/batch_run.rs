//! Batches in the slots of a pool: the task that waits for slots, the runs of batches, and their answers.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, select};
use tokio::runtime::Handle;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::service::callers::{BatchCallers, Callers, LoneCaller};
use crate::service::deadline::Deadline;
use crate::service::item_queue::{Batch, BatchRunner, Caller, ItemQueue, drop_items};
use crate::service::pool::ExecutablePool;
use crate::service::pool_guard::PoolGuard;
use crate::util::panics;

/// Runs batches with a closure of the user's.
pub(super) struct PoolRunner<T, F> {
    pub(super) pool: ExecutablePool<T>,
    pub(super) run: F,
}

impl<T, I, R, F, Fut> BatchRunner<I, R> for PoolRunner<T, F>
where
    T: Send + 'static,
    I: Send + 'static,
    R: Send + 'static,
    F: FnOnce(PoolGuard<T>, Vec<I>, Callers) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
{
    fn run_alone(&self, item: I, deadline: Option<Deadline>) -> Result<BoxFuture<'static, Result<R>>, I> {
        let Some(slot) = self.pool.try_made() else { return Err(item) };
        let (run, slot) = (self.run.clone(), slot.with_deadline(deadline));
        Ok(async move {
            let caller = Arc::new(LoneCaller);
            let mut results = run_batch(|| run(slot, vec![item], caller.view()), 1).await?;
            results.pop().ok_or_else(|| wrong_count(0, 1))
        }
        .boxed())
    }

    fn spawn_puller(self: Arc<Self>, queue: Arc<ItemQueue<I, R>>, runtime: &Handle) {
        let puller = Puller { runner: self, queue, has_ended: false };
        runtime.spawn(puller.pull());
    }
}

/// The task that waits for slots as long as items wait. When its runtime drops it, the items that
/// wait are dropped, and their callers get an error.
struct Puller<T, I, R, F> {
    runner: Arc<PoolRunner<T, F>>,
    queue: Arc<ItemQueue<I, R>>,
    /// It found no item, so that the next one starts another puller.
    has_ended: bool,
}

impl<T, I, R, F, Fut> Puller<T, I, R, F>
where
    T: Send + 'static,
    I: Send + 'static,
    R: Send + 'static,
    F: FnOnce(PoolGuard<T>, Vec<I>, Callers) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<R>>> + Send + 'static,
{
    async fn pull(mut self) {
        loop {
            let mut slot = self.runner.pool.acquire_beside_queue().await;
            if slot.is_ok()
                && let Err(error) = self.queue.gather().await
            {
                slot = Err(error);
            }
            let Some(batch) = self.queue.next_batch() else {
                self.has_ended = true;
                return;
            };
            match slot {
                Ok(slot) => drop(tokio::spawn(run_and_answer(self.runner.run.clone(), slot, batch))),
                Err(error) => {
                    let Batch { items, callers, count: _count, .. } = batch;
                    answer(callers, Err(error));
                    drop_items(items);
                }
            }
        }
    }
}

impl<T, I, R, F> Drop for Puller<T, I, R, F> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.queue.abandon();
        }
    }
}

/// Runs a batch as long as anybody waits for it. When all callers have left, the closure's future is dropped.
async fn run_and_answer<T, I, R, Fut>(
    run: impl FnOnce(PoolGuard<T>, Vec<I>, Callers) -> Fut,
    slot: PoolGuard<T>,
    batch: Batch<I, R>,
) where
    T: Send + 'static,
    R: Send + 'static,
    Fut: Future<Output = Result<Vec<R>>>,
{
    let Batch { count: _count, items, callers, deadline } = batch;
    // They may have gone since the batch was put together.
    if callers.iter().all(Caller::is_closed) {
        return drop_items(items);
    }
    let (count, callers) = (callers.len(), BatchCallers::new(callers));
    let (slot, view) = (slot.with_deadline(deadline), callers.view());
    let results = run_batch(move || run(slot, items, view), count);
    match select(pin!(results), pin!(callers.all_have_left())).await {
        Either::Left((results, _)) => answer(callers.take(), results),
        Either::Right(_) => {}
    }
}

/// Runs the closure for so many items; its panic becomes an error.
async fn run_batch<R, Fut>(run: impl FnOnce() -> Fut, count: usize) -> Result<Vec<R>>
where
    Fut: Future<Output = Result<Vec<R>>>,
{
    let results = AssertUnwindSafe(async { run().await }).catch_unwind().await;
    let results = results.map_err(|panic| {
        let why = format!("the closure that runs a batch panicked: {}", panics::message(panic));
        Error::new(ErrorKind::HostTaskPanicked, why)
    })??;
    if results.len() == count {
        return Ok(results);
    }
    let error = wrong_count(results.len(), count);
    panics::catch_and_log("the drop of results", || drop(results));
    Err(error)
}

fn wrong_count(results: usize, items: usize) -> Error {
    let why = format!("the closure of a batcher returned {results} results for {items} items");
    Error::new(ErrorKind::InvalidSize, why).help("return one result for each item, in their order")
}

fn answer<R>(callers: Vec<Caller<R>>, results: Result<Vec<R>>) {
    // A caller that has gone does not want its result. Neither the panic of its result's drop nor that of a
    // waker keeps the others waiting.
    let send = |caller: Caller<R>, result| {
        panics::catch_and_log("a waker or the drop of a result", || drop(caller.send(result)));
    };
    match results {
        Ok(results) => callers.into_iter().zip(results).for_each(|(caller, one)| send(caller, Ok(one))),
        Err(error) => callers.into_iter().for_each(|caller| send(caller, Err(error.clone()))),
    }
}

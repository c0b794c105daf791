//! Streams whose items each run in a slot of a pool.

use std::future::Future;

use futures::stream::{Stream, StreamExt as _};
use wakegraph_hal::Result;

use crate::service::pool::ExecutablePool;
use crate::service::pool_guard::PoolGuard;

/// Runs each item of a stream in a slot of a pool.
///
/// `depth` bounds the items in flight: those that have a slot or wait for one. They wait for slots
/// beside the pool's queue, which may be full. As with every adaptor of streams, items go on only
/// while the stream is polled. A task that holds items in flight without polling the stream keeps
/// their slots, so it should not wait for a slot of the same pool in between.
///
/// Dropping the stream drops the futures of the items in flight; what they have submitted runs to
/// its end.
///
/// ```
/// use futures::{StreamExt, TryStreamExt, stream};
/// use wakegraph::service::{ExecutablePool, SubmitEach};
/// # use wakegraph::{Graph, HostBuffer, Range, Result};
/// # wakegraph::kernel! {
/// #     fn square(x: &mut [u32]) { item: |i, x| x[i] *= x[i] }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let pool = ExecutablePool::new(2, |slot| {
/// #     let device = slot.device()?;
/// #     let number: HostBuffer<u32> = device.host_buffer(1)?;
/// #     let mut graph = Graph::new(&device);
/// #     graph.launch(square(&number), Range::linear(1));
/// #     Ok((graph.finalize()?, number))
/// # });
/// let squares = stream::iter(1..=4).submit_each(&pool, 2, async |slot, number| {
///     slot.write().await[0] = number;
///     slot.submit().await?;
///     Ok(slot.read().await[0])
/// });
/// assert_eq!(squares.try_collect::<Vec<u32>>().await?, [1, 4, 9, 16]);
/// # Ok(())
/// # }
/// ```
pub trait SubmitEach: Stream + Sized {
    /// Results come in the order of the items.
    fn submit_each<T, F, Fut, R>(
        self,
        pool: &ExecutablePool<T>,
        depth: usize,
        run: F,
    ) -> impl Stream<Item = Result<R>>
    where
        T: Send + 'static,
        F: FnOnce(PoolGuard<T>, Self::Item) -> Fut + Clone,
        Fut: Future<Output = Result<R>>,
    {
        each(self, pool, run).buffered(depth.max(1))
    }

    /// Results come as soon as they are there, in any order.
    fn submit_each_unordered<T, F, Fut, R>(
        self,
        pool: &ExecutablePool<T>,
        depth: usize,
        run: F,
    ) -> impl Stream<Item = Result<R>>
    where
        T: Send + 'static,
        F: FnOnce(PoolGuard<T>, Self::Item) -> Fut + Clone,
        Fut: Future<Output = Result<R>>,
    {
        each(self, pool, run).buffer_unordered(depth.max(1))
    }
}

impl<S: Stream> SubmitEach for S {}

/// For each item a future that runs it.
fn each<S, T, F, Fut, R>(
    items: S,
    pool: &ExecutablePool<T>,
    run: F,
) -> impl Stream<Item = impl Future<Output = Result<R>>>
where
    S: Stream,
    T: Send + 'static,
    F: FnOnce(PoolGuard<T>, S::Item) -> Fut + Clone,
    Fut: Future<Output = Result<R>>,
{
    let pool = pool.clone();
    items.map(move |item| {
        let (pool, run) = (pool.clone(), run.clone());
        async move {
            let slot = pool.acquire_beside_queue().await?;
            run(slot, item).await
        }
    })
}

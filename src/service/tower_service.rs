//! Pools and batchers as services of tower.

use std::fmt::{self, Debug};
use std::future::Future;
use std::task::{Context, Poll, ready};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tower::Service;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::service::batcher::Batcher;
use crate::service::pool::ExecutablePool;
use crate::service::pool_guard::PoolGuard;

/// A [`tower::Service`] that runs each request in a slot of a pool, see
/// [`ExecutablePool::service`].
///
/// `poll_ready` reserves the slot: the service is ready when it has one, so layers such as
/// load-shed and timeout see when there is none. When the pool's queue is full, the service is
/// ready to refuse: the call gives [`Overloaded`](ErrorKind::Overloaded) at once. `poll_ready`
/// fails only while all devices of the pool are lost.
///
/// A clone has no slot reserved. Dropping the service gives a reserved slot back.
pub struct PoolService<T: Send + 'static, F> {
    pool: ExecutablePool<T>,
    handler: F,
    reservation: Reservation<T>,
}

/// Reservation that `poll_ready` obtained.
enum Reservation<T: Send + 'static> {
    None,
    /// The mutex, which is never locked, makes the service `Sync`.
    Waiting(Mutex<BoxFuture<'static, Result<PoolGuard<T>>>>),
    /// A slot, or why this call is refused.
    Ready(Result<PoolGuard<T>>),
}

impl<T: Send + 'static> ExecutablePool<T> {
    /// A [`tower::Service`] that runs `handler` for each request, with a slot. The handler is
    /// cloned for each request.
    ///
    /// ```
    /// use tower::{Service, ServiceExt};
    /// # use wakegraph::service::ExecutablePool;
    /// # use wakegraph::{Error, Graph, HostBuffer, Range, Result};
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
    /// let mut service = pool.service(async |slot, number: u32| -> Result<u32> {
    ///     slot.write().await[0] = number;
    ///     slot.submit().await?;
    ///     Ok(slot.read().await[0])
    /// });
    /// assert_eq!(service.ready().await?.call(5).await?, 25);
    /// # Ok(())
    /// # }
    /// ```
    pub fn service<F, Fut, Request>(&self, handler: F) -> PoolService<T, F>
    where
        F: FnOnce(PoolGuard<T>, Request) -> Fut + Clone,
    {
        PoolService { pool: self.clone(), handler, reservation: Reservation::None }
    }
}

impl<T, F, Fut, Request, R, E> Service<Request> for PoolService<T, F>
where
    T: Send + 'static,
    F: FnOnce(PoolGuard<T>, Request) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    Request: Send + 'static,
    E: From<Error> + 'static,
    R: 'static,
{
    type Response = R;
    type Error = E;
    type Future = BoxFuture<'static, Result<R, E>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        loop {
            match &mut self.reservation {
                Reservation::None => {
                    let pool = self.pool.clone();
                    let waiting = async move { pool.acquire().await }.boxed();
                    self.reservation = Reservation::Waiting(Mutex::new(waiting));
                }
                Reservation::Waiting(waiting) => {
                    let slot = ready!(waiting.get_mut().poll_unpin(cx));
                    self.reservation = Reservation::Ready(slot);
                }
                Reservation::Ready(Err(error))
                    if error.kind() == ErrorKind::DeviceLost && self.pool.status().slots == 0 =>
                {
                    let error = error.clone();
                    // A device may be added: the next poll asks again.
                    self.reservation = Reservation::None;
                    return Poll::Ready(Err(error.into()));
                }
                Reservation::Ready(_) => return Poll::Ready(Ok(())),
            }
        }
    }

    /// A call without `poll_ready` waits for a slot itself.
    fn call(&mut self, request: Request) -> Self::Future {
        let reserved = std::mem::replace(&mut self.reservation, Reservation::None);
        let (pool, handler) = (self.pool.clone(), self.handler.clone());
        let call = async move {
            let slot = match reserved {
                Reservation::Ready(slot) => slot?,
                Reservation::Waiting(waiting) => waiting.into_inner().await?,
                Reservation::None => pool.acquire().await?,
            };
            handler(slot, request).await
        };
        call.boxed()
    }
}

impl<T: Send + 'static, F: Clone> Clone for PoolService<T, F> {
    fn clone(&self) -> Self {
        let (pool, handler) = (self.pool.clone(), self.handler.clone());
        Self { pool, handler, reservation: Reservation::None }
    }
}

impl<T: Send + 'static, F> Debug for PoolService<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolService")
            .field("pool", &self.pool)
            .field("has_slot", &matches!(self.reservation, Reservation::Ready(Ok(_))))
            .finish_non_exhaustive()
    }
}

/// Always ready: a call is refused at once with [`Overloaded`](ErrorKind::Overloaded) when the
/// batcher's queue is full.
impl<I: Send + 'static, R: Send + 'static> Service<I> for Batcher<I, R> {
    type Response = R;
    type Error = Error;
    type Future = BoxFuture<'static, Result<R>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, item: I) -> Self::Future {
        let batcher = self.clone();
        async move { Batcher::call(&batcher, item).await }.boxed()
    }
}

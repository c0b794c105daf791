//! The orderly end of pools, batchers and caches: nothing new is taken, what was accepted has its answer.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use wakegraph::service::{Batcher, ExecutableCache, ExecutablePool};
use wakegraph::{Device, ErrorKind, Graph, HostBuffer, Range, Result};

use crate::common::{Count, PanicsOnDrop, fill, host, manual, poll_once, pool, run, yield_often};
use crate::support::{Hold, must_end};

/// Longer than any test takes.
const DAY: Duration = Duration::from_secs(86_400);

/// Runs a test that must come to its end.
fn run_to_end<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    must_end(|| run(test()));
}

/// A drain that has to wait.
fn pending<F: Future>(drain: F) -> Pin<Box<F>> {
    let mut drain = Box::pin(drain);
    assert!(poll_once(&mut drain).is_pending());
    drain
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_closed_pool_refuses_at_once() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 2);
        drop(pool.acquire().await.unwrap());
        pool.close();
        let closed = Some(ErrorKind::Unavailable);
        assert_eq!(kind(pool.acquire().now_or_never().unwrap()), closed);
        assert_eq!(kind(pool.try_acquire()), closed);
        assert_eq!(kind(pool.warm_up().now_or_never().unwrap()), closed);
        pool.drain(Duration::ZERO).await.unwrap();
    });
}

#[test]
fn accepted_requests_get_their_slots() {
    run_to_end(|| async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let held = pool.acquire().await.unwrap();
        let mut waiting = Box::pin(pool.acquire());
        assert!(poll_once(&mut waiting).is_pending());
        let mut drained = pending(pool.drain(DAY));
        drop(held);
        let slot = waiting.await.unwrap();
        assert!(futures::poll!(&mut drained).is_pending());
        // A run in flight keeps its slot in use.
        drop(slot.submit());
        drop(slot);
        yield_often().await;
        assert!(futures::poll!(&mut drained).is_pending());
        control.complete_all();
        drained.await.unwrap();
    });
}

#[test]
fn a_drain_says_what_is_left_at_its_limit() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let slot = pool.acquire().await.unwrap();
        let mut waiting = Box::pin(pool.acquire());
        assert!(poll_once(&mut waiting).is_pending());
        let error = pool.drain(Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(error.message().contains("requests waiting: 1, slots in use: 1"), "{error}");
        drop(waiting);
        drop(slot);
        pool.drain(Duration::ZERO).await.unwrap();
    });
}

#[test]
fn the_last_request_that_leaves_ends_the_drain() {
    run_to_end(|| async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let held = pool.acquire().await.unwrap();
        let mut waiting = Box::pin(pool.acquire());
        assert!(poll_once(&mut waiting).is_pending());
        let mut drained = pending(pool.drain(DAY));
        // The slot is on its way to a request that never looks.
        drop(held);
        assert!(futures::poll!(&mut drained).is_pending());
        drop(waiting);
        drained.await.unwrap();
    });
}

#[test]
fn the_last_item_that_leaves_ends_the_drain() {
    run_to_end(|| async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let _held = pool.acquire().await.unwrap();
        let batcher = Batcher::new(&pool, 8, async |_slot, items: Vec<u32>| Ok(items));
        let mut call = Box::pin(batcher.call(1));
        assert!(poll_once(&mut call).is_pending());
        let drained = pending(batcher.drain(DAY));
        drop(call);
        drained.await.unwrap();
    });
}

#[test]
fn an_item_whose_drop_panics_holds_no_drain_up() {
    run_to_end(|| async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let _held = pool.acquire().await.unwrap();
        let batcher = Batcher::new(&pool, 8, async |_slot, items: Vec<PanicsOnDrop>| {
            Ok(items.into_iter().map(std::mem::forget).collect::<Vec<()>>())
        });
        let mut call = Box::pin(batcher.call(PanicsOnDrop));
        assert!(poll_once(&mut call).is_pending());
        let drained = pending(batcher.drain(DAY));
        std::panic::catch_unwind(AssertUnwindSafe(|| drop(call))).unwrap_err();
        drained.await.unwrap();
    });
}

#[test]
fn a_closed_batcher_refuses_and_ends_what_it_has() {
    run_to_end(|| async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        pool.warm_up().await.unwrap();
        let batcher = Batcher::new(&pool, 8, async |slot, items: Vec<u32>| {
            slot.submit().await?;
            Ok(items)
        });
        let call = |item| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.call(item).await })
        };
        let calls = [call(1), call(2), call(3)];
        yield_often().await;
        batcher.close();
        assert_eq!(kind(batcher.call(4).now_or_never().unwrap()), Some(ErrorKind::Unavailable));
        let error = batcher.drain(Duration::ZERO).await.unwrap_err();
        assert!(error.message().contains("items waiting: 2, batches running: 1"), "{error}");
        let mut drained = pin!(batcher.drain(DAY));
        while futures::poll!(&mut drained).is_pending() {
            control.complete_all();
            tokio::task::yield_now().await;
        }
        for (call, item) in calls.into_iter().zip(1..) {
            assert_eq!(call.now_or_never().unwrap().unwrap().unwrap(), item);
        }
    });
}

#[test]
fn a_closed_batcher_waits_for_no_full_batch() {
    run_to_end(|| async {
        let (device, _) = manual("fake");
        let batcher = pool(&device, 1).batcher().max_delay(DAY);
        let batcher = batcher.build(async |_slot, items: Vec<u32>| Ok(items));
        let own = batcher.clone();
        let call = tokio::spawn(async move { own.call(7).await });
        yield_often().await;
        batcher.drain(DAY).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap(), 7);
    });
}

#[test]
fn a_closed_cache_refuses_and_waits_for_its_callers() {
    run_to_end(|| async {
        let (device, _) = manual("fake");
        let hold = Hold::new();
        hold.release_one();
        let makes = hold.held();
        let cache = ExecutableCache::new(1000, move |&bytes: &usize| {
            makes.pass();
            Ok((fill(&device, bytes)?, ()))
        });
        let held = cache.get(&8).await.unwrap();
        let mut making = Box::pin(cache.get(&16));
        assert!(poll_once(&mut making).is_pending());
        cache.close();
        assert_eq!(kind(cache.get(&8).await), Some(ErrorKind::Unavailable));
        let error = cache.drain(Duration::ZERO).await.unwrap_err();
        assert!(error.message().contains("wait for one: 2"), "{error}");
        let mut drained = pin!(cache.drain(DAY));
        let clone = held.clone();
        hold.open();
        drop(making.await.unwrap());
        drop(held);
        assert!(futures::poll!(&mut drained).is_pending());
        drop(clone);
        drained.await.unwrap();
    });
}

/// A value that asks its batcher for the items that wait when it is dropped.
struct Asks(Arc<std::sync::OnceLock<Batcher<u32, u32>>>, Count);

impl Drop for Asks {
    fn drop(&mut self) {
        self.0.get().into_iter().for_each(|batcher| _ = batcher.waiting());
        self.1.add_one();
    }
}

#[test]
fn slots_are_dropped_without_the_lock_of_a_batcher() {
    run_to_end(|| async {
        let (device, control) = manual("fake");
        let (own, asked) = (Arc::new(std::sync::OnceLock::new()), Count::default());
        let (asks, count, made) = (own.clone(), asked.clone(), device.clone());
        let pool = ExecutablePool::builder().device(&device, 1);
        let pool = pool.build(move |_| Ok((fill(&made, 4)?, Asks(asks.clone(), count.clone()))));
        pool.warm_up().await.unwrap();
        let batcher = Batcher::new(&pool, 8, async |_slot, items: Vec<u32>| Ok(items));
        assert!(own.set(batcher.clone()).is_ok());
        control.lose_device();
        assert!(device.health().borrow().is_lost());
        // The idle slot is found to be lost when the item looks for one.
        assert_eq!(kind(batcher.call(1).await), Some(ErrorKind::DeviceLost));
        assert_eq!(asked.get(), 1);
    });
}

wakegraph::kernel! {
    fn square(x: &mut [u32]) { item: |i, x| x[i] = x[i].wrapping_mul(x[i]) }
}

fn squares(device: &Device) -> ExecutablePool<HostBuffer<u32>> {
    let device = device.clone();
    ExecutablePool::new(2, move |_| {
        let numbers = device.host_buffer(1)?;
        let mut graph = Graph::new(&device);
        graph.launch(square(&numbers), Range::linear(1));
        Ok((graph.finalize()?, numbers))
    })
}

async fn square_in(pool: &ExecutablePool<HostBuffer<u32>>, number: u32) -> Result<u32> {
    let slot = pool.acquire().await?;
    slot.write().await[0] = number;
    slot.submit().await?;
    Ok(slot.read().await[0])
}

/// A client who asks until the service is closed. Returns the number of answers.
fn client<F: Future<Output = Result<u32>> + Send>(
    ask: impl Fn(u32) -> F + Send + 'static,
    number: u32,
    answers: &Arc<AtomicUsize>,
) -> JoinHandle<()> {
    let answers = answers.clone();
    tokio::spawn(async move {
        loop {
            match ask(number).await {
                Ok(answer) => assert_eq!(answer, number * number),
                Err(error) => return assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
            answers.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    })
}

const CLIENTS: u32 = if cfg!(miri) { 4 } else { 64 };
const ROUNDS: u32 = if cfg!(miri) { 2 } else { 100 };

#[test]
fn every_accepted_request_has_its_answer() {
    must_end(|| {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async {
            let device = host();
            for round in 0..ROUNDS {
                let (pool, answers) = (squares(&device), Arc::new(AtomicUsize::new(0)));
                let batcher = Batcher::new(&pool, 1, async |slot, items: Vec<u32>| {
                    slot.write().await[0] = items[0];
                    slot.submit().await?;
                    Ok(vec![slot.read().await[0]])
                });
                let clients = (0..CLIENTS).map(|number| match number % 2 {
                    0 => {
                        let pool = pool.clone();
                        client(move |number| own(pool.clone(), number), number, &answers)
                    }
                    _ => {
                        let batcher = batcher.clone();
                        client(move |number| batched(batcher.clone(), number), number, &answers)
                    }
                });
                let clients: Vec<_> = clients.collect();
                while answers.load(Ordering::Relaxed) < round as usize {
                    tokio::task::yield_now().await;
                }
                batcher.drain(DAY).await.unwrap();
                pool.drain(DAY).await.unwrap();
                let status = pool.status();
                assert_eq!((status.waiting, status.idle, batcher.waiting()), (0, status.made, 0));
                for client in join_all(clients).await {
                    client.unwrap();
                }
            }
        });
    });
}

async fn own(pool: ExecutablePool<HostBuffer<u32>>, number: u32) -> Result<u32> {
    square_in(&pool, number).await
}

async fn batched(batcher: Batcher<u32, u32>, number: u32) -> Result<u32> {
    batcher.call(number).await
}

#[test]
fn drained_first_a_device_shuts_down_with_all_answers() {
    must_end(|| {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async {
            let device = host();
            let pool = squares(&device);
            let requests: Vec<_> = (0..6).map(|number| tokio::spawn(own(pool.clone(), number))).collect();
            while pool.status().made + pool.status().waiting < 2 {
                tokio::task::yield_now().await;
            }
            pool.drain(DAY).await.unwrap();
            device.shutdown(DAY).await.unwrap();
            for (number, request) in (0..).zip(requests) {
                match request.await.unwrap() {
                    Ok(answer) => assert_eq!(answer, number * number),
                    Err(error) => assert!(error.message().contains("the pool 'pool' is closed"), "{error}"),
                }
            }
        });
    });
}

//! Requests that are worth nothing from a certain time on: in the queue, in a batch, in a run.
//!
//! The clocks of these tests are paused, so the time passes when all tasks wait; but for that of the storm,
//! which asserts what holds whenever a deadline passes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, pending};
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::time::Instant;
use wakegraph::service::{Batcher, ExecutablePool};
use wakegraph::{Error, ErrorKind, Graph};

use crate::common::{Count, PanicsOnDrop, host, manual, poll_once, pool, yield_often};
use crate::deadline_storm::{self, REQUESTS, storm};
use crate::support::must_end;

/// Runs a test whose time passes when all tasks wait.
fn run_paused<F: Future>(test: F) -> F::Output {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[track_caller]
fn assert_late(error: &Error, place: &str) {
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    assert!(error.to_string().contains(place), "{error}");
}

#[test]
fn a_request_that_comes_too_late_takes_no_slot() {
    run_paused(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let late = pool.prepare().deadline(Instant::now()).acquire().await;
        assert_late(&late.unwrap_err(), "waited for a slot");
        assert_eq!((pool.status().made, pool.status().waiting), (0, 0));
        pool.warm_up().await.unwrap();
        assert!(pool.prepare().deadline(far()).acquire().await.is_ok());
    });
}

#[test]
fn a_late_request_leaves_the_queue() {
    run_paused(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let held = pool.acquire().await.unwrap();
        let late = pool.prepare().deadline(soon()).acquire().await.unwrap_err();
        assert_late(&late, "requests waiting: 1, slots in use: 1");
        assert_eq!(pool.status().waiting, 0);
        drop(held);
        assert!(pool.acquire().await.is_ok());
    });
}

#[test]
fn a_late_run_names_the_partition_on_its_device() {
    run_paused(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        pool.warm_up().await.unwrap();
        let slot = pool.prepare().deadline(soon()).acquire().await.unwrap();
        let late = slot.submit().await.unwrap_err();
        assert_late(&late, "is running");
        assert_eq!((late.partition(), late.device()), (Some(0), Some("fake")));
        drop(slot);
        assert_eq!(pool.status().idle, 0, "the device has not let go of it");
        control.complete_all();
        while pool.status().idle == 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_late_host_task_is_named_and_dropped() {
    must_end(|| {
        run_paused(async {
            let (device, control) = manual("fake");
            let pool = ExecutablePool::new(1, move |_| {
                let x = device.buffer::<u32>(4)?;
                let mut graph = Graph::new(&device);
                let task = graph.host_task((), async |()| pending::<()>().await).name("asks").id();
                graph.fill(&x, 1).after([task]);
                Ok((graph.finalize()?, ()))
            });
            pool.warm_up().await.unwrap();
            pool.warm_up().await.unwrap();
            let slot = pool.prepare().deadline(soon()).acquire().await.unwrap();
            let run = slot.submit();
            let event = run.event();
            let late = run.await.unwrap_err();
            assert_late(&late, "asks");
            assert!(late.node().is_some_and(|node| node.contains("host task")), "{late}");
            // Who waits for the end of the run hears the same.
            assert_eq!(event.wait().await.unwrap_err().to_string(), late.to_string());
            drop(slot);
            while pool.status().idle == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(control.pending(), 0, "the fill never started");
        });
    });
}

#[test]
fn a_submission_can_have_an_earlier_deadline_only() {
    run_paused(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        pool.warm_up().await.unwrap();
        let slot = pool.prepare().deadline(soon()).acquire().await.unwrap();
        let earlier = slot.submit_with(|submit| submit.deadline(Instant::now()));
        assert_late(&earlier.await.unwrap_err(), "before this could start");
        assert_eq!(control.pending(), 0);
        let later = slot.submit_with(|submit| submit.deadline(far()));
        assert_late(&later.await.unwrap_err(), "is running");
        let after = slot.submit_with(|submit| submit.deadline(far()));
        assert_late(&after.await.unwrap_err(), "before this could start");
        control.complete_all();
    });
}

#[test]
fn a_run_that_ends_in_time_is_not_late() {
    run_paused(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        pool.warm_up().await.unwrap();
        let slot = pool.prepare().deadline(far()).acquire().await.unwrap();
        let run = tokio::spawn(slot.submit());
        yield_often().await;
        control.complete_all();
        run.await.unwrap().unwrap();
    });
}

/// The items of each batch that has begun.
type Batches = Arc<Mutex<Vec<Vec<u32>>>>;

/// A batcher that notes its batches, over the one slot of a pool.
fn noting(pool: &ExecutablePool<usize>) -> (Batcher<u32, u32>, Batches) {
    let batches = Batches::default();
    let seen = batches.clone();
    let batcher = Batcher::new(pool, 8, async move |slot, items: Vec<u32>| {
        seen.lock().push(items.clone());
        slot.submit().await?;
        Ok(items)
    });
    (batcher, batches)
}

#[test]
fn a_batch_runs_without_items_whose_time_is_over() {
    run_paused(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let (batcher, batches) = noting(&pool);
        let held = pool.acquire().await.unwrap();
        assert_late(&batcher.prepare().deadline(Instant::now()).call(0).await.unwrap_err(), "batch");
        let call = |item, deadline: Option<Instant>| {
            let batcher = batcher.clone();
            tokio::spawn(async move {
                match deadline {
                    Some(at) => batcher.prepare().deadline(at).call(item).await,
                    None => batcher.call(item).await,
                }
            })
        };
        let calls = [call(1, None), call(2, Some(soon())), call(3, Some(far()))];
        yield_often().await;
        // No task of a caller has its turn in between: the batch itself leaves the late one out.
        tokio::time::advance(Duration::from_secs(2)).await;
        drop(held);
        while control.pending() == 0 {
            tokio::task::yield_now().await;
        }
        control.complete_all();
        let [first, late, last] = calls;
        assert_eq!((first.await.unwrap().unwrap(), last.await.unwrap().unwrap()), (1, 3));
        let late = late.await.unwrap().unwrap_err();
        assert_late(&late, "while the item waited for a batch of the pool 'pool'");
        assert_late(&late, "items waiting: 3, batches running: 0");
        assert_eq!(*batches.lock(), [vec![1, 3]]);
    });
}

#[test]
fn a_late_item_may_panic_in_its_drop() {
    must_end(|| {
        run_paused(async {
            let (device, _) = manual("fake");
            let pool = pool(&device, 1);
            let batcher = Batcher::new(&pool, 8, async |_slot, items: Vec<Option<PanicsOnDrop>>| {
                Ok(items.into_iter().map(std::mem::forget).collect::<Vec<()>>())
            });
            let held = pool.acquire().await.unwrap();
            let mut late = Box::pin(batcher.prepare().deadline(soon()).call(Some(PanicsOnDrop)));
            assert!(poll_once(&mut late).is_pending());
            let mut other = Box::pin(batcher.call(None));
            assert!(poll_once(&mut other).is_pending());
            // No caller has its turn in between: the batch itself leaves the late item out.
            tokio::time::advance(Duration::from_secs(2)).await;
            drop(held);
            other.await.unwrap();
            assert_late(&late.await.unwrap_err(), "while the item waited for a batch");
        });
    });
}

#[test]
fn a_late_item_leaves_its_batch_running() {
    run_paused(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let (batcher, _) = noting(&pool);
        let held = pool.acquire().await.unwrap();
        let (early, late) = (batcher.clone(), soon());
        let other = tokio::spawn(async move { early.call(1).await });
        let leaves = batcher.clone();
        let leaves = tokio::spawn(async move { leaves.prepare().deadline(late).call(2).await });
        yield_often().await;
        drop(held);
        assert_late(&leaves.await.unwrap().unwrap_err(), "while the item's batch ran");
        control.complete_all();
        assert_eq!(other.await.unwrap().unwrap(), 1);
    });
}

/// Drops a future's capture and counts it.
struct CountsDrop(Count);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.add_one();
    }
}

#[test]
fn a_batch_whose_callers_have_all_left_is_given_up() {
    run_paused(async {
        let (device, control) = manual("fake");
        let (pool, begun, dropped) = (pool(&device, 1), Count::default(), Count::default());
        let (begins, drops) = (begun.clone(), dropped.clone());
        let batcher = Batcher::new(&pool, 8, async move |slot, items: Vec<u32>| {
            let _dropped = CountsDrop(drops.clone());
            begins.add_one();
            slot.submit().cancel_on_drop().await?;
            pending::<()>().await;
            Ok(items)
        });
        let held = pool.acquire().await.unwrap();
        let calls = (0..3).map(|item| batcher.prepare().deadline(soon()).call(item));
        let all = join_all(calls);
        let giving = async {
            yield_often().await;
            drop(held);
        };
        let (results, ()) = tokio::join!(all, giving);
        results.into_iter().for_each(|result| assert_late(&result.unwrap_err(), "ran"));
        control.complete_all();
        while pool.status().idle == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((begun.get(), dropped.get()), (1, 1));
    });
}

#[test]
fn a_batch_of_many_is_given_up_when_all_have_left() {
    // More than a task may poll without a pause.
    const MANY: u32 = 300;
    run_paused(async {
        let (device, control) = manual("fake");
        let (pool, dropped) = (pool(&device, 1), Count::default());
        let drops = dropped.clone();
        let batcher = pool.batcher().max_items(MANY as usize).build(async move |slot, items: Vec<u32>| {
            let _dropped = CountsDrop(drops.clone());
            slot.submit().cancel_on_drop().await?;
            Ok(items)
        });
        let held = pool.acquire().await.unwrap();
        let calls: Vec<_> = (0..MANY)
            .map(|item| {
                let batcher = batcher.clone();
                tokio::spawn(async move { batcher.call(item).await })
            })
            .collect();
        yield_often().await;
        drop(held);
        while control.pending() == 0 {
            tokio::task::yield_now().await;
        }
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        while dropped.get() == 0 {
            tokio::task::yield_now().await;
        }
        control.complete_all();
    });
}

#[test]
fn no_kernel_runs_for_a_request_that_was_given_up() {
    must_end(|| {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async { storm(&deadline_storm::pool(&host()), 0..REQUESTS).await });
    });
}

#[test]
fn a_far_deadline_needs_no_timer_where_nothing_waits() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let at = Instant::now() + Duration::from_secs(3600);
        pool.warm_up().await.unwrap();
        let slot = pool.prepare().deadline(at).acquire().await.unwrap();
        let run = slot.submit();
        control.complete_all();
        run.await.unwrap();
        let waits = pool.prepare().deadline(at).acquire().await;
        assert_eq!(waits.unwrap_err().kind(), ErrorKind::Unavailable);
        drop(slot);
    });
}

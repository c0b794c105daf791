//! When batches form, what is in them, and who gets which result.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use wakegraph::service::{Batcher, Callers, ExecutablePool, PoolGuard, Priority};
use wakegraph::testing::FakeControl;
use wakegraph::{Error, ErrorKind, Graph, HostBuffer, Range, Result};

use crate::common::{Count, host, manual, poll_once, pool, run, yield_often};
use crate::support::must_end;

/// A batcher over one slot of a device that the test controls. Returns each item, times ten.
struct Manual {
    batcher: Batcher<u32, u32>,
    pool: ExecutablePool<usize>,
    control: FakeControl,
    batches: Arc<Mutex<Vec<Vec<u32>>>>,
}

impl Manual {
    fn new(max_items: usize, queue: usize) -> Self {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let batches = Arc::new(Mutex::new(Vec::new()));
        let seen = batches.clone();
        let batcher =
            pool.batcher().max_items(max_items).queue(queue).max_weight(100, |&item: &u32| item.into());
        let batcher = batcher.build(async move |slot, items: Vec<u32>| {
            seen.lock().push(items.clone());
            slot.submit().await?;
            Ok(items.into_iter().map(|item| item * 10).collect())
        });
        Self { batcher, pool, control, batches }
    }

    /// Starts a call whose batch is on the device, so that later calls wait.
    async fn occupy(&self) -> tokio::task::JoinHandle<Result<u32>> {
        self.pool.warm_up().await.unwrap();
        let call = self.call(0);
        yield_often().await;
        assert_eq!(self.control.pending(), 1);
        call
    }

    fn call(&self, item: u32) -> tokio::task::JoinHandle<Result<u32>> {
        let batcher = self.batcher.clone();
        tokio::spawn(async move { batcher.call(item).await })
    }
}

#[test]
fn a_batch_forms_when_a_slot_becomes_free() {
    run(async {
        let manual = Manual::new(3, 100);
        let first = manual.occupy().await;
        let calls: Vec<_> = (1..=7).map(|item| manual.call(item)).collect();
        yield_often().await;
        assert_eq!((manual.batches.lock().len(), manual.batcher.waiting()), (1, 7));
        for _ in 0..4 {
            manual.control.complete_all();
            yield_often().await;
        }
        assert_eq!(*manual.batches.lock(), [vec![0], vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
        assert_eq!(first.await.unwrap().unwrap(), 0);
        for (call, item) in calls.into_iter().zip(1..) {
            assert_eq!(call.await.unwrap().unwrap(), item * 10);
        }
    });
}

#[test]
fn a_lone_call_runs_in_the_task_of_its_caller() {
    run(async {
        let manual = Manual::new(8, 100);
        manual.pool.warm_up().await.unwrap();
        // Polled by hand: no other task of the runtime has its turn.
        let mut call = Box::pin(manual.batcher.call(7));
        assert!(poll_once(&mut call).is_pending());
        assert_eq!((manual.control.pending(), manual.batcher.waiting()), (1, 0));
        manual.control.complete_all();
        assert_eq!(call.now_or_never().unwrap().unwrap(), 70);
    });
}

#[test]
fn a_batch_is_bounded_by_weight() {
    run(async {
        let manual = Manual::new(100, 100);
        let first = manual.occupy().await;
        let calls: Vec<_> = [60, 40, 1, 99, 100].map(|item| manual.call(item)).into();
        for _ in 0..5 {
            yield_often().await;
            manual.control.complete_all();
        }
        for call in calls.into_iter().chain([first]) {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*manual.batches.lock(), [vec![0], vec![60, 40], vec![1, 99], vec![100]]);
    });
}

/// huggingface/text-embeddings-inference #723: such an item went round for ever.
#[test]
fn an_item_larger_than_a_batch_is_an_error() {
    run(async {
        let manual = Manual::new(4, 100);
        let first = manual.occupy().await;
        let error = manual.batcher.call(101).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
        let next = manual.call(100);
        yield_often().await;
        manual.control.complete_all();
        yield_often().await;
        manual.control.complete_all();
        assert_eq!((first.await.unwrap().unwrap(), next.await.unwrap().unwrap()), (0, 1000));
        // The same without a limit of weight, where no batch holds anything.
        let none = Batcher::new(&manual.pool, 0, async |_slot, items: Vec<u32>| Ok(items));
        assert_eq!(none.call(1).await.unwrap_err().kind(), ErrorKind::InvalidSize);
    });
}

/// huggingface/text-embeddings-inference #470, #811: a full queue panicked.
#[test]
fn a_full_queue_is_an_error_at_once() {
    run(async {
        let manual = Manual::new(2, 3);
        let first = manual.occupy().await;
        let waiting: Vec<_> = (1..=3).map(|item| manual.call(item)).collect();
        yield_often().await;
        for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
            let error = manual.batcher.call(4).now_or_never().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Overloaded);
        }
        for _ in 0..3 {
            manual.control.complete_all();
            yield_often().await;
        }
        first.await.unwrap().unwrap();
        for call in waiting {
            call.await.unwrap().unwrap();
        }
        let after = manual.call(5);
        yield_often().await;
        manual.control.complete_all();
        assert_eq!(after.await.unwrap().unwrap(), 50);
    });
}

/// huggingface/text-embeddings-inference #662, #726: the routes for one item and for many answered
/// differently.
#[test]
fn every_way_in_answers_overload_alike() {
    run(async {
        let manual = Manual::new(2, 1);
        let _first = manual.occupy().await;
        let _waiting = manual.call(1);
        yield_often().await;
        let many = join_all((2..6).map(|item| manual.batcher.call(item))).now_or_never().unwrap();
        let mut errors: Vec<Error> = many.into_iter().map(Result::unwrap_err).collect();
        errors.push(manual.batcher.prepare().priority(Priority::High).call(7).await.unwrap_err());
        errors.push(manual.pool.try_acquire().unwrap_err());
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Overloaded), "{errors:?}");
    });
}

/// vllm #54947, #6975; ort #136: what no caller waits for any more was computed.
#[test]
fn callers_that_have_gone_are_left_out() {
    run(async {
        let manual = Manual::new(8, 4);
        let first = manual.occupy().await;
        let calls: Vec<_> = (1..=4).map(|item| manual.call(item)).collect();
        yield_often().await;
        calls[0].abort();
        calls[2].abort();
        yield_often().await;
        assert_eq!(manual.batcher.waiting(), 2);
        manual.control.complete_all();
        yield_often().await;
        manual.control.complete_all();
        first.await.unwrap().unwrap();
        for (call, item) in calls.into_iter().zip(1..) {
            match item {
                1 | 3 => assert!(call.await.unwrap_err().is_cancelled()),
                _ => assert_eq!(call.await.unwrap().unwrap(), item * 10),
            }
        }
        assert_eq!(*manual.batches.lock(), [vec![0], vec![2, 4]]);
    });
}

#[test]
fn nothing_is_computed_if_all_have_gone() {
    run(async {
        let manual = Manual::new(8, 4);
        let first = manual.occupy().await;
        manual.call(1).abort();
        let call = manual.call(2);
        yield_often().await;
        call.abort();
        yield_often().await;
        manual.control.complete_all();
        first.await.unwrap().unwrap();
        yield_often().await;
        assert_eq!((manual.control.pending(), manual.batches.lock().len()), (0, 1));
        assert_eq!(manual.pool.status().idle, 1);
        let next = manual.call(3);
        yield_often().await;
        manual.control.complete_all();
        assert_eq!(next.await.unwrap().unwrap(), 30);
    });
}

/// A call that goes when this is cloned, as the closure of a batcher is once a batch is put together.
#[derive(Default)]
struct Leaving(Arc<Mutex<Option<BoxFuture<'static, Result<u32>>>>>);

impl Clone for Leaving {
    fn clone(&self) -> Self {
        let call = self.0.lock().take();
        drop(call);
        Self(self.0.clone())
    }
}

#[test]
fn a_batch_whose_callers_have_all_gone_does_not_run() {
    run(async {
        let (device, control) = manual("fake");
        let (pool, begun, leaving) = (pool(&device, 1), Count::default(), Leaving::default());
        let (count, call) = (begun.clone(), leaving.0.clone());
        let batcher = Batcher::new(&pool, 8, async move |slot, items: Vec<u32>| {
            let _leaving = &leaving;
            count.add_one();
            slot.submit().await?;
            Ok(items)
        });
        let mut only = async move { batcher.call(1).await }.boxed();
        assert!(poll_once(&mut only).is_pending());
        *call.lock() = Some(only);
        while call.lock().is_some() || pool.status().idle == 0 {
            assert_eq!(begun.get(), 0);
            tokio::task::yield_now().await;
        }
        assert_eq!((begun.get(), control.pending()), (0, 0));
    });
}

#[test]
fn a_caller_that_leaves_a_running_batch_harms_nobody() {
    run(async {
        let manual = Manual::new(8, 4);
        let first = manual.occupy().await;
        let (leaves, stays) = (manual.call(1), manual.call(2));
        yield_often().await;
        manual.control.complete_all();
        yield_often().await;
        assert_eq!(manual.batches.lock().len(), 2);
        leaves.abort();
        yield_often().await;
        manual.control.complete_all();
        assert_eq!(stays.await.unwrap().unwrap(), 20);
        first.await.unwrap().unwrap();
        yield_often().await;
        assert_eq!(manual.pool.status().idle, 1);
    });
}

#[test]
fn a_lone_caller_that_leaves_gives_its_slot_back() {
    run(async {
        let manual = Manual::new(8, 4);
        let first = manual.occupy().await;
        first.abort();
        yield_often().await;
        assert_eq!(manual.pool.status().idle, 0);
        manual.control.complete_all();
        while manual.pool.status().idle == 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_failed_batch_fails_all_its_callers() {
    run(async {
        let manual = Manual::new(8, 4);
        let first = manual.occupy().await;
        let calls = [manual.call(1), manual.call(2)];
        yield_often().await;
        manual.control.complete_all();
        first.await.unwrap().unwrap();
        yield_often().await;
        manual.control.fail_next(Error::new(ErrorKind::Driver, "fails"));
        manual.control.complete_all();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::Driver);
        }
        let next = manual.call(3);
        while manual.control.pending() == 0 {
            tokio::task::yield_now().await;
        }
        manual.control.complete_all();
        assert_eq!(next.await.unwrap().unwrap(), 30);
    });
}

#[test]
fn a_panic_or_a_wrong_count_is_an_error_for_the_batch() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        pool.warm_up().await.unwrap();
        let batcher = Batcher::new(&pool, 4, async |_slot, items: Vec<u32>| match items[0] {
            0 => panic!("an expected panic"),
            1 => Ok(vec![1, 1]),
            2 => Ok(Vec::new()),
            _ => Ok(items),
        });
        for (item, expected) in [
            (0, Some(ErrorKind::HostTaskPanicked)),
            (1, Some(ErrorKind::InvalidSize)),
            (2, Some(ErrorKind::InvalidSize)),
            (3, None),
        ] {
            assert_eq!(batcher.call(item).await.err().map(|error| error.kind()), expected, "{item}");
        }
        assert_eq!(pool.status().idle, 1);
    });
}

struct PanicsOnWake;

impl Wake for PanicsOnWake {
    fn wake(self: Arc<Self>) {
        panic!("on purpose")
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_caller_waiting() {
    run(async {
        let manual = Manual::new(8, 10);
        let first = manual.occupy().await;
        let mut faulty = Box::pin(manual.batcher.call(1));
        let waker = Waker::from(Arc::new(PanicsOnWake));
        assert!(faulty.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let mut other = Box::pin(manual.batcher.call(2));
        assert!(poll_once(&mut other).is_pending());
        manual.control.complete_all();
        assert!(first.await.unwrap().is_ok());
        yield_often().await;
        manual.control.complete_all();
        yield_often().await;
        assert_eq!((faulty.await.unwrap(), other.await.unwrap()), (10, 20));
    });
}

#[test]
fn a_delay_needs_a_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (device, _control) = manual("fake");
        let batcher = pool(&device, 1).batcher().max_delay(Duration::from_millis(1));
        let batcher = batcher.build(async |_slot, items: Vec<u32>| Ok(items));
        assert_eq!(batcher.call(1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn a_delay_keeps_no_slot_for_callers_that_have_gone() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        pool.warm_up().await.unwrap();
        let batcher = pool.batcher().max_delay(Duration::from_secs(86_400));
        let batcher = batcher.build(async |_slot, items: Vec<u32>| Ok(items));
        let mut call = Box::pin(batcher.call(1));
        assert!(poll_once(&mut call).is_pending());
        while pool.status().idle > 0 {
            tokio::task::yield_now().await;
        }
        yield_often().await;
        drop(call);
        yield_often().await;
        assert_eq!((batcher.waiting(), pool.status().idle), (0, 1));
    });
}

#[test]
fn a_lost_device_resolves_all_callers() {
    run(async {
        let manual = Manual::new(2, 100);
        let first = manual.occupy().await;
        let calls: Vec<_> = (1..=5).map(|item| manual.call(item)).collect();
        yield_often().await;
        manual.control.lose_device();
        for call in calls.into_iter().chain([first]) {
            assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::DeviceLost);
        }
        assert_eq!(manual.batcher.call(1).await.unwrap_err().kind(), ErrorKind::DeviceLost);
    });
}

#[test]
fn a_runtime_that_shuts_down_resolves_callers_elsewhere() {
    let manual = Manual::new(4, 100);
    let (batcher, other) =
        (manual.batcher.clone(), tokio::runtime::Builder::new_current_thread().build().unwrap());
    let mut call = Box::pin(batcher.call(1));
    run(async {
        let _first = manual.occupy().await;
        assert!(poll_once(&mut call).is_pending());
        yield_often().await;
    });
    assert_eq!(other.block_on(call).unwrap_err().kind(), ErrorKind::Cancelled);
    // A later call starts anew.
    manual.control.complete_all();
    let next = run(async {
        let next = manual.call(3);
        while manual.control.pending() == 0 {
            tokio::task::yield_now().await;
        }
        manual.control.complete_all();
        next.await.unwrap()
    });
    assert_eq!(next.unwrap(), 30);
}

#[test]
fn a_call_of_an_ended_runtime_takes_no_item_away() {
    let (device, _) = manual("fake");
    let pool = pool(&device, 1);
    let batcher = Batcher::new(&pool, 8, async |_slot, items: Vec<u32>| Ok(items));
    let held = run(async { pool.acquire().await.unwrap() });
    let mut ended = Box::pin(batcher.call(1));
    // The task that waits for a slot ends with this runtime.
    run(async { assert!(poll_once(&mut ended).is_pending()) });
    assert_eq!(batcher.waiting(), 0);
    run(async {
        let mut next = Box::pin(batcher.call(2));
        assert!(poll_once(&mut next).is_pending());
        drop(ended);
        assert_eq!(batcher.waiting(), 1);
        drop(held);
        assert_eq!(next.await.unwrap(), 2);
    });
}

#[test]
fn a_delay_waits_for_a_full_batch() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let batches = Count::default();
        let count = batches.clone();
        let day = std::time::Duration::from_secs(86_400);
        let batcher =
            pool.batcher().max_items(3).max_delay(day).build(async move |_slot, items: Vec<u32>| {
                count.add_one();
                Ok(items)
            });
        let results = join_all((0..6).map(|item| batcher.call(item))).await;
        assert_eq!(results.into_iter().collect::<Result<Vec<_>>>().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(batches.get(), 2);
    });
}

wakegraph::kernel! {
    fn square(x: &mut [u32]) { item: |i, x| x[i] = x[i].wrapping_mul(x[i]) }
}

#[test]
fn results_of_a_storm_are_right() {
    const ITEMS: usize = 16;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let device = host();
        let pool = ExecutablePool::new(2, move |_| {
            let numbers: HostBuffer<u32> = device.host_buffer(ITEMS)?;
            let mut graph = Graph::new(&device);
            graph.launch(square(&numbers), Range::linear(ITEMS));
            Ok((graph.finalize()?, numbers))
        });
        let computed = Count::default();
        let count = computed.clone();
        let batcher = pool.batcher().max_items(ITEMS).queue(usize::MAX);
        let batcher = batcher.build(async move |slot, items: Vec<u32>| {
            for _ in &items {
                count.add_one();
            }
            slot.write().await[..items.len()].copy_from_slice(&items);
            slot.submit().await?;
            Ok(slot.read().await[..items.len()].to_vec())
        });
        let mut survivors = Vec::new();
        const CALLS: u32 = if cfg!(miri) { 60 } else { 20_000 };
        for number in 0..CALLS {
            let batcher = batcher.clone();
            let call = tokio::spawn(async move { batcher.call(number).await });
            match number % 4 {
                0 => survivors.push((number, call)),
                1 => call.abort(),
                2 => {
                    tokio::task::yield_now().await;
                    call.abort();
                }
                _ => drop(call),
            }
        }
        for (number, call) in survivors {
            assert_eq!(call.await.unwrap().unwrap(), number * number);
        }
        while batcher.waiting() > 0 || pool.status().idle < pool.status().made {
            tokio::task::yield_now().await;
        }
        assert!(computed.get() <= CALLS as usize);
    });
}

#[test]
fn a_batch_sees_which_callers_have_left() {
    must_end(|| {
        run(async {
            let (device, control) = manual("fake");
            let pool = pool(&device, 1);
            pool.warm_up().await.unwrap();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let sees = seen.clone();
            let batcher = pool.batcher().build_with_callers(
                async move |slot: PoolGuard<usize>, items: Vec<u32>, callers: Callers| {
                    let note =
                        || sees.lock().push((0..4).map(|item| callers.is_waiting(item)).collect::<Vec<_>>());
                    note();
                    slot.submit().await?;
                    note();
                    Ok(items)
                },
            );
            let alone = tokio::spawn({
                let batcher = batcher.clone();
                async move { batcher.call(0).await }
            });
            yield_often().await;
            let call = |item| Box::pin(batcher.call(item));
            let (mut stays, mut leaves, mut stays_too) = (call(1), call(2), call(3));
            for call in [&mut stays, &mut leaves, &mut stays_too] {
                assert!(poll_once(call).is_pending());
            }
            control.complete_all();
            assert_eq!(alone.await.unwrap().unwrap(), 0);
            yield_often().await;
            drop(leaves);
            control.complete_all();
            assert_eq!((stays.await.unwrap(), stays_too.await.unwrap()), (1, 3));
            let (one, all) = ([true, false, false, false], [true, true, true, false]);
            assert_eq!(*seen.lock(), [one, one, all, [true, false, true, false]]);
        });
    });
}

#[test]
fn work_that_outlives_its_batch_sees_nobody_wait() {
    must_end(|| {
        let (kept, keeps) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let keep = keeps.clone();
        let (device, _control) = manual("fake");
        let pool = pool(&device, 1);
        let batcher = pool.batcher().build_with_callers(
            async move |_slot: PoolGuard<usize>, items: Vec<u32>, callers: Callers| {
                *keep.lock() = Some(callers);
                std::future::pending::<()>().await;
                Ok(items)
            },
        );
        let mut call = Box::pin({
            let batcher = batcher.clone();
            async move { batcher.call(1).await }
        });
        run(async {
            assert!(poll_once(&mut call).is_pending());
            while keeps.lock().is_none() {
                tokio::task::yield_now().await;
            }
            let callers = keeps.lock().take().unwrap();
            assert!(callers.is_waiting(0) && !callers.is_waiting(1));
            *kept.lock() = Some(callers);
        });
        // The runtime of the batch is gone.
        assert!(run(call).is_err());
        assert!(!kept.lock().as_ref().unwrap().is_waiting(0));
    });
}

#[test]
fn nobody_waits_for_an_item_that_ran_alone_and_has_left() {
    must_end(|| {
        run(async {
            let (device, _control) = manual("fake");
            let pool = pool(&device, 1);
            pool.warm_up().await.unwrap();
            let kept = Arc::new(Mutex::new(None));
            let keep = kept.clone();
            let batcher = pool.batcher().build_with_callers(
                async move |_slot: PoolGuard<usize>, items: Vec<u32>, callers: Callers| {
                    *keep.lock() = Some(callers);
                    std::future::pending::<()>().await;
                    Ok(items)
                },
            );
            let mut call = Box::pin(batcher.call(1));
            assert!(poll_once(&mut call).is_pending());
            let callers = kept.lock().take().unwrap();
            assert!(callers.is_waiting(0));
            drop(call);
            assert!(!callers.is_waiting(0));
        });
    });
}

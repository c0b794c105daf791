//! The limit of a pool's device memory.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use wakegraph::service::ExecutablePool;
use wakegraph::{Buffer, ErrorKind, Graph};

use crate::common::{Count, fill, manual, poll_once, run};
use crate::support::{Hold, must_end};

#[test]
fn as_many_slots_are_made_as_fit() {
    run(async {
        let (device, _) = manual("fake");
        let pool = ExecutablePool::builder()
            .slots(10)
            .memory_limit(3500)
            .build(move |slot| Ok((fill(&device, 1000)?, slot.index())));
        pool.warm_up().await.unwrap();
        assert_eq!((pool.status().made, pool.status().device_memory), (3, 3000));
        let mut slots = Vec::new();
        for _ in 0..3 {
            slots.push(pool.acquire().await.unwrap());
        }
        let mut fourth = Box::pin(pool.acquire());
        assert!(poll_once(&mut fourth).is_pending());
        slots.pop();
        assert!(poll_once(&mut fourth).is_ready());
    });
}

#[test]
fn shared_weights_count_once() {
    run(async {
        let (device, _) = manual("fake");
        let weights = device.buffer::<u8>(1000).unwrap();
        let pool = ExecutablePool::builder().slots(10).memory_limit(1500).build(move |slot| {
            let mut graph = Graph::new(&device);
            graph.copy(&weights.slice(..100)?, &device.buffer::<u8>(100)?);
            Ok((graph.finalize()?, slot.index()))
        });
        pool.warm_up().await.unwrap();
        assert_eq!((pool.status().made, pool.status().device_memory), (5, 1500));
    });
}

#[test]
fn scratch_memory_counts() {
    run(async {
        let (device, _) = manual("fake");
        let pool = ExecutablePool::builder().slots(1).build(move |slot| {
            let mut graph = Graph::new(&device);
            let scratch = graph.scratch::<u8>(4096)?;
            graph.fill(&scratch, 1);
            Ok((graph.finalize()?, slot.index()))
        });
        pool.warm_up().await.unwrap();
        assert_eq!(pool.status().device_memory, 4096);
    });
}

#[test]
fn a_slot_that_can_never_fit_is_an_error() {
    run(async {
        let (device, _) = manual("fake");
        let pool = ExecutablePool::builder()
            .slots(2)
            .memory_limit(999)
            .build(move |slot| Ok((fill(&device, 1000)?, slot.index())));
        for _ in 0..2 {
            let error = pool.acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        }
        assert_eq!(pool.status().device_memory, 0);
    });
}

#[test]
fn a_larger_slot_than_expected_waits_for_another() {
    run(async {
        let (device, _) = manual("fake");
        let pool = ExecutablePool::builder().slots(2).memory_limit(2500).build(move |slot| {
            let bytes = [1000, 2000][slot.index()];
            Ok((fill(&device, bytes)?, slot.index()))
        });
        let first = pool.acquire().await.unwrap();
        let mut second = Box::pin(pool.acquire());
        while pool.status().waiting == 0 {
            assert!(poll_once(&mut second).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.status().device_memory, 1000);
        drop(first);
        let Poll::Ready(second) = poll_once(&mut second) else { panic!("the first slot is free") };
        assert_eq!(*second.unwrap(), 0);
    });
}

/// A pool of which only one slot fits. Each slot uses memory that there was before the pool.
fn of_older_memory(slots: usize, queue: usize, hold: &Hold) -> (ExecutablePool<usize>, Count) {
    let ((device, _), held) = (manual("fake"), hold.held());
    let buffers: Vec<Buffer<u8>> = (0..slots).map(|_| device.buffer(60).unwrap()).collect();
    let (made, pool) = (Count::default(), ExecutablePool::builder().device(&device, slots).queue(queue));
    let count = made.clone();
    let pool = pool.memory_limit(100).build(move |slot| {
        held.pass();
        count.add_one();
        let mut graph = Graph::new(&slot.device()?);
        graph.fill(&buffers[slot.index()], 1);
        Ok((graph.finalize()?, slot.index()))
    });
    (pool, made)
}

#[test]
fn a_slot_that_does_not_fit_is_made_once() {
    must_end(|| {
        let hold = Hold::new();
        hold.open();
        let (pool, made) = of_older_memory(4, 10, &hold);
        let first = pool.try_acquire().unwrap();
        for _ in 0..3 {
            assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::Overloaded);
        }
        assert_eq!((made.get(), pool.status().device_memory), (2, 60));
        drop(first);
        assert_eq!(*pool.try_acquire().unwrap(), 0);
    });
}

/// A waker that notes that it was called.
#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_request_that_looks_for_another_slot_holds_a_drain_up() {
    must_end(|| {
        run(async {
            let hold = Hold::new();
            hold.release_one();
            let (pool, _) = of_older_memory(2, 1, &hold);
            let first = pool.acquire().await.unwrap();
            let (called, mut request) = (Arc::new(Called::default()), Box::pin(pool.acquire()));
            let waker = Waker::from(called.clone());
            assert!(request.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            drop(first);
            hold.open();
            while !called.0.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // Its slot does not fit, and it has not looked yet.
            let mut drained = pin!(pool.drain(Duration::from_secs(86_400)));
            assert!(futures::poll!(&mut drained).is_pending());
            drop(request.await.unwrap());
            drained.await.unwrap();
        });
    });
}

#[test]
fn a_request_whose_slot_does_not_fit_keeps_its_turn() {
    must_end(|| {
        run(async {
            let hold = Hold::new();
            hold.release_one();
            let (pool, made) = of_older_memory(2, 1, &hold);
            let first = pool.acquire().await.unwrap();
            let (mut early, mut late) = (Box::pin(pool.acquire()), Box::pin(pool.acquire()));
            assert!(poll_once(&mut early).is_pending());
            assert!(poll_once(&mut late).is_pending());
            assert_eq!(pool.acquire().await.unwrap_err().kind(), ErrorKind::Overloaded);
            // The early request comes back from making its slot although the queue is full.
            hold.open();
            while pool.status().waiting < 2 {
                assert!(poll_once(&mut early).is_pending());
                tokio::task::yield_now().await;
            }
            drop(first);
            assert!(poll_once(&mut late).is_pending());
            let Poll::Ready(early) = poll_once(&mut early) else { panic!("the first slot is free") };
            drop(early.unwrap());
            assert!(poll_once(&mut late).is_ready());
            assert_eq!(made.get(), 2);
        });
    });
}

//! The limit of a pool's device memory.

use std::task::Poll;

use wakegraph::service::ExecutablePool;
use wakegraph::{ErrorKind, Graph};

use crate::common::{fill, manual, poll_once, run};

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

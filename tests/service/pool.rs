//! Who gets a slot of a pool, and when.

use std::sync::Arc;
use std::task::Poll;

use futures::FutureExt as _;
use parking_lot::Mutex;
use wakegraph::service::{ExecutablePool, Priority};
use wakegraph::{Error, ErrorKind, Fault, Graph};

use crate::common::{Count, fill, manual, poll_once, pool, run, yield_often};
use crate::support::{block_on, must_end};

#[test]
fn slots_are_made_when_they_are_needed() {
    run(async {
        let (device, _) = manual("fake");
        let made = Count::default();
        let count = made.clone();
        let pool = ExecutablePool::new(3, move |slot| {
            count.add_one();
            Ok((fill(&device, 4)?, slot.index()))
        });
        assert_eq!((made.get(), pool.status().made), (0, 0));
        for _ in 0..3 {
            assert_eq!(*pool.acquire().await.unwrap(), 0);
        }
        assert_eq!((made.get(), pool.status().made), (1, 1));
        let both = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        assert_eq!((*both.0, *both.1), (0, 1));
        assert_eq!(made.get(), 2);
        drop(both);
        pool.warm_up().await.unwrap();
        assert_eq!((made.get(), pool.status().made, pool.status().idle), (3, 3, 3));
        pool.warm_up().await.unwrap();
        assert_eq!(made.get(), 3);
    });
}

#[test]
fn a_free_slot_is_taken_without_waiting() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let first = pool.try_acquire().unwrap();
        let error = pool.try_acquire().unwrap_err();
        assert_eq!((error.kind(), error.fault()), (ErrorKind::Overloaded, Fault::Environment));
        assert!(!error.message().contains("queue"), "nothing waits: {error}");
        drop(first);
        assert!(pool.acquire().now_or_never().unwrap().is_ok());
    });
}

#[test]
fn requests_wait_in_the_order_of_arrival() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let first = pool.acquire().await.unwrap();
        let (mut second, mut third) = (Box::pin(pool.acquire()), Box::pin(pool.acquire()));
        assert!(poll_once(&mut second).is_pending());
        assert!(poll_once(&mut third).is_pending());
        assert_eq!(pool.status().waiting, 2);
        assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::Overloaded);
        drop(first);
        assert!(poll_once(&mut third).is_pending());
        let Poll::Ready(second) = poll_once(&mut second) else { panic!("the second has its slot") };
        drop(second);
        assert!(poll_once(&mut third).is_ready());
    });
}

#[test]
fn a_full_queue_refuses_at_once() {
    run(async {
        let (device, _) = manual("fake");
        let pool = ExecutablePool::builder()
            .slots(1)
            .queue(2)
            .build(move |slot| Ok((fill(&device, 4)?, slot.index())));
        let held = pool.acquire().await.unwrap();
        let mut waiting = [Box::pin(pool.acquire()), Box::pin(pool.acquire())];
        for waiter in &mut waiting {
            assert!(poll_once(waiter).is_pending());
        }
        for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
            let refused = pool.acquire().now_or_never().unwrap();
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Overloaded);
        }
        // A request that has gone leaves its place in the queue at once.
        let [gone, stays] = waiting;
        drop(gone);
        let mut late = Box::pin(pool.acquire());
        assert!(poll_once(&mut late).is_pending());
        drop(held);
        drop(stays.await.unwrap());
        drop(late.await.unwrap());
        assert!(pool.acquire().now_or_never().unwrap().is_ok());
    });
}

#[test]
fn a_queue_of_zero_is_all_or_nothing() {
    run(async {
        let (device, _) = manual("fake");
        let pool = ExecutablePool::builder()
            .slots(1)
            .queue(0)
            .build(move |slot| Ok((fill(&device, 4)?, slot.index())));
        let held = pool.acquire().await.unwrap();
        assert_eq!(pool.acquire().await.unwrap_err().kind(), ErrorKind::Overloaded);
        drop(held);
        assert!(pool.acquire().await.is_ok());
    });
}

#[test]
fn a_slot_granted_to_a_dropped_request_is_not_lost() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let held = pool.acquire().await.unwrap();
        let (mut granted, mut next) = (Box::pin(pool.acquire()), Box::pin(pool.acquire()));
        assert!(poll_once(&mut granted).is_pending());
        assert!(poll_once(&mut next).is_pending());
        drop(held);
        // The slot is on its way to `granted`, which never looks.
        assert!(poll_once(&mut next).is_pending());
        drop(granted);
        assert!(poll_once(&mut next).is_ready());
        assert_eq!(pool.status().idle, 1);
    });
}

#[test]
fn a_slot_being_made_for_a_dropped_request_is_kept() {
    run(async {
        let (device, _) = manual("fake");
        let (start, started) = std::sync::mpsc::channel();
        let started = Mutex::new(started);
        let made = Count::default();
        let count = made.clone();
        let pool = ExecutablePool::new(1, move |slot| {
            started.lock().recv().unwrap();
            count.add_one();
            Ok((fill(&device, 4)?, slot.index()))
        });
        let mut first = Box::pin(pool.acquire());
        assert!(poll_once(&mut first).is_pending());
        drop(first);
        let mut second = Box::pin(pool.acquire());
        assert!(poll_once(&mut second).is_pending());
        start.send(()).unwrap();
        assert!(second.await.is_ok());
        assert_eq!(made.get(), 1);
    });
}

#[test]
fn urgent_requests_and_other_keys_go_first() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let held = pool.acquire().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        let requests = [
            ("low", Priority::Low, 0),
            ("a1", Priority::Normal, 1),
            ("a2", Priority::Normal, 1),
            ("a3", Priority::Normal, 1),
            ("b1", Priority::Normal, 2),
            ("high", Priority::High, 1),
        ];
        for (name, priority, key) in requests {
            let (pool, order) = (pool.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let slot = pool.prepare().priority(priority).key(key).acquire().await.unwrap();
                order.lock().push(name);
                drop(slot);
            }));
            yield_often().await;
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), ["high", "a1", "b1", "a2", "a3", "low"]);
    });
}

#[test]
fn the_second_device_is_for_overflow() {
    run(async {
        let ((gpu, _), (cpu, _)) = (manual("gpu"), manual("cpu"));
        let pool = ExecutablePool::builder().device(&gpu, 2).device(&cpu, 1).build(|slot| {
            let device = slot.device()?;
            Ok((fill(&device, 4)?, (slot.index(), device.selector().to_owned())))
        });
        let mut slots = Vec::new();
        for expected in [(0, "gpu"), (1, "gpu"), (2, "cpu")] {
            let slot = pool.acquire().await.unwrap();
            assert_eq!((slot.0, slot.1.as_str()), expected);
            slots.push(slot);
        }
        assert!(pool.try_acquire().is_err());
        drop(slots.remove(0));
        assert_eq!(pool.acquire().await.unwrap().1, "gpu");
    });
}

#[test]
fn a_slot_stays_taken_while_its_run_is_in_flight() {
    run(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let slot = pool.acquire().await.unwrap();
        drop(slot.submit());
        drop(slot.submit());
        drop(slot);
        let mut next = Box::pin(pool.acquire());
        assert!(poll_once(&mut next).is_pending());
        yield_often().await;
        assert!(poll_once(&mut next).is_pending());
        assert_eq!(pool.status().idle, 0);
        control.complete_all();
        drop(next.await.unwrap());
        assert_eq!(pool.status().idle, 1);
    });
}

#[test]
fn a_slot_whose_run_is_over_is_free_at_once() {
    run(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let slot = pool.acquire().await.unwrap();
        let run = slot.submit_with(|submit| submit);
        control.complete_all();
        run.await.unwrap();
        drop(slot);
        assert!(pool.try_acquire().is_ok());
    });
}

#[test]
fn a_pool_works_without_a_runtime() {
    let (device, control) = manual("fake");
    let pool = pool(&device, 1);
    let slot = pool.try_acquire().unwrap();
    drop(slot.submit());
    drop(slot);
    assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::Overloaded);
    control.complete_all();
    wait_for_idle(&pool, 1);
    assert!(pool.acquire().now_or_never().unwrap().is_ok());
    // A slot is made without one, too.
    let pool = crate::common::pool(&device, 1);
    assert!(block_on(pool.acquire()).is_ok());
}

/// Blocks until that many slots are idle: a thread of the runtime's gives them back.
fn wait_for_idle<T: Send + 'static>(pool: &ExecutablePool<T>, slots: usize) {
    while pool.status().idle < slots {
        std::thread::yield_now();
    }
}

#[test]
fn a_shut_down_runtime_keeps_no_slot() {
    must_end(|| {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        run(async {
            let slot = pool.acquire().await.unwrap();
            drop(slot.submit());
            drop(slot);
        });
        assert_eq!(pool.status().idle, 0);
        control.complete_all();
        wait_for_idle(&pool, 1);
    });
}

#[test]
fn a_runtime_that_nobody_drives_keeps_no_slot() {
    must_end(|| {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let [mine, other] = [(); 2].map(|()| tokio::runtime::Builder::new_current_thread().build().unwrap());
        mine.block_on(async {
            let slot = pool.acquire().await.unwrap();
            drop(slot.submit());
        });
        control.complete_all();
        assert!(other.block_on(pool.acquire()).is_ok());
    });
}

#[test]
fn a_full_blocking_pool_gets_its_slot() {
    must_end(|| {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).max_blocking_threads(1).build().unwrap();
        // The slot has to be made, and then to be made again.
        for _ in 0..2 {
            let (pool, control, handle) = (pool.clone(), control.clone(), runtime.handle().clone());
            let handler = runtime.spawn_blocking(move || {
                let slot = handle.block_on(pool.acquire()).unwrap();
                control.fail_next(Error::new(ErrorKind::Driver, "fails"));
                let failing = slot.submit();
                control.complete_all();
                handle.block_on(failing).unwrap_err();
            });
            runtime.block_on(handler).unwrap();
        }
    });
}

#[test]
fn makers_are_inside_the_runtime_of_the_request() {
    run(async {
        let (device, _) = manual("fake");
        let own = tokio::runtime::Handle::current().id();
        let pool = ExecutablePool::new(1, move |slot| {
            assert_eq!(tokio::runtime::Handle::current().id(), own);
            Ok((fill(&device, 4)?, slot.index()))
        });
        assert!(pool.acquire().await.is_ok());
    });
}

#[test]
fn a_slot_whose_buffer_is_guarded_is_not_idle() {
    must_end(|| {
        run(async {
            let (device, control) = manual("fake");
            let shared = device.host_buffer::<u32>(4).unwrap();
            let weights = shared.clone();
            let pool = ExecutablePool::new(2, move |_| {
                let (own, x) = (device.host_buffer::<u32>(4)?, device.buffer::<u32>(4)?);
                let mut graph = Graph::new(&device);
                graph.copy(&weights, &x);
                graph.copy(&x, &own);
                Ok((graph.finalize()?, own))
            });
            pool.warm_up().await.unwrap();
            // What the application holds of memory that all slots use keeps none of them.
            let _weights = shared.read().await;
            let slot = pool.acquire().await.unwrap();
            let run = slot.submit();
            control.complete_all();
            run.await.unwrap();
            let body = slot.read().await.into_bytes();
            drop(slot);
            assert_eq!((pool.status().made, pool.status().idle), (2, 1));
            for _ in 0..3 {
                drop(pool.acquire().await.unwrap().write().await);
            }
            drop(body);
            wait_for_idle(&pool, 2);
        });
    });
}

#[test]
fn a_guard_outlives_the_run_of_a_slot() {
    must_end(|| {
        run(async {
            let (device, control) = manual("fake");
            let pool = ExecutablePool::new(1, move |_| {
                let own = device.host_buffer::<u32>(4)?;
                let mut graph = Graph::new(&device);
                graph.copy(&device.buffer::<u32>(4)?, &own);
                Ok((graph.finalize()?, own))
            });
            let slot = pool.acquire().await.unwrap();
            drop(slot.submit());
            // It waits for the run.
            let own = slot.clone();
            let mut reading = Box::pin(own.read());
            assert!(poll_once(&mut reading).is_pending());
            drop(slot);
            control.complete_all();
            let guard = reading.await;
            assert_eq!(pool.status().idle, 0);
            drop(guard);
            wait_for_idle(&pool, 1);
        });
    });
}

#[test]
fn free_slots_leave_other_tasks_their_turn() {
    must_end(|| {
        run(async {
            let (device, _) = manual("fake");
            let pool = pool(&device, 1);
            pool.warm_up().await.unwrap();
            let other = tokio::spawn(async {});
            while !other.is_finished() {
                drop(pool.acquire().await.unwrap());
            }
        });
    });
}

#[test]
fn a_storm_of_dropped_requests_loses_no_slot() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let pool = pool(&crate::common::host(), 3);
        let served = Count::default();
        let mut tasks = Vec::new();
        for number in 0..if cfg!(miri) { 50 } else { 5_000u32 } {
            let (pool, served) = (pool.clone(), served.clone());
            let task = tokio::spawn(async move {
                let slot = match pool.acquire().await {
                    Ok(slot) => slot,
                    Err(error) => return assert_eq!(error.kind(), ErrorKind::Overloaded),
                };
                if number % 3 == 0 {
                    tokio::task::yield_now().await;
                }
                slot.submit().await.unwrap();
                served.add_one();
            });
            if number % 2 == 0 {
                tasks.push(task);
            } else {
                if number % 5 == 0 {
                    tokio::task::yield_now().await;
                }
                task.abort();
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(served.get() > 0);
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(pool.acquire().await.unwrap());
        }
        assert_eq!(pool.status().waiting, 0);
        drop(all);
        assert_eq!(pool.status().idle, 3);
    });
}

#[test]
fn a_pool_without_slots_says_so() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 0);
        assert_eq!(pool.acquire().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::InvalidArgument);
    });
}

//! Pools whose devices hang, are lost, and come back.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::runtime::Builder;
use wakegraph::service::{ExecutablePool, PoolGuard};
use wakegraph::{ErrorKind, Result};

use crate::common::{fill, manual, poll_once, run, yield_often};
use crate::support::must_end;

/// A pool whose slots say what their device is.
fn pool_on(devices: &[(&wakegraph::Device, usize)]) -> ExecutablePool<String> {
    let builder = ExecutablePool::builder();
    let builder = devices.iter().fold(builder, |builder, (device, slots)| builder.device(device, *slots));
    builder.build(|slot| {
        let device = slot.device()?;
        Ok((fill(&device, 4)?, device.selector().to_owned()))
    })
}

#[test]
fn requests_go_to_another_device_while_one_hangs() {
    run_paused(async {
        let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
        let pool = pool_on(&[(&gpu, 2), (&cpu, 1)]);
        pool.warm_up().await.unwrap();
        let hanging = pool.acquire().await.unwrap();
        assert_eq!(*hanging, "gpu");
        hang(&hanging).await;
        let first = pool.acquire().await.unwrap();
        assert_eq!(*first, "cpu");
        // It is better than none.
        let second = pool.acquire().await.unwrap();
        assert_eq!(*second, "gpu");
        drop((first, second));
        control.complete_all();
        while !gpu.health().borrow().is_healthy() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*pool.acquire().await.unwrap(), "gpu");
    });
}

/// Runs a test whose clock goes on when all tasks wait, for watchdogs.
fn run_paused<F: Future>(test: F) -> F::Output {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

/// Has a run in this slot hang, as a watchdog finds.
async fn hang<T: Send + 'static>(slot: &PoolGuard<T>) {
    let run = slot.submit_with(|submit| submit.watchdog(Duration::from_secs(1)));
    assert_eq!(run.await.unwrap_err().kind(), ErrorKind::Stalled);
}

#[test]
fn requests_wait_for_no_device_that_hangs() {
    must_end(|| {
        run_paused(async {
            let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
            let builder = ExecutablePool::builder().device(&gpu, 2).device(&cpu, 1).skip_stalled(true);
            let pool = builder.build(|slot| {
                let device = slot.device()?;
                Ok((fill(&device, 4)?, device.selector().to_owned()))
            });
            pool.warm_up().await.unwrap();
            let hanging = pool.acquire().await.unwrap();
            let same_device = pool.acquire().await.unwrap();
            assert_eq!((&**hanging, &**same_device), ("gpu", "gpu"));
            hang(&hanging).await;
            let other = pool.acquire().await.unwrap();
            assert_eq!(*other, "cpu");
            let (mut first, mut second) = (Box::pin(pool.acquire()), Box::pin(pool.acquire()));
            assert!(poll_once(&mut first).is_pending() && poll_once(&mut second).is_pending());
            // One is free, but its device hangs.
            drop(same_device);
            assert!(poll_once(&mut first).is_pending());
            assert_eq!(pool.try_acquire().map(drop).unwrap_err().kind(), ErrorKind::Overloaded);
            drop(other);
            let other = first.await.unwrap();
            assert_eq!(*other, "cpu");
            assert!(poll_once(&mut second).is_pending());
            // The device goes on, and so does the request that waits.
            control.complete_all();
            assert_eq!(*second.await.unwrap(), "gpu");
        });
    });
}

#[test]
fn a_device_that_the_closure_chose_keeps_its_own_slots_back_alone() {
    must_end(|| {
        run_paused(async {
            let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
            let devices = [gpu.clone(), cpu.clone()];
            let pool = ExecutablePool::builder().slots(3).skip_stalled(true);
            let pool = pool.build(move |slot| {
                let device = &devices[slot.index() % 2];
                Ok((fill(device, 4)?, device.selector().to_owned()))
            });
            pool.warm_up().await.unwrap();
            let slots =
                [pool.acquire().await.unwrap(), pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
            let hanging = slots.iter().find(|slot| ***slot == "gpu").unwrap();
            hang(hanging).await;
            drop(slots);
            let slot = pool.acquire().now_or_never().unwrap().unwrap();
            assert_eq!(*slot, "cpu");
            // The others are free, and on the device that hangs.
            assert_eq!(pool.try_acquire().map(drop).unwrap_err().kind(), ErrorKind::Overloaded);
            control.complete_all();
        });
    });
}

#[test]
fn a_warm_up_leaves_a_device_that_hangs_for_later() {
    must_end(|| {
        run_paused(async {
            let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
            let pool = ExecutablePool::builder().device(&gpu, 2).device(&cpu, 2).skip_stalled(true);
            let pool = pool.build(|slot| Ok((fill(&slot.device()?, 4)?, ())));
            hang(&pool.acquire().await.unwrap()).await;
            pool.warm_up().await.unwrap();
            assert_eq!(pool.status().made, 3);
            control.complete_all();
            while !gpu.health().borrow().is_healthy() {
                tokio::task::yield_now().await;
            }
            pool.warm_up().await.unwrap();
            assert_eq!(pool.status().made, 4);
        });
    });
}

#[test]
fn requests_fail_at_once_while_each_device_hangs() {
    must_end(|| {
        run_paused(async {
            let (gpu, control) = manual("gpu");
            let own = gpu.clone();
            // Also where the closure chooses the device.
            let pool = ExecutablePool::builder().slots(2).skip_stalled(true);
            let pool = pool.build(move |slot| Ok((fill(&own, 4)?, slot.index())));
            pool.warm_up().await.unwrap();
            let slots = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
            let waiting = tokio::spawn({
                let pool = pool.clone();
                async move { pool.acquire().await.map(drop) }
            });
            yield_often().await;
            assert_eq!(pool.status().waiting, 1);
            hang(&slots[0]).await;
            let error = waiting.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            for error in [pool.acquire().now_or_never().unwrap(), pool.try_acquire()] {
                assert_eq!(error.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
            }
            drop(slots);
            control.complete_all();
            while !gpu.health().borrow().is_healthy() {
                tokio::task::yield_now().await;
            }
            drop(pool.acquire().await.unwrap());
        });
    });
}

#[test]
fn a_device_in_place_of_a_lost_one_serves_requests() {
    must_end(|| {
        run(async {
            let ((lost, control), (other, _)) = (manual("gpu"), manual("gpu"));
            let pool = pool_on(&[(&lost, 2)]);
            let in_use = pool.acquire().await.unwrap();
            control.lose_device();
            assert!(in_use.submit().await.is_err());
            assert_eq!(pool.acquire().await.map(drop).unwrap_err().kind(), ErrorKind::DeviceLost);
            pool.add_device(&other, 1);
            let slot = pool.acquire().await.unwrap();
            // What the lost device leaves behind changes nothing.
            drop(in_use);
            drop(slot);
            assert_eq!((pool.status().slots, pool.status().idle), (1, 1));
            let slots: Result<Vec<_>> = (0..3).map(|_| pool.try_acquire().map(|slot| slot.clone())).collect();
            assert_eq!(slots.unwrap(), ["gpu"; 3]);
        });
    });
}

#[test]
fn requests_that_wait_get_the_slots_of_a_new_device() {
    must_end(|| {
        run(async {
            let ((gpu, _), (cpu, _)) = (manual("gpu"), manual("cpu"));
            let pool = pool_on(&[(&gpu, 1)]);
            let _held = pool.acquire().await.unwrap();
            let mut waiting = Box::pin(pool.acquire());
            assert!(poll_once(&mut waiting).is_pending());
            pool.add_device(&cpu, 1);
            assert_eq!(*waiting.await.unwrap(), "cpu");
            assert_eq!(pool.status().slots, 2);
        });
    });
}

#[test]
fn a_lost_device_is_no_longer_held_by_its_pool() {
    must_end(|| {
        run(async {
            let (gpu, control) = manual("gpu");
            let pool = pool_on(&[(&gpu, 1)]);
            pool.warm_up().await.unwrap();
            control.lose_device();
            assert!(gpu.health().borrow().is_lost());
            let mut health = gpu.health();
            drop(gpu);
            assert_eq!(pool.acquire().await.map(drop).unwrap_err().kind(), ErrorKind::DeviceLost);
            // The last handle of the device ends the channel of its health.
            assert!(health.changed().await.is_err());
        });
    });
}

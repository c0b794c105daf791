//! Pools whose devices hang, are lost, and come back.

use std::time::Duration;

use tokio::runtime::Builder;
use wakegraph::service::ExecutablePool;
use wakegraph::{ErrorKind, Result};

use crate::common::{fill, manual, poll_once, run};
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
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
        let pool = pool_on(&[(&gpu, 2), (&cpu, 1)]);
        pool.warm_up().await.unwrap();
        let hanging = pool.acquire().await.unwrap();
        assert_eq!(*hanging, "gpu");
        let run = hanging.submit_with(|submit| submit.watchdog(Duration::from_secs(1)));
        assert_eq!(run.await.unwrap_err().kind(), ErrorKind::Stalled);
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

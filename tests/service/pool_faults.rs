//! What happens to slots whose making, run or device fails.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use wakegraph::kernel::RawKernel;
use wakegraph::service::{ExecutablePool, PoolGuard};
use wakegraph::{Error, ErrorKind, Graph, Range, Result};

use crate::common::{Count, PanicsOnDrop, fill, host, manual, poll_once, pool, run, yield_often};

#[test]
fn a_slot_that_cannot_be_made_fails_its_request_only() {
    run(async {
        let (device, _) = manual("fake");
        let tries = Count::default();
        let (both_wait, waiting) = mpsc::channel();
        let waiting = Mutex::new(waiting);
        let pool = ExecutablePool::new(1, move |slot| match tries.add_one() {
            1 => Ok((fill(&device, 4)?, slot.index())),
            _ => {
                waiting.lock().recv().unwrap();
                Err(Error::new(ErrorKind::OutOfMemory, "no memory for the weights"))
            }
        });
        let (mut first, mut second) = (Box::pin(pool.acquire()), Box::pin(pool.acquire()));
        assert!(poll_once(&mut first).is_pending());
        assert!(poll_once(&mut second).is_pending());
        both_wait.send(()).unwrap();
        assert_eq!(first.await.unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(second.await.is_ok());
    });
}

#[test]
fn a_panic_of_the_closure_does_not_cost_a_slot() {
    run(async {
        let (device, _) = manual("fake");
        let tries = Count::default();
        let pool = ExecutablePool::new(1, move |slot| {
            assert!(tries.add_one() > 0, "an expected panic");
            Ok((fill(&device, 4)?, slot.index()))
        });
        let error = pool.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostTaskPanicked);
        assert!(error.to_string().contains("an expected panic"), "{error}");
        assert!(pool.acquire().await.is_ok());
    });
}

#[test]
fn a_refused_submission_leaves_the_slot_as_it_was() {
    run(async {
        let (device, _) = manual("fake");
        let made = Count::default();
        let count = made.clone();
        let pool = ExecutablePool::new(1, move |_| Ok((fill(&device, 4)?, count.add_one())));
        let slot = pool.acquire().await.unwrap();
        let refused = slot.submit_with(|submit| submit.run_data("no host task takes it"));
        assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        drop(slot);
        assert_eq!((pool.status().idle, *pool.acquire().await.unwrap()), (1, 0));
    });
}

#[test]
fn a_slot_whose_run_failed_is_made_anew() {
    run(async {
        let (device, control) = manual("fake");
        let made = Count::default();
        let count = made.clone();
        let pool = ExecutablePool::new(1, move |_| Ok((fill(&device, 4)?, count.add_one())));
        let slot = pool.acquire().await.unwrap();
        control.fail_next(Error::new(ErrorKind::Driver, "fails"));
        let failing = slot.submit();
        control.complete_all();
        assert_eq!(failing.await.unwrap_err().kind(), ErrorKind::Driver);
        drop(slot);
        assert_eq!((made.get(), pool.status().made), (1, 0));
        assert_eq!(*pool.acquire().await.unwrap(), 1);

        // The same for a run that fails when its request has gone.
        let slot = pool.acquire().await.unwrap();
        control.fail_next(Error::new(ErrorKind::Driver, "fails"));
        drop(slot.submit());
        drop(slot);
        control.complete_all();
        yield_often().await;
        assert_eq!(*pool.acquire().await.unwrap(), 2);
    });
}

#[test]
fn a_value_whose_drop_panics_does_not_cost_a_slot() {
    run(async {
        let (device, control) = manual("fake");
        let made = Count::default();
        let count = made.clone();
        let pool = ExecutablePool::new(1, move |_| {
            let is_first = count.add_one() == 0;
            Ok((fill(&device, 4)?, is_first.then(|| PanicsOnDrop)))
        });
        let slot = pool.acquire().await.unwrap();
        control.fail_next(Error::new(ErrorKind::Driver, "fails"));
        let failing = slot.submit();
        control.complete_all();
        assert_eq!(failing.await.unwrap_err().kind(), ErrorKind::Driver);
        let mut waiting = Box::pin(pool.acquire());
        assert!(poll_once(&mut waiting).is_pending());
        drop(slot);
        assert!(waiting.await.is_ok());
        assert_eq!(made.get(), 2);
    });
}

#[test]
fn a_failure_counts_even_if_a_later_run_succeeds() {
    run(async {
        let (device, control) = manual("fake");
        let made = Count::default();
        let pool = ExecutablePool::new(1, move |_| Ok((fill(&device, 4)?, made.add_one())));
        let slot = pool.acquire().await.unwrap();
        control.fail_next(Error::new(ErrorKind::Driver, "fails"));
        let failing = slot.submit();
        control.complete_all();
        assert!(failing.await.is_err());
        let later = slot.submit();
        control.complete_all();
        later.await.unwrap();
        drop(slot);
        assert_eq!(*pool.acquire().await.unwrap(), 1);
    });
}

#[test]
fn panics_spoil_a_slot_but_errors_of_host_tasks_do_not() {
    run(async {
        let (device, _) = manual("fake");
        let made = Count::default();
        let count = made.clone();
        let pool = ExecutablePool::new(1, move |_| {
            let mut graph = Graph::new(&device);
            let tries = Count::default();
            let task = async move |()| match tries.add_one() {
                0 => Ok(()),
                1 => Err("connection refused"),
                _ => panic!("an expected panic"),
            };
            graph.host_task((), task);
            Ok((graph.finalize()?, count.add_one()))
        });
        for (expected, slots) in [
            (None, 1),
            (Some(ErrorKind::HostTaskFailed), 1),
            (Some(ErrorKind::HostTaskPanicked), 1),
            (None, 2),
        ] {
            let slot = pool.acquire().await.unwrap();
            assert_eq!(slot.submit().await.err().map(|error| error.kind()), expected);
            assert_eq!(made.get(), slots);
        }
    });
}

#[test]
fn a_lost_device_takes_its_slots_out() {
    run(async {
        let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
        let pool = ExecutablePool::builder().device(&gpu, 3).device(&cpu, 1).build(|slot| {
            let device = slot.device()?;
            Ok((fill(&device, 4)?, device.selector().to_owned()))
        });
        let (unused, slot, idle) =
            (pool.acquire().await.unwrap(), pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        drop(idle);
        let pending = slot.submit();
        control.lose_device();
        assert_eq!(pending.await.unwrap_err().kind(), ErrorKind::DeviceLost);
        drop(slot);
        assert_eq!(pool.status().slots, 2);
        drop(unused);
        assert_eq!(pool.status().slots, 1);
        assert_eq!(*pool.acquire().await.unwrap(), "cpu");
        assert_eq!(pool.status().idle, 1);
    });
}

#[test]
fn the_loss_of_the_last_device_resolves_all_requests() {
    run(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let slot = pool.acquire().await.unwrap();
        let (mut first, mut second) = (Box::pin(pool.acquire()), Box::pin(pool.acquire()));
        assert!(poll_once(&mut first).is_pending());
        assert!(poll_once(&mut second).is_pending());
        drop(slot.submit());
        drop(slot);
        control.lose_device();
        for request in [first, second, Box::pin(pool.acquire())] {
            assert_eq!(request.await.unwrap_err().kind(), ErrorKind::DeviceLost);
        }
        assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(pool.status().slots, 0);
    });
}

// All requests get the error of the loss at once.
#[test]
fn a_waker_that_panics_keeps_no_other_request_asleep() {
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose")
        }
    }

    run(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 1);
        let slot = pool.acquire().await.unwrap();
        let (mut first, second) = (Box::pin(pool.acquire()), tokio::spawn(acquire(pool.clone())));
        let waker = Waker::from(Arc::new(Panics));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        yield_often().await;
        assert_eq!(pool.status().waiting, 2);
        drop(slot.submit());
        control.lose_device();
        drop(slot);
        assert_eq!(second.await.unwrap().unwrap_err().kind(), ErrorKind::DeviceLost);
    });
}

async fn acquire(pool: ExecutablePool<usize>) -> Result<PoolGuard<usize>> {
    pool.acquire().await
}

#[test]
fn slots_of_a_device_lost_before_they_are_made_are_out() {
    run(async {
        let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
        let pool = ExecutablePool::builder().device(&gpu, 5).device(&cpu, 1).build(|slot| {
            let device = slot.device()?;
            Ok((fill(&device, 4)?, device.selector().to_owned()))
        });
        control.lose_device();
        assert_eq!(pool.acquire().await.unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(pool.status().slots, 1);
        assert_eq!(*pool.acquire().await.unwrap(), "cpu");
    });
}

#[test]
fn idle_slots_of_a_lost_device_are_not_given_out() {
    run(async {
        let ((gpu, control), (cpu, _)) = (manual("gpu"), manual("cpu"));
        let pool = ExecutablePool::builder().device(&gpu, 2).device(&cpu, 1).build(|slot| {
            let device = slot.device()?;
            Ok((fill(&device, 4)?, device.selector().to_owned()))
        });
        pool.warm_up().await.unwrap();
        control.lose_device();
        assert!(gpu.health().borrow().is_lost());
        assert_eq!(*pool.acquire().await.unwrap(), "cpu");
        assert_eq!(*pool.try_acquire().unwrap(), "cpu");
        assert_eq!(pool.status().slots, 1);
    });
}

/// An error of another library's device, or of another device.
fn another_is_lost() -> Error {
    Error::new(ErrorKind::DeviceLost, "another device is gone").on_device("other:0")
}

#[test]
fn an_error_that_claims_a_loss_costs_no_slot() {
    run(async {
        let (device, control) = manual("fake");
        let tries = Count::default();
        let made = device.clone();
        let pool = ExecutablePool::builder().device(&device, 2).build(move |_| match tries.add_one() {
            0 => Err(another_is_lost()),
            _ => Ok((fill(&made, 4)?, ())),
        });
        assert_eq!(pool.acquire().await.unwrap_err().kind(), ErrorKind::DeviceLost);
        let slot = pool.acquire().await.unwrap();
        control.fail_next(another_is_lost());
        let failing = slot.submit();
        control.complete_all();
        assert!(failing.await.is_err());
        drop(slot);
        assert_eq!((pool.status().slots, device.health().borrow().is_healthy()), (2, true));
        assert!(pool.acquire().await.is_ok());
    });
}

#[test]
fn closures_of_kernels_cannot_claim_a_loss() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let device = host();
        let own = device.clone();
        let pool = ExecutablePool::builder().device(&device, 1).build(move |_| {
            let kernel = RawKernel::new("liar").host(|_, _| Err(another_is_lost()));
            let mut graph = Graph::new(&own);
            graph.launch(kernel.call(), Range::linear(1));
            Ok((graph.finalize()?, ()))
        });
        for _ in 0..2 {
            let error = pool.acquire().await.unwrap().submit().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
            assert!(error.to_string().contains("another device is gone"), "{error}");
        }
        assert_eq!(pool.status().slots, 1);
    });
}

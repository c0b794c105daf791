//! Closures of pools, caches and batchers as services write them: errors of other code, state of their own,
//! inputs for the first run, values that change per request.

use std::error::Error as _;
use std::num::ParseIntError;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph::service::{Batcher, ExecutableCache, ExecutablePool};
use wakegraph::{BoxError, ErrorKind, FinalizeOptions, Graph, HostBuffer, Range, Result};

use crate::common::{Count, PanicsOnDrop, fill, host, manual, pool, run};
use crate::support::must_end;

#[test]
fn errors_of_other_code_pass_through_closures() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let batcher = Batcher::new(&pool, 8, async |_slot, items: Vec<&str>| {
            let numbers = items.iter().map(|item| item.parse::<u32>()).collect::<Result<Vec<_>, _>>()?;
            Ok(numbers)
        });
        assert_eq!(batcher.call("7").await.unwrap(), 7);
        let error = batcher.call("seven").await.unwrap_err();
        assert_eq!((error.kind(), error.kind().http_status()), (ErrorKind::InvalidArgument, 400));
        assert!(error.source().unwrap().is::<ParseIntError>());

        let unread = ExecutablePool::new(1, |slot| {
            let weights = std::fs::read("no such file")?;
            Ok((fill(&slot.device()?, weights.len())?, ()))
        });
        let error = unread.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostTaskFailed);
        assert!(error.source().unwrap().is::<std::io::Error>(), "{error}");

        let refusing: ExecutableCache<u32> = ExecutableCache::new(8, |&key| {
            let why: Result<(), BoxError> = Err(format!("{key} is no shape").into());
            why?;
            Ok((fill(&host(), 4)?, ()))
        });
        let error = refusing.get(&3).await.unwrap_err();
        assert_eq!(error.source().unwrap().to_string(), "3 is no shape");
    });
}

#[test]
fn items_are_weighed_by_a_closure_with_state() {
    run(async {
        let (device, _) = manual("fake");
        let lengths = Arc::new(vec![1u64, 50, 101]);
        let batcher = pool(&device, 1).batcher().max_weight(100, move |&item: &usize| lengths[item]);
        let batcher = batcher.build(async |_slot, items: Vec<usize>| Ok(items));
        assert_eq!(batcher.call(1).await.unwrap(), 1);
        assert_eq!(batcher.call(2).await.unwrap_err().kind(), ErrorKind::InvalidSize);
    });
}

#[test]
fn a_result_too_few_may_panic_in_its_drop() {
    must_end(|| {
        run(async {
            let (device, _) = manual("fake");
            let pool = pool(&device, 1);
            let batcher = Batcher::new(&pool, 8, async |_slot, _items: Vec<u32>| Ok(vec![PanicsOnDrop]));
            let held = pool.acquire().await.unwrap();
            let giving = async { drop(held) };
            let (first, second, ()) = tokio::join!(batcher.call(1), batcher.call(2), giving);
            for result in [first, second] {
                assert_eq!(result.map(std::mem::forget).unwrap_err().kind(), ErrorKind::InvalidSize);
            }
        });
    });
}

#[test]
fn an_item_without_a_slot_may_panic_in_its_drop() {
    must_end(|| {
        run(async {
            let fails = || wakegraph::Error::new(ErrorKind::Driver, "fails");
            let pool: ExecutablePool<()> = ExecutablePool::new(1, move |_| Err(fails()));
            let batcher = Batcher::new(&pool, 1, async |_slot, items: Vec<Option<PanicsOnDrop>>| {
                Ok(items.into_iter().map(std::mem::forget).collect::<Vec<()>>())
            });
            let (first, second) = tokio::join!(batcher.call(Some(PanicsOnDrop)), batcher.call(None));
            for result in [first, second] {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Driver);
            }
        });
    });
}

#[test]
fn each_slot_runs_once_to_warm_up() {
    must_end(|| {
        run(async {
            let (device, made) = (host(), Count::default());
            let count = made.clone();
            let pool = ExecutablePool::new(3, move |slot| {
                count.add_one();
                let x: HostBuffer<u8> = device.host_buffer(1)?;
                let mut graph = Graph::new(&device);
                graph.launch(next(&x), Range::linear(1));
                Ok((graph.finalize()?, (slot.index(), x)))
            });
            let (own, seen) = (pool.clone(), Arc::new(Mutex::new(Vec::new())));
            let warmed = seen.clone();
            let warm = tokio::spawn(async move {
                own.warm_up_with(async |slot| {
                    slot.1.write().await[0] = 7;
                    slot.submit().await?;
                    let answer = slot.1.read().await[0];
                    warmed.lock().push((slot.0, answer));
                    Ok(())
                })
                .await
            });
            warm.await.unwrap().unwrap();
            assert_eq!((made.get(), pool.status().idle), (3, 3));
            assert_eq!(*seen.lock(), [(0, 8), (1, 8), (2, 8)]);
        });
    });
}

#[test]
fn a_warm_up_that_spoils_its_slot_ends() {
    must_end(|| {
        run(async {
            let (device, control) = manual("fake");
            let made = Arc::<Mutex<Vec<usize>>>::default();
            let indices = made.clone();
            let pool = ExecutablePool::new(2, move |slot| {
                indices.lock().push(slot.index());
                Ok((fill(&device, 4)?, ()))
            });
            let warm = pool.warm_up_with(async |slot| {
                control.fail_next(wakegraph::Error::new(ErrorKind::Driver, "fails"));
                let failing = slot.submit();
                control.complete_all();
                assert!(failing.await.is_err());
                Ok(())
            });
            warm.await.unwrap();
            assert_eq!((&**made.lock(), pool.status().made), (&[0, 1][..], 0));
        });
    });
}

wakegraph::kernel! {
    fn next(x: &mut [u8]) { item: |i, x| x[i] += 1 }
}

wakegraph::kernel! {
    fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
}

#[test]
fn values_change_per_request() {
    must_end(|| {
        run(async {
            let device = host();
            let pool = ExecutablePool::new(1, move |_| {
                let x: HostBuffer<u32> = device.host_buffer(2)?;
                let mut graph = Graph::new(&device);
                let amount = graph.param(0u32);
                graph.launch(add(0, &x), Range::linear(2)).param("n", &amount);
                Ok((graph.finalize_with(FinalizeOptions::new().updatable(true))?, (x, amount)))
            });
            for amount in [1, 10, 100] {
                let slot = pool.acquire().await.unwrap();
                let (x, parameter) = &*slot;
                x.write().await.fill(1);
                let update = slot.update().param(parameter, amount).apply();
                slot.submit().await.unwrap();
                update.await.unwrap();
                assert_eq!(*x.read().await, [1 + amount; 2]);
            }
        });
    });
}

#[test]
fn a_body_shares_the_bytes_of_its_slot() {
    must_end(|| {
        run(async {
            let device = host();
            let pool = ExecutablePool::new(2, move |_| {
                let x: HostBuffer<u8> = device.host_buffer(3)?;
                let mut graph = Graph::new(&device);
                graph.launch(next(&x), Range::linear(3));
                Ok((graph.finalize()?, x))
            });
            pool.warm_up().await.unwrap();
            let slot = pool.acquire().await.unwrap();
            slot.write().await.copy_from_slice(&[1, 2, 3]);
            slot.submit().await.unwrap();
            let answer = slot.read().await.into_bytes();
            let (own, body) = (answer.as_ptr(), bytes::Bytes::from_owner(answer));
            assert_eq!((body.as_ptr(), &body[..]), (own, &[2, 3, 4][..]));
            drop(slot);
            // A client who does not read keeps one slot from the others, and no more.
            for _ in 0..3 {
                pool.acquire().await.unwrap().write().await.fill(0);
            }
            assert_eq!((pool.status().idle, &body[..]), (1, &[2, 3, 4][..]));
            drop(body);
            while pool.status().idle < 2 {
                tokio::task::yield_now().await;
            }
        });
    });
}

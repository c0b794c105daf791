//! Streams of inputs that run in a pool.

use std::task::Poll;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use wakegraph::service::SubmitEach as _;
use wakegraph::{Error, ErrorKind, Result};

use crate::common::{Count, manual, pool, run, yield_often};

#[test]
fn results_come_in_order_or_as_completed() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 2);
        // Odd inputs take longer.
        let slow = async |_slot, input: u32| {
            if input % 2 == 1 {
                yield_often().await;
            }
            Ok(input)
        };
        let ordered = stream::iter(0..6).submit_each(&pool, 2, slow);
        assert_eq!(ordered.try_collect::<Vec<_>>().await.unwrap(), [0, 1, 2, 3, 4, 5]);
        let unordered = stream::iter(1..4).submit_each_unordered(&pool, 2, slow);
        assert_eq!(unordered.try_collect::<Vec<_>>().await.unwrap()[0], 2);
    });
}

#[test]
fn the_depth_is_bounded() {
    run(async {
        let (device, control) = manual("fake");
        let pool = pool(&device, 8);
        pool.warm_up().await.unwrap();
        let taken = Count::default();
        let count = taken.clone();
        let inputs = stream::iter(0..100).map(move |input| {
            count.add_one();
            input
        });
        let results = inputs.submit_each(&pool, 3, async |slot, input: u32| {
            slot.submit().await?;
            Ok(input)
        });
        let mut results = Box::pin(results);
        let mut received = 0;
        while received < 100 {
            match futures::poll!(results.next()) {
                Poll::Ready(result) => {
                    assert_eq!(result.unwrap().unwrap(), received);
                    received += 1;
                }
                Poll::Pending => {
                    assert!(taken.get() <= received as usize + 3);
                    assert!((1..=3).contains(&control.complete_all()));
                    // The task's budget is new then.
                    tokio::task::yield_now().await;
                }
            }
        }
        assert!(results.next().await.is_none());
    });
}

#[test]
fn an_error_is_an_item_and_the_stream_goes_on() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 2);
        let results = stream::iter(0..3).submit_each(&pool, 2, async |_slot, input: u32| match input {
            1 => Err(Error::new(ErrorKind::InvalidArgument, "one is refused")),
            _ => Ok(input),
        });
        let results: Vec<Result<u32>> = results.collect().await;
        assert!(matches!(results[..], [Ok(0), Err(_), Ok(2)]));
        assert_eq!(pool.status().idle, pool.status().made);
    });
}

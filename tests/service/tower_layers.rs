//! Pools and batchers as services, among tower's layers.

use std::time::Duration;

use futures::FutureExt as _;
use tower::load_shed::LoadShedLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};
use wakegraph::service::{Batcher, ExecutablePool};
use wakegraph::{Error, ErrorKind, Result};

use crate::common::{fill, host, manual, pool, run};
use crate::support::Hold;

#[test]
fn readiness_reserves_a_slot() {
    run(async {
        let (device, _) = manual("fake");
        let pool = pool(&device, 1);
        let mut service = pool.service(async |slot, input: usize| -> Result<usize> { Ok(*slot + input) });
        let mut other = service.clone();
        service.ready().await.unwrap();
        assert_eq!(pool.try_acquire().unwrap_err().kind(), ErrorKind::Overloaded);
        assert!(other.ready().now_or_never().is_none());
        assert_eq!(service.call(7).await.unwrap(), 7);
        assert_eq!(other.ready().await.unwrap().call(8).await.unwrap(), 8);
        // A service that is dropped gives its slot back.
        service.ready().await.unwrap();
        drop(service);
        assert!(pool.try_acquire().is_ok());
        // A call without readiness waits itself.
        assert_eq!(other.call(9).await.unwrap(), 9);
    });
}

#[test]
fn layers_see_when_there_is_no_slot() {
    run(async {
        let ((device, _), hold) = (manual("fake"), Hold::new());
        let held = hold.held();
        let pool = ExecutablePool::new(1, move |slot| {
            held.pass();
            Ok((fill(&device, 4)?, slot.index()))
        });
        let handler = async |_slot, input: usize| -> Result<usize, BoxError> { Ok(input) };
        let service = ServiceBuilder::new().layer(LoadShedLayer::new()).timeout(Duration::from_secs(3600));
        let service = service.service(pool.service(handler));
        assert_eq!(service.clone().oneshot(1).await.unwrap_err().to_string(), "service overloaded");
        // The slot is made all the same.
        hold.open();
        while pool.status().idle == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(service.clone().oneshot(1).await.unwrap(), 1);
        let held = pool.try_acquire().unwrap();
        assert_eq!(service.clone().oneshot(2).await.unwrap_err().to_string(), "service overloaded");
        drop(held);
        assert_eq!(service.oneshot(3).await.unwrap(), 3);
    });
}

#[test]
fn a_full_queue_refuses_the_call_and_not_the_service() {
    run(async {
        let (device, control) = manual("fake");
        let builder = ExecutablePool::builder().slots(1).queue(0);
        let pool = builder.build(move |slot| Ok((fill(&device, 4)?, slot.index())));
        let mut service = pool.service(async |slot, ()| -> Result<()> { slot.submit().await });
        let held = pool.acquire().await.unwrap();
        let refused = service.ready().await.unwrap().call(()).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Overloaded);
        drop(held);
        let call = service.ready().await.unwrap().call(());
        control.lose_device();
        assert_eq!(call.await.unwrap_err().kind(), ErrorKind::DeviceLost);
        let Err::<_, Error>(error) = service.ready().await else { panic!("no slot is left") };
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
    });
}

#[test]
fn a_device_that_is_added_makes_the_service_ready_again() {
    run(async {
        let (lost, control) = manual("gpu");
        let builder = ExecutablePool::builder().device(&lost, 1);
        let pool = builder.build(|slot| Ok((fill(&slot.device()?, 4)?, ())));
        let mut service = pool.service(async |slot, input: u32| -> Result<u32> {
            slot.submit().await?;
            Ok(input)
        });
        let call = service.ready().await.unwrap().call(7);
        control.lose_device();
        assert_eq!(call.await.unwrap_err().kind(), ErrorKind::DeviceLost);
        let Err::<_, Error>(error) = service.ready().await else { panic!("no slot is left") };
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        pool.add_device(&host(), 1);
        assert_eq!(service.ready().await.unwrap().call(7).await.unwrap(), 7);
    });
}

#[test]
fn a_batcher_is_a_service() {
    run(async {
        let (device, _) = manual("fake");
        let batcher = Batcher::new(&pool(&device, 1), 4, async |_slot, items: Vec<u32>| Ok(items));
        assert_eq!(batcher.oneshot(5).await.unwrap(), 5);
    });
}

#[test]
fn a_service_can_be_shared_between_threads() {
    fn check<S: Service<u32> + Clone + Send + Sync + 'static>(_: &S) {}
    let (device, _) = manual("fake");
    let pool = pool(&device, 1);
    check(&pool.service(async |_slot, input: u32| -> Result<u32> { Ok(input) }));
    check(&Batcher::new(&pool, 4, async |_slot, items: Vec<u32>| Ok(items)));
}

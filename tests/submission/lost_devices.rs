//! A device that is lost resolves everything that is pending on it.

use wakegraph::{ErrorKind, Graph, Range};

use crate::common::{Count, device, in_both_runtimes, manual, yield_often};

#[test]
fn everything_pending_resolves() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let (x, host) = (device.buffer::<u8>(4).unwrap(), device.host_buffer::<u8>(4).unwrap());
            let count = Count::default();
            let mut graph = Graph::new(&device);
            graph.fill(&x, 1);
            let single = graph.finalize().unwrap();
            graph.copy(&x, &host);
            let counter = count.clone();
            graph.host_task((wakegraph::read(&host),), async move |_| counter.add_one());
            graph.fill(&x, 2).after_leaves();
            let chain = graph.finalize().unwrap();
            // Two of each: one enqueued, one that waits for it.
            let submissions = [single.submit(), single.submit(), chain.submit(), chain.submit()];
            let waiting = single.prepare().after(&submissions[0]).submit();
            yield_often().await;
            control.lose_device();
            for submission in submissions.into_iter().chain([waiting]) {
                let error = submission.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
                assert!(error.device().is_some(), "{error}");
            }
            assert_eq!(count.get(), 0);
            for exec in [&single, &chain] {
                assert_eq!(exec.submit().await.unwrap_err().kind(), ErrorKind::DeviceLost);
            }
            assert_eq!(device.buffer::<u8>(1).unwrap_err().kind(), ErrorKind::DeviceLost);
            // A guard does not wait for what will never come.
            drop(host.read().await);
        }
    });
}

#[test]
fn other_devices_go_on() {
    in_both_runtimes(|| async {
        let (lost, control) = manual(true);
        let works = device();
        let count = Count::default();
        let x = lost.buffer::<u8>(4).unwrap();
        let mut graph = Graph::new(&works);
        let fill = graph.fill(&x, 1).id();
        graph.launch(count.kernel().call(), Range::linear(1)).on(&works);
        graph.launch(count.kernel().call(), Range::linear(1)).on(&works).after([fill]);
        let exec = graph.finalize().unwrap();
        let submission = exec.submit();
        yield_often().await;
        control.lose_device();
        let error = submission.await.unwrap_err();
        assert_eq!((error.kind(), error.device()), (ErrorKind::DeviceLost, Some(lost.selector())), "{error}");
        assert_eq!(count.get(), 1);
    });
}

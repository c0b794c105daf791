//! Every wake policy, on devices that notify and on such that have to be looked at.

use wakegraph::{Graph, Range, WakePolicy, read};

use crate::common::{Count, device, held, in_both_runtimes, manual, polled_device, yield_often};
use crate::support::{Hold, Tracker, forget};

const POLICIES: [WakePolicy; 3] = [WakePolicy::Latency, WakePolicy::Balanced, WakePolicy::Efficient];

#[test]
fn every_policy_sees_every_completion() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            assert_eq!(device.wake_policy(), WakePolicy::Balanced);
            let count = Count::default();
            let single = count.graph(&device);
            let host = device.host_buffer::<u32>(4).unwrap();
            let mut graph = Graph::new(&device);
            let first = graph.launch(count.kernel().call(), Range::linear(1)).id();
            graph.host_task((read(&host),), async |_| ()).after([first]);
            let chain = graph.finalize().unwrap();
            for (round, policy) in POLICIES.into_iter().enumerate() {
                device.set_wake_policy(policy);
                assert_eq!(device.clone().wake_policy(), policy);
                for _ in 0..50 {
                    single.submit().await.unwrap();
                    chain.submit().await.unwrap();
                }
                let submissions: Vec<_> = (0..50).map(|_| single.submit()).collect();
                for submission in submissions {
                    submission.await.unwrap();
                }
                assert_eq!(count.get(), 150 * (round + 1));
            }
        }
    });
}

#[test]
fn a_polled_device_finishes_what_nobody_awaits() {
    in_both_runtimes(|| async {
        for policy in POLICIES {
            let (device, hold, tracker) = (polled_device(), Hold::new(), Tracker::new());
            device.set_wake_policy(policy);
            {
                let (held, token) = (hold.held(), tracker.token());
                let kernel = crate::common::raw("held", move || {
                    let _token = &token;
                    held.pass();
                    Ok(())
                });
                let exec = crate::common::single(&device, &kernel);
                drop(exec.submit());
                forget(exec.submit());
                drop(exec.submit().cancel_on_drop());
            }
            drop(device);
            hold.wait_for(1);
            hold.open();
            tracker.wait_until_freed();
            assert_eq!(hold.arrived(), 3);
        }
    });
}

#[test]
fn long_work_on_a_polled_device_does_not_hide_short_work() {
    in_both_runtimes(|| async {
        let (device, hold) = (polled_device(), Hold::new());
        let long = held(&device, &hold).submit();
        let count = Count::default();
        let short = count.graph(&device);
        for _ in 0..20 {
            short.submit().await.unwrap();
        }
        assert!(!long.is_finished());
        hold.open();
        long.await.unwrap();
    });
}

#[test]
fn completions_out_of_the_order_of_submission_are_seen() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let execs: Vec<_> = (0..5)
                .map(|_| {
                    let mut graph = Graph::new(&device);
                    graph.fill(&device.buffer::<u8>(1).unwrap(), 1);
                    graph.finalize().unwrap()
                })
                .collect();
            let mut submissions: Vec<_> = execs.iter().map(|exec| exec.submit()).collect();
            submissions.extend(execs.iter().map(|exec| exec.submit()));
            assert_eq!(control.pending(), 10);
            assert!(control.complete_next(None));
            submissions.remove(0).await.unwrap();
            yield_often().await;
            assert!(submissions.iter().all(|submission| !submission.is_finished()));
            control.complete_all();
            for submission in submissions.into_iter().rev() {
                submission.await.unwrap();
            }
        }
    });
}

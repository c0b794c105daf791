//! Ten thousand submissions at once.

use wakegraph::{Graph, Range};

use crate::common::{Count, device, held_kernel, in_both_runtimes, manual, polled_device};
use crate::support::{Hold, Tracker, forget};

const MANY: usize = 10_000;

#[test]
fn of_one_partition() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let (hold, count) = (Hold::new(), Count::default());
            let mut graph = Graph::new(&device);
            let first = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
            graph.launch(count.kernel().call(), Range::linear(1)).after([first]);
            let exec = graph.finalize().unwrap();
            let submissions: Vec<_> = (0..MANY).map(|_| exec.submit()).collect();
            hold.wait_for(1);
            assert!(submissions.iter().all(|submission| !submission.is_finished()));
            hold.open();
            for submission in submissions {
                submission.await.unwrap();
            }
            assert_eq!(count.get(), MANY);
        }
    });
}

#[test]
fn with_host_tasks() {
    in_both_runtimes(|| async {
        let device = device();
        let (hold, count, tracker) = (Hold::new(), Count::default(), Tracker::new());
        let mut graph = Graph::new(&device);
        let first = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
        let (counter, token) = (count.clone(), tracker.token());
        graph
            .host_task((), async move |()| {
                let _token = token;
                counter.add_one();
            })
            .after([first]);
        let exec = graph.finalize().unwrap();
        drop(graph);
        let submissions: Vec<_> = (0..MANY).map(|_| exec.submit()).collect();
        assert!(submissions.iter().all(|submission| !submission.is_finished()));
        hold.open();
        // Awaited from the last to the first.
        for submission in submissions.into_iter().rev() {
            submission.await.unwrap();
        }
        assert_eq!(count.get(), MANY);
        drop(exec);
        tracker.wait_until_freed();
    });
}

#[test]
fn of_different_executables() {
    in_both_runtimes(|| async {
        let device = device();
        let x = device.buffer::<u32>(4).unwrap();
        let execs: Vec<_> = (0..10)
            .map(|n| {
                let mut graph = Graph::new(&device);
                graph.fill(&x, n);
                graph.finalize().unwrap()
            })
            .collect();
        let submissions: Vec<_> = (0..MANY).map(|i| execs[i % 10].submit()).collect();
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [9; 4]);
    });
}

#[test]
fn detached_submissions_complete() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let x = device.buffer::<u32>(4).unwrap();
            let mut graph = Graph::new(&device);
            graph.fill(&x, 1);
            let exec = graph.finalize().unwrap();
            (0..MANY).for_each(|i| if i % 2 == 0 { drop(exec.submit()) } else { forget(exec.submit()) });
            let last = exec.submit();
            assert_eq!(control.pending(), MANY + 1);
            assert!(!last.is_finished());
            assert_eq!(control.complete_all(), MANY + 1);
            last.await.unwrap();
        }
    });
}

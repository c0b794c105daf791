//! A tokio runtime that goes away with work pending: waiters on other runtimes resolve, nothing hangs,
//! nothing is lost.

use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use wakegraph::{ErrorKind, Graph, Range};

use crate::common::{
    Count, current_thread, device, held, held_kernel, multi_thread, polled_device, yield_often,
};
use crate::support::{Hold, Tracker, block_on};

const RUNTIMES: [fn() -> Runtime; 2] = [current_thread, multi_thread];

/// Submits inside a runtime, whose tasks then run for a while.
fn submit_in<T>(runtime: &Runtime, submit: impl FnOnce() -> T) -> T {
    let submitted = {
        let _entered = runtime.enter();
        submit()
    };
    runtime.block_on(yield_often());
    submitted
}

#[test]
fn before_a_partition_starts() {
    for runtime in RUNTIMES {
        for device in [device(), polled_device()] {
            let (hold, count, tracker) = (Hold::new(), Count::default(), Tracker::new());
            let mut graph = Graph::new(&device);
            let first = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
            let (counter, token) = (count.clone(), tracker.token());
            let task = graph.host_task((), async move |()| {
                let _token = token;
                counter.add_one();
            });
            let task = task.after([first]).id();
            graph.launch(count.kernel().call(), Range::linear(1)).after([task]);
            let exec = graph.finalize().unwrap();
            drop(graph);
            let doomed = runtime();
            let submission = submit_in(&doomed, || exec.submit());
            hold.wait_for(1);
            drop(doomed);
            assert!(!submission.is_finished(), "the device still works on it");
            hold.open();
            // In another runtime, and in none at all.
            let event = submission.event();
            assert_eq!(multi_thread().block_on(submission).unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(block_on(event.wait()).unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(count.get(), 0);
            current_thread().block_on(async { exec.submit().await }).unwrap();
            assert_eq!(count.get(), 2);
            drop(exec);
            tracker.wait_until_freed();
        }
    }
}

#[test]
fn in_the_middle_of_a_host_task() {
    for runtime in RUNTIMES {
        let (device, tracker) = (device(), Tracker::new());
        let host = device.host_buffer_from(&[1u32]).unwrap();
        let (started, mut starts) = mpsc::unbounded_channel();
        let token = tracker.token();
        let mut graph = Graph::new(&device);
        graph.host_task((wakegraph::write(&host),), async move |(_view,)| {
            let _token = token;
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        let exec = graph.finalize().unwrap();
        let doomed = runtime();
        let (submission, behind) = submit_in(&doomed, || (exec.submit(), exec.submit()));
        doomed.block_on(starts.recv()).unwrap();
        drop(doomed);
        assert_eq!(block_on(submission).unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(block_on(behind).unwrap_err().kind(), ErrorKind::Cancelled);
        // The view is gone with the task, so the memory is free again.
        assert_eq!(*block_on(host.write()), [1]);
        drop((graph, exec));
        tracker.wait_until_freed();
    }
}

#[test]
fn ten_thousand_deferred_submissions_resolve_in_their_order() {
    for runtime in RUNTIMES {
        let (device, hold, count) = (device(), Hold::new(), Count::default());
        let mut graph = Graph::new(&device);
        let first = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
        let counter = count.clone();
        graph.host_task((), async move |()| counter.add_one()).after([first]);
        let exec = graph.finalize().unwrap();
        let doomed = runtime();
        let submissions: Vec<_> = submit_in(&doomed, || (0..10_000).map(|_| exec.submit()).collect());
        hold.wait_for(1);
        drop(doomed);
        // None of them is over before the run in front of it is: that one still runs on the device.
        assert!(submissions.iter().all(|submission| !submission.is_finished()));
        hold.open();
        for submission in submissions.into_iter().rev() {
            assert_eq!(block_on(submission).unwrap_err().kind(), ErrorKind::Cancelled);
        }
        assert_eq!(count.get(), 0);
    }
}

#[test]
fn while_a_future_of_the_wait_list_is_pending() {
    for runtime in RUNTIMES {
        let (device, hold, tracker) = (device(), Hold::new(), Tracker::new());
        let exec = held(&device, &hold);
        let doomed = runtime();
        let token = tracker.token();
        let future = async move {
            let _token = token;
            std::future::pending::<()>().await;
        };
        let (running, waiting) =
            submit_in(&doomed, || (exec.submit(), exec.prepare().after_future(future).submit()));
        hold.wait_for(1);
        drop(doomed);
        tracker.wait_until_freed();
        assert!(!waiting.is_finished(), "it keeps its place behind the first");
        hold.open();
        block_on(running).unwrap();
        assert_eq!(block_on(waiting).unwrap_err().kind(), ErrorKind::Cancelled);
    }
}

#[test]
fn work_that_needs_no_runtime_goes_on() {
    for runtime in RUNTIMES {
        for device in [device(), polled_device()] {
            let hold = Hold::new();
            let exec = held(&device, &hold);
            let doomed = runtime();
            let submissions: Vec<_> = submit_in(&doomed, || (0..10).map(|_| exec.submit()).collect());
            drop(doomed);
            hold.open();
            for submission in submissions {
                block_on(submission).unwrap();
            }
        }
    }
}

#[test]
fn submitting_while_the_runtime_shuts_down() {
    /// Submits when it is dropped, which is when its task is.
    struct Last(wakegraph::ExecutableGraph, std::sync::mpsc::Sender<wakegraph::Submission>);

    impl Drop for Last {
        fn drop(&mut self) {
            let waiting = self.0.prepare().after_future(async {}).submit();
            self.1.send(waiting).unwrap();
            self.1.send(self.0.submit()).unwrap();
        }
    }

    for runtime in RUNTIMES {
        let (device, count) = (device(), Count::default());
        let counter = count.clone();
        let mut graph = Graph::new(&device);
        graph.host_task((), async move |()| counter.add_one());
        let exec = graph.finalize().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let doomed = runtime();
        let last = Last(exec.clone(), send);
        doomed.block_on(async {
            tokio::spawn(async move {
                let _last = last;
                std::future::pending::<()>().await;
            });
            yield_often().await;
        });
        drop(doomed);
        for submission in receive.iter() {
            assert!(block_on(submission).is_err());
        }
        assert_eq!(count.get(), 0);
        multi_thread().block_on(async { exec.submit().await }).unwrap();
    }
}

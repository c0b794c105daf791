//! Host tasks between device work: async and blocking, reading and writing host buffers, once a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};
use wakegraph::graph::CommandKind;
use wakegraph::{ErrorKind, Graph, Range, read, write};

use crate::kernels::add;
use crate::suite::{Need, Setup, tests};
use crate::support::PANIC;

tests!("graph/host_tasks":
    &[Need::Results] => [between_kernels, blocking_tasks, eight_accesses, slices_of_host_buffers,
        a_view_that_is_moved_out_delays_completion, chains_of_tasks],
    &[] => [alone, awaits_what_it_likes, runs_once_a_submission, errors_and_panics]);

// add 1 -> copy -> host task doubles -> copy -> add 1
fn between_kernels(setup: &Setup) {
    let device = setup.device();
    let (x, host) = (device.buffer_from(&[1u32, 2]).unwrap(), device.host_buffer::<u32>(2).unwrap());
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(2));
    graph.copy(&x, &host);
    let task = graph.host_task((write(&host),), async |(mut host,)| {
        tokio::task::yield_now().await;
        host.iter_mut().for_each(|x| *x *= 2);
    });
    let task = task.id();
    graph.copy(&host, &x);
    graph.launch(add(1, &x), Range::linear(2));
    assert_eq!(graph.kind(task).unwrap(), CommandKind::HostTask);
    let exec = graph.finalize().unwrap();
    assert_eq!(exec.plan().partitions().len(), 3);
    setup.block_on(async {
        let mut expected = [1u32, 2];
        for _ in 0..3 {
            exec.submit().await.unwrap();
            expected = expected.map(|x| (x + 1) * 2 + 1);
            assert_eq!(x.to_vec().await.unwrap(), expected);
        }
    });
}

fn blocking_tasks(setup: &Setup) {
    let device = setup.device();
    let (x, host) = (device.buffer_from(&[1u32]).unwrap(), device.host_buffer::<u32>(1).unwrap());
    let mut graph = Graph::new(device);
    graph.copy(&x, &host);
    graph.host_task_blocking((write(&host),), |(mut host,)| host[0] += 10);
    graph.copy(&host, &x);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..=3 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [1 + 10 * replay]);
        }
    });
}

fn eight_accesses(setup: &Setup) {
    let device = setup.device();
    let hosts: Vec<_> = (0..8u32).map(|i| device.host_buffer_from(&[i]).unwrap()).collect();
    let [a, b, c, d, e, f, g, h] = &hosts[..] else { unreachable!() };
    let mut graph = Graph::new(device);
    let accesses = (read(a), read(b), read(c), read(d), read(e), read(f), read(g), write(h));
    graph.host_task(accesses, async |(a, b, c, d, e, f, g, mut h)| {
        h[0] += a[0] + b[0] + c[0] + d[0] + e[0] + f[0] + g[0];
    });
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(h.read().await[0], 7 + 2 * 21);
    });
}

fn slices_of_host_buffers(setup: &Setup) {
    let device = setup.device();
    let host = device.host_buffer_from(&[1u32, 2, 3, 4]).unwrap();
    let (low, high) = (host.slice(..2).unwrap(), host.slice(2..).unwrap());
    let mut graph = Graph::new(device);
    graph.host_task((read(&low), write(&high)), async |(low, mut high)| high.copy_from_slice(&low));
    graph.host_task((write(&low),), async |(mut low,)| low.fill(9));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(*host.read().await, [9, 9, 1, 2]);
        exec.submit().await.unwrap();
        assert_eq!(*host.read().await, [9, 9, 9, 9]);
    });
}

fn a_view_that_is_moved_out_delays_completion(setup: &Setup) {
    let device = setup.device();
    let host = device.host_buffer_from(&[5u32]).unwrap();
    let (give, mut take) = mpsc::unbounded_channel();
    let mut graph = Graph::new(device);
    graph.host_task((read(&host),), async move |(view,)| give.send(view).unwrap());
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            let submission = exec.submit();
            let view = take.recv().await.unwrap();
            // The closure has returned, or is about to; the view keeps the run open either way.
            tokio::task::yield_now().await;
            assert!(!submission.is_finished());
            assert_eq!(*view, [5]);
            drop(view);
            submission.await.unwrap();
        }
    });
}

fn chains_of_tasks(setup: &Setup) {
    let device = setup.device();
    let host = device.host_buffer_from(&[1u64]).unwrap();
    let mut graph = Graph::new(device);
    for n in 0..20 {
        if n % 2 == 0 {
            graph.host_task((write(&host),), async move |(mut host,)| host[0] = host[0].wrapping_mul(31) + n);
        } else {
            graph.host_task_blocking((write(&host),), move |(mut host,)| {
                host[0] = host[0].wrapping_mul(31) + n
            });
        }
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut expected = 1u64;
        for _ in 0..2 {
            exec.submit().await.unwrap();
            (0..20).for_each(|n| expected = expected.wrapping_mul(31) + n);
            assert_eq!(host.read().await[0], expected);
        }
    });
}

fn alone(setup: &Setup) {
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = ran.clone();
    let mut graph = Graph::new(setup.device());
    graph.host_task((), async move |()| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..=3 {
            exec.submit().await.unwrap();
            assert_eq!(ran.load(Ordering::SeqCst), replay);
        }
    });
}

fn awaits_what_it_likes(setup: &Setup) {
    let (ask, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<u32>>();
    let mut graph = Graph::new(setup.device());
    graph.host_task((), async move |()| {
        let (answer, answered) = oneshot::channel();
        ask.send(answer)?;
        assert_eq!(answered.await?, 42);
        Ok::<_, wakegraph::BoxError>(())
    });
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            let submission = exec.submit();
            let question = asked.recv().await.unwrap();
            assert!(!submission.is_finished());
            question.send(42).unwrap();
            submission.await.unwrap();
        }
    });
}

fn runs_once_a_submission(setup: &Setup) {
    let ran = Arc::new(AtomicUsize::new(0));
    let mut graph = Graph::new(setup.device());
    for _ in 0..5 {
        let counter = ran.clone();
        graph.host_task((), async move |()| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let submissions: Vec<_> = (0..20).map(|_| exec.submit()).collect();
        for submission in submissions {
            submission.await.unwrap();
        }
    });
    assert_eq!(ran.load(Ordering::SeqCst), 100);
}

fn errors_and_panics(setup: &Setup) {
    let device = setup.device();
    let error = |name: &str, graph: &Graph, kind: ErrorKind| {
        let exec = graph.finalize().unwrap();
        for _ in 0..2 {
            let error = setup.block_on(async { exec.submit().await }).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.node().unwrap().contains(name), "{error}");
            assert_eq!(error.partition(), Some(0));
            assert!(error.to_string().contains(PANIC), "{error}");
        }
    };
    let mut failing = Graph::new(device);
    failing.host_task((), async |()| Err::<(), _>(PANIC)).name("failing");
    error("failing", &failing, ErrorKind::HostTaskFailed);
    let mut panicking = Graph::new(device);
    panicking.host_task((), async |()| -> () { std::panic::panic_any(PANIC) }).name("panicking");
    error("panicking", &panicking, ErrorKind::HostTaskPanicked);
    let mut blocking = Graph::new(device);
    blocking.host_task_blocking((), |()| -> () { std::panic::panic_any(PANIC) }).name("blocking");
    error("blocking", &blocking, ErrorKind::HostTaskPanicked);
}

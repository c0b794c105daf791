//! Values that submissions bring for their host tasks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use futures::FutureExt as _;
use tokio::sync::{Semaphore, oneshot};
use wakegraph::host_task::run_data;
use wakegraph::service::ExecutablePool;
use wakegraph::{
    Device, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, Result, read, write,
};

use crate::common::{current_thread, device, in_both_runtimes, manual, multi_thread};

/// A request that carries the channel for its answer.
struct Request {
    number: u32,
    answer: oneshot::Sender<u32>,
}

fn request(number: u32) -> (Request, oneshot::Receiver<u32>) {
    let (answer, answered) = oneshot::channel();
    (Request { number, answer }, answered)
}

/// A graph whose host task answers its request with a number of the device.
fn answering(device: &Device) -> Graph {
    let (x, out) = (device.buffer_from(&[100u32]).unwrap(), device.host_buffer::<u32>(1).unwrap());
    let mut graph = Graph::new(device);
    graph.copy(&x, &out);
    graph.host_task((read(&out), run_data::<Request>()), async |(out, request)| {
        let Request { number, answer } = request.take().expect("no other task takes it");
        let _ = answer.send(number + out[0]);
    });
    graph
}

/// Tells when it is dropped.
struct TellsDrop(Sender<&'static str>);

impl Drop for TellsDrop {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

fn tells_drop() -> (TellsDrop, Receiver<&'static str>) {
    let (send, told) = channel();
    (TellsDrop(send), told)
}

fn refusal<T: Send + 'static>(exec: &ExecutableGraph, value: T) -> String {
    let error = exec.prepare().run_data(value).submit().now_or_never().expect("refused").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    error.to_string()
}

#[test]
fn each_run_has_the_value_of_its_submission() {
    in_both_runtimes(|| async {
        let exec = answering(&device()).finalize().unwrap();
        let requests: Vec<_> = (0..20).map(request).collect();
        let submitted: Vec<_> = requests
            .into_iter()
            .map(|(request, answered)| (exec.prepare().run_data(request).submit(), answered))
            .collect();
        for (number, (submission, answered)) in submitted.into_iter().enumerate() {
            submission.await.unwrap();
            assert_eq!(answered.await.unwrap(), 100 + number as u32);
        }
    });
}

#[test]
fn host_tasks_of_a_run_share_the_value() {
    current_thread().block_on(async {
        let device = device();
        let out = device.host_buffer::<usize>(2).unwrap();
        let mut graph = Graph::new(&device);
        let first = graph.host_task_blocking((run_data::<Vec<u32>>(),), |(list,)| {
            list.with(|list| list.push(7)).expect("it is there");
        });
        let first = first.id();
        graph
            .host_task((run_data::<Vec<u32>>(), write(&out)), async |(list, mut out)| {
                out[0] = list.take().map_or(0, |list| list.len());
                out[1] = usize::from(list.take().is_none() && list.with(|_| ()).is_none());
            })
            .after([first]);
        let exec = graph.finalize().unwrap();
        exec.prepare().run_data(vec![1u32]).submit().await.unwrap();
        assert_eq!(*out.read().await, [2, 1]);
    });
}

#[test]
fn a_submission_brings_what_the_host_tasks_take() {
    current_thread().block_on(async {
        let device = device();
        let exec = answering(&device).finalize_with(FinalizeOptions::new().name("answers")).unwrap();
        let error = exec.submit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.executable(), Some("answers"));
        assert!(error.to_string().contains("Request`, and the submission brings none"), "{error}");
        let other = refusal(&exec, 5u8);
        assert!(other.contains("Request`, not `u8`"), "{other}");
        let mut graph = Graph::new(&device);
        graph.host_task((), async |()| ());
        let unwanted = refusal(&graph.finalize().unwrap(), 5u8);
        assert!(unwanted.contains("`u8`, and no host task takes it"), "{unwanted}");
    });
}

#[test]
fn all_host_tasks_of_a_graph_take_one_type() {
    let device = device();
    let mut inner = Graph::new(&device);
    inner.host_task((run_data::<u16>(),), async |_| ());
    let mut graph = answering(&device);
    graph.sub_graph(&inner).name("inner");
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("`u16`") && error.to_string().contains("Request`"), "{error}");
    assert!(error.node().is_some_and(|node| node.starts_with("host task")), "{error}");
    let mut both = Graph::new(&device);
    both.host_task((run_data::<u8>(), run_data::<u16>()), async |_| ());
    assert_eq!(both.finalize().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_value_that_nobody_takes_is_dropped_at_the_end() {
    current_thread().block_on(async {
        let (device, control) = manual(true);
        let out = device.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.copy(device.buffer::<u32>(4).unwrap(), &out);
        graph.host_task((read(&out), run_data::<TellsDrop>()), async |_| ());
        let exec = graph.finalize().unwrap();
        let other = answering(&device).finalize().unwrap();
        // Not taken, cancelled, failed on the device, and refused.
        for case in 0..4 {
            let (value, told) = tells_drop();
            if case == 3 {
                refusal(&other, value);
                assert_eq!(told.recv(), Ok("dropped"));
                continue;
            }
            let submission = exec.prepare().run_data(value).submit();
            assert!(told.try_recv().is_err());
            match case {
                1 => submission.cancel(),
                2 => control.fail_next(wakegraph::Error::new(ErrorKind::Driver, "as it should")),
                _ => {}
            }
            control.complete_all();
            assert_eq!(submission.await.is_ok(), case == 0);
            assert_eq!(told.recv(), Ok("dropped"));
        }
    });
}

// Also one without a drop, which a host task has kept the access to.
#[test]
fn a_value_is_gone_when_its_run_has_ended() {
    current_thread().block_on(async {
        let (send, sent) = channel();
        let mut graph = Graph::new(&device());
        graph.host_task((run_data::<u32>(),), async move |(number,)| {
            let _ = send.send(number);
        });
        graph.finalize().unwrap().prepare().run_data(4u32).submit().await.unwrap();
        let number = sent.recv().unwrap();
        assert_eq!((number.with(|number| *number), number.take()), (None, None));
    });
}

#[test]
fn a_value_may_submit_when_it_is_dropped() {
    struct Submits(Option<(ExecutableGraph, Sender<bool>)>);

    impl Drop for Submits {
        fn drop(&mut self) {
            let Some((exec, done)) = self.0.take() else { return };
            // It locks the state, and finds no tokio runtime on this thread.
            let submission = exec.prepare().run_data(Self(None)).submit();
            let _ = done.send(submission.now_or_never().expect("refused").is_err());
        }
    }

    current_thread().block_on(async {
        let device = device();
        let mut graph = Graph::new(&device);
        graph.host_task((run_data::<Submits>(),), async |_| ());
        let mut failing = Graph::new(&device);
        failing.host_task((), async |()| Err::<(), _>("as it should"));
        let (exec, failed) = (graph.finalize().unwrap(), failing.finalize().unwrap().submit().event());
        assert!(failed.wait().await.is_err());
        let (done, told) = channel();
        // It is abandoned where the state of the executable is locked.
        let value = Submits(Some((exec.clone(), done)));
        assert!(exec.prepare().after_event(&failed).run_data(value).submit().await.is_err());
        assert_eq!(told.recv(), Ok(true));
    });
}

#[test]
fn a_value_that_is_in_use_outlives_its_run() {
    multi_thread().block_on(async {
        let device = device();
        let (send, sent) = channel();
        let gate = Arc::new(Semaphore::new(0));
        let opened = gate.clone();
        let mut graph = Graph::new(&device);
        graph.host_task((run_data::<TellsDrop>(),), async move |(value,)| {
            let _ = send.send(value);
            let _ = opened.acquire().await;
        });
        let exec = graph.finalize().unwrap();
        let (value, told) = tells_drop();
        let submission = exec.prepare().run_data(value).submit();
        let value = sent.recv().unwrap();
        let ended = value.with(|_| {
            gate.add_permits(1);
            // The run waits for nobody who uses the value.
            while !submission.is_finished() {
                std::thread::yield_now();
            }
            told.try_recv().is_err()
        });
        assert_eq!(ended, Some(true));
        submission.await.unwrap();
        drop(value);
        assert_eq!(told.recv(), Ok("dropped"));
    });
}

#[test]
fn what_a_loop_runs_gets_the_value() {
    current_thread().block_on(async {
        let device = device();
        let left = device.host_buffer_from(&[3u32]).unwrap();
        let mut body = Graph::new(&device);
        body.host_task((write(&left), run_data::<Vec<u32>>()), async |(mut left, list)| {
            left[0] -= 1;
            list.with(|list| list.push(left[0])).expect("it outlives each iteration");
        });
        let mut graph = Graph::new(&device);
        let each = graph.while_nonzero(&left, &body).id();
        let (send, sent) = channel();
        graph
            .host_task((run_data::<Vec<u32>>(),), async move |(list,)| {
                let _ = send.send(list.take());
            })
            .after([each]);
        let exec = graph.finalize().unwrap();
        assert_eq!(exec.submit().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        exec.prepare().run_data(vec![9u32]).submit().await.unwrap();
        assert_eq!(sent.recv(), Ok(Some(vec![9, 2, 1, 0])));
    });
}

#[test]
fn an_update_keeps_the_type() {
    current_thread().block_on(async {
        let device = device();
        let (send, sent) = channel();
        let mut graph = Graph::new(&device);
        let task = graph.host_task((run_data::<u32>(),), async |_| ()).id();
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let doubled = async move |(number,): (wakegraph::host_task::RunData<u32>,)| {
            let _ = send.send(number.take().map(|number| 2 * number));
        };
        exec.update().host_task(task, (run_data::<u32>(),), doubled).apply().await.unwrap();
        let other = exec.update().host_task(task, (run_data::<u8>(),), async |_| ()).apply().await;
        assert_eq!(other.unwrap_err().kind(), ErrorKind::InvalidArgument);
        exec.prepare().run_data(4u32).submit().await.unwrap();
        assert_eq!(sent.recv(), Ok(Some(8)));
    });
}

#[test]
fn a_command_of_a_queue_has_no_value() {
    current_thread().block_on(async {
        let device = device();
        let queue = device.queue().unwrap();
        let refused = queue.host_task((run_data::<u32>(),), async |_| ()).wait().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        let exec = answering(&device).finalize().unwrap();
        assert_eq!(queue.submit(&exec).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        // What it records becomes a node.
        let mut graph = Graph::new(&device);
        let recording = graph.record([&queue]).unwrap();
        queue.host_task((run_data::<u32>(),), async |(number,)| assert_eq!(number.take(), Some(4)));
        drop(recording);
        graph.finalize().unwrap().prepare().run_data(4u32).submit().await.unwrap();
    });
}

#[test]
fn a_request_of_a_pool_brings_its_value() {
    current_thread().block_on(async {
        let device = device();
        let pool = ExecutablePool::new(1, move |_| Ok((answering(&device).finalize()?, ())));
        for number in 0..3 {
            let (request, answered) = request(number);
            let slot = pool.acquire().await.unwrap();
            slot.submit_with(|submit| submit.run_data(request)).await.unwrap();
            assert_eq!(answered.await.unwrap(), 100 + number);
        }
    });
}

#[test]
fn a_deferred_submission_brings_its_value() {
    async fn answer(exec: &ExecutableGraph, guarded: &HostBuffer<u32>) -> Result<u32> {
        let (open, gate) = oneshot::channel::<()>();
        let (request, answered) = request(1);
        let guard = guarded.write().await;
        let submission = exec.prepare().after_future(gate).run_data(request).submit();
        open.send(()).expect("the submission waits");
        drop(guard);
        submission.await?;
        Ok(answered.await.expect("answered"))
    }

    current_thread().block_on(async {
        let device = device();
        let guarded = device.host_buffer::<u32>(1).unwrap();
        let mut graph = answering(&device);
        graph.host_task((write(&guarded),), async |_| ());
        assert_eq!(answer(&graph.finalize().unwrap(), &guarded).await.unwrap(), 101);
    });
}

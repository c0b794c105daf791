//! Commands of queues that run at once: results, order against everything else, errors.

use std::sync::Arc;

use tokio::sync::oneshot;
use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{ErrorKind, Event, Graph, HostBuffer, Queue, Range, Result, read, write};

use crate::kernels::{add, fold, mix};
use crate::suite::{Need, Setup, tests};
use crate::support::PANIC;

tests!("graph/queues":
    &[Need::Results] => [every_command, in_order_commands_follow_each_other, memory_orders_all_queues,
        executables_and_commands_take_turns, guards_and_commands_take_turns, executables_in_order,
        host_tasks_between_commands, sub_graphs_run,
        wait_lists_of_submissions_and_commands, a_failed_dependency_fails_the_command,
        commands_outlive_their_queue_and_buffers, many_commands_from_many_threads],
    &[] => [barriers, errors_come_out_of_events, wait_gives_the_first_failure, handles_are_the_same_queue],
    &[Need::Results, Need::TwoDevices] => [queues_of_two_devices, memory_out_of_reach],
    &[Need::Results, Need::SharedMemory, Need::FailingKernels] => [a_failing_kernel_names_itself]);

fn queues(setup: &Setup) -> [Queue; 2] {
    [setup.device().queue().unwrap(), setup.device().out_of_order_queue().unwrap()]
}

async fn elements(host: &HostBuffer<u32>) -> Vec<u32> {
    host.read().await.to_vec()
}

fn every_command(setup: &Setup) {
    let device = setup.device();
    for queue in queues(setup) {
        setup.block_on(async {
            for replay in 0..3 {
                let x = device.buffer::<u32>(6).unwrap();
                let y = device.buffer::<u32>(6).unwrap();
                let out = device.host_buffer::<u32>(6).unwrap();
                queue.write(&x, &[1, 2, 3, 4, 5, replay]);
                queue.prefetch(&x);
                queue.fill_pattern(&y, &[7, 8]);
                queue.launch(add(10, &x), Range::linear(6));
                queue.copy(x.slice(1..3).unwrap(), y.slice(0..2).unwrap());
                let rect = RectCopy::new([1, 2], Layout::rows(3), Layout::rows(3).origin([2, 0]));
                queue.copy_rect(&x, &y, rect);
                queue.copy(&y, &out).await.unwrap();
                assert_eq!(elements(&out).await, [12, 13, 11, 8, 7, 14]);
                queue.fill(&y, replay).await.unwrap();
                queue.wait().await.unwrap();
                assert_eq!(y.to_vec().await.unwrap(), [replay; 6]);
            }
        });
    }
}

fn in_order_commands_follow_each_other(setup: &Setup) {
    let device = setup.device();
    let queue = device.queue().unwrap();
    assert!(queue.is_in_order() && queue.device() == device);
    let x = device.buffer::<u32>(4).unwrap();
    setup.block_on(async {
        let mut expected = 0u32;
        for n in 0..100 {
            queue.launch(mix(n, &x), Range::linear(4));
            expected = expected.wrapping_mul(31).wrapping_add(n);
        }
        queue.wait().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
    });
}

fn memory_orders_all_queues(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let mut all = Vec::from(queues(setup));
    all.extend(queues(setup));
    setup.block_on(async {
        let (mut a, mut b) = (0u32, 0u32);
        let mut last = None;
        for n in 0..60u32 {
            let queue = &all[(n * 7 % 4) as usize];
            last = Some(match n % 3 {
                0 => queue.launch(fold(&x, &y), Range::linear(1)),
                _ => queue.launch(mix(n, &x), Range::linear(4)),
            });
            match n % 3 {
                0 => b = b.wrapping_mul(31).wrapping_add(a.wrapping_mul(4)),
                _ => a = a.wrapping_mul(31).wrapping_add(n),
            }
        }
        last.unwrap().await.unwrap();
        for queue in &all {
            queue.wait().await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [a; 4]);
        assert_eq!(y.to_vec().await.unwrap(), [b; 4]);
    });
}

fn executables_and_commands_take_turns(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(mix(1000, &x), Range::linear(4));
    let exec = graph.finalize().unwrap();
    for queue in queues(setup) {
        setup.block_on(async {
            x.write(&[0; 4]).await.unwrap();
            let mut expected = 0u32;
            for n in 0..40 {
                queue.launch(mix(n, &x), Range::linear(4));
                let submission = exec.submit();
                expected = expected.wrapping_mul(31).wrapping_add(n).wrapping_mul(31).wrapping_add(1000);
                if n % 10 == 0 {
                    submission.await.unwrap();
                }
            }
            assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
        });
    }
}

fn guards_and_commands_take_turns(setup: &Setup) {
    let device = setup.device();
    let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
    for queue in queues(setup) {
        setup.block_on(async {
            for n in 1..5 {
                let mut guard = host.write().await;
                guard.fill(n);
                let copied = queue.copy(&host, &x);
                tokio::task::yield_now().await;
                assert!(!copied.is_finished());
                guard.fill(10 * n);
                drop(guard);
                queue.launch(add(1, &x), Range::linear(4));
                queue.copy(&x, &host);
                assert_eq!(elements(&host).await, [10 * n + 1; 4]);
                copied.await.unwrap();
            }
        });
    }
}

fn executables_in_order(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(1).unwrap(), device.buffer::<u32>(1).unwrap());
    let (host, queue) = (device.host_buffer::<u32>(1).unwrap(), device.queue().unwrap());
    let mut graph = Graph::new(device);
    graph.copy(&x, &host);
    graph.host_task((write(&host),), async |(mut host,)| {
        tokio::task::yield_now().await;
        host[0] += 1;
    });
    graph.copy(&host, &x);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..4 {
            queue.launch(add(1, &x), Range::linear(1));
            let submission = queue.submit(&exec);
            // Other memory: only the queue orders it.
            let filled = queue.fill(&y, replay);
            filled.await.unwrap();
            assert!(submission.is_finished());
            submission.await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [2 * replay]);
            assert_eq!(y.to_vec().await.unwrap(), [replay]);
        }
        queue.wait().await.unwrap();
    });
}

fn host_tasks_between_commands(setup: &Setup) {
    let device = setup.device();
    let (x, host) = (device.buffer::<u32>(2).unwrap(), device.host_buffer::<u32>(2).unwrap());
    for queue in queues(setup) {
        setup.block_on(async {
            x.write(&[1, 2]).await.unwrap();
            let mut expected = [1, 2];
            for _ in 0..3 {
                queue.copy(&x, &host);
                queue.host_task((write(&host),), async |(mut host,)| {
                    tokio::task::yield_now().await;
                    host.iter_mut().for_each(|x| *x *= 3);
                });
                queue.host_task_blocking((write(&host),), |(mut host,)| host[0] += 1);
                queue.copy(&host, &x);
                expected = [expected[0] * 3 + 1, expected[1] * 3];
            }
            let expected = Arc::new(expected);
            queue.copy(&x, &host);
            let checked = queue.host_task((read(&host),), async move |(host,)| assert_eq!(*host, *expected));
            checked.await.unwrap();
            queue.wait().await.unwrap();
        });
    }
}

fn sub_graphs_run(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(mix(3, &x), Range::linear(4));
    graph.launch(mix(4, &x), Range::linear(4));
    for queue in queues(setup) {
        setup.block_on(async {
            queue.fill(&x, 1);
            queue.sub_graph(&graph);
            queue.launch(add(1, &x), Range::linear(4));
            queue.sub_graph(&graph).await.unwrap();
            let once = |x: u32| (x * 31 + 3) * 31 + 4;
            assert_eq!(x.to_vec().await.unwrap(), [once(once(1) + 1); 4]);
        });
    }
}

fn a_failed_dependency_fails_the_command(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[5u32]).unwrap();
    for queue in queues(setup) {
        setup.block_on(async {
            let other = device.queue().unwrap();
            let failed = other.host_task((), async |()| Err::<(), _>(std::io::Error::other("no")));
            let event = queue.after([&failed]).fill(&x, 6);
            let error = event.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostTaskFailed);
            // The queue goes on.
            queue.launch(add(1, &x), Range::linear(1)).await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [6]);
            let late = queue.after([&failed]).fill(&x, 7);
            assert_eq!(late.await.unwrap_err().kind(), ErrorKind::HostTaskFailed);
            assert_eq!(queue.wait().await.unwrap_err().kind(), ErrorKind::HostTaskFailed);
            queue.wait().await.unwrap();
            queue.fill(&x, 5).await.unwrap();
        });
    }
}

fn commands_outlive_their_queue_and_buffers(setup: &Setup) {
    let device = setup.device();
    let out = device.host_buffer::<u32>(1000).unwrap();
    setup.block_on(async {
        for queue in queues(setup) {
            let mut last: Option<Event> = None;
            for n in 0..20 {
                let x = device.buffer::<u32>(1000).unwrap();
                queue.fill(&x, n);
                queue.launch(add(1, &x), Range::linear(1000));
                last = Some(queue.copy(&x, &out));
            }
            drop(queue);
            last.unwrap().await.unwrap();
            assert_eq!(elements(&out).await, [20; 1000]);
        }
    });
}

fn many_commands_from_many_threads(setup: &Setup) {
    let device = setup.device();
    for queue in queues(setup) {
        let x: Vec<_> = (0..4).map(|_| device.buffer::<u32>(8).unwrap()).collect();
        let total = device.buffer::<u32>(8).unwrap();
        std::thread::scope(|scope| {
            for own in &x {
                let (queue, total) = (queue.clone(), &total);
                scope.spawn(move || {
                    for _ in 0..50 {
                        queue.launch(add(1, own), Range::linear(8));
                        queue.launch(add(1, total), Range::linear(8));
                    }
                });
            }
        });
        setup.block_on(async {
            queue.wait().await.unwrap();
            assert_eq!(total.to_vec().await.unwrap(), [200; 8]);
            for x in &x {
                assert_eq!(x.to_vec().await.unwrap(), [50; 8]);
            }
        });
    }
}

fn barriers(setup: &Setup) {
    let device = setup.device();
    let buffers: Vec<_> = (0..6).map(|_| device.buffer::<u32>(4).unwrap()).collect();
    for queue in queues(setup) {
        setup.block_on(async {
            for replay in 0..3 {
                let (open, gate) = oneshot::channel::<()>();
                let gate = Arc::new(tokio::sync::Mutex::new(Some(gate)));
                let task = queue.host_task((), async move |()| {
                    let gate = gate.lock().await.take();
                    gate.unwrap().await.unwrap();
                });
                let before = queue.fill(&buffers[0], replay);
                let barrier = queue.barrier();
                let after = queue.fill(&buffers[1], replay);
                assert!(!barrier.is_finished() && !after.is_finished() && !task.is_finished());
                open.send(()).unwrap();
                after.await.unwrap();
                assert!(barrier.is_finished() && before.is_finished() && task.is_finished());
                let (first, second) = (queue.fill(&buffers[2], 1), queue.fill(&buffers[3], 1));
                let listed = queue.barrier_after([&first]);
                queue.fill(&buffers[4], 1).await.unwrap();
                assert!(first.is_finished() && listed.is_finished());
                second.await.unwrap();
                queue.wait().await.unwrap();
            }
        });
    }
}

fn errors_come_out_of_events(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(3).unwrap());
    let host = device.host_buffer::<u32>(4).unwrap();
    for queue in queues(setup) {
        setup.block_on(async {
            let mut graph = Graph::new(device);
            let scratch = graph.scratch::<u32>(4).unwrap();
            let refused: [(Event, ErrorKind, &str); 7] = [
                (queue.copy(&x, &y), ErrorKind::InvalidSize, "cannot copy 4 elements to a buffer of 3"),
                (queue.copy(&host, &host), ErrorKind::InvalidArgument, "both sides"),
                (queue.fill_pattern(&x, &[1, 2, 3]), ErrorKind::InvalidSize, "does not divide"),
                (queue.launch(add(1, &x), Range::linear(5)), ErrorKind::InvalidSize, "range"),
                (queue.launch(fold(&x, &x), Range::linear(1)), ErrorKind::InvalidArgument, "overlapping"),
                (queue.fill(&scratch, 1), ErrorKind::InvalidArgument, "scratch buffer"),
                (
                    queue.host_task((read(&host), write(&host)), async |_| ()),
                    ErrorKind::InvalidArgument,
                    "overlap",
                ),
            ];
            for (event, kind, words) in refused {
                assert!(event.is_finished());
                let error = event.await.unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(words), "{error}");
                assert!(error.node().is_some(), "{error}");
            }
            assert_eq!(queue.wait().await.unwrap_err().kind(), ErrorKind::InvalidSize);
            queue.fill(&x, 1).await.unwrap();
            queue.wait().await.unwrap();
        });
    }
}

fn wait_gives_the_first_failure(setup: &Setup) {
    for queue in queues(setup) {
        setup.block_on(async {
            queue.host_task((), async |()| ());
            queue.host_task((), async |()| {
                if true {
                    panic!("{PANIC}");
                }
            });
            let error = queue.wait().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostTaskPanicked);
            queue.wait().await.unwrap();
        });
    }
}

fn handles_are_the_same_queue(setup: &Setup) {
    let queue = setup.device().queue().unwrap();
    let clone = queue.clone();
    setup.block_on(async {
        let result: Result<()> = clone.host_task((), async |()| Err::<(), _>("no")).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::HostTaskFailed);
        assert!(queue.wait().await.is_err());
    });
}

fn wait_lists_of_submissions_and_commands(setup: &Setup) {
    let device = setup.device();
    let (x, host) = (device.buffer::<u32>(1).unwrap(), device.host_buffer::<u32>(1).unwrap());
    let mut graph = Graph::new(device);
    graph.host_task((write(&host),), async |(mut host,)| {
        tokio::task::yield_now().await;
        host[0] += 1;
    });
    let exec = graph.finalize().unwrap();
    for queue in queues(setup) {
        setup.block_on(async {
            for n in 0..3 {
                let submitted = exec.submit();
                let filled = queue.after([&submitted.event()]).fill(&x, n);
                let second = exec.prepare().after_event(&filled).submit();
                filled.wait().await.unwrap();
                assert!(submitted.is_finished());
                second.await.unwrap();
                assert_eq!(x.to_vec().await.unwrap(), [n]);
            }
        });
    }
    assert_eq!(setup.block_on(elements(&host)), [12]);
}

/// A kernel runs on the queue's device, also where its memory lies on another one; if it can be reached.
fn memory_out_of_reach(setup: &Setup) {
    let [one, other] = &setup.devices[..2] else { unreachable!() };
    let (x, own) = (other.buffer::<u32>(4).unwrap(), one.buffer::<u32>(4).unwrap());
    let queue = one.queue().unwrap();
    let launch = || queue.launch(add(1, &x), Range::linear(4));
    setup.block_on(async {
        let mut graph = Graph::new(one);
        let recording = graph.record([&queue]).unwrap();
        launch();
        drop(recording);
        let (ran, recorded) = (launch().await, graph.finalize());
        match (ran, recorded) {
            (Ok(()), Ok(exec)) => {
                exec.submit().await.unwrap();
                exec.submit().await.unwrap();
                assert_eq!(x.to_vec().await.unwrap(), [3; 4]);
            }
            (Err(ran), Err(recorded)) => {
                assert_eq!(ran.kind(), ErrorKind::InvalidArgument, "{ran}");
                assert_eq!(recorded.kind(), ErrorKind::InvalidArgument, "{recorded}");
                assert!(ran.node().is_some() && recorded.node().is_some());
                assert!(queue.wait().await.is_err());
            }
            (ran, recorded) => panic!("{ran:?}, {recorded:?}"),
        }
        queue.fill(&own, 1).await.unwrap();
        queue.wait().await.unwrap();
    });
}

fn queues_of_two_devices(setup: &Setup) {
    let [one, other] = &setup.devices[..2] else { unreachable!() };
    let (x, y) = (one.buffer::<u32>(4).unwrap(), other.buffer::<u32>(4).unwrap());
    let (first, second) = (one.queue().unwrap(), other.queue().unwrap());
    setup.block_on(async {
        for n in 0..5 {
            first.fill(&x, n);
            first.copy(&x, &y);
            second.launch(add(1, &y), Range::linear(4));
            second.copy(&y, &x);
            first.launch(add(1, &x), Range::linear(4)).await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [n + 2; 4]);
            let done = first.fill(&x, 9);
            second.after([&done]).fill(&y, 7).await.unwrap();
            assert!(done.is_finished());
        }
    });
}

fn a_failing_kernel_names_itself(setup: &Setup) {
    let device = setup.device();
    let kernel = wakegraph::kernel::RawKernel::new("refuses")
        .host(|_, _| Err(wakegraph::Error::new(ErrorKind::Driver, "as it should")));
    for queue in queues(setup) {
        setup.block_on(async {
            let error = queue.launch(kernel.call(), Range::linear(1)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Driver);
            assert_eq!(error.node(), Some("kernel 'refuses'"), "{error}");
            assert!(error.to_string().contains(file!()), "{error}");
            let x = device.buffer::<u32>(1).unwrap();
            queue.fill(&x, 1).await.unwrap();
            assert_eq!(queue.wait().await.unwrap_err().kind(), ErrorKind::Driver);
        });
    }
}

//! Order between submissions: of one executable, of executables that share memory, and freedom of
//! those that do not.

use std::sync::{Arc, Barrier, Mutex};

use wakegraph::kernel::RawKernel;
use wakegraph::{Device, Graph, Range, write};

use crate::common::{device, held, in_both_runtimes, multi_thread, polled_device, raw, single};
use crate::support::Hold;

wakegraph::kernel! {
    fn mix(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_mul(31).wrapping_add(n)),
    }
    fn sum(x: &[u32], y: &mut [u32]) {
        host: |_, x, y| y[0] = y[0].wrapping_mul(31).wrapping_add(x.iter().sum::<u32>()),
    }
    fn claim(x: &mut [u32], y: &mut [u32]) {
        host: |_, x, y| {
            claim_once(x);
            claim_once(y);
        },
    }
}

/// Panics if something else uses the memory at the same time; counts the calls.
fn claim_once(x: &mut [u32]) {
    let is_in_use = std::mem::replace(&mut x[0], 1);
    assert_eq!(is_in_use, 0, "another command uses the memory");
    for _ in 0..20 {
        std::hint::black_box(&mut *x);
        std::hint::spin_loop();
    }
    x[0] = 0;
    x[1] += 1;
}

fn mixed(x: u32, n: u32) -> u32 {
    x.wrapping_mul(31).wrapping_add(n)
}

fn mixing(device: &Device, n: u32, x: &wakegraph::Buffer<u32>) -> wakegraph::ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.launch(mix(n, x), Range::linear(x.len())).on(device);
    graph.finalize().unwrap()
}

#[test]
fn resubmitting_without_waiting_runs_in_order() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let log = Arc::new(Mutex::new(Vec::new()));
            let (first, second) = (log.clone(), log.clone());
            let mut graph = Graph::new(&device);
            let a = raw("a", move || {
                first.lock().unwrap().push('a');
                Ok(())
            });
            let b = raw("b", move || {
                second.lock().unwrap().push('b');
                Ok(())
            });
            let a = graph.launch(a.call(), Range::linear(1)).id();
            let task = graph.host_task((), async |()| tokio::task::yield_now().await).after([a]).id();
            graph.launch(b.call(), Range::linear(1)).after([task]);
            let exec = graph.finalize().unwrap();
            let submissions: Vec<_> = (0..50).map(|_| exec.submit()).collect();
            for submission in submissions {
                submission.await.unwrap();
            }
            let ran: String = log.lock().unwrap().iter().collect();
            assert_eq!(ran, "ab".repeat(50), "runs of one executable never overlap");
        }
    });
}

#[test]
fn executables_that_share_memory_run_in_submission_order() {
    in_both_runtimes(|| async {
        // On one device, on two that wait for each other, and polled.
        for (a, b) in [(device(), device()), (polled_device(), device()), (device(), polled_device())] {
            let x = a.buffer_from(&[1u32; 10]).unwrap();
            let execs = [mixing(&a, 1, &x), mixing(&b, 2, &x), mixing(&a, 3, &x.slice(2..5).unwrap())];
            let mut model = [1u32; 10];
            let mut submissions = Vec::new();
            for i in 0..120 {
                let which = (i * i + i / 7) % 3;
                submissions.push(execs[which].submit());
                let range = if which == 2 { 2..5 } else { 0..10 };
                model[range].iter_mut().for_each(|x| *x = mixed(*x, which as u32 + 1));
            }
            for submission in submissions {
                submission.await.unwrap();
            }
            assert_eq!(x.to_vec().await.unwrap(), model);
        }
    });
}

#[test]
fn host_tasks_take_part_in_the_order() {
    in_both_runtimes(|| async {
        let device = device();
        let (x, host) =
            (device.buffer_from(&[1u32; 4]).unwrap(), device.host_buffer_from(&[1u32; 4]).unwrap());
        let on_device = mixing(&device, 1, &x);
        let mut graph = Graph::new(&device);
        graph.copy(&x, &host);
        graph.host_task((write(&host),), async |(mut host,)| host.iter_mut().for_each(|x| *x = mixed(*x, 2)));
        graph.copy(&host, &x);
        let on_host = graph.finalize().unwrap();
        let mut graph = Graph::new(&device);
        graph.host_task((write(&host),), async |(mut host,)| host.fill(7));
        let unrelated_to_x = graph.finalize().unwrap();
        let mut submissions = Vec::new();
        let mut model = 1;
        for _ in 0..30 {
            submissions.extend([on_device.submit(), on_host.submit(), unrelated_to_x.submit()]);
            model = mixed(mixed(model, 1), 2);
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
        assert_eq!(*host.read().await, [7; 4]);
    });
}

#[test]
fn a_writer_waits_for_readers_that_are_in_flight() {
    in_both_runtimes(|| async {
        let device = device();
        let hold = Hold::new();
        let x = device.buffer_from(&[5u32; 4]).unwrap();
        let y = device.buffer::<u32>(1).unwrap();
        let held = hold.held();
        let reader = RawKernel::new("reader").reads::<u32>("x").writes::<u32>("y").host(move |_, args| {
            held.pass();
            let x = args.read::<u32>()?;
            args.write::<u32>()?[0] = x[0];
            Ok(())
        });
        let mut graph = Graph::new(&device);
        graph.launch(reader.call().memory::<u32>(&x).memory::<u32>(&y), Range::linear(1));
        let reading = graph.finalize().unwrap().submit();
        let writing = mixing(&device, 1, &x).submit();
        hold.wait_for(1);
        hold.open();
        reading.await.unwrap();
        writing.await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [5]);
        assert_eq!(x.to_vec().await.unwrap(), [mixed(5, 1); 4]);
    });
}

/// Kernels that wait for each other get through only when they run at the same time.
fn meeting(
    device: &Device,
    barrier: &Arc<Barrier>,
    x: Option<&wakegraph::Buffer<u32>>,
) -> wakegraph::ExecutableGraph {
    let barrier = barrier.clone();
    let Some(x) = x else {
        return single(
            device,
            &raw("meet", move || {
                barrier.wait();
                Ok(())
            }),
        );
    };
    let kernel = RawKernel::new("meet").reads::<u32>("x").host(move |_, _| {
        barrier.wait();
        Ok(())
    });
    let mut graph = Graph::new(device);
    graph.launch(kernel.call().memory::<u32>(x), Range::linear(1)).on(device);
    graph.finalize().unwrap()
}

#[test]
fn executables_that_share_nothing_overlap() {
    in_both_runtimes(|| async {
        let barrier = Arc::new(Barrier::new(2));
        let one = device();
        // On two devices, and on two threads of one.
        for (a, b) in [(device(), device()), (one.clone(), one), (polled_device(), polled_device())] {
            let (a, b) = (meeting(&a, &barrier, None), meeting(&b, &barrier, None));
            for _ in 0..10 {
                let (a, b) = (a.submit(), b.submit());
                a.await.unwrap();
                b.await.unwrap();
            }
        }
    });
}

#[test]
fn executables_that_read_the_same_memory_overlap() {
    in_both_runtimes(|| async {
        let barrier = Arc::new(Barrier::new(2));
        let (a, b) = (device(), device());
        let x = a.buffer::<u32>(4).unwrap();
        let (a, b) = (meeting(&a, &barrier, Some(&x)), meeting(&b, &barrier, Some(&x)));
        for _ in 0..10 {
            let (a, b) = (a.submit(), b.submit());
            a.await.unwrap();
            b.await.unwrap();
        }
    });
}

#[test]
fn a_dropped_executable_still_counts_in_the_order() {
    in_both_runtimes(|| async {
        let device = device();
        let hold = Hold::new();
        let x = device.buffer_from(&[1u32]).unwrap();
        let held = hold.held();
        let slow = RawKernel::new("slow").writes::<u32>("x").host(move |_, args| {
            held.pass();
            args.write::<u32>()?[0] += 10;
            Ok(())
        });
        let mut graph = Graph::new(&device);
        graph.launch(slow.call().memory::<u32>(&x), Range::linear(1));
        drop(graph.finalize().unwrap().submit());
        drop(graph);
        hold.wait_for(1);
        // Made after the other one was dropped, while it runs.
        let later = mixing(&device, 0, &x);
        let later = later.submit();
        hold.open();
        later.await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [11 * 31]);
    });
}

#[test]
fn results_of_one_executable_reach_another() {
    in_both_runtimes(|| async {
        let device = device();
        let (x, y) = (device.buffer_from(&[1u32, 2]).unwrap(), device.buffer::<u32>(1).unwrap());
        let produce = mixing(&device, 1, &x);
        let mut graph = Graph::new(&device);
        graph.launch(sum(&x, &y), Range::linear(1));
        let consume = graph.finalize().unwrap();
        let (mut x, mut y) = ([1u32, 2], 0u32);
        let mut last = None;
        for _ in 0..100 {
            drop(produce.submit());
            last = Some(consume.submit());
            x = x.map(|x| mixed(x, 1));
            y = mixed(y, x[0].wrapping_add(x[1]));
            if y % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
        last.unwrap().await.unwrap();
    });
}

#[test]
fn a_held_executable_does_not_hold_others() {
    in_both_runtimes(|| async {
        let device = device();
        let hold = Hold::new();
        let slow = held(&device, &hold).submit();
        for _ in 0..20 {
            single(&device, &raw("quick", || Ok(()))).submit().await.unwrap();
        }
        assert!(!slow.is_finished());
        hold.open();
        slow.await.unwrap();
    });
}

/// Threads that submit, finalize, drop and hold guards at the same time, over a ring of buffers.
#[test]
fn conflicting_submissions_never_overlap() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 60;
    for device in [device(), polled_device()] {
        let buffers: Vec<_> = (0..THREADS).map(|_| device.host_buffer::<u32>(2).unwrap()).collect();
        let exec = |at: usize| {
            let mut graph = Graph::new(&device);
            graph.launch(claim(&buffers[at], &buffers[(at + 1) % THREADS]), Range::linear(1));
            graph.finalize().unwrap()
        };
        let runtime = multi_thread();
        std::thread::scope(|scope| {
            for (at, buffer) in buffers.iter().enumerate() {
                let (exec, runtime) = (&exec, &runtime);
                scope.spawn(move || {
                    let mut kept = exec(at);
                    runtime.block_on(async {
                        for round in 0..ROUNDS {
                            let short_lived = exec(at).submit();
                            let (first, second) = (kept.submit(), kept.submit());
                            if round % 3 == at % 3 {
                                claim_once(&mut buffer.write().await);
                            }
                            if round % 5 == 0 {
                                kept = exec(at);
                            }
                            for submission in [second, short_lived, first] {
                                submission.await.unwrap();
                            }
                        }
                    });
                });
            }
        });
        let counts = buffers.iter().map(|buffer| buffer.try_read().unwrap()[1] as usize);
        // Two executables a buffer, three submissions a round, and a guard in every third.
        assert_eq!(counts.collect::<Vec<_>>(), [2 * 3 * ROUNDS + ROUNDS / 3; THREADS]);
    }
}

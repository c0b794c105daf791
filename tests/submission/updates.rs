//! Updates among submissions: their place in the order, what they keep alive, what happens when they fail.

use std::sync::atomic::Ordering;

use wakegraph::backend::host::{self, HostOptions};
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, NodeId, Range, kernel};

use crate::common::{
    Count, current_thread, device, held_kernel, in_both_runtimes, multi_thread, polled_device, raw,
    yield_often,
};
use crate::faulty::{faulty_updates, slow_to_load};
use crate::support::{Hold, Tracker, block_on, must_end};

kernel! {
    fn mix(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_mul(31).wrapping_add(n)),
    }
}

fn finalize(graph: &Graph) -> ExecutableGraph {
    graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap()
}

fn mixed(start: u32, numbers: &[u32]) -> u32 {
    numbers.iter().fold(start, |x, n| x.wrapping_mul(31).wrapping_add(*n))
}

/// A kernel that waits for the test, then `mix`.
fn held_mix(device: &Device, hold: &Hold, x: &Buffer<u32>) -> (ExecutableGraph, NodeId) {
    let mut graph = Graph::new(device);
    let first = graph.launch(held_kernel(hold).call(), Range::linear(1)).id();
    let node = graph.launch(mix(1, x), Range::linear(x.len())).after([first]).id();
    (finalize(&graph), node)
}

/// A held kernel, a host task, then `mix`: what is submitted has not all been enqueued.
fn held_task_mix(device: &Device, hold: &Hold, x: &Buffer<u32>) -> (ExecutableGraph, NodeId) {
    let mut graph = Graph::new(device);
    let first = graph.launch(held_kernel(hold).call(), Range::linear(1)).id();
    let task = graph.host_task((), async |()| ()).after([first]).id();
    let node = graph.launch(mix(1, x), Range::linear(x.len())).after([task]).id();
    (finalize(&graph), node)
}

#[test]
fn work_on_the_device_keeps_its_values() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let (hold, x) = (Hold::new(), device.buffer_from(&[1u32; 4]).unwrap());
            let (exec, node) = held_mix(&device, &hold, &x);
            let mut submissions = vec![exec.submit()];
            hold.wait_for(1);
            for n in 2..6 {
                let applied = exec.update().launch(node, mix(n, &x)).apply();
                assert!(applied.is_known(), "nothing has to be waited for");
                applied.await.unwrap();
                submissions.push(exec.submit());
            }
            assert!(submissions.iter().all(|submission| !submission.is_finished()));
            hold.open();
            for submission in submissions {
                submission.await.unwrap();
            }
            assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 2, 3, 4, 5]); 4]);
        }
    });
}

#[test]
fn an_update_waits_for_runs_that_still_need_the_host() {
    in_both_runtimes(|| async {
        let device = device();
        let (hold, x) = (Hold::new(), device.buffer_from(&[1u32; 4]).unwrap());
        let (exec, node) = held_task_mix(&device, &hold, &x);
        let first = exec.submit();
        hold.wait_for(1);
        let applied = [2, 3].map(|n| exec.update().launch(node, mix(n, &x)).apply());
        let second = exec.submit();
        let last = exec.update().launch(node, mix(4, &x)).apply();
        let third = exec.submit();
        yield_often().await;
        assert!(applied.iter().all(|applied| !applied.is_known()));
        assert_eq!(hold.arrived(), 1, "nothing behind the update has started");
        hold.open();
        for applied in applied {
            applied.await.unwrap();
        }
        assert!(first.is_finished());
        second.await.unwrap();
        last.await.unwrap();
        third.await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 3, 4]); 4]);
        // Over and done: the next one applies at once.
        assert!(exec.update().launch(node, mix(5, &x)).apply().is_known());
    });
}

#[test]
fn dropped_futures_and_executables_change_nothing_of_that() {
    in_both_runtimes(|| async {
        let device = device();
        let (hold, x) = (Hold::new(), device.buffer_from(&[1u32; 4]).unwrap());
        let (exec, node) = held_task_mix(&device, &hold, &x);
        drop(exec.submit());
        hold.wait_for(1);
        drop(exec.update().launch(node, mix(2, &x)).apply());
        // One that fails, and whose future is dropped.
        drop(exec.update().range(node, Range::new([1, 1])).apply());
        let last = exec.submit();
        drop(exec);
        hold.open();
        last.await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 2]); 4]);
    });
}

#[test]
fn a_failed_update_in_its_turn_changes_nothing() {
    in_both_runtimes(|| async {
        let device = device();
        let (hold, x) = (Hold::new(), device.buffer_from(&[1u32; 4]).unwrap());
        let (exec, node) = held_task_mix(&device, &hold, &x);
        let first = exec.submit();
        let update = exec.update().launch(node, mix(2, &x)).range(node, Range::new([1, 1])).apply();
        let second = exec.submit();
        hold.open();
        assert_eq!(update.await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        first.await.unwrap();
        second.await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 1]); 4]);
    });
}

#[test]
fn without_tokio_only_what_is_on_devices_can_be_updated() {
    let device = device();
    let (hold, x) = (Hold::new(), device.buffer_from(&[1u32; 4]).unwrap());
    let (exec, node) = held_mix(&device, &hold, &x);
    hold.open();
    for n in 0..20 {
        let submission = exec.submit();
        block_on(exec.update().launch(node, mix(n, &x)).apply()).unwrap();
        block_on(submission).unwrap();
    }
    let hold = Hold::new();
    let (exec, node) = held_task_mix(&device, &hold, &x);
    let runtime = multi_thread();
    let running = {
        let _entered = runtime.enter();
        exec.submit()
    };
    let error = block_on(exec.update().launch(node, mix(2, &x)).apply()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    assert!(error.message().contains("outside a tokio runtime"), "{error}");
    hold.open();
    runtime.block_on(running).unwrap();
    block_on(exec.update().launch(node, mix(2, &x)).apply()).unwrap();
}

#[test]
fn a_runtime_that_shuts_down_leaves_the_update_out() {
    for runtime in [current_thread, multi_thread] {
        let device = device();
        let (hold, x) = (Hold::new(), device.buffer_from(&[1u32; 4]).unwrap());
        let (exec, node) = held_task_mix(&device, &hold, &x);
        let (doomed, lasting) = (runtime(), multi_thread());
        let first = {
            let _entered = lasting.enter();
            exec.submit()
        };
        hold.wait_for(1);
        let update = {
            let _entered = doomed.enter();
            exec.update().launch(node, mix(2, &x)).apply()
        };
        doomed.block_on(yield_often());
        let second = {
            let _entered = lasting.enter();
            exec.submit()
        };
        drop(doomed);
        assert_eq!(block_on(update).unwrap_err().kind(), ErrorKind::Cancelled);
        hold.open();
        lasting.block_on(async {
            first.await.unwrap();
            second.await.unwrap();
        });
        assert_eq!(block_on(x.to_vec()).unwrap(), [mixed(1, &[1, 1]); 4]);
    }
}

#[test]
fn replaced_memory_lives_as_long_as_a_run_uses_it() {
    in_both_runtimes(|| async {
        let (device, hold, tracker) = (device(), Hold::new(), Tracker::new());
        let held = held_kernel(&hold);
        let graph = |count: &Count| {
            let mut graph = Graph::new(&device);
            let first = graph.launch(held.call(), Range::linear(1)).id();
            let (count, token) = (count.clone(), tracker.token());
            let task = async move |()| {
                let _token = token;
                count.add_one();
            };
            graph.host_task((), task).after([first]);
            graph
        };
        let counts = [Count::default(), Count::default()];
        let exec = finalize(&graph(&counts[0]));
        let running = exec.submit();
        hold.wait_for(1);
        let update = exec.update_from(&graph(&counts[1]));
        let after = exec.submit();
        assert_eq!(tracker.alive(), 2);
        hold.open();
        running.await.unwrap();
        update.await.unwrap();
        after.await.unwrap();
        assert_eq!(counts.map(|count| count.get()), [1, 1]);
        while tracker.alive() > 1 {
            std::thread::yield_now();
        }
        drop(exec);
        tracker.wait_until_freed();
    });
}

/// Two partitions on two devices, the second behind the first.
fn two_devices(a: &Device, b: &Device) -> (ExecutableGraph, [NodeId; 2], [Buffer<u32>; 2]) {
    let (x, y) = (a.buffer_from(&[1u32; 4]).unwrap(), b.buffer_from(&[1u32; 4]).unwrap());
    let mut graph = Graph::new(a);
    let first = graph.launch(mix(1, &x), Range::linear(4)).id();
    let second = graph.launch(mix(2, &y), Range::linear(4)).after([first]).id();
    (finalize(&graph), [first, second], [x, y])
}

#[test]
fn a_device_that_refuses_stops_the_update_of_all() {
    in_both_runtimes(|| async {
        let open = || host::open(HostOptions::new().threads(1)).unwrap();
        let ((a, _), (b, refuses)) = (faulty_updates(open()), faulty_updates(open()));
        let (exec, [first, second], [x, y]) = two_devices(&a, &b);
        let (spare, other) = (a.buffer_from(&[1u32; 4]).unwrap(), b.buffer_from(&[1u32; 4]).unwrap());
        refuses.store(0, Ordering::SeqCst);
        let update = exec.update().launch(first, mix(10, &spare)).enabled(second, false).apply();
        let error = update.await.unwrap_err();
        assert_eq!((error.kind(), error.device()), (ErrorKind::Driver, Some(b.selector())), "{error}");
        let mut graph = Graph::new(&a);
        let before = graph.launch(mix(20, &spare), Range::linear(4)).id();
        graph.launch(mix(20, &other), Range::linear(4)).after([before]);
        let error = exec.update_from(&graph).await.unwrap_err();
        assert_eq!((error.kind(), error.device()), (ErrorKind::Driver, Some(b.selector())), "{error}");
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1]); 4]);
        assert_eq!(y.to_vec().await.unwrap(), [mixed(1, &[2]); 4]);
        assert_eq!(spare.to_vec().await.unwrap(), [1; 4]);
        // The same once more, with nothing in the way.
        refuses.store(usize::MAX, Ordering::SeqCst);
        exec.update().enabled(first, false).apply().await.unwrap();
        refuses.store(0, Ordering::SeqCst);
        exec.update_from(&graph).await.unwrap_err();
        refuses.store(usize::MAX, Ordering::SeqCst);
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1]); 4], "still disabled");
        exec.update_from(&graph).await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(spare.to_vec().await.unwrap(), [mixed(1, &[20]); 4]);
        assert_eq!(other.to_vec().await.unwrap(), [mixed(1, &[20]); 4]);
    });
}

#[test]
fn an_update_to_nothing_lets_go_of_the_memory_before() {
    must_end(|| {
        in_both_runtimes(|| async {
            let (device, tracker) = (device(), Tracker::new());
            let elements = Box::leak(Box::new([7u32; 4]));
            // SAFETY: the elements live for ever, and nothing else uses them.
            #[expect(unsafe_code, reason = "registers memory")]
            let source = unsafe { device.register::<u32>(elements.as_ptr().addr(), 4, tracker.token()) };
            let (source, y) = (source.unwrap(), device.buffer_from(&[1u32; 4]).unwrap());
            let mut graph = Graph::new(&device);
            let copy = graph.copy(&source, &y).id();
            let exec = finalize(&graph);
            drop((graph, source));
            exec.submit().await.unwrap();
            let other = device.host_buffer_from(&[9u32; 4]).unwrap();
            let part = |len| (other.slice(..len).unwrap(), y.slice(..len).unwrap());
            let (from, to) = part(0);
            exec.update().copy(copy, &from, &to).apply().await.unwrap();
            tracker.wait_until_freed();
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [7; 4]);
            let (from, to) = part(4);
            exec.update().copy(copy, &from, &to).apply().await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [9; 4]);
        });
    });
}

// A fill and a launch on the first of two devices, the second of which refuses.
#[test]
fn idle_commands_come_back_when_an_update_is_taken_back() {
    in_both_runtimes(|| async {
        let open = || host::open(HostOptions::new().threads(1)).unwrap();
        let ((a, _), (b, refuses)) = (faulty_updates(open()), faulty_updates(open()));
        let (x, y) = (a.buffer_from(&[1u32; 4]).unwrap(), b.buffer_from(&[1u32; 4]).unwrap());
        let build = |len: usize, n: u32| {
            let mut graph = Graph::new(&a);
            let fill = graph.fill(&x.slice(..len).unwrap(), n).id();
            let launch = graph.launch(mix(n, &x), Range::linear(len)).after([fill]).id();
            let last = graph.launch(mix(n, &y), Range::linear(4)).after([launch]).id();
            (graph, [fill, launch, last])
        };
        let (graph, [fill, launch, last]) = build(0, 1);
        let exec = finalize(&graph);
        let update = |len: usize, value: u32| {
            let part = x.slice(..len).unwrap();
            exec.update().fill(fill, &part, value).range(launch, Range::linear(len))
        };
        let refused = async |len: usize| {
            refuses.store(0, Ordering::SeqCst);
            let error = update(len, 5).launch(last, mix(5, &y)).apply().await.unwrap_err();
            assert_eq!(error.device(), Some(b.selector()), "{error}");
            let error = exec.update_from(&build(len, 5).0).await.unwrap_err();
            assert_eq!(error.device(), Some(b.selector()), "{error}");
            refuses.store(usize::MAX, Ordering::SeqCst);
            exec.submit().await.unwrap();
        };
        refused(4).await;
        assert_eq!(x.to_vec().await.unwrap(), [1; 4]);
        assert_eq!(y.to_vec().await.unwrap(), [mixed(1, &[1]); 4]);
        update(4, 9).apply().await.unwrap();
        refused(0).await;
        assert_eq!(x.to_vec().await.unwrap(), [mixed(9, &[1]); 4]);
        assert_eq!(y.to_vec().await.unwrap(), [mixed(1, &[1, 1]); 4]);
    });
}

#[test]
fn an_update_that_cannot_be_taken_back_ends_the_executable() {
    in_both_runtimes(|| async {
        let open = || host::open(HostOptions::new().threads(1)).unwrap();
        let ((a, only_one), (b, refuses)) = (faulty_updates(open()), faulty_updates(open()));
        let (exec, [first, second], [x, y]) = two_devices(&a, &b);
        exec.submit().await.unwrap();
        only_one.store(1, Ordering::SeqCst);
        refuses.store(0, Ordering::SeqCst);
        exec.update().launch(first, mix(10, &x)).launch(second, mix(10, &y)).apply().await.unwrap_err();
        for _ in 0..2 {
            let error = exec.submit().await.unwrap_err();
            assert!(error.message().contains("could not be taken back"), "{error}");
            exec.update().launch(first, mix(1, &x)).apply().await.unwrap_err();
        }
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1]); 4]);
    });
}

/// A host guard of a buffer that an update brings waits for the runs that use it, and they for it.
#[test]
fn guards_know_what_an_update_brings() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let x = device.buffer_from(&[1u32; 4]).unwrap();
        let host = device.host_buffer_from(&[1u32; 4]).unwrap();
        let (exec, node) = held_mix(&device, &hold, &x);
        exec.update().launch(node, mix(5, &host)).apply().await.unwrap();
        let running = exec.submit();
        assert_eq!(host.try_read().err().map(|error| error.kind()), Some(ErrorKind::InvalidOperation));
        // What is in flight uses it, though the executable no longer does.
        exec.update().launch(node, mix(6, &x)).apply().await.unwrap();
        assert!(host.try_read().is_err());
        hold.open();
        running.await.unwrap();
        assert_eq!(*host.read().await, [mixed(1, &[5]); 4]);
        let guard = host.write().await;
        // No longer in the way.
        exec.submit().await.unwrap();
        drop(guard);
        exec.update().launch(node, mix(7, &host)).apply().await.unwrap();
        let guard = host.write().await;
        let waiting = exec.submit();
        yield_often().await;
        assert!(!waiting.is_finished());
        drop(guard);
        waiting.await.unwrap();
        assert_eq!(*host.read().await, [mixed(1, &[5, 7]); 4]);
    });
}

#[test]
fn many_threads_update_and_submit_at_once() {
    let device = device();
    let (x, count) = (device.buffer_from(&[0u32]).unwrap(), Count::default());
    let mut graph = Graph::new(&device);
    let node = graph.launch(mix(0, &x), Range::linear(1)).id();
    graph.launch(count.kernel().call(), Range::linear(1)).after([node]);
    let exec = finalize(&graph);
    let others: Vec<_> = (0..4).map(|_| device.buffer_from(&[0u32]).unwrap()).collect();
    std::thread::scope(|scope| {
        for other in &others {
            let (exec, x) = (&exec, &x);
            scope.spawn(move || {
                for n in 0..200 {
                    let target = if n % 2 == 0 { x } else { other };
                    block_on(exec.update().launch(node, mix(n, target)).apply()).unwrap();
                    block_on(exec.submit()).unwrap();
                }
            });
        }
    });
    assert_eq!(count.get(), 800);
}

/// Loading a kernel may take seconds. It is done before anything is locked, and before later
/// submissions have to wait.
#[test]
fn an_update_that_loads_a_kernel_blocks_no_submission() {
    must_end(|| {
        let hold = Hold::new();
        let device = slow_to_load(host::open(HostOptions::new().threads(2)).unwrap(), "slow", &hold);
        let x = device.buffer_from(&[1u32; 4]).unwrap();
        let mut graph = Graph::new(&device);
        let node = graph.launch(mix(1, &x), Range::linear(4)).id();
        let exec = finalize(&graph);
        let mut other = Graph::new(&device);
        other.launch(mix(1, &x), Range::linear(4)).alternative(raw("slow", || Ok(())).call());
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| block_on(exec.update_from(&other)));
            hold.wait_for(1);
            block_on(exec.update().launch(node, mix(2, &x)).apply()).unwrap();
            block_on(exec.submit()).unwrap();
            hold.open();
            loading.join().unwrap().unwrap();
        });
        block_on(exec.submit()).unwrap();
        assert_eq!(block_on(x.to_vec()).unwrap(), [mixed(1, &[2, 1]); 4]);
    });
}

kernel! {
    fn add_to(x: &[u32], y: &mut [u32]) { each: |i, x, y| *y += x[i] }
}

/// Two nodes conflict from an update on only. The edge orders them, not the order in which they were added.
#[test]
fn an_update_follows_an_edge_that_leads_back() {
    let device = device();
    let [x, y, z] = [1u32, 10, 100].map(|value| device.buffer_from(&[value]).unwrap());
    let mut graph = Graph::new(&device);
    let first = graph.launch(add_to(&x, &y), Range::linear(1)).id();
    let last = graph.launch(add_to(&x, &z), Range::linear(1)).id();
    graph.make_edge(last, first).unwrap();
    let exec = finalize(&graph);
    block_on(exec.update().launch(last, add_to(&z, &x)).apply()).unwrap();
    block_on(exec.submit()).unwrap();
    let values = [&x, &y, &z].map(|buffer| block_on(buffer.to_vec()).unwrap()[0]);
    assert_eq!(values, [101, 111, 100]);
}

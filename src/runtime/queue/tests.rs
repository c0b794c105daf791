//! Order between commands, executables and guards, on a device whose work the test completes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};
use wakegraph_hal::{Error, ErrorKind, Range, RangeBound};

use crate::kernel::RawKernel;
use crate::runtime::execution::run::runs_visited;
use crate::runtime::{Device, Event, Graph, Queue};
use crate::write;

fn manual_device() -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    (Device::from_hal(device), control)
}

fn finished(events: &[&Event]) -> Vec<bool> {
    events.iter().map(|event| event.is_finished()).collect()
}

/// Completes one enqueue after the other, and gives what has ended after each.
fn steps(control: &FakeControl, events: &[&Event]) -> Vec<Vec<bool>> {
    std::iter::from_fn(|| control.complete_next(None).then(|| finished(events))).collect()
}

#[test]
fn an_in_order_queue_runs_one_after_the_other() {
    let (device, control) = manual_device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let queue = device.queue().unwrap();
    let (first, second) = (queue.fill(&x, 1), queue.fill(&y, 1));
    assert_eq!(control.pending(), 2);
    assert_eq!(steps(&control, &[&first, &second]), [[true, false], [true, true]]);
}

/// The closure of the bound is code of the user's, which may use the queue.
#[test]
fn bounds_of_kernels_are_called_without_the_locks_of_a_recording() {
    let (device, _control) = manual_device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let queue = device.queue().unwrap();
    let (also, other, calls) = (queue.clone(), y.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    let kernel = RawKernel::new("add").value::<u32>("n").writes::<u32>("x").range_bound(move |args| {
        also.fill(&other, 1);
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(RangeBound::from([args.value::<u32>()? as usize]))
    });
    let kernel = kernel.host(|_, _| Ok(()));
    let mut graph = Graph::new(&device);
    let n = graph.param::<u32>(4);
    graph.launch(kernel.call().value(4_u32).memory::<u32>(&x), Range::linear(4)).param("n", &n);
    let mut last = calls.load(Ordering::Relaxed);
    let mut is_called = || std::mem::replace(&mut last, calls.load(Ordering::Relaxed)) < last;
    n.set(5);
    {
        let _recording = graph.record([&queue]).unwrap();
        assert!(is_called(), "before the recording");
        n.set(6);
        queue.fill(&x, 1);
        assert!(!is_called());
    }
    assert!(is_called(), "behind the recording");
    assert_eq!((n.get(), graph.len()), (Some(6), 2));
    n.set(7);
    let (mut outer, flag) = (Graph::new(&device), device.buffer::<u32>(1).unwrap());
    {
        let _recording = outer.record([&queue]).unwrap();
        queue.sub_graph(&graph);
        queue.if_nonzero(&flag, &graph);
        queue.if_nonzero_else(&flag, &graph, &graph);
        queue.while_nonzero(&flag, &graph);
    }
    // The closure has filled the memory before each of them.
    assert!(is_called() && outer.len() > 8, "{}", outer.len());
    graph.finalize().unwrap();
}

#[test]
fn notifications_may_come_late_and_out_of_order() {
    let (device, control) = manual_device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    for queue in [device.queue().unwrap(), device.out_of_order_queue().unwrap()] {
        for _ in 0..3 {
            control.hold_notifications(true);
            let first = queue.fill(&x, 1);
            let second = queue.after([&first]).fill(&y, 1);
            assert_eq!(finished(&[&first, &second]), [false; 2]);
            control.complete_all();
            assert_eq!(finished(&[&second, &first]), [true; 2]);
            control.hold_notifications(false);
            assert_eq!(finished(&[&second, &first]), [true; 2]);
        }
    }
}

#[test]
fn memory_orders_commands_of_two_queues_on_the_device() {
    let (device, control) = manual_device();
    let x = device.buffer::<u32>(4).unwrap();
    for (one, other) in [
        (device.queue().unwrap(), device.queue().unwrap()),
        (device.out_of_order_queue().unwrap(), device.queue().unwrap()),
        (device.queue().unwrap(), device.out_of_order_queue().unwrap()),
    ] {
        let first = one.fill(&x, 1);
        let second = other.fill(&x, 2);
        let third = one.fill(&x, 3);
        assert_eq!(control.pending(), 3, "the host waits for none of them");
        assert_eq!(second.run().comes_after().len(), 1);
        let by_queue = usize::from(one.is_in_order());
        assert_eq!(third.run().comes_after().len(), 1 + by_queue);
        let events = [&first, &second, &third];
        assert_eq!(steps(&control, &events), [[true, false, false], [true, true, false], [true; 3]]);
    }
}

#[test]
fn readers_do_not_wait_for_each_other() {
    let (device, control) = manual_device();
    let (x, y, z) = (
        device.buffer::<u32>(4).unwrap(),
        device.buffer::<u32>(4).unwrap(),
        device.buffer::<u32>(4).unwrap(),
    );
    let (one, other) = (device.queue().unwrap(), device.queue().unwrap());
    let (first, second) = (one.copy(&x, &y), other.copy(&x, &z));
    assert_eq!((first.run().comes_after().len(), second.run().comes_after().len()), (0, 0));
    let written = one.fill(&x, 1);
    assert_eq!(written.run().comes_after().len(), 2, "one by its queue");
    control.complete_all();
    assert!(written.is_finished());
}

#[test]
fn executables_and_commands_on_one_buffer_have_one_order() {
    let (device, control) = manual_device();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    let exec = graph.finalize().unwrap();
    let queue = device.queue().unwrap();
    let before = exec.submit().event();
    let command = queue.fill(&x, 2);
    let after = exec.submit().event();
    assert_eq!((command.run().comes_after().len(), after.run().comes_after().len()), (1, 2));
    let events = [&before, &command, &after];
    assert_eq!(steps(&control, &events), [[true, false, false], [true, true, false], [true; 3]]);
    // Without commands in flight, the executable needs no register again.
    drop(exec.submit());
    assert!(exec.inner.state.lock().contested.is_empty());
}

#[test]
fn an_executable_keeps_its_place_in_an_in_order_queue() {
    let (device, control) = manual_device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    let exec = graph.finalize().unwrap();
    let queue = device.queue().unwrap();
    let events = [queue.fill(&y, 1), queue.submit(&exec).event(), queue.fill(&y, 2)];
    let [first, submitted, last] = &events;
    let events = [first, submitted, last];
    assert_eq!(steps(&control, &events), [[true, false, false], [true, true, false], [true; 3]]);
}

#[test]
fn an_out_of_order_queue_orders_by_wait_lists_and_barriers() {
    for notifies in [true, false] {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(notifies));
        let device = Device::from_hal(device);
        let buffers: Vec<_> = (0..4).map(|_| device.buffer::<u32>(4).unwrap()).collect();
        let queue = device.out_of_order_queue().unwrap();
        let [first, second] = [0, 1].map(|at| queue.fill(&buffers[at], 1));
        let barrier = queue.barrier();
        let third = queue.after([&first]).fill(&buffers[2], 1);
        assert_eq!(control.pending(), 4);
        while !third.is_finished() {
            assert!(!barrier.is_finished() || first.is_finished() && second.is_finished());
            assert!(control.complete_next(None) || third.is_finished());
        }
        assert!(barrier.is_finished());
        control.complete_all();
    }
}

#[test]
fn a_failed_dependency_fails_a_command_and_not_the_next() {
    let (device, control) = manual_device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let (one, other) = (device.queue().unwrap(), device.queue().unwrap());
    control.fail_next(Error::new(ErrorKind::Driver, "as it should"));
    let failed = one.fill(&x, 1);
    let dependent = other.after([&failed]).fill(&y, 1);
    let next = other.fill(&y, 2);
    control.complete_all();
    let kind = |event: &Event| event.run().result().map_err(|error| error.kind());
    assert_eq!(kind(&failed), Err(ErrorKind::Driver));
    assert_eq!(kind(&dependent), Err(ErrorKind::Driver));
    assert_eq!(kind(&next), Ok(()));
    let error = failed.run().result().unwrap_err();
    assert_eq!(error.node(), Some("buffer fill"), "{error}");
}

#[test]
fn runs_are_used_again_and_buffers_let_go() {
    let (device, control) = manual_device();
    let queue = device.queue().unwrap();
    let mut addresses = std::collections::HashSet::new();
    for _ in 0..100 {
        let x = device.buffer::<u32>(4).unwrap();
        let allocation = std::sync::Arc::downgrade(&x.view().allocation);
        let event = queue.fill(&x, 1);
        addresses.insert(Arc::as_ptr(event.run()));
        drop(x);
        assert!(allocation.upgrade().is_some(), "the command keeps its memory");
        control.complete_all();
        assert!(event.is_finished());
        // The allocation is dropped on a thread of its own, and with it the register that refers to the run.
        // What is left are the event, and twice the queue.
        while allocation.upgrade().is_some() || std::sync::Arc::strong_count(event.run()) > 3 {
            std::thread::yield_now();
        }
    }
    assert!(addresses.len() < 10, "{}", addresses.len());
}

#[test]
fn a_lost_device_fails_its_commands() {
    let (device, control) = manual_device();
    let x = device.buffer::<u32>(4).unwrap();
    for queue in [device.queue().unwrap(), device.out_of_order_queue().unwrap()] {
        let _ = queue.fill(&x, 1);
    }
    let queue = device.queue().unwrap();
    let event = queue.fill(&x, 2);
    control.lose_device();
    assert_eq!(event.run().result().unwrap_err().kind(), ErrorKind::DeviceLost);
    let refused = queue.fill(&x, 3);
    assert_eq!(refused.run().result().unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn the_host_is_needed_for_guards_only_inside_tokio() {
    let (device, control) = manual_device();
    let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
    let queue: Queue = device.queue().unwrap();
    let guard = host.try_write().unwrap();
    let refused = queue.copy(&x, &host);
    let error = refused.run().result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    drop(guard);
    let copied = queue.copy(&x, &host);
    assert!(host.try_read().is_err());
    control.complete_all();
    assert!(copied.is_finished() && host.try_read().is_ok());
}

#[test]
fn a_long_command_does_not_keep_others_from_being_used_again() {
    let (device, control) = manual_device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let host = device.host_buffer::<u32>(4).unwrap();
    let queue = device.out_of_order_queue().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    // Held back by a guard.
    let guard = host.try_write().unwrap();
    let held = queue.copy(&x, &host);
    let mut addresses = std::collections::HashSet::new();
    for n in 0..100 {
        let event = queue.fill(&y, n);
        addresses.insert(Arc::as_ptr(event.run()));
        control.complete_all();
        assert!(event.is_finished() && !held.is_finished());
    }
    assert!(addresses.len() < 20, "{}", addresses.len());
    drop(guard);
    runtime.block_on(async {
        while !held.is_finished() {
            tokio::task::yield_now().await;
            control.complete_all();
        }
    });
}

#[test]
fn chains_of_dependencies_leave_a_short_tail() {
    let (device, control) = manual_device();
    let x = device.buffer::<u32>(4).unwrap();
    let queue = device.queue().unwrap();
    let mut last = queue.fill(&x, 0);
    for n in 0..2_000 {
        last = queue.after([&last]).fill(&x, n);
    }
    assert_eq!(queue.inner.state.lock().tail_len(), 1);
    control.complete_all();
    assert!(last.is_finished());
}

/// The queue itself gets no command that would let go of what has ended.
#[test]
fn submissions_behind_events_leave_a_short_tail() {
    let (device, control) = manual_device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    let exec = graph.finalize().unwrap();
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    for n in 0..100 {
        let event = other.fill(&y, n);
        let submitted = queue.after([&event]).submit(&exec).event();
        assert!(queue.inner.state.lock().tail_len() <= 2);
        control.complete_all();
        assert!(submitted.is_finished());
    }
}

#[tokio::test]
async fn host_tasks_that_wait_are_swept_seldom() {
    const TASKS: usize = 1000;
    let (device, _control) = manual_device();
    let host = device.host_buffer::<u32>(1).unwrap();
    let queue = device.queue().unwrap();
    let held = host.write().await;
    for _ in 0..TASKS {
        queue.host_task((write(&host),), async |(mut host,)| host[0] += 1);
    }
    let swept = queue.inner.state.lock().swept();
    assert!(swept <= 2 * TASKS, "{swept}");
    drop(held);
    queue.wait().await.unwrap();
    assert_eq!(host.read().await[0], TASKS as u32);
}

/// The tasks that start them are polled first when the guard is gone already.
#[tokio::test]
async fn tasks_behind_a_dropped_guard_look_at_few_runs() {
    const TASKS: usize = 1000;
    let (device, _control) = manual_device();
    let host = device.host_buffer::<u32>(1).unwrap();
    let queue = device.queue().unwrap();
    let held = host.write().await;
    for _ in 0..TASKS {
        queue.host_task((write(&host),), async |(mut host,)| host[0] += 1);
    }
    drop(held);
    let before = runs_visited();
    queue.wait().await.unwrap();
    let visited = runs_visited() - before;
    assert!(visited <= 2 * TASKS, "{visited}");
    assert_eq!(host.read().await[0], TASKS as u32);
}

#[tokio::test]
async fn each_search_for_a_guard_tells_all_runs_before() {
    const TASKS: usize = 1000;
    for one_goes_first in [false, true] {
        let (device, _control) = manual_device();
        let (one, other) = (device.host_buffer::<u32>(1).unwrap(), device.host_buffer::<u32>(1).unwrap());
        let queue = device.queue().unwrap();
        let mut held = [one.write().await, other.write().await];
        if one_goes_first {
            held.swap(0, 1);
        }
        let [second, first] = held;
        let task = || queue.host_task((write(&one), write(&other)), async |_| ());
        let tasks: Vec<_> = (0..TASKS).map(|_| task()).collect();
        let before = runs_visited();
        // From the last to the first, which is the worst order.
        let behind = || tasks.iter().rev().filter(|task| task.run().is_behind_guard()).count();
        assert_eq!(behind(), TASKS);
        drop(first);
        assert_eq!(behind(), TASKS);
        drop(second);
        assert_eq!(behind(), 0);
        let visited = runs_visited() - before;
        assert!(visited <= 4 * TASKS, "{visited}");
        queue.wait().await.unwrap();
    }
}

#[test]
fn the_first_wait_for_a_short_command_spins() {
    let (device, control) = manual_device();
    let x = device.buffer::<u32>(4).unwrap();
    let queue = device.queue().unwrap();
    let has_spare_core = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    // The first commands tell how long one takes: on a busy machine many seem to take long.
    let most = if has_spare_core { u32::MAX } else { 1_000 };
    let spins = (0..most).any(|n| {
        let event = queue.fill(&x, n);
        let spins = event.run().waiting.take_spin().is_some();
        assert!(event.run().waiting.take_spin().is_none(), "one wait spins, not each");
        control.complete_all();
        spins
    });
    assert_eq!(spins, has_spare_core);
    let _running = queue.fill(&x, 1);
    assert!(queue.fill(&x, 2).run().waiting.take_spin().is_none(), "it queues behind another");
    control.complete_all();
}

// The device's queue orders the second command behind the first only when it gets the second one.
#[tokio::test]
async fn a_command_that_fails_on_the_host_is_over_after_those_before_it() {
    let (device, control) = manual_device();
    let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    let failed = other.host_task((), async |()| Err::<(), _>("as it should"));
    let first = queue.copy(&x, &host);
    let second = queue.after([&failed]).copy(&x, &host);
    let third = queue.host_task((), async |()| ());
    assert!(failed.await.is_err());
    for _ in 0..10 {
        tokio::task::yield_now().await;
        assert_eq!(finished(&[&first, &second, &third]), [false; 3]);
        assert!(host.try_read().is_err(), "the first command writes it");
    }
    control.complete_all();
    assert!(second.await.is_err() && third.await.is_ok() && host.try_read().is_ok());
}

//! Without tokio: everything that needs no host works under any executor; the rest says what it needs.

use wakegraph::{ErrorKind, Graph, Range, read};

use crate::cancel::endless;
use crate::common::{Count, device, held, manual, polled_device};
use crate::support::{Hold, block_on};

wakegraph::kernel! {
    fn add_one(x: &mut [u32]) { host: |_, x| x.iter_mut().for_each(|x| *x += 1) }
}

#[test]
fn single_partitions_run() {
    for device in [device(), polled_device()] {
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.launch(add_one(&x), Range::linear(4));
        let exec = graph.finalize().unwrap();
        for _ in 0..50 {
            block_on(exec.submit()).unwrap();
        }
        let submissions: Vec<_> = (0..50).map(|_| exec.submit()).collect();
        for submission in submissions {
            block_on(submission).unwrap();
        }
        assert_eq!(block_on(x.to_vec()).unwrap(), [100; 4]);
        block_on(x.write(&[7, 8])).unwrap();
        assert_eq!(block_on(x.to_vec()).unwrap(), [7, 8, 100, 100]);
    }
}

#[test]
fn graphs_over_devices_that_wait_for_each_other_run() {
    let (a, b) = (device(), device());
    let (x, y) = (a.buffer::<u32>(4).unwrap(), b.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(&a);
    graph.launch(add_one(&x), Range::linear(4));
    graph.copy(&x, &y);
    graph.launch(add_one(&y), Range::linear(4));
    let exec = graph.finalize().unwrap();
    for run in 1..=20 {
        block_on(exec.submit()).unwrap();
        assert_eq!(block_on(y.to_vec()).unwrap(), [run + 1; 4]);
    }
}

#[test]
fn empty_graphs_run() {
    let exec = Graph::new(&device()).finalize().unwrap();
    block_on(exec.submit()).unwrap();
    block_on(exec.submit()).unwrap();
}

#[test]
fn wait_lists_that_devices_can_wait_for_work() {
    let device = device();
    let count = Count::default();
    let (a, b) = (count.graph(&device), count.graph(&device));
    let first = a.submit();
    let second = b.prepare().after(&first).submit();
    block_on(second).unwrap();
    block_on(first).unwrap();
    assert_eq!(count.get(), 2);
}

#[test]
fn deadlines_behind_others_and_of_loops_need_a_runtime() {
    let (device, hold) = (device(), Hold::new());
    let in_time = std::time::Instant::now() + std::time::Duration::from_secs(3600);
    let (exec, looping) = (held(&device, &hold), endless(&device, &hold, false));
    let first = exec.submit();
    let late = exec.prepare().deadline(in_time).submit();
    hold.open();
    block_on(first).unwrap();
    needs_tokio(late, "has a deadline and comes after other work");
    block_on(exec.prepare().deadline(in_time).submit()).unwrap();
    let late = looping.prepare().deadline(in_time).submit();
    late.cancel();
    needs_tokio(late, "has a loop that its deadline ends");
}

#[track_caller]
fn needs_tokio(submission: wakegraph::Submission, why: &str) {
    let error = block_on(submission).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation, "{error}");
    assert!(error.to_string().contains("tokio") && error.message().contains(why), "{error}");
    assert!(error.to_string().contains("block_on(async { exec.submit().await })"), "{error}");
}

#[test]
fn host_tasks_need_a_runtime() {
    let device = device();
    let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
    let count = Count::default();
    let counter = count.clone();
    let mut graph = Graph::new(&device);
    graph.launch(add_one(&x), Range::linear(4));
    graph.copy(&x, &host);
    graph.host_task((read(&host),), async move |_| counter.add_one()).name("tell");
    let exec = graph.finalize().unwrap();
    needs_tokio(exec.submit(), "has work for the host, host task 'tell' (#2), and");
    needs_tokio(exec.submit(), "has work for the host");
    assert_eq!(count.get(), 0);
    // With a runtime entered it works on any executor.
    let runtime = crate::common::multi_thread();
    let submission = {
        let _entered = runtime.enter();
        exec.submit()
    };
    block_on(submission).unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn futures_guards_and_foreign_devices_need_a_runtime() {
    let device = device();
    let host = device.host_buffer::<u32>(4).unwrap();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    graph.copy(&host, &x);
    let exec = graph.finalize().unwrap();
    needs_tokio(exec.prepare().after_future(async {}).submit(), "waits for a future");
    let guard = block_on(host.write());
    needs_tokio(exec.submit(), "waits for a guard");
    drop(guard);
    block_on(exec.submit()).unwrap();
    let (other, control) = manual(true);
    let y = other.buffer::<u8>(1).unwrap();
    let mut graph = Graph::new(&other);
    graph.fill(&y, 1);
    let pending = graph.finalize().unwrap().submit();
    needs_tokio(exec.prepare().after(&pending).submit(), "waits for another submission");
    control.complete_all();
    block_on(pending).unwrap();
    block_on(exec.submit()).unwrap();
}

#[test]
fn work_behind_a_finished_run_needs_no_runtime() {
    let (device, hold) = (device(), crate::support::Hold::new());
    let x = device.buffer::<u32>(4).unwrap();
    let held = hold.held();
    let mut graph = Graph::new(&device);
    let task = graph.host_task_blocking((), move |()| held.pass()).id();
    graph.launch(add_one(&x), Range::linear(4)).after([task]);
    let slow = graph.finalize().unwrap();
    let mut graph = Graph::new(&device);
    graph.launch(add_one(&x), Range::linear(4));
    let exec = graph.finalize().unwrap();
    let runtime = crate::common::multi_thread();
    let first = {
        let _entered = runtime.enter();
        slow.submit()
    };
    needs_tokio(exec.submit(), "comes after a submission");
    needs_tokio(exec.prepare().after(&first).submit(), "waits for another submission");
    hold.open();
    block_on(first).unwrap();
    block_on(exec.submit()).unwrap();
    assert_eq!(block_on(x.to_vec()).unwrap(), [2; 4]);
}

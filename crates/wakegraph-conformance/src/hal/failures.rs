//! Failure spreads along dependencies, not along mere order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakegraph::hal::{Command, CommandBufferDesc, Event, WaitList};
use wakegraph::{Error, ErrorKind};

use super::bench::{Bench, append, complete, enqueue, enqueue_after, enqueue_command, failed};
use crate::suite::{Need, Setup, tests};
use crate::support::{Hold, PANIC};

tests!("failures": &[Need::Results, Need::FailingKernels] => [dependencies_inherit, order_does_not_inherit,
    a_queue_goes_on, a_failed_command_is_named, branches_that_do_not_depend_run, in_order_buffers_stop,
    panics_are_errors, what_has_failed_already_counts, a_buffer_runs_again_after_a_failure, the_first_failure_counts]);

type Count = Arc<AtomicUsize>;

fn counting(bench: &Bench, count: &Count) -> Command {
    let count = count.clone();
    bench.call("count", move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })
}

fn failing(bench: &Bench, message: &'static str) -> Command {
    bench.call("fail", move || Err(Error::new(ErrorKind::Driver, message)))
}

/// A kernel that waits for the test and then fails.
fn failing_late(bench: &Bench, hold: &Hold) -> Command {
    let held = hold.held();
    bench.call("fail late", move || {
        held.pass();
        Err(Error::new(ErrorKind::Driver, "broken"))
    })
}

#[track_caller]
fn is_broken(event: &Arc<dyn Event>) {
    let error = failed(event);
    assert_eq!(error.kind(), ErrorKind::Driver);
    assert!(error.to_string().contains("broken"), "{error}");
}

// fails -> b -> c
fn dependencies_inherit(setup: &Setup) {
    let bench = Bench::new(setup);
    let (hold, count) = (Hold::new(), Count::default());
    let (a, b, c) = (bench.event(), bench.event(), bench.event());
    let late = bench.recorded(&[failing_late(&bench, &hold)]);
    let counting = bench.recorded(&[counting(&bench, &count)]);
    enqueue(&late, &bench.queue, &a).unwrap();
    let on_a: &[&dyn Event] = &[&*a];
    enqueue_after(&counting, &bench.another_queue(), WaitList::dependencies(on_a), &b).unwrap();
    let on_b: &[&dyn Event] = &[&*b];
    enqueue_command(&Command::Empty, &bench.another_queue(), WaitList::dependencies(on_b), &c).unwrap();
    hold.open();
    [&a, &b, &c].into_iter().for_each(is_broken);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

fn order_does_not_inherit(setup: &Setup) {
    let bench = Bench::new(setup);
    let (hold, count) = (Hold::new(), Count::default());
    let (a, b) = (bench.event(), bench.event());
    enqueue(&bench.recorded(&[failing_late(&bench, &hold)]), &bench.queue, &a).unwrap();
    let counting = bench.recorded(&[counting(&bench, &count)]);
    let order: [&dyn Event; 1] = [&*a];
    let wait = WaitList::order(&order);
    enqueue_after(&counting, &bench.another_queue(), wait, &b).unwrap();
    hold.open();
    complete(&b);
    is_broken(&a);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

fn a_queue_goes_on(setup: &Setup) {
    let bench = Bench::new(setup);
    let count = Count::default();
    let (a, b) = (bench.event(), bench.event());
    enqueue(&bench.recorded(&[failing(&bench, "broken")]), &bench.queue, &a).unwrap();
    enqueue(&bench.recorded(&[counting(&bench, &count)]), &bench.queue, &b).unwrap();
    complete(&b);
    is_broken(&a);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

fn a_failed_command_is_named(setup: &Setup) {
    let bench = Bench::new(setup);
    let count = Count::default();
    for in_order in [true, false] {
        let mut buffer = bench.buffer(CommandBufferDesc::new().in_order(in_order));
        let mut points = Vec::new();
        append(&mut buffer, &counting(&bench, &count), &mut points, &[]);
        append(&mut buffer, &counting(&bench, &count), &mut points, &[]);
        append(&mut buffer, &failing(&bench, "broken"), &mut points, &[0, 1]);
        append(&mut buffer, &counting(&bench, &count), &mut points, &[2]);
        buffer.finalize().unwrap();
        let event = bench.event();
        enqueue(&buffer, &bench.queue, &event).unwrap();
        let error = failed(&event);
        assert_eq!(error.command(), Some(2), "{error}");
        assert_eq!(error.device(), Some(&*bench.device.info().selector), "{error}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 4);
}

//   fails   1
//     |     |
//     2     3
//      \   /
//        4
fn branches_that_do_not_depend_run(setup: &Setup) {
    let bench = Bench::new(setup);
    let counts: [Count; 5] = Default::default();
    let mut buffer = bench.buffer(CommandBufferDesc::new());
    let mut points = Vec::new();
    append(&mut buffer, &failing(&bench, "broken"), &mut points, &[]);
    for (id, after) in [(1, &[][..]), (2, &[0]), (3, &[1]), (4, &[2, 3])] {
        append(&mut buffer, &counting(&bench, &counts[id]), &mut points, after);
    }
    buffer.finalize().unwrap();
    for _ in 0..3 {
        let event = bench.event();
        enqueue(&buffer, &bench.queue, &event).unwrap();
        is_broken(&event);
    }
    let ran: Vec<_> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    assert_eq!(ran, [0, 3, 0, 3, 0]);
}

fn in_order_buffers_stop(setup: &Setup) {
    let bench = Bench::new(setup);
    let (before, behind) = (Count::default(), Count::default());
    let commands = [counting(&bench, &before), failing(&bench, "broken"), counting(&bench, &behind)];
    let event = bench.event();
    enqueue(&bench.recorded(&commands), &bench.queue, &event).unwrap();
    is_broken(&event);
    assert_eq!((before.load(Ordering::SeqCst), behind.load(Ordering::SeqCst)), (1, 0));
}

fn panics_are_errors(setup: &Setup) {
    let bench = Bench::new(setup);
    let event = bench.event();
    let panicking = bench.call("panic", || std::panic::panic_any(PANIC));
    for _ in 0..10 {
        enqueue(&bench.recorded(std::slice::from_ref(&panicking)), &bench.queue, &event).unwrap();
        let error = failed(&event);
        assert_eq!(error.kind(), ErrorKind::KernelPanicked);
        assert!(error.to_string().contains(PANIC), "{error}");
    }
    // The device is as good as new.
    bench.run(&bench.call("fine", || Ok(())));
}

fn what_has_failed_already_counts(setup: &Setup) {
    let bench = Bench::new(setup);
    let count = Count::default();
    let (a, b, c) = (bench.event(), bench.event(), bench.event());
    enqueue(&bench.recorded(&[failing(&bench, "broken")]), &bench.queue, &a).unwrap();
    is_broken(&a);
    let counting = bench.recorded(&[counting(&bench, &count)]);
    let on_a: &[&dyn Event] = &[&*a];
    enqueue_after(&counting, &bench.queue, WaitList::dependencies(on_a), &b).unwrap();
    is_broken(&b);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    enqueue_after(&counting, &bench.queue, WaitList::order(&[&*a]), &c).unwrap();
    complete(&c);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

fn a_buffer_runs_again_after_a_failure(setup: &Setup) {
    let bench = Bench::new(setup);
    let attempts = Count::default();
    let counter = attempts.clone();
    let flaky =
        bench.recorded(&[bench.call("flaky", move || match counter.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => Err(Error::new(ErrorKind::Driver, "broken")),
            _ => Ok(()),
        })]);
    let event = bench.event();
    for _ in 0..5 {
        enqueue(&flaky, &bench.queue, &event).unwrap();
        is_broken(&event);
        enqueue(&flaky, &bench.queue, &event).unwrap();
        complete(&event);
    }
}

fn the_first_failure_counts(setup: &Setup) {
    let bench = Bench::new(setup);
    for late_first in [false, true] {
        let hold = Hold::new();
        let (a, b, c) = (bench.event(), bench.event(), bench.event());
        enqueue(&bench.recorded(&[failing(&bench, "first")]), &bench.queue, &a).unwrap();
        assert!(failed(&a).to_string().contains("first"));
        enqueue(&bench.recorded(&[failing_late(&bench, &hold)]), &bench.queue, &b).unwrap();
        let both: &[&dyn Event] = if late_first { &[&*b, &*a] } else { &[&*a, &*b] };
        let wait = WaitList::dependencies(both);
        enqueue_command(&Command::Empty, &bench.another_queue(), wait, &c).unwrap();
        hold.open();
        let error = failed(&c).to_string();
        assert!(error.contains("first") && !error.contains("broken"), "{error}");
        is_broken(&b);
    }
}

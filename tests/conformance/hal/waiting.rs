//! Wait list in, event out: order across queues, command-buffers and single commands.

use std::sync::Arc;

use parking_lot::Mutex;
use std::time::Duration;

use wakegraph::hal::{Command, Event, EventStatus, WaitList};

use super::bench::{Bench, complete, enqueue, enqueue_after, enqueue_command, pending};
use crate::registry::{Need, Setup, lacks, tests};
use crate::support::Hold;

tests!("waiting":
    &[] => [events_become_final_and_can_be_reused, finish_waits_for_the_queue],
    &[Need::Results, Need::Closures] => [a_wait_list_holds_back, queues_run_in_order, out_of_order_queues_overtake,
        single_commands_wait_too, ten_thousand_enqueues_are_pending_at_once, an_event_is_pending_until_all_is_done]);

fn held(bench: &Bench, hold: &Hold) -> Command {
    let held = hold.held();
    bench.call("held", move || {
        held.pass();
        Ok(())
    })
}

fn events_become_final_and_can_be_reused(setup: &Setup) {
    let bench = Bench::new(setup);
    let buffer = bench.recorded(&[Command::Empty]);
    let event = bench.event();
    assert!(matches!(event.status(), EventStatus::Idle));
    assert!(matches!(event.wait(None), EventStatus::Idle), "nothing to wait for");
    assert_eq!(event.device(), bench.device.info().id);
    for _ in 0..10 {
        enqueue(&*buffer, &*bench.queue, &event).unwrap();
        complete(&event);
        assert!(event.status().is_final());
    }
}

fn finish_waits_for_the_queue(setup: &Setup) {
    let bench = Bench::new(setup);
    let buffer = bench.recorded(&[Command::Empty]);
    let events: Vec<_> = (0..20).map(|_| bench.event()).collect();
    bench.queue.finish().unwrap();
    for event in &events {
        enqueue(&*buffer, &*bench.queue, event).unwrap();
    }
    bench.queue.flush().unwrap();
    bench.queue.finish().unwrap();
    assert!(events.iter().all(|event| matches!(event.status(), EventStatus::Complete)));
}

fn a_wait_list_holds_back(setup: &Setup) {
    let bench = Bench::new(setup);
    let hold = Hold::new();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let log = ran.clone();
    let first = bench.recorded(&[held(&bench, &hold)]);
    let second = bench.recorded(&[bench.call("second", move || {
        log.lock().push(2);
        Ok(())
    })]);
    let (a, b, c) = (bench.event(), bench.event(), bench.event());
    enqueue(&*first, &*bench.queue, &a).unwrap();
    let wait: &[&dyn Event] = &[&*a, &*a];
    enqueue_after(&*second, &*bench.another_queue(), WaitList::dependencies(wait), &b).unwrap();
    enqueue_after(&*second, &*bench.another_queue(), WaitList { dependencies: &[], order: &[&*b] }, &c)
        .unwrap();
    hold.wait_for(1);
    [&a, &b, &c].into_iter().for_each(pending);
    assert!(matches!(b.wait(Some(Duration::ZERO)), EventStatus::Pending));
    assert!(ran.lock().is_empty());
    hold.open();
    complete(&c);
    assert!(matches!(a.status(), EventStatus::Complete) && matches!(b.status(), EventStatus::Complete));
    assert_eq!(*ran.lock(), [2, 2]);
}

fn queues_run_in_order(setup: &Setup) {
    let bench = Bench::new(setup);
    let hold = Hold::new();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (first, last) = (bench.recorded(&[held(&bench, &hold)]), bench.event());
    enqueue(&*first, &*bench.queue, &bench.event()).unwrap();
    for i in 0..100 {
        let log = ran.clone();
        let call = bench.call("log", move || {
            log.lock().push(i);
            Ok(())
        });
        // Command-buffers and single commands share the order.
        let event = if i == 99 { last.clone() } else { bench.event() };
        match i % 2 {
            0 => enqueue(&*bench.recorded(&[call]), &*bench.queue, &event).unwrap(),
            _ => enqueue_command(&call, &*bench.queue, WaitList::NONE, &event).unwrap(),
        }
    }
    hold.open();
    complete(&last);
    assert_eq!(*ran.lock(), (0..100).collect::<Vec<_>>());
}

fn out_of_order_queues_overtake(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().out_of_order_queues {
        return lacks("out-of-order queues");
    }
    let queue = bench.out_of_order_queue();
    let hold = Hold::new();
    let (slow, quick) = (bench.event(), bench.event());
    enqueue(&*bench.recorded(&[held(&bench, &hold)]), &*queue, &slow).unwrap();
    enqueue(&*bench.recorded(&[bench.call("quick", || Ok(()))]), &*queue, &quick).unwrap();
    complete(&quick);
    pending(&slow);
    hold.open();
    queue.finish().unwrap();
    assert!(matches!(slow.status(), EventStatus::Complete));
}

fn single_commands_wait_too(setup: &Setup) {
    let bench = Bench::new(setup);
    let hold = Hold::new();
    let (a, b) = (bench.event(), bench.event());
    enqueue_command(&held(&bench, &hold), &*bench.queue, WaitList::NONE, &a).unwrap();
    let wait: &[&dyn Event] = &[&*a];
    enqueue_command(&Command::Empty, &*bench.another_queue(), WaitList::dependencies(wait), &b).unwrap();
    hold.wait_for(1);
    pending(&b);
    hold.open();
    complete(&b);
}

fn ten_thousand_enqueues_are_pending_at_once(setup: &Setup) {
    let bench = Bench::new(setup);
    let hold = Hold::new();
    let count = Arc::new(Mutex::new(0));
    let counter = count.clone();
    let counting = bench.recorded(&[bench.call("count", move || {
        *counter.lock() += 1;
        Ok(())
    })]);
    enqueue(&*bench.recorded(&[held(&bench, &hold)]), &*bench.queue, &bench.event()).unwrap();
    let events: Vec<_> = (0..10_000)
        .map(|_| {
            let event = bench.event();
            enqueue(&*counting, &*bench.queue, &event).unwrap();
            event
        })
        .collect();
    hold.wait_for(1);
    events.iter().for_each(pending);
    assert_eq!(*count.lock(), 0);
    hold.open();
    events.iter().for_each(complete);
    assert_eq!(*count.lock(), 10_000);
}

fn an_event_is_pending_until_all_is_done(setup: &Setup) {
    let bench = Bench::new(setup);
    let hold = Hold::new();
    let event = bench.event();
    let commands = [bench.call("quick", || Ok(())), held(&bench, &hold), held(&bench, &hold)];
    enqueue(&*bench.recorded(&commands), &*bench.queue, &event).unwrap();
    for arrived in 1..=2 {
        hold.wait_for(arrived);
        pending(&event);
        hold.release_one();
    }
    complete(&event);
}

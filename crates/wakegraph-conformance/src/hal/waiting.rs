//! Wait list in, event out: order across queues, command-buffers and single commands.

use std::time::Duration;

use wakegraph::hal::{Command, Event, EventStatus, WaitList};

use super::bench::{Bench, complete, enqueue, enqueue_after, enqueue_command, pending};
use super::launches::{ground, mixed, words};
use crate::suite::{Need, Setup, lacks, tests};
use crate::support::Hold;
use crate::watch::Turnstile;

tests!("waiting":
    &[] => [events_become_final_and_can_be_reused, finish_waits_for_the_queue],
    &[Need::Results] => [wait_lists_chain_queues],
    &[Need::Results, Need::InOrderQueue] => [queues_run_in_order],
    &[Need::Results, Need::SharedMemory] => [a_wait_list_holds_back, single_commands_wait_too,
        an_event_is_pending_until_all_is_done],
    &[Need::Results, Need::SharedMemory, Need::InOrderQueue] => [ten_thousand_enqueues_are_pending_at_once],
    &[Need::Results, Need::Concurrency] => [out_of_order_queues_overtake]);

fn events_become_final_and_can_be_reused(setup: &Setup) {
    let bench = Bench::new(setup);
    let buffer = bench.recorded(&[Command::Empty]);
    let event = bench.event();
    assert!(matches!(event.status(), EventStatus::Idle));
    assert!(matches!(event.wait(None), EventStatus::Idle), "nothing to wait for");
    assert_eq!(event.device(), bench.device.info().id);
    for _ in 0..10 {
        enqueue(&buffer, &bench.queue, &event).unwrap();
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
        enqueue(&buffer, &bench.queue, event).unwrap();
    }
    bench.queue.flush().unwrap();
    bench.queue.finish().unwrap();
    assert!(events.iter().all(|event| matches!(event.status(), EventStatus::Complete)));
}

// grind -> mix 1 -> mix 2 -> grind ..., each on the next of three queues, by turns a need and mere order
fn wait_lists_chain_queues(setup: &Setup) {
    let bench = Bench::new(setup);
    let x = bench.memory(&[0; 4]);
    let buffers =
        [bench.grind(&x), bench.mix(1, &x), bench.mix(2, &x)].map(|command| bench.recorded(&[command]));
    let queues = [(); 3].map(|()| bench.another_queue());
    let mut events = Vec::new();
    let mut expected = 0;
    for turn in 0..60 {
        let event = bench.event();
        let last: Vec<&dyn Event> =
            events.last().into_iter().map(|last: &std::sync::Arc<dyn Event>| &**last).collect();
        let wait = match turn % 2 {
            0 => WaitList::dependencies(&last),
            _ => WaitList::order(&last),
        };
        enqueue_after(&buffers[turn % 3], &queues[turn % 3], wait, &event).unwrap();
        events.push(event);
        expected = match turn % 3 {
            0 => ground(expected),
            n => mixed(expected, n as u32),
        };
    }
    events.iter().for_each(complete);
    assert_eq!(words(&x), [expected]);
}

fn a_wait_list_holds_back(setup: &Setup) {
    let bench = Bench::new(setup);
    let (turnstile, x) = (Turnstile::new(), bench.memory(&[0; 4]));
    let first = bench.recorded(&[bench.held(&turnstile)]);
    let second = bench.recorded(&[bench.mix(2, &x)]);
    let (a, b, c) = (bench.event(), bench.event(), bench.event());
    enqueue(&first, &bench.queue, &a).unwrap();
    let wait: &[&dyn Event] = &[&*a, &*a];
    let (one, other) = (bench.another_queue(), bench.another_queue());
    enqueue_after(&second, &one, WaitList::dependencies(wait), &b).unwrap();
    enqueue_after(&second, &other, WaitList::order(&[&*b]), &c).unwrap();
    bench.queue.flush().unwrap();
    turnstile.wait_for(1);
    [&a, &b, &c].into_iter().for_each(pending);
    assert!(matches!(b.wait(Some(Duration::ZERO)), EventStatus::Pending));
    turnstile.open();
    complete(&c);
    assert!(matches!(a.status(), EventStatus::Complete) && matches!(b.status(), EventStatus::Complete));
    assert_eq!(words(&x), [mixed(mixed(0, 2), 2)]);
}

fn queues_run_in_order(setup: &Setup) {
    let bench = Bench::new(setup);
    let x = bench.memory(&[0; 4]);
    let events = [(); 101].map(|()| bench.event());
    let first = bench.recorded(&[bench.grind(&x)]);
    let commands: Vec<_> = (0..100).map(|i| bench.mix(i, &x)).collect();
    let buffers: Vec<_> =
        commands.iter().map(|command| bench.recorded(std::slice::from_ref(command))).collect();
    enqueue(&first, &bench.queue, &events[0]).unwrap();
    for (i, (command, buffer)) in commands.iter().zip(&buffers).enumerate() {
        // Command-buffers and single commands share the order.
        match i % 2 {
            0 => enqueue(buffer, &bench.queue, &events[i + 1]).unwrap(),
            _ => enqueue_command(command, &bench.queue, WaitList::NONE, &events[i + 1]).unwrap(),
        }
    }
    complete(&events[100]);
    assert_eq!(words(&x), [(0..100).fold(ground(0), mixed)]);
}

fn out_of_order_queues_overtake(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().out_of_order_queues {
        return lacks("out-of-order queues");
    }
    let queue = bench.out_of_order_queue();
    let hold = Hold::new();
    let held = hold.held();
    let slow = bench.recorded(&[bench.call("held", move || {
        held.pass();
        Ok(())
    })]);
    let (slow_event, quick) = (bench.event(), bench.event());
    enqueue(&slow, &queue, &slow_event).unwrap();
    enqueue(&bench.recorded(&[bench.call("quick", || Ok(()))]), &queue, &quick).unwrap();
    complete(&quick);
    pending(&slow_event);
    hold.open();
    queue.finish().unwrap();
    assert!(matches!(slow_event.status(), EventStatus::Complete));
}

fn single_commands_wait_too(setup: &Setup) {
    let bench = Bench::new(setup);
    let (turnstile, other) = (Turnstile::new(), bench.another_queue());
    let (a, b) = (bench.event(), bench.event());
    let held = bench.held(&turnstile);
    enqueue_command(&held, &bench.queue, WaitList::NONE, &a).unwrap();
    let wait: &[&dyn Event] = &[&*a];
    enqueue_command(&Command::Empty, &other, WaitList::dependencies(wait), &b).unwrap();
    bench.queue.flush().unwrap();
    turnstile.wait_for(1);
    pending(&b);
    turnstile.open();
    complete(&b);
}

fn ten_thousand_enqueues_are_pending_at_once(setup: &Setup) {
    let bench = Bench::new(setup);
    let (turnstile, x) = (Turnstile::new(), bench.memory(&[0; 4]));
    let (first, mixing) = (bench.recorded(&[bench.held(&turnstile)]), bench.recorded(&[bench.mix(1, &x)]));
    let opened = bench.event();
    enqueue(&first, &bench.queue, &opened).unwrap();
    let events: Vec<_> = (0..10_000)
        .map(|_| {
            let event = bench.event();
            enqueue(&mixing, &bench.queue, &event).unwrap();
            event
        })
        .collect();
    bench.queue.flush().unwrap();
    turnstile.wait_for(1);
    events.iter().for_each(pending);
    turnstile.open();
    events.iter().for_each(complete);
    assert_eq!(words(&x), [(0..10_000).fold(0, |x, _| mixed(x, 1))]);
}

fn an_event_is_pending_until_all_is_done(setup: &Setup) {
    let bench = Bench::new(setup);
    let (turnstile, x) = (Turnstile::new(), bench.memory(&[0; 4]));
    let event = bench.event();
    let buffer = bench.recorded(&[bench.mix(1, &x), bench.held(&turnstile), bench.held(&turnstile)]);
    enqueue(&buffer, &bench.queue, &event).unwrap();
    bench.queue.flush().unwrap();
    for arrived in 1..=2 {
        turnstile.wait_for(arrived);
        pending(&event);
        turnstile.release_one();
    }
    complete(&event);
}

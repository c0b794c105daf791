//! Command-buffers that are enqueued one after the other with one signal behind the last.
#![expect(unsafe_code, reason = "enqueues by hand")]

use std::sync::Arc;

use wakegraph::ErrorKind;
use wakegraph::hal::{
    CommandBufferDesc, Enqueued, Event, EventStatus, MemoryView, Signal, ValidatedCommandBuffer,
    ValidatedQueue, WaitList,
};

use super::bench::{Bench, complete, enqueue_after};
use super::launches::{ground, mixed, words};
use crate::suite::{Need, Setup, lacks, tests};

tests!("batches":
    &[Need::Results] => [run_in_order, many_in_flight, others_wait, up_to_the_first_that_is_refused],
    &[] => [devices_without_say_so]);

fn bench(setup: &Setup) -> Option<Bench> {
    let can = setup.hal().capabilities().batches;
    if !can {
        lacks("batches");
    }
    can.then(|| Bench::new(setup))
}

fn enqueue_batch(
    queue: &ValidatedQueue,
    buffers: &[&ValidatedCommandBuffer],
    event: &Arc<dyn Event>,
) -> Enqueued {
    let signal = Signal::new(event);
    // SAFETY: each test keeps what the buffers use until the event is final, and orders what conflicts.
    unsafe { queue.enqueue_batch(buffers, signal) }
}

fn enqueue_all(queue: &ValidatedQueue, buffers: &[ValidatedCommandBuffer], event: &Arc<dyn Event>) {
    let buffers: Vec<&ValidatedCommandBuffer> = buffers.iter().collect();
    let Enqueued { count, failure, .. } = enqueue_batch(queue, &buffers, event);
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(count, buffers.len());
}

/// Buffers of which each takes a while, then mixes its number in.
fn steps(bench: &Bench, x: &MemoryView, count: u32) -> Vec<ValidatedCommandBuffer> {
    let desc = CommandBufferDesc::new().in_order(true);
    let step = |n| {
        let mut buffer = bench.buffer(desc);
        buffer.append(&bench.grind(x), &[]).unwrap();
        buffer.append(&bench.mix(n, x), &[]).unwrap();
        buffer.finalize().unwrap();
        buffer
    };
    (0..count).map(step).collect()
}

fn after_steps(x: u32, count: u32) -> u32 {
    (0..count).fold(x, |x, n| mixed(ground(x), n))
}

fn run_in_order(setup: &Setup) {
    let Some(bench) = bench(setup) else { return };
    let (queue, event, x) = (bench.another_queue(), bench.event(), bench.memory(&[0; 4]));
    let mut expected = 0;
    for count in [1, 2, 7, 40] {
        let buffers = steps(&bench, &x, count);
        for _ in 0..3 {
            enqueue_all(&queue, &buffers, &event);
            complete(&event);
            expected = after_steps(expected, count);
            assert_eq!(words(&x), [expected]);
        }
    }
}

fn many_in_flight(setup: &Setup) {
    let Some(bench) = bench(setup) else { return };
    let queues: Vec<_> = (0..4)
        .map(|_| {
            let x = bench.memory(&[0; 4]);
            (bench.another_queue(), steps(&bench, &x, 8), x)
        })
        .collect();
    let mut events = Vec::new();
    for _ in 0..10 {
        for (queue, buffers, _) in &queues {
            let event = bench.event();
            enqueue_all(queue, buffers, &event);
            events.push(event);
        }
    }
    // Each tells of what came before it on its queue, too.
    events[36..].iter().for_each(complete);
    for event in &events {
        assert!(matches!(event.status(), EventStatus::Complete));
    }
    for (_, _, x) in &queues {
        assert_eq!(words(x), [(0..10).fold(0, |x, _| after_steps(x, 8))]);
    }
}

fn others_wait(setup: &Setup) {
    let Some(bench) = bench(setup) else { return };
    let queues = [bench.another_queue(), bench.another_queue()];
    let x = bench.memory(&[0; 4]);
    let (buffers, last) = (steps(&bench, &x, 5), steps(&bench, &x, 1));
    let (batch, end) = (bench.event(), bench.event());
    for round in 1..=10 {
        enqueue_all(&queues[0], &buffers, &batch);
        let batch: [&dyn Event; 1] = [&*batch];
        let wait = WaitList::dependencies(&batch);
        enqueue_after(&last[0], &queues[1], wait, &end).unwrap();
        complete(&end);
        let expected = (0..round).fold(0, |x, _| after_steps(after_steps(x, 5), 1));
        assert_eq!(words(&x), [expected]);
    }
}

fn up_to_the_first_that_is_refused(setup: &Setup) {
    let Some(bench) = bench(setup) else { return };
    let (queue, event, x) = (bench.another_queue(), bench.event(), bench.memory(&[0; 4]));
    let buffers = steps(&bench, &x, 3);
    let unfinished = bench.buffer(CommandBufferDesc::new());
    let [first, second, third] = [0, 1, 2].map(|index| &buffers[index]);
    let Enqueued { count, failure, .. } = enqueue_batch(&queue, &[first, second, &unfinished, third], &event);
    assert_eq!((count, failure.unwrap().kind()), (2, ErrorKind::InvalidOperation));
    complete(&event);
    let expected = after_steps(0, 2);
    assert_eq!(words(&x), [expected]);
    let Enqueued { count, failure, .. } = enqueue_batch(&queue, &[&unfinished, third], &event);
    assert_eq!((count, failure.unwrap().kind()), (0, ErrorKind::InvalidOperation));
    assert_eq!(words(&x), [expected]);
    enqueue_all(&queue, &buffers, &event);
    complete(&event);
    assert_eq!(words(&x), [after_steps(expected, 3)]);
}

fn devices_without_say_so(setup: &Setup) {
    if setup.hal().capabilities().batches {
        return lacks("devices without batches");
    }
    let bench = Bench::new(setup);
    let mut buffer = bench.buffer(CommandBufferDesc::new());
    buffer.finalize().unwrap();
    let Enqueued { count, failure, .. } = enqueue_batch(&bench.another_queue(), &[&buffer], &bench.event());
    assert_eq!((count, failure.unwrap().kind()), (0, ErrorKind::FeatureNotSupported));
}

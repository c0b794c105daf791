//! Command-buffers whose end should be seen early: a device may do more for them, and nothing else
//! changes.

use wakegraph::hal::{Command, CommandBufferDesc, Event, WaitList};

use super::bench::{Bench, complete, enqueue, enqueue_after, read};
use super::launches::{ground, mixed, words};
use crate::suite::{Need, Setup, tests};

tests!("low_latency":
    &[Need::Results] => [one_after_the_other, on_several_queues, others_wait, everything_is_awaited,
        results_on_the_host],
    &[Need::Results, Need::InOrderQueue] => [in_flight_with_others]);

/// So often that a device which decides by what it has seen has decided.
const OFTEN: u32 = 20;

const LOW_LATENCY: CommandBufferDesc = CommandBufferDesc::new().in_order(true).low_latency(true);

fn one_after_the_other(setup: &Setup) {
    let bench = Bench::new(setup);
    let (x, event) = (bench.memory(&[0; 4]), bench.event());
    let buffer = bench.recorded_as(LOW_LATENCY, &[bench.grind(&x), bench.mix(3, &x)]);
    let mut expected = 0;
    for _ in 0..OFTEN {
        enqueue(&buffer, &bench.queue, &event).unwrap();
        expected = mixed(ground(expected), 3);
        complete(&event);
        assert_eq!(words(&x), [expected]);
    }
}

fn in_flight_with_others(setup: &Setup) {
    let bench = Bench::new(setup);
    let x = bench.memory(&[0; 4]);
    let [first, second] = [(LOW_LATENCY, 1), (LOW_LATENCY.low_latency(false), 2)]
        .map(|(desc, n)| bench.recorded_as(desc, &[bench.mix(n, &x)]));
    let events = [(); 60].map(|()| bench.event());
    let mut expected = 0;
    for (i, event) in events.iter().enumerate() {
        let (buffer, n) = if i % 3 == 0 { (&first, 1) } else { (&second, 2) };
        enqueue(buffer, &bench.queue, event).unwrap();
        expected = mixed(expected, n);
    }
    // The last first: the others are over then, too.
    events.iter().rev().for_each(complete);
    assert_eq!(words(&x), [expected]);
}

// Runs of one buffer follow each other, wherever they are enqueued.
fn on_several_queues(setup: &Setup) {
    let bench = Bench::new(setup);
    let queues = [bench.another_queue(), bench.another_queue()];
    for turn in [1, OFTEN as usize] {
        let x = bench.memory(&[0; 4]);
        let buffer = bench.recorded_as(LOW_LATENCY, &[bench.grind(&x), bench.mix(5, &x)]);
        let events = [(); 3 * OFTEN as usize].map(|()| bench.event());
        let mut expected = 0;
        for (i, event) in events.iter().enumerate() {
            let queue = &*queues[i / turn % 2];
            enqueue(&buffer, queue, event).unwrap();
            expected = mixed(ground(expected), 5);
        }
        events.iter().for_each(complete);
        assert_eq!(words(&x), [expected]);
    }
}

// grind x, mix 1 x -> on another queue: mix 2 x -> the first again ...
fn others_wait(setup: &Setup) {
    let bench = Bench::new(setup);
    let other_queue = bench.another_queue();
    let x = bench.memory(&[0; 4]);
    let first = bench.recorded_as(LOW_LATENCY, &[bench.grind(&x), bench.mix(1, &x)]);
    let other = bench.recorded(&[bench.mix(2, &x)]);
    let (first_done, other_done) = (bench.event(), bench.event());
    let mut expected = 0;
    for round in 0..OFTEN {
        enqueue(&first, &bench.queue, &first_done).unwrap();
        let wait: [&dyn Event; 1] = [&*first_done];
        let wait = match round % 2 {
            0 => WaitList::dependencies(&wait),
            _ => WaitList::order(&wait),
        };
        enqueue_after(&other, &other_queue, wait, &other_done).unwrap();
        expected = mixed(mixed(ground(expected), 1), 2);
        complete(&other_done);
        complete(&first_done);
        assert_eq!(words(&x), [expected], "round {round}");
    }
}

// grind x      grind y      mix 9 z: nothing orders them
fn everything_is_awaited(setup: &Setup) {
    let bench = Bench::new(setup);
    let [x, y, z] = [(); 3].map(|()| bench.memory(&[0; 4]));
    let mut buffer = bench.buffer(LOW_LATENCY.in_order(false));
    for command in [bench.grind(&x), bench.grind(&y), bench.mix(9, &z)] {
        buffer.append(&command, &[]).unwrap();
    }
    buffer.finalize().unwrap();
    let event = bench.event();
    let mut expected = [0, 0, 0];
    for _ in 0..OFTEN {
        enqueue(&buffer, &bench.queue, &event).unwrap();
        expected = [ground(expected[0]), ground(expected[1]), mixed(expected[2], 9)];
        complete(&event);
        assert_eq!([words(&x)[0], words(&y)[0], words(&z)[0]], expected);
    }
}

fn results_on_the_host(setup: &Setup) {
    let bench = Bench::new(setup);
    let (x, host, event) = (bench.memory(&[0; 4]), bench.host_memory(&[0; 4]), bench.event());
    let read_back = Command::BufferRead { src: x.clone(), host: host.clone() };
    let buffer = bench.recorded_as(LOW_LATENCY, &[bench.mix(7, &x), read_back]);
    let mut expected = 0u32;
    for _ in 0..10 * OFTEN {
        enqueue(&buffer, &bench.queue, &event).unwrap();
        expected = mixed(expected, 7);
        complete(&event);
        assert_eq!(read(&host), expected.to_ne_bytes());
    }
}

//! Command-buffers whose end should be seen early, and that become what others are between their
//! enqueues; and those others.

use wakegraph::hal::{Command, MemoryView, UpdateCapabilities as Can};

use super::bench::{complete, enqueue};
use super::launches::{ground, mixed, words};
use super::low_latency_updates::{OFTEN, UPDATABLE, bench, record, with_number};
use crate::suite::{Need, Setup, tests};

tests!("low_latency/updates/from": &[Need::Results] => [from_another, others_from_it, fills_from_another]);

// All of it from other command-buffers, which are updated and enqueued themselves.
fn from_another(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let [x, y] = [(); 2].map(|()| bench.memory(&[0; 4]));
    let commands = |n, view: &MemoryView| [bench.grind(view), bench.mix(n, view)];
    let (mut buffer, handles) = record(&bench, UPDATABLE, &commands(0, &x));
    let (mut other, others) = record(&bench, UPDATABLE, &commands(0, &y));
    let event = bench.event();
    let (mut x_expected, mut y_expected) = (0, 0);
    for round in 0..4 {
        // As often as it takes to decide, or not.
        let often = if round == 1 { 2 } else { OFTEN };
        for n in 0..often {
            buffer.update(&[with_number(handles[1], n)]).unwrap();
            enqueue(&buffer, &bench.queue, &event).unwrap();
            let place = if round == 0 { &mut x_expected } else { &mut y_expected };
            *place = mixed(ground(*place), n);
            complete(&event);
        }
        other.update(&[with_number(others[1], round)]).unwrap();
        for _ in 0..often {
            enqueue(&other, &bench.queue, &event).unwrap();
            y_expected = mixed(ground(y_expected), round);
            complete(&event);
        }
        buffer.update_from(&other).unwrap();
        for _ in 0..often {
            enqueue(&buffer, &bench.queue, &event).unwrap();
            y_expected = mixed(ground(y_expected), round);
            complete(&event);
            assert_eq!([words(&x)[0], words(&y)[0]], [x_expected, y_expected], "round {round}");
        }
    }
}

// What others are updated from is as it was recorded, whatever the device does for its own enqueues.
fn others_from_it(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let [x, y] = [(); 2].map(|()| bench.memory(&[0; 4]));
    let commands = |n, view: &MemoryView| [bench.mix(n, view), bench.mix(n + 1, view)];
    let (first, _) = record(&bench, UPDATABLE, &commands(1, &x));
    let event = bench.event();
    let mut expected = [0, 0];
    for round in 0..3 {
        for _ in 0..OFTEN {
            enqueue(&first, &bench.queue, &event).unwrap();
            expected[0] = mixed(mixed(expected[0], 1), 2);
            complete(&event);
        }
        let desc = UPDATABLE.low_latency(round % 2 == 0);
        let (mut other, _) = record(&bench, desc, &commands(5, &y));
        for _ in 0..round * OFTEN {
            enqueue(&other, &bench.queue, &event).unwrap();
            expected[1] = mixed(mixed(expected[1], 5), 6);
            complete(&event);
        }
        other.update_from(&first).unwrap();
        for _ in 0..OFTEN {
            enqueue(&other, &bench.queue, &event).unwrap();
            expected[0] = mixed(mixed(expected[0], 1), 2);
            complete(&event);
        }
        assert_eq!([words(&x)[0], words(&y)[0]], expected, "round {round}");
    }
}

// fill x, mix n x: what the fill has become is kept when the device does something else for it.
fn fills_from_another(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let x = bench.memory(&[0; 4]);
    let commands = |byte: u8, n| {
        [Command::BufferFill { dst: x.clone(), pattern: [byte].as_slice().into() }, bench.mix(n, &x)]
    };
    let (mut buffer, _) = record(&bench, UPDATABLE, &commands(0, 0));
    let event = bench.event();
    for n in 1..6u8 {
        let (other, _) = record(&bench, UPDATABLE, &commands(n, n.into()));
        buffer.update_from(&other).unwrap();
        drop(other);
        // Too few enqueues between updates for a device to decide, then enough.
        for _ in 0..if n < 4 { 2 } else { 3 * OFTEN } {
            enqueue(&buffer, &bench.queue, &event).unwrap();
            complete(&event);
            assert_eq!(words(&x), [mixed(u32::from_ne_bytes([n; 4]), n.into())]);
        }
    }
}

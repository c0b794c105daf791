//! Command-buffers whose order is their sync-points, on queues of either order: again and again,
//! with updates between, and in wait lists.

use std::sync::Arc;

use wakegraph::hal::{
    Command, CommandBufferDesc, CommandUpdate, Event, UpdateCapabilities, ValidatedQueue, WaitList,
};

use super::bench::{Bench, append, complete, enqueue, enqueue_after, enqueue_command};
use super::launches::{ground, mixed, number, words};
use super::stamps::Stamps;
use crate::random::Random;
use crate::suite::{Need, Setup, lacks, tests};

tests!("out_of_order":
    &[Need::Results] => [runs_of_one_buffer_follow_each_other, in_order_buffers_stay_in_order,
        updates_between_runs, wait_lists_order_buffers_and_commands, all_ends_belong_to_a_run]);

const DAG: CommandBufferDesc = CommandBufferDesc::new();

/// Two queues of each order that the device has.
fn queues(bench: &Bench) -> Vec<Arc<ValidatedQueue>> {
    let mut queues = vec![bench.another_queue(), bench.another_queue()];
    if bench.device.capabilities().out_of_order_queues {
        queues.extend([bench.out_of_order_queue(), bench.out_of_order_queue()]);
    }
    queues
}

/// Which queue gets run number `run`: all on the first, on the second, ..., then by turns.
fn choose(queues: &[Arc<ValidatedQueue>], round: usize, run: usize) -> &ValidatedQueue {
    queues.get(round).unwrap_or_else(|| &queues[run % queues.len()])
}

fn events(bench: &Bench, count: usize) -> Vec<Arc<dyn Event>> {
    (0..count).map(|_| bench.event()).collect()
}

/// Enqueued without a poll in between, on one queue of either order and on several by turns.
fn runs_of_one_buffer_follow_each_other(setup: &Setup) {
    const COMMANDS: usize = 20;
    let bench = Bench::new(setup);
    let (queues, mut random) = (queues(&bench), Random::new(3));
    for round in 0..=queues.len() {
        let mut stamps = Stamps::new(&bench, COMMANDS);
        let mut buffer = bench.buffer(DAG);
        for id in 0..COMMANDS {
            let after: Vec<usize> = (0..random.below(3).min(id)).map(|_| random.below(id)).collect();
            stamps.append(&mut buffer, &after);
        }
        buffer.finalize().unwrap();
        let events = events(&bench, 25);
        for (run, event) in events.iter().enumerate() {
            enqueue(&buffer, choose(&queues, round, run), event).unwrap();
            stamps.ran();
        }
        events.iter().for_each(complete);
        stamps.check(&format!("round {round}"));
    }
}

fn in_order_buffers_stay_in_order(setup: &Setup) {
    let bench = Bench::new(setup);
    let queues = queues(&bench);
    let x = bench.memory(&[0; 4]);
    let mut commands = vec![bench.grind(&x)];
    commands.extend((1..20).map(|n| bench.mix(n, &x)));
    let buffer = bench.recorded(&commands);
    let mut expected = 0;
    for round in 0..=queues.len() {
        let events = events(&bench, 5);
        for (run, event) in events.iter().enumerate() {
            enqueue(&buffer, choose(&queues, round, run), event).unwrap();
            expected = (1..20).fold(ground(expected), mixed);
        }
        events.iter().for_each(complete);
        assert_eq!(words(&x), [expected], "round {round}");
    }
}

// mix a -> x   mix b -> y     both have run: mix 7 -> x
fn updates_between_runs(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().update.contains(UpdateCapabilities::KERNEL_ARGUMENTS) {
        return lacks("this update");
    }
    let queues = queues(&bench);
    for round in 0..=queues.len() {
        let (x, y) = (bench.memory(&[0; 4]), bench.memory(&[0; 4]));
        let mut buffer = bench.buffer(DAG.updatable(true));
        let mut points = Vec::new();
        let a = append(&mut buffer, &bench.mix(1, &x), &mut points, &[]).handle.unwrap();
        let b = append(&mut buffer, &bench.mix(2, &y), &mut points, &[]).handle.unwrap();
        append(&mut buffer, &bench.mix(7, &x), &mut points, &[0, 1]);
        buffer.finalize().unwrap();
        let (mut expected, mut values) = ([0, 0], [1, 2]);
        let events = events(&bench, 20);
        for (run, event) in events.iter().enumerate() {
            enqueue(&buffer, choose(&queues, round, run), event).unwrap();
            expected = [mixed(mixed(expected[0], values[0]), 7), mixed(expected[1], values[1])];
            // What is enqueued keeps its values, whether it is over or not.
            if run % 4 == 3 {
                complete(event);
            }
            values = [values[0] + 10, values[1] + 100];
            let [mut first, mut second] = [a, b].map(CommandUpdate::new);
            first.args.push((0, number(values[0])));
            second.args.push((0, number(values[1])));
            buffer.update(&[first, second]).unwrap();
        }
        events.iter().for_each(complete);
        assert_eq!([words(&x)[0], words(&y)[0]], expected, "round {round}");
    }
}

// (grind x, grind y) -> (mix 1 x, mix 2 y) -> mix 3 x, alone -> ..., nothing else orders them
fn wait_lists_order_buffers_and_commands(setup: &Setup) {
    let bench = Bench::new(setup);
    let queues = queues(&bench);
    for round in 0..=queues.len() {
        let (x, y) = (bench.memory(&[0; 4]), bench.memory(&[0; 4]));
        let both = |commands: [Command; 2]| {
            let mut buffer = bench.buffer(DAG);
            commands.iter().for_each(|command| _ = buffer.append(command, &[]).unwrap());
            buffer.finalize().unwrap();
            buffer
        };
        let slow = both([bench.grind(&x), bench.grind(&y)]);
        let quick = both([bench.mix(1, &x), bench.mix(2, &y)]);
        let alone = bench.mix(3, &x);
        let events = events(&bench, 30);
        let mut expected = [0, 0];
        for (run, event) in events.iter().enumerate() {
            let last: Vec<&dyn Event> = run.checked_sub(1).map(|last| &*events[last]).into_iter().collect();
            let wait = match run % 2 {
                0 => WaitList::dependencies(&last),
                _ => WaitList::order(&last),
            };
            let queue = choose(&queues, round, run);
            let [a, b] = expected;
            expected = match run % 3 {
                0 => {
                    enqueue_after(&slow, queue, wait, event).unwrap();
                    [ground(a), ground(b)]
                }
                1 => {
                    enqueue_after(&quick, queue, wait, event).unwrap();
                    [mixed(a, 1), mixed(b, 2)]
                }
                _ => {
                    enqueue_command(&alone, queue, wait, event).unwrap();
                    [mixed(a, 3), b]
                }
            };
        }
        complete(&events[29]);
        assert_eq!([words(&x)[0], words(&y)[0]], expected, "round {round}");
        events.iter().for_each(complete);
    }
}

/// Nothing follows any of the commands: the event is that of all of them.
fn all_ends_belong_to_a_run(setup: &Setup) {
    let bench = Bench::new(setup);
    let memory: Vec<_> = (0..8).map(|_| bench.memory(&[0; 4])).collect();
    let mut buffer = bench.buffer(DAG);
    for (id, x) in memory.iter().enumerate() {
        // By turns long and short.
        let command = if id % 2 == 0 { bench.grind(x) } else { bench.mix(5, x) };
        buffer.append(&command, &[]).unwrap();
        buffer.append(&Command::Empty, &[]).unwrap();
    }
    buffer.finalize().unwrap();
    let mut expected = [0, 0];
    for queue in queues(&bench) {
        for _ in 0..3 {
            let event = bench.event();
            enqueue(&buffer, &queue, &event).unwrap();
            complete(&event);
            expected = [ground(expected[0]), mixed(expected[1], 5)];
            for (id, x) in memory.iter().enumerate() {
                assert_eq!(words(x), [expected[id % 2]], "command {id}");
            }
        }
    }
}

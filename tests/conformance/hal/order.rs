//! Order inside a command-buffer: sync-points, in-order buffers, random DAGs against a model.

use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph::hal::{Command, CommandBufferDesc, MemoryView};

use super::bench::{Bench, append, complete, enqueue, part, read, usm, write};
use crate::random::Random;
use crate::registry::{Need, Setup, tests};

const DAG: CommandBufferDesc = CommandBufferDesc { updatable: false, in_order: false, profiling: false };

tests!("order":
    &[Need::Results] => [random_dags_of_copies_and_fills, hints_and_empty_commands_keep_the_order, empty_buffers_complete],
    &[Need::Results, Need::Closures] => [sync_points_order_commands, in_order_buffers_need_no_sync_points,
        wide_and_deep_dags_run_each_command_once, one_buffer_never_overlaps_itself]);

type Log = Arc<Mutex<Vec<usize>>>;

fn logging(bench: &Bench, log: &Log, id: usize) -> Command {
    let log = log.clone();
    bench.call("log", move || {
        log.lock().push(id);
        Ok(())
    })
}

//     0
//    / \
//   1   2
//    \ / \
//     3   4
fn sync_points_order_commands(setup: &Setup) {
    let bench = Bench::new(setup);
    let log = Log::default();
    let edges: [&[usize]; 5] = [&[], &[0], &[0], &[1, 2], &[2]];
    let mut buffer = bench.buffer(DAG);
    let mut points = Vec::new();
    for (id, after) in edges.iter().enumerate() {
        append(&mut *buffer, &logging(&bench, &log, id), &mut points, after);
    }
    buffer.finalize().unwrap();
    for _ in 0..50 {
        bench.run_buffer(&*buffer);
        let ran = std::mem::take(&mut *log.lock());
        let place = |id: usize| ran.iter().position(|&at| at == id).unwrap();
        assert_eq!(ran.len(), 5);
        for (id, after) in edges.iter().enumerate() {
            assert!(after.iter().all(|&before| place(before) < place(id)), "{ran:?}");
        }
    }
}

fn in_order_buffers_need_no_sync_points(setup: &Setup) {
    let bench = Bench::new(setup);
    let log = Log::default();
    let commands: Vec<_> = (0..100).map(|id| logging(&bench, &log, id)).collect();
    let buffer = bench.recorded(&commands);
    for _ in 0..3 {
        bench.run_buffer(&*buffer);
        assert_eq!(std::mem::take(&mut *log.lock()), (0..100).collect::<Vec<_>>());
    }
}

fn wide_and_deep_dags_run_each_command_once(setup: &Setup) {
    let bench = Bench::new(setup);
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let log = Log::default();
        let mut buffer = bench.buffer(DAG);
        let (mut points, mut edges) = (Vec::new(), Vec::new());
        for id in 0..200 {
            let count = if id == 0 { 0 } else { random.below(4) };
            // Repeated sync-points are allowed.
            let after: Vec<usize> = (0..count).map(|_| random.below(id)).collect();
            append(&mut *buffer, &logging(&bench, &log, id), &mut points, &after);
            edges.push(after);
        }
        buffer.finalize().unwrap();
        for _ in 0..2 {
            bench.run_buffer(&*buffer);
            let ran = std::mem::take(&mut *log.lock());
            let mut place = vec![None; 200];
            ran.iter()
                .enumerate()
                .for_each(|(at, &id)| assert!(place[id].replace(at).is_none(), "seed {seed}"));
            assert_eq!(ran.len(), 200, "seed {seed}");
            for (id, after) in edges.iter().enumerate() {
                assert!(after.iter().all(|&before| place[before] < place[id]), "seed {seed}");
            }
        }
    }
}

fn one_buffer_never_overlaps_itself(setup: &Setup) {
    let bench = Bench::new(setup);
    let inside = Arc::new(Mutex::new((0, 0)));
    let counter = inside.clone();
    let mut buffer = bench.buffer(DAG);
    let count = move |change: i32| {
        let counter = counter.clone();
        move || {
            let mut inside = counter.lock();
            inside.0 += change;
            inside.1 = inside.1.max(inside.0);
            Ok(())
        }
    };
    let mut points = Vec::new();
    append(&mut *buffer, &bench.call("enter", count(1)), &mut points, &[]);
    append(&mut *buffer, &Command::Empty, &mut points, &[0]);
    append(&mut *buffer, &Command::Empty, &mut points, &[0]);
    append(&mut *buffer, &bench.call("leave", count(-1)), &mut points, &[1, 2]);
    buffer.finalize().unwrap();
    let queues = [bench.another_queue(), bench.another_queue(), bench.out_of_order_queue()];
    let events: Vec<_> = (0..300)
        .map(|i| {
            let event = bench.event();
            enqueue(&*buffer, &*queues[i % 3], &event).unwrap();
            event
        })
        .collect();
    events.iter().for_each(complete);
    assert_eq!(*inside.lock(), (0, 1));
}

/// A random program over one allocation: each step with what it reads and writes, so that sync-points can be derived.
struct Step {
    command: Command,
    reads: std::ops::Range<usize>,
    writes: std::ops::Range<usize>,
}

const LEN: usize = 48;

fn random_step(random: &mut Random, memory: &MemoryView, model: &mut [u8]) -> Step {
    if random.chance(2) {
        let pattern = random.within(1..=3);
        let len = pattern * random.within(1..=4);
        let at = random.below(LEN - len);
        let pattern = random.bytes(pattern);
        model[at..at + len].iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern[i % pattern.len()]);
        let command = Command::BufferFill { dst: part(memory, at, len), pattern: pattern.as_slice().into() };
        return Step { command, reads: 0..0, writes: at..at + len };
    }
    let len = random.within(1..=LEN / 2);
    let (low, high) = (random.below(LEN / 2 - len + 1), LEN / 2 + random.below(LEN / 2 - len + 1));
    let (from, to) = if random.chance(2) { (low, high) } else { (high, low) };
    let bytes = model[from..from + len].to_vec();
    model[to..to + len].copy_from_slice(&bytes);
    let command = Command::BufferCopy { src: part(memory, from, len), dst: part(memory, to, len) };
    Step { command, reads: from..from + len, writes: to..to + len }
}

fn random_dags_of_copies_and_fills(setup: &Setup) {
    let bench = Bench::new(setup);
    let overlap = |a: &std::ops::Range<usize>, b: &std::ops::Range<usize>| a.start < b.end && b.start < a.end;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let start = random.bytes(LEN);
        let mut model = start.clone();
        let memory = bench.memory(&start);
        let steps: Vec<_> = (0..30).map(|_| random_step(&mut random, &memory, &mut model)).collect();
        let mut buffer = bench.buffer(DAG);
        let mut points = Vec::new();
        for (i, step) in steps.iter().enumerate() {
            let conflicts = |&earlier: &usize| {
                let earlier = &steps[earlier];
                overlap(&step.writes, &earlier.writes)
                    || overlap(&step.writes, &earlier.reads)
                    || overlap(&step.reads, &earlier.writes)
            };
            let after: Vec<usize> = (0..i).filter(conflicts).collect();
            append(&mut *buffer, &step.command, &mut points, &after);
        }
        buffer.finalize().unwrap();
        for replay in 0..3 {
            write(&memory, &start);
            bench.run_buffer(&*buffer);
            assert_eq!(read(&memory), model, "seed {seed}, replay {replay}");
        }
    }
}

// fill a -> prefetch a -> empty -> advise a -> copy a to b
fn hints_and_empty_commands_keep_the_order(setup: &Setup) {
    let bench = Bench::new(setup);
    let (a, b) = (bench.memory(&[0; 4]), bench.memory(&[0; 4]));
    let pointer = usm(&a);
    let mut commands = vec![Command::BufferFill { dst: a.clone(), pattern: [7].as_slice().into() }];
    commands.extend(pointer.map(|memory| Command::UsmPrefetch { memory }));
    commands.push(Command::Empty);
    let advice = wakegraph::hal::Advice::ReadMostly;
    commands.extend(pointer.map(|memory| Command::UsmAdvise { memory, advice }));
    commands.push(Command::BufferCopy { src: a.clone(), dst: b.clone() });
    let mut buffer = bench.buffer(DAG);
    let mut points = Vec::new();
    for (i, command) in commands.iter().enumerate() {
        let after: Vec<usize> = i.checked_sub(1).into_iter().collect();
        append(&mut *buffer, command, &mut points, &after);
    }
    buffer.finalize().unwrap();
    for _ in 0..20 {
        write(&a, &[0; 4]);
        bench.run_buffer(&*buffer);
        assert_eq!(read(&b), [7; 4]);
        write(&b, &[0; 4]);
    }
}

fn empty_buffers_complete(setup: &Setup) {
    let bench = Bench::new(setup);
    for in_order in [false, true] {
        let mut buffer = bench.buffer(CommandBufferDesc { in_order, ..DAG });
        buffer.finalize().unwrap();
        bench.run_buffer(&*buffer);
        bench.run_buffer(&*buffer);
    }
}

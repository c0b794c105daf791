//! Order inside a command-buffer: sync-points, in-order buffers, random DAGs against a model.

use wakegraph::Range;
use wakegraph::hal::{AccessMode, Command, CommandBufferDesc, KernelArg, MemoryView, WaitList};

use super::bench::{Bench, append, complete, enqueue, enqueue_after, launch, part, read, usm, write};
use super::launches::{elements, mixed, words};
use super::stamps::{MOST, Stamps};
use crate::random::Random;
use crate::suite::{Need, Setup, tests};

const DAG: CommandBufferDesc = CommandBufferDesc::new();

tests!("order":
    &[Need::Results] => [sync_points_order_commands, in_order_buffers_need_no_sync_points,
        wide_and_deep_dags_run_each_command_once, a_wide_fan_out_joins, one_buffer_never_overlaps_itself, random_dags_of_copies_and_fills,
        hints_and_empty_commands_keep_the_order, empty_buffers_complete],
    // PoCL searches all that is pending on an out-of-order queue: 5,000 links take it minutes.
    &[Need::Results, Need::InOrderQueue] => [long_chains_of_events_end]);

//     0
//    / \
//   1   2
//    \ / \
//     3   4
fn sync_points_order_commands(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut stamps = Stamps::new(&bench, 5);
    let edges: [&[usize]; 5] = [&[], &[0], &[0], &[1, 2], &[2]];
    let mut buffer = bench.buffer(DAG);
    edges.into_iter().for_each(|after| stamps.append(&mut buffer, after));
    buffer.finalize().unwrap();
    for run in 0..50 {
        bench.run_buffer(&buffer);
        stamps.ran();
        stamps.check(&format!("run {run}"));
    }
}

fn in_order_buffers_need_no_sync_points(setup: &Setup) {
    let bench = Bench::new(setup);
    let x = bench.memory(&[0; 4]);
    let commands: Vec<_> = (0..100).map(|id| bench.mix(id, &x)).collect();
    let buffer = bench.recorded(&commands);
    let mut expected = 0;
    for _ in 0..3 {
        bench.run_buffer(&buffer);
        expected = (0..100).fold(expected, mixed);
        assert_eq!(words(&x), [expected]);
    }
}

fn wide_and_deep_dags_run_each_command_once(setup: &Setup) {
    let bench = Bench::new(setup);
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let mut stamps = Stamps::new(&bench, 200);
        let mut buffer = bench.buffer(DAG);
        for id in 0..200 {
            let count = if id == 0 { 0 } else { random.below(MOST + 1) };
            // Repeated sync-points are allowed.
            let after: Vec<usize> = (0..count).map(|_| random.below(id)).collect();
            stamps.append(&mut buffer, &after);
        }
        buffer.finalize().unwrap();
        for run in 0..2 {
            bench.run_buffer(&buffer);
            stamps.ran();
            stamps.check(&format!("seed {seed}, run {run}"));
        }
    }
}

//      0
//   / | .. \
//  1  2 .. 100
//   \ | .. /
//     101
fn a_wide_fan_out_joins(setup: &Setup) {
    const WIDTH: usize = 100;
    const STRIDE: usize = 128;
    let bench = Bench::new(setup);
    let (x, y) = (bench.memory(&[1; WIDTH * STRIDE]), bench.memory(&[0; 4]));
    let params = [elements("x", 4, AccessMode::Read), elements("y", 4, AccessMode::ReadWrite)];
    let fold = bench.load("fold", &params, |_, args| {
        let sum = args.read::<u32>()?.iter().fold(0u32, |sum, &x| sum.wrapping_add(x));
        args.write::<u32>()?.iter_mut().for_each(|y| *y = mixed(*y, sum));
        Ok(())
    });
    let (mut buffer, mut points) = (bench.buffer(DAG), Vec::new());
    let clear = Command::BufferFill { dst: x.clone(), pattern: [0; 4].as_slice().into() };
    append(&mut buffer, &clear, &mut points, &[]);
    for id in 0..WIDTH {
        append(&mut buffer, &bench.mix(id as u32, &part(&x, STRIDE * id, 4)), &mut points, &[0]);
    }
    let args = vec![KernelArg::Memory(x), KernelArg::Memory(y.clone())];
    let children: Vec<usize> = (1..=WIDTH).collect();
    append(&mut buffer, &launch(&fold, args, Range::linear(1)), &mut points, &children);
    buffer.finalize().unwrap();
    let mut expected = 0;
    for run in 0..200 {
        bench.run_buffer(&buffer);
        expected = mixed(expected, (0..WIDTH as u32).sum());
        assert_eq!(words(&y), [expected], "run {run}");
    }
}

fn one_buffer_never_overlaps_itself(setup: &Setup) {
    let bench = Bench::new(setup);
    let counts = bench.memory(&[0; 12]);
    let param = [elements("counts", 4, AccessMode::ReadWrite)];
    let enter = bench.load("enter", &param, |_, args| {
        let counts = args.write::<u32>()?;
        counts[0] += 1;
        counts[1] = counts[1].max(counts[0]);
        Ok(())
    });
    let leave = bench.load("leave", &param, |_, args| {
        let counts = args.write::<u32>()?;
        counts[0] -= 1;
        counts[2] += 1;
        Ok(())
    });
    let call = |kernel| launch(kernel, vec![KernelArg::Memory(counts.clone())], Range::linear(1));
    let mut forked = bench.buffer(DAG);
    let mut points = Vec::new();
    append(&mut forked, &call(&enter), &mut points, &[]);
    append(&mut forked, &Command::Empty, &mut points, &[0]);
    append(&mut forked, &Command::Empty, &mut points, &[0]);
    append(&mut forked, &call(&leave), &mut points, &[1, 2]);
    forked.finalize().unwrap();
    // A backend may hand over such a chain in parts.
    let copy = Command::BufferRead { src: counts.clone(), host: bench.host_memory(&[0; 12]) };
    let chain = bench.recorded(&[call(&enter), copy, call(&leave)]);
    let mut queues = vec![bench.another_queue(), bench.another_queue()];
    if bench.device.capabilities().out_of_order_queues {
        queues.push(bench.out_of_order_queue());
    }
    for buffer in [forked, chain] {
        write(&counts, &[0; 12]);
        let events: Vec<_> = (0..300)
            .map(|i| {
                let event = bench.event();
                enqueue(&buffer, &queues[i % queues.len()], &event).unwrap();
                event
            })
            .collect();
        events.iter().for_each(complete);
        assert_eq!(words(&counts), [0, 1, 300]);
    }
}

/// A random program over one allocation: each step with what it reads and writes, so that
/// sync-points can be derived.
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
            append(&mut buffer, &step.command, &mut points, &after);
        }
        buffer.finalize().unwrap();
        for replay in 0..3 {
            write(&memory, &start);
            bench.run_buffer(&buffer);
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
        append(&mut buffer, command, &mut points, &after);
    }
    buffer.finalize().unwrap();
    for _ in 0..20 {
        write(&a, &[0; 4]);
        bench.run_buffer(&buffer);
        assert_eq!(read(&b), [7; 4]);
        write(&b, &[0; 4]);
    }
}

fn empty_buffers_complete(setup: &Setup) {
    let bench = Bench::new(setup);
    for in_order in [false, true] {
        let mut buffer = bench.buffer(DAG.in_order(in_order));
        buffer.finalize().unwrap();
        bench.run_buffer(&buffer);
        bench.run_buffer(&buffer);
    }
}

/// By turns on two queues, each behind the one before. Only the last event is asked how it ended,
/// and only its end is waited for: neither that nor dropping the others may need stack in
/// proportion.
fn long_chains_of_events_end(setup: &Setup) {
    const LENGTH: usize = 5_000;
    let bench = Bench::new(setup);
    let other = bench.another_queue();
    let x = bench.memory(&[0; 4]);
    let buffer = bench.recorded(&[bench.mix(1, &x)]);
    let mut last = bench.event();
    enqueue(&buffer, &bench.queue, &last).unwrap();
    for link in 1..LENGTH {
        let (event, queue) = (bench.event(), if link % 2 == 0 { &bench.queue } else { &other });
        enqueue_after(&buffer, queue, WaitList::dependencies(&[&*last]), &event).unwrap();
        last = event;
    }
    complete(&last);
    assert_eq!(words(&x), [(0..LENGTH).fold(0, |x, _| mixed(x, 1))]);
}

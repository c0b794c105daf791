//! Whole command-buffers updated from others.

use std::sync::Arc;

use wakegraph::hal::{
    Command, CommandBufferDesc, CommandHandle, CommandUpdate, Kernel, KernelArg, KernelLaunch, MemoryView,
    UpdateCapabilities, ValidatedCommandBuffer,
};
use wakegraph::{ErrorKind, Range};

use super::bench::{Bench, append, complete, enqueue, read};
use super::results_of_updates::{kernel, number, numbers};
use crate::suite::{Need, Setup, lacks, tests};

tests!("updates/from": &[Need::Results] => [operands_of_every_kind, from_every_state, further_updates,
    fills_of_another_form, what_was_enqueued_keeps_its_commands, on_several_queues, operands_are_kept],
    &[] => [other_topologies_are_refused]);

const UPDATABLE: CommandBufferDesc = CommandBufferDesc::new().updatable(true);

fn can_update(setup: &Setup) -> bool {
    let can = !setup.hal().capabilities().update.is_empty();
    if !can {
        lacks("updates");
    }
    can
}

struct Kernels {
    add: Arc<dyn Kernel>,
    mix: Arc<dyn Kernel>,
}

impl Kernels {
    fn new(bench: &Bench) -> Self {
        Self {
            add: kernel(bench, "add", |x, n| x.wrapping_add(n)),
            mix: kernel(bench, "mix", |x, n| x.wrapping_mul(31).wrapping_add(n)),
        }
    }

    /// x = byte, byte, ..; x = 31 * x + n; y = x; all of x, all of y, in two branches that join.
    fn record(
        &self,
        bench: &Bench,
        desc: CommandBufferDesc,
        (byte, n): (u8, u32),
        [x, y]: [&MemoryView; 2],
    ) -> (ValidatedCommandBuffer, Vec<CommandHandle>) {
        let fill = Command::BufferFill { dst: x.clone(), pattern: [byte].as_slice().into() };
        let launch = Command::Kernel(Arc::new(
            KernelLaunch::new(
                self.mix.clone(),
                vec![number(n), KernelArg::Memory(x.clone())],
                Range::linear(x.len() / 4),
            )
            .alternatives(vec![self.add.clone()]),
        ));
        let copy = Command::BufferCopy { src: x.clone(), dst: y.clone() };
        let mut buffer = bench.buffer(desc);
        let (mut points, mut handles) = (Vec::new(), Vec::new());
        let commands: [(&Command, &[usize]); 5] = [
            (&fill, &[]),
            (&Command::Empty, &[]),
            (&Command::Empty, &[0]),
            (&launch, &[1, 2]),
            (&copy, &[3, 0]),
        ];
        for (command, after) in commands {
            handles.extend(append(&mut buffer, command, &mut points, after).handle);
        }
        (buffer, handles)
    }
}

fn expected(byte: u8, n: u32) -> u32 {
    u32::from_ne_bytes([byte; 4]).wrapping_mul(31).wrapping_add(n)
}

fn operands_of_every_kind(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let kernels = Kernels::new(&bench);
    for desc in
        [UPDATABLE, UPDATABLE.in_order(true), UPDATABLE.profiling(bench.device.capabilities().profiling)]
    {
        let [a, b, c, d] = [16, 16, 32, 32].map(|len| bench.memory(&vec![0; len]));
        let (mut buffer, _) = kernels.record(&bench, desc, (1, 5), [&a, &b]);
        buffer.finalize().unwrap();
        bench.run_buffer(&buffer);
        assert_eq!(numbers(&b), [expected(1, 5); 4]);
        let (other, _) = kernels.record(&bench, desc, (2, 9), [&c, &d]);
        buffer.update_from(&other).unwrap();
        drop(other);
        for _ in 0..2 {
            bench.run_buffer(&buffer);
            assert_eq!((numbers(&c), numbers(&d)), (vec![expected(2, 9); 8], vec![expected(2, 9); 8]));
        }
        assert_eq!((numbers(&a), numbers(&b)), (vec![expected(1, 5); 4], vec![expected(1, 5); 4]));
        assert_eq!(buffer.info().commands, 5);
    }
}

fn from_every_state(setup: &Setup) {
    let all = UpdateCapabilities::ENABLED | UpdateCapabilities::KERNEL_ARGUMENTS;
    if !setup.hal().capabilities().update.contains(all) {
        return lacks("these updates");
    }
    let bench = Bench::new(setup);
    let kernels = Kernels::new(&bench);
    let [a, b] = [(); 2].map(|()| bench.memory(&[0; 16]));
    let (mut buffer, handles) = kernels.record(&bench, UPDATABLE, (1, 5), [&a, &b]);
    buffer.finalize().unwrap();
    let (mut other, theirs) = kernels.record(&bench, UPDATABLE, (2, 9), [&a, &b]);
    other.finalize().unwrap();
    let shows = |buffer: &ValidatedCommandBuffer, value: u32| {
        for _ in 0..2 {
            bench.run_buffer(buffer);
            assert_eq!(numbers(&b), [value; 4]);
        }
    };
    buffer.update_from(&other).unwrap();
    shows(&buffer, expected(2, 9));
    // One that has been updated itself, and in which something is disabled.
    other.update(&[CommandUpdate::new(theirs[1]).args(vec![(0, number(20))])]).unwrap();
    buffer.update_from(&other).unwrap();
    shows(&buffer, expected(2, 20));
    other.update(&[CommandUpdate::new(theirs[1]).enabled(Some(false))]).unwrap();
    buffer.update_from(&other).unwrap();
    shows(&buffer, u32::from_ne_bytes([2; 4]));
    shows(&other, u32::from_ne_bytes([2; 4]));
    // What was disabled here is enabled as it is there.
    let (fresh, _) = kernels.record(&bench, UPDATABLE, (3, 1), [&a, &b]);
    buffer.update_from(&fresh).unwrap();
    shows(&buffer, expected(3, 1));
    buffer.update(&[CommandUpdate::new(handles[1]).enabled(Some(false))]).unwrap();
    shows(&buffer, u32::from_ne_bytes([3; 4]));
    buffer.update_from(&other).unwrap();
    buffer.update(&[CommandUpdate::new(handles[1]).enabled(Some(true))]).unwrap();
    shows(&buffer, expected(2, 20));
}

fn further_updates(setup: &Setup) {
    let all = UpdateCapabilities::KERNEL_HANDLE
        | UpdateCapabilities::KERNEL_ARGUMENTS
        | UpdateCapabilities::GLOBAL_WORK_SIZE;
    if !setup.hal().capabilities().update.contains(all) {
        return lacks("these updates");
    }
    let bench = Bench::new(setup);
    let kernels = Kernels::new(&bench);
    let [a, b, c, d] = [16, 16, 32, 32].map(|len| bench.memory(&vec![0; len]));
    let (mut buffer, handles) = kernels.record(&bench, UPDATABLE, (1, 5), [&a, &b]);
    buffer.finalize().unwrap();
    for (byte, n) in [(2, 9), (3, 10)] {
        let (other, _) = kernels.record(&bench, UPDATABLE, (byte, n), [&c, &d]);
        buffer.update_from(&other).unwrap();
        let update = CommandUpdate::new(handles[1])
            .kernel(Some(kernels.add.clone()))
            .args(vec![(0, number(n + 1))])
            .global_size(Some([6, 1, 1]));
        buffer.update(&[update]).unwrap();
        let filled = u32::from_ne_bytes([byte; 4]);
        for _ in 0..2 {
            bench.run_buffer(&buffer);
            assert_eq!(numbers(&d), [[filled + n + 1; 6].as_slice(), &[filled; 2]].concat());
        }
    }
}

/// A driver's own fill becomes one that is made of several operations, and back.
fn fills_of_another_form(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let memory = bench.memory(&[0; 24]);
    let record = |pattern: &[u8]| {
        let mut buffer = bench.buffer(UPDATABLE);
        let fill = Command::BufferFill { dst: memory.clone(), pattern: pattern.into() };
        let handle = buffer.append(&fill, &[]).unwrap().handle.unwrap();
        (buffer, handle)
    };
    let (mut buffer, _) = record(&[1]);
    buffer.finalize().unwrap();
    let patterns: [&[u8]; 5] = [&[1, 2, 3], &[3, 1, 2], &[7], &[1, 2, 3, 4, 5, 6], &[8, 9]];
    for pattern in patterns {
        buffer.update_from(&record(pattern).0).unwrap();
        for _ in 0..2 {
            bench.run_buffer(&buffer);
            assert_eq!(read(&memory), pattern.repeat(24 / pattern.len()));
        }
    }
}

fn what_was_enqueued_keeps_its_commands(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let kernels = Kernels::new(&bench);
    let x = bench.memory(&[0; 16]);
    let outputs: Vec<_> = (0..30).map(|_| bench.memory(&[0; 16])).collect();
    let (mut buffer, _) = kernels.record(&bench, UPDATABLE, (1, 1), [&x, &outputs[0]]);
    buffer.finalize().unwrap();
    let events: Vec<_> = outputs.iter().map(|_| bench.event()).collect();
    for (n, (output, event)) in (0..).zip(outputs.iter().zip(&events)) {
        let (other, _) = kernels.record(&bench, UPDATABLE, (n as u8, n), [&x, output]);
        buffer.update_from(&other).unwrap();
        enqueue(&buffer, &bench.queue, event).unwrap();
    }
    events.iter().for_each(complete);
    for (n, output) in (0..).zip(&outputs) {
        assert_eq!(numbers(output), [expected(n as u8, n); 4], "enqueue {n}");
    }
}

/// Enqueues of one command-buffer never overlap, on whatever queue, also across an update that
/// replaces all of it.
fn on_several_queues(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let kernels = Kernels::new(&bench);
    let x = bench.memory(&[0; 4 << 10]);
    let queues = [bench.queue.clone(), bench.another_queue(), bench.another_queue()];
    let aside = bench.memory(&[0; 24]);
    let record = |pattern: &[u8], n| {
        let mut buffer = bench.buffer(UPDATABLE);
        let mut points = Vec::new();
        // Its form changes from update to update, so that nothing can be updated in place.
        let fill = Command::BufferFill { dst: aside.clone(), pattern: pattern.into() };
        let args = vec![number(n), KernelArg::Memory(x.clone())];
        let launch = super::bench::launch(&kernels.mix, args, Range::linear(1 << 10));
        append(&mut buffer, &fill, &mut points, &[]);
        append(&mut buffer, &launch, &mut points, &[0]);
        buffer
    };
    let mut buffer = record(&[1], 0);
    buffer.finalize().unwrap();
    let events: Vec<_> = (0..30).map(|_| bench.event()).collect();
    let mut model = 0u32;
    for (n, event) in (1u32..).zip(&events) {
        let pattern: &[u8] = if n % 2 == 0 { &[1] } else { &[1, 2, 3] };
        buffer.update_from(&record(pattern, n)).unwrap();
        enqueue(&buffer, &queues[n as usize % 3], event).unwrap();
        model = model.wrapping_mul(31).wrapping_add(n);
    }
    events.iter().for_each(complete);
    assert!(numbers(&x).iter().all(|x| *x == model));
}

fn operands_are_kept(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let kernels = Kernels::new(&bench);
    let output = bench.memory(&[0; 16]);
    let (mut buffer, _) = kernels.record(&bench, UPDATABLE, (1, 5), [&bench.memory(&[0; 16]), &output]);
    buffer.finalize().unwrap();
    let scratch = bench.memory(&[0; 16]);
    let kept = Arc::downgrade(scratch.memory());
    let (other, _) = kernels.record(&bench, UPDATABLE, (2, 6), [&scratch, &output]);
    buffer.update_from(&other).unwrap();
    drop((other, scratch));
    bench.run_buffer(&buffer);
    assert_eq!(numbers(&output), [expected(2, 6); 4]);
    assert!(kept.upgrade().is_some());
    drop(buffer);
    assert!(kept.upgrade().is_none());
}

fn other_topologies_are_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let memory = bench.memory(&[0; 4]);
    let fill = Command::BufferFill { dst: memory.clone(), pattern: [1].as_slice().into() };
    let record = |commands: &[(&Command, &[usize])]| {
        let (mut buffer, mut points) = (bench.buffer(UPDATABLE), Vec::new());
        for (command, after) in commands {
            append(&mut buffer, command, &mut points, after);
        }
        buffer
    };
    let mut buffer = record(&[(&fill, &[]), (&fill, &[0])]);
    let same = record(&[(&fill, &[]), (&fill, &[0])]);
    assert_eq!(buffer.update_from(&same).unwrap_err().kind(), ErrorKind::InvalidOperation);
    buffer.finalize().unwrap();
    for other in [
        record(&[(&fill, &[])]),
        record(&[(&fill, &[]), (&fill, &[0]), (&fill, &[1])]),
        record(&[(&fill, &[]), (&fill, &[])]),
        record(&[(&fill, &[]), (&Command::Empty, &[0])]),
        bench.buffer(CommandBufferDesc::new()),
        bench.buffer(UPDATABLE.in_order(true)),
    ] {
        let error = buffer.update_from(&other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    buffer.update_from(&same).unwrap();
    let mut fixed = bench.recorded(&[fill]);
    assert_eq!(fixed.update_from(&same).unwrap_err().kind(), ErrorKind::InvalidOperation);
}

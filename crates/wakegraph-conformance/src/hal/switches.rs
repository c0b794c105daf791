//! Commands enabled and disabled between enqueues, as it shows in memory.

use wakegraph::hal::{
    Command, CommandBufferDesc, CommandHandle, CommandUpdate, KernelArg, MemoryView, Pitch, Rect,
    UpdateCapabilities, ValidatedCommandBuffer,
};
use wakegraph::{ErrorKind, Range};

use super::bench::{Bench, append, complete, enqueue, launch, read, usm, write};
use super::results_of_updates::{kernel, number, numbers};
use crate::suite::{Need, Setup, lacks, tests};

tests!("updates/switches": &[Need::Results] => [every_kind, the_order_stays, a_batch_is_all_or_nothing,
    changes_while_disabled, what_was_enqueued_keeps_its_switches, times_of_disabled_commands],
    &[] => [what_cannot_be_switched]);

fn can_switch(setup: &Setup) -> bool {
    let can = setup.hal().capabilities().update.contains(UpdateCapabilities::ENABLED);
    if !can {
        lacks("this update");
    }
    can
}

fn switch(handle: CommandHandle, enabled: bool) -> CommandUpdate {
    CommandUpdate::new(handle).enabled(Some(enabled))
}

const UPDATABLE: CommandBufferDesc = CommandBufferDesc::new().updatable(true);

/// An updatable buffer of these commands, each behind the one before.
fn chain(bench: &Bench, commands: &[Command]) -> (ValidatedCommandBuffer, Vec<Option<CommandHandle>>) {
    let (mut buffer, mut points, mut handles) = (bench.buffer(UPDATABLE), Vec::new(), Vec::new());
    for (index, command) in commands.iter().enumerate() {
        let after = index.checked_sub(1);
        handles.push(append(&mut buffer, command, &mut points, after.as_slice()).handle);
    }
    buffer.finalize().unwrap();
    (buffer, handles)
}

fn copies(src: &MemoryView, dst: &MemoryView, host: [&MemoryView; 2]) -> Vec<Command> {
    let (rect, pitch) = (Rect { width: 2, height: 2, depth: 2 }, Pitch { offset: 0, row: 4, slice: 8 });
    let skew = Pitch { offset: 1, row: 3, slice: 6 };
    let [input, output] = host.map(MemoryView::clone);
    let (src, dst) = (src.clone(), dst.clone());
    vec![
        Command::BufferCopy { src: src.clone(), dst: dst.clone() },
        Command::BufferCopyRect {
            src: src.clone(),
            dst: dst.clone(),
            rect,
            src_pitch: pitch,
            dst_pitch: skew,
        },
        Command::BufferRead { src: src.clone(), host: output.clone() },
        Command::BufferReadRect { src, host: output, rect, src_pitch: pitch, host_pitch: skew },
        Command::BufferWrite { host: input.clone(), dst: dst.clone() },
        Command::BufferWriteRect { host: input, dst, rect, host_pitch: pitch, dst_pitch: skew },
    ]
}

fn every_kind(setup: &Setup) {
    if !can_switch(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let [src, dst] = [[7; 16], [0; 16]].map(|bytes| bench.memory(&bytes));
    let [input, output] = [[9; 16], [0; 16]].map(|bytes| bench.host_memory(&bytes));
    let mut commands = copies(&src, &dst, [&input, &output]);
    let add = kernel(&bench, "add", |x, n| x.wrapping_add(n));
    commands.push(launch(&add, vec![number(5), KernelArg::Memory(dst.clone())], Range::linear(4)));
    for pattern in [&[1][..], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]] {
        commands.push(Command::BufferFill { dst: dst.clone(), pattern: pattern.into() });
        commands.extend(usm(&dst).map(|dst| Command::UsmFill { dst, pattern: pattern.into() }));
    }
    if let (Some(src), Some(dst)) = (usm(&src), usm(&dst)) {
        commands.push(Command::UsmCopy { src, dst, len: 16 });
    }
    let clear = || [&dst, &output].map(|view| write(view, &[0; 16]));
    let seen = || [read(&dst), read(&output)];
    for command in commands {
        let (mut buffer, handles) = chain(&bench, std::slice::from_ref(&command));
        let handle = handles[0].unwrap();
        clear();
        bench.run_buffer(&buffer);
        let done = seen();
        assert_ne!(done, [[0; 16], [0; 16]], "{command:?}");
        for _ in 0..2 {
            buffer.update(&[switch(handle, false)]).unwrap();
            clear();
            bench.run_buffer(&buffer);
            bench.run_buffer(&buffer);
            assert_eq!(seen(), [[0; 16], [0; 16]], "{command:?}");
            buffer.update(&[switch(handle, true)]).unwrap();
            bench.run_buffer(&buffer);
            assert_eq!(seen(), done, "{command:?}");
        }
    }
}

// fill a -> (disabled: fill a differently) -> copy a to b: the copy still comes after the first fill.
fn the_order_stays(setup: &Setup) {
    if !can_switch(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let len = 1 << 16;
    let [a, b] = [0, 0].map(|byte| bench.memory(&vec![byte; len]));
    let fill = |byte| Command::BufferFill { dst: a.clone(), pattern: [byte].as_slice().into() };
    let copy = Command::BufferCopy { src: a.clone(), dst: b.clone() };
    let (mut buffer, handles) = chain(&bench, &[fill(1), fill(2), copy, fill(3)]);
    for enabled in [false, true, false] {
        buffer.update(&[switch(handles[1].unwrap(), enabled)]).unwrap();
        for _ in 0..5 {
            bench.run_buffer(&buffer);
            assert_eq!(read(&b), vec![if enabled { 2 } else { 1 }; len]);
        }
    }
    let all: Vec<_> = handles.iter().map(|handle| switch(handle.unwrap(), false)).collect();
    buffer.update(&all).unwrap();
    write(&b, &vec![9; len]);
    bench.run_buffer(&buffer);
    assert_eq!(read(&b), vec![9; len], "nothing is left");
}

fn a_batch_is_all_or_nothing(setup: &Setup) {
    if !can_switch(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let x = bench.memory(&[0; 16]);
    let add = kernel(&bench, "add", |x, n| x.wrapping_add(n));
    let args = vec![number(1), KernelArg::Memory(x.clone())];
    let fill = Command::BufferFill { dst: x.clone(), pattern: [0].as_slice().into() };
    let (mut buffer, handles) = chain(&bench, &[fill, launch(&add, args, Range::linear(4))]);
    let [fill, add] = [handles[0].unwrap(), handles[1].unwrap()];
    let changed = CommandUpdate::new(add).args(vec![(0, number(10))]);
    let wrong = switch(add, false).args(vec![(2, number(1))]);
    let error = buffer.update(&[switch(fill, false), changed.clone(), wrong]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    bench.run_buffer(&buffer);
    bench.run_buffer(&buffer);
    assert_eq!(numbers(&x), [1; 4], "filled and added to each time");
    // The last word about a command counts.
    buffer.update(&[switch(fill, false), changed, switch(add, false), switch(add, true)]).unwrap();
    bench.run_buffer(&buffer);
    bench.run_buffer(&buffer);
    assert_eq!(numbers(&x), [21; 4]);
}

fn changes_while_disabled(setup: &Setup) {
    if !can_switch(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let x = bench.memory(&[0; 16]);
    let add = kernel(&bench, "add", |x, n| x.wrapping_add(n));
    let args = vec![number(1), KernelArg::Memory(x.clone())];
    let (mut buffer, handles) = chain(&bench, &[launch(&add, args, Range::linear(4))]);
    let handle = handles[0].unwrap();
    buffer.update(&[switch(handle, false)]).unwrap();
    buffer.update(&[CommandUpdate::new(handle).args(vec![(0, number(7))])]).unwrap();
    bench.run_buffer(&buffer);
    assert_eq!(numbers(&x), [0; 4], "new arguments do not enable it");
    buffer.update(&[switch(handle, true)]).unwrap();
    bench.run_buffer(&buffer);
    assert_eq!(numbers(&x), [7; 4]);
}

fn what_was_enqueued_keeps_its_switches(setup: &Setup) {
    if !can_switch(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let x = bench.memory(&[0; 16]);
    let kernels = [
        kernel(&bench, "add", |x, n| x.wrapping_add(n)),
        kernel(&bench, "mix", |x, n| x.wrapping_mul(31).wrapping_add(n)),
    ];
    let commands = kernels
        .map(|kernel| launch(&kernel, vec![number(3), KernelArg::Memory(x.clone())], Range::linear(4)));
    let (mut buffer, handles) = chain(&bench, &commands);
    let events: Vec<_> = (0..40).map(|_| bench.event()).collect();
    let mut expected = 0u32;
    for (index, event) in events.iter().enumerate() {
        let [add, mix] = [index % 2 == 0, index % 3 == 0];
        let updates = [switch(handles[0].unwrap(), add), switch(handles[1].unwrap(), mix)];
        buffer.update(&updates).unwrap();
        enqueue(&buffer, &bench.queue, event).unwrap();
        expected = if add { expected.wrapping_add(3) } else { expected };
        expected = if mix { expected.wrapping_mul(31).wrapping_add(3) } else { expected };
    }
    events.iter().for_each(complete);
    assert_eq!(numbers(&x), [expected; 4]);
}

fn times_of_disabled_commands(setup: &Setup) {
    if !can_switch(setup) {
        return;
    }
    let bench = Bench::new(setup);
    if !bench.device.capabilities().profiling {
        return lacks("profiling");
    }
    let x = bench.memory(&[0; 16]);
    let mut buffer = bench.buffer(UPDATABLE.profiling(true));
    let mut points = Vec::new();
    let fill = |byte| Command::BufferFill { dst: x.clone(), pattern: [byte].as_slice().into() };
    append(&mut buffer, &fill(1), &mut points, &[]);
    let second = append(&mut buffer, &fill(2), &mut points, &[0]).handle.unwrap();
    buffer.finalize().unwrap();
    for enabled in [false, true] {
        buffer.update(&[switch(second, enabled)]).unwrap();
        let event = bench.event();
        enqueue(&buffer, &bench.queue, &event).unwrap();
        complete(&event);
        let profile = event.profile().unwrap();
        assert_eq!(profile.commands.len(), 2);
        assert!(profile.commands[1].start <= profile.commands[1].end, "{profile:?}");
        assert_eq!(read(&x), [if enabled { 2 } else { 1 }; 16]);
    }
}

/// Commands that only order have no handle; commands that are no kernels have no arguments.
fn what_cannot_be_switched(setup: &Setup) {
    if !can_switch(setup) {
        return;
    }
    let bench = Bench::new(setup);
    let fill = Command::BufferFill { dst: bench.memory(&[0; 16]), pattern: [1].as_slice().into() };
    let (mut buffer, handles) = chain(&bench, &[Command::Empty, fill]);
    assert!(handles[0].is_none());
    let fill = handles[1].unwrap();
    let empty = CommandHandle { index: 0, ..fill };
    let sized = CommandUpdate::new(fill).global_size(Some([1; 3]));
    for update in [switch(empty, false), sized] {
        let error = buffer.update(&[switch(fill, false), update]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCommandHandle, "{error}");
    }
}

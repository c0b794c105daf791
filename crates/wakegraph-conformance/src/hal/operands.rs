//! Wrong operands are refused alike by a command-buffer and a queue, before anything runs.

use std::sync::Arc;

use wakegraph::hal::{
    AccessMode, Command, CommandBufferDesc, CommandKinds, Kernel, KernelArg, KernelDesc, KernelSources,
    Param, ParamKind, Pitch, Rect, ValueBytes, WaitList,
};
use wakegraph::{ErrorKind, Range};

use super::bench::{Bench, bytes, enqueue_command, launch, part, pointer, source, value};
use super::launches::number;
use crate::suite::{Setup, lacks, tests};

tests!("operands": &[] => [sides, lengths_and_overlap, patterns, rectangles, pointers, kernel_arguments, aliases,
    index_spaces, local_memory]);

const ARGUMENT: ErrorKind = ErrorKind::InvalidArgument;
const SIZE: ErrorKind = ErrorKind::InvalidSize;

#[track_caller]
fn refuses(bench: &Bench, command: &Command, kind: ErrorKind) {
    let mut buffer = bench.buffer(CommandBufferDesc::new());
    let appended = buffer.append(command, &[]).unwrap_err();
    let enqueued = enqueue_command(command, &bench.queue, WaitList::NONE, &bench.event()).unwrap_err();
    assert_eq!(appended.kind(), kind, "{appended}");
    assert_eq!(enqueued.to_string(), appended.to_string());
    assert_eq!(buffer.info().commands, 0);
    assert_eq!(appended.device(), Some(&*bench.device.info().selector), "{appended}");
}

fn sides(setup: &Setup) {
    let bench = Bench::new(setup);
    let (device, host) = (bench.memory(&[0; 8]), bench.host_memory(&[0; 8]));
    for command in [
        Command::BufferCopy { src: host.clone(), dst: device.clone() },
        Command::BufferRead { src: device.clone(), host: device.clone() },
        Command::BufferRead { src: host.clone(), host: host.clone() },
        Command::BufferWrite { host: device.clone(), dst: device.clone() },
        Command::BufferWrite { host: host.clone(), dst: host.clone() },
        Command::BufferFill { dst: host, pattern: [1].as_slice().into() },
    ] {
        refuses(&bench, &command, ARGUMENT);
    }
}

fn lengths_and_overlap(setup: &Setup) {
    let bench = Bench::new(setup);
    let (memory, host) = (bench.memory(&[0; 16]), bench.host_memory(&[0; 8]));
    let copy = |src, dst| Command::BufferCopy { src, dst };
    refuses(&bench, &copy(part(&memory, 0, 4), part(&memory, 8, 5)), SIZE);
    refuses(&bench, &Command::BufferRead { src: memory.clone(), host: host.clone() }, SIZE);
    refuses(&bench, &Command::BufferWrite { host, dst: memory.clone() }, SIZE);
    refuses(&bench, &copy(part(&memory, 0, 5), part(&memory, 4, 5)), ARGUMENT);
    refuses(&bench, &copy(memory.clone(), memory), ARGUMENT);
}

fn patterns(setup: &Setup) {
    let bench = Bench::new(setup);
    let memory = bench.memory(&[0; 10]);
    for len in [0, 3, 4, 11, 20] {
        let pattern = vec![1; len].as_slice().into();
        refuses(&bench, &Command::BufferFill { dst: memory.clone(), pattern }, SIZE);
    }
}

fn rectangles(setup: &Setup) {
    let bench = Bench::new(setup);
    let (src, dst, host) = (bench.memory(&[0; 64]), bench.memory(&[0; 64]), bench.host_memory(&[0; 64]));
    let rect = Rect { width: 4, height: 2, depth: 2 };
    let good = Pitch { offset: 0, row: 8, slice: 16 };
    let bad = [
        (Rect { width: 0, ..rect }, good),
        (Rect { height: 0, ..rect }, good),
        (Rect { depth: 0, ..rect }, good),
        (rect, Pitch { row: 3, ..good }),
        (rect, Pitch { slice: 8, ..good }),
        (rect, Pitch { slice: 20, ..good }),
        (rect, Pitch { offset: 37, ..good }),
        (rect, Pitch { offset: usize::MAX, ..good }),
        (Rect { width: usize::MAX, ..rect }, good),
    ];
    for (rect, pitch) in bad {
        for (src_pitch, dst_pitch) in [(pitch, good), (good, pitch)] {
            let (src, dst, host) = (src.clone(), dst.clone(), host.clone());
            let copy =
                Command::BufferCopyRect { src: src.clone(), dst: dst.clone(), rect, src_pitch, dst_pitch };
            let read =
                Command::BufferReadRect { src, host: host.clone(), rect, src_pitch, host_pitch: dst_pitch };
            let write = Command::BufferWriteRect { host, dst, rect, host_pitch: src_pitch, dst_pitch };
            [copy, read, write].iter().for_each(|command| refuses(&bench, command, SIZE));
        }
    }
    let shifted = Pitch { offset: 2, ..good };
    let overlapping =
        Command::BufferCopyRect { src: src.clone(), dst: src, rect, src_pitch: good, dst_pitch: shifted };
    refuses(&bench, &overlapping, ARGUMENT);
}

fn pointers(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().commands.contains(CommandKinds::USM_COPY) {
        return lacks("pointers to memory");
    }
    let good = pointer(0x1000, 8);
    let copy = |src, dst, len| Command::UsmCopy { src, dst, len };
    refuses(&bench, &copy(pointer(0, 8), good, 8), ARGUMENT);
    refuses(&bench, &copy(good, pointer(0, 8), 8), ARGUMENT);
    refuses(&bench, &copy(good, pointer(0x2000, 8), 0), SIZE);
    refuses(&bench, &copy(good, pointer(0x2000, 7), 8), SIZE);
    refuses(&bench, &copy(good, pointer(0x1004, 8), 8), ARGUMENT);
    refuses(&bench, &copy(good, pointer(usize::MAX, 8), 8), SIZE);
    refuses(&bench, &Command::UsmFill { dst: good, pattern: [1, 2, 3].as_slice().into() }, SIZE);
    refuses(&bench, &Command::UsmPrefetch { memory: pointer(0x1000, 0) }, SIZE);
}

fn kernel(bench: &Bench, params: &[Param]) -> Arc<dyn Kernel> {
    let sources = KernelSources::new().host(|_, _| Ok(())).c(source("k", params));
    bench.device.create_kernel(&KernelDesc::new("k", params, &sources)).unwrap()
}

fn kernel_arguments(setup: &Setup) {
    let bench = Bench::new(setup);
    let element = ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 };
    let k = kernel(&bench, &[value("v", 4), Param { name: "m".into(), kind: element }]);
    let number = || KernelArg::Value(ValueBytes::from_slice(&[0; 4]));
    let memory = bench.memory(&[0; 16]);
    let whole = || KernelArg::Memory(memory.clone());
    for args in [
        vec![],
        vec![number()],
        vec![number(), whole(), whole()],
        vec![whole(), number()],
        vec![number(), number()],
        vec![KernelArg::Value(ValueBytes::from_slice(&[0; 3])), whole()],
        vec![KernelArg::Local(4), whole()],
        vec![number(), KernelArg::Memory(part(&memory, 0, 6))],
        vec![number(), KernelArg::Memory(part(&memory, 2, 4))],
        vec![number(), KernelArg::Usm(pointer(0, 4))],
        vec![number(), KernelArg::Usm(pointer(0x1002, 4))],
    ] {
        refuses(&bench, &launch(&k, args, Range::linear(1)), ARGUMENT);
    }
    bench.run(&launch(&k, vec![number(), whole()], Range::linear(1)));
}

fn aliases(setup: &Setup) {
    let bench = Bench::new(setup);
    let k = kernel(&bench, &[bytes("x", AccessMode::Read), bytes("y", AccessMode::ReadWrite)]);
    let memory = bench.memory(&[0; 8]);
    let args =
        |from, to| vec![KernelArg::Memory(part(&memory, from, 4)), KernelArg::Memory(part(&memory, to, 4))];
    refuses(&bench, &launch(&k, args(0, 0), Range::linear(1)), ARGUMENT);
    refuses(&bench, &launch(&k, args(0, 3), Range::linear(1)), ARGUMENT);
    bench.run(&launch(&k, args(0, 4), Range::linear(1)));
    let readers = kernel(&bench, &[bytes("x", AccessMode::Read), bytes("y", AccessMode::Read)]);
    bench.run(&launch(&readers, args(0, 0), Range::linear(1)));
}

fn index_spaces(setup: &Setup) {
    let bench = Bench::new(setup);
    let k = kernel(&bench, &[value("v", 4)]);
    let capabilities = bench.device.capabilities();
    let beyond = capabilities.max_global_index;
    let too_many = capabilities.max_work_group_size + 1;
    let too_wide = capabilities.max_work_item_sizes[0] + 1;
    for range in [
        Range::linear(0),
        Range::new([1, 0]),
        Range::new([usize::MAX, 2]),
        Range::linear(8).local([3]),
        Range::linear(8).local([0]),
        Range::linear(2).starting_at([usize::MAX]),
        Range::linear(too_many).local([too_many]),
        Range::linear(too_wide).local([too_wide]),
        Range::linear(2).starting_at([beyond]),
    ] {
        refuses(&bench, &launch(&k, vec![number(0)], range), SIZE);
    }
}

fn local_memory(setup: &Setup) {
    let bench = Bench::new(setup);
    let param = |name: &'static str| Param { name: name.into(), kind: ParamKind::Local { element_size: 4 } };
    let k = kernel(&bench, &[param("a"), param("b")]);
    let most = bench.device.capabilities().local_memory / 4 * 4;
    let with = |a, b| launch(&k, vec![KernelArg::Local(a), KernelArg::Local(b)], Range::linear(1));
    refuses(&bench, &with(0, 4), ARGUMENT);
    refuses(&bench, &with(6, 4), ARGUMENT);
    refuses(&bench, &with(most, 4), SIZE);
    bench.run(&with(most - 4, 4));
}

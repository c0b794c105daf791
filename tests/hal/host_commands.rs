//! The host backend's commands: graphs against a sequential model, copies and fills against
//! vectors, updates, times.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::hal::{
    Command, CommandBufferDesc, CommandUpdate, Device, KernelArg, MemoryView, Pitch, QueueOrder, Rect,
    UsmPointer,
};
use wakegraph::{Error, ErrorKind, Range};

use crate::common::*;

static DEVICE: LazyLock<Arc<dyn Device>> =
    LazyLock::new(|| host::open(HostOptions::new().threads(4)).unwrap());

const GRAPH: CommandBufferDesc = CommandBufferDesc::new();

/// For each command, the earlier ones it follows; and which commands fail.
fn graphs() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<usize>)> {
    (1..40usize).prop_flat_map(|n| {
        let after: Vec<_> = (0..n)
            .map(|i| {
                proptest::collection::vec(any::<prop::sample::Index>(), 0..4usize.min(i + 1)).prop_map(
                    move |picks| if i == 0 { vec![] } else { picks.iter().map(|p| p.index(i)).collect() },
                )
            })
            .collect();
        (after, proptest::collection::vec(0..n, 0..3))
    })
}

/// What command `i` computes from what it follows; 0 stands for "did not run".
fn combine(i: usize, inputs: impl Iterator<Item = u64>) -> u64 {
    inputs.fold(i as u64 + 1, |sum, input| sum.wrapping_mul(31).wrapping_add(input)) | 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn a_graph_computes_what_a_sequential_run_computes((after, failing) in graphs(), profiling: bool) {
        let mut model = vec![0; after.len()];
        for (i, befores) in after.iter().enumerate() {
            if befores.iter().all(|&b| model[b] != 0) && !failing.contains(&i) {
                model[i] = combine(i, befores.iter().map(|&b| model[b]));
            }
        }

        let values: Arc<Vec<AtomicU64>> = Arc::new(after.iter().map(|_| AtomicU64::new(0)).collect());
        let commands: Vec<_> = after.iter().enumerate().map(|(i, befores)| {
            let (values, befores, fails) = (values.clone(), befores.clone(), failing.contains(&i));
            call(&**DEVICE, move || {
                if fails {
                    return Err(Error::new(ErrorKind::InvalidArgument, format!("command {i}")));
                }
                let inputs = befores.iter().map(|&b| values[b].load(Ordering::Relaxed));
                values[i].store(combine(i, inputs), Ordering::Relaxed);
                Ok(())
            })
        }).collect();
        let buffer = buffer(&**DEVICE, GRAPH.profiling(profiling), &commands, &after);
        let queue = queue(&**DEVICE, QueueOrder::InOrder);
        for _ in 0..3 {
            values.iter().for_each(|value| value.store(0, Ordering::Relaxed));
            let event = start(&**DEVICE, &*buffer, &*queue, &[]);
            if failing.is_empty() {
                assert_complete(&*event);
            } else {
                prop_assert_eq!(failure(&*event).kind(), ErrorKind::InvalidArgument);
            }
            let values: Vec<_> = values.iter().map(|value| value.load(Ordering::Relaxed)).collect();
            prop_assert_eq!(&values, &model);
            prop_assert_eq!(event.profile().is_ok(), profiling && failing.is_empty());
        }
    }

    #[test]
    fn a_fill_repeats_its_pattern(size in prop::sample::select(vec![1, 2, 3, 4, 5, 16, 40]), times in 1..70usize,
                                  offset in 0..9usize, seed: u8, usm: bool) {
        let memory = memory(&**DEVICE, offset + size * times + 3);
        let pattern: Vec<u8> = (0..size).map(|i| seed.wrapping_add((i * 7) as u8)).collect();
        let command = if usm {
            let whole = memory.usm().unwrap();
            let dst = pointer(whole.address() + offset, size * times);
            Command::UsmFill { dst, pattern: pattern.clone().into() }
        } else {
            let dst = MemoryView::new(memory.clone(), offset, size * times).unwrap();
            Command::BufferFill { dst, pattern: pattern.clone().into() }
        };
        run_command(&**DEVICE, &*queue(&**DEVICE, QueueOrder::InOrder), &command);
        let mut expected = vec![0; offset];
        expected.extend(pattern.repeat(times));
        expected.extend([0; 3]);
        prop_assert_eq!(read(&*memory), expected);
    }

    #[test]
    fn copies_move_exactly_their_bytes(len in 1..200usize, from in 0..20usize, to in 0..20usize, kind in 0..4u8) {
        let (src, dst) = (memory(&**DEVICE, from + len), memory(&**DEVICE, to + len + 1));
        let bytes: Vec<u8> = (0..from + len).map(|i| i as u8 | 128).collect();
        write(&*src, &bytes);
        let view = MemoryView::new(src.clone(), from, len).unwrap();
        let target = MemoryView::new(dst.clone(), to, len).unwrap();
        let command = match kind {
            0 => Command::BufferCopy { src: view, dst: target },
            1 => Command::BufferRead { src: view, host: target },
            2 => Command::BufferWrite { host: view, dst: target },
            _ => Command::UsmCopy {
                src: pointer(src.usm().unwrap().address() + from, len),
                dst: pointer(dst.usm().unwrap().address() + to, len),
                len,
            },
        };
        run_command(&**DEVICE, &*queue(&**DEVICE, QueueOrder::OutOfOrder), &command);
        let mut expected = vec![0; to];
        expected.extend(&bytes[from..]);
        expected.push(0);
        prop_assert_eq!(read(&*dst), expected);
    }

    #[test]
    fn rectangular_copies_leave_the_gaps_alone(width in 1..9usize, height in 1..5usize, depth in 1..4usize,
                                               gaps in prop::array::uniform6(0..5usize), kind in 0..3u8) {
        let rect = Rect { width, height, depth };
        let pitch = |offset, row_gap, slice_gap| {
            let row = width + row_gap;
            Pitch { offset, row, slice: row * height + slice_gap }
        };
        let (src_pitch, dst_pitch) = (pitch(gaps[0], gaps[1], gaps[2]), pitch(gaps[3], gaps[4], gaps[5]));
        let src = memory(&**DEVICE, rect.end(&src_pitch).unwrap());
        let dst = memory(&**DEVICE, rect.end(&dst_pitch).unwrap());
        let bytes: Vec<u8> = (0..src.len()).map(|i| (i % 255) as u8 + 1).collect();
        write(&*src, &bytes);
        let mut expected = vec![0; dst.len()];
        for z in 0..depth {
            for y in 0..height {
                for x in 0..width {
                    let at = |p: Pitch| p.offset + z * p.slice + y * p.row + x;
                    expected[at(dst_pitch)] = bytes[at(src_pitch)];
                }
            }
        }
        let (from, to) = (MemoryView::whole(src), MemoryView::whole(dst.clone()));
        let command = match kind {
            0 => Command::BufferCopyRect { src: from, dst: to, rect, src_pitch, dst_pitch },
            1 => Command::BufferReadRect { src: from, host: to, rect, src_pitch, host_pitch: dst_pitch },
            _ => Command::BufferWriteRect { host: from, dst: to, rect, host_pitch: src_pitch, dst_pitch },
        };
        run_command(&**DEVICE, &*queue(&**DEVICE, QueueOrder::InOrder), &command);
        prop_assert_eq!(read(&*dst), expected);
    }
}

#[expect(unsafe_code, reason = "the pointer is used before its memory goes")]
fn pointer(address: usize, len: usize) -> UsmPointer {
    // SAFETY: the tests keep the memory until the command is done.
    unsafe { UsmPointer::new(address, len) }
}

/// A fan of 1,000 behind one command, joined by another:
///
/// ```text
///      0
///   / /|\ \
///  1 2 3 .. WIDTH
///   \ \|/ /
///      last
/// ```
#[test]
fn a_wide_graph_runs_every_command_once() {
    let count = Arc::new(AtomicU64::new(0));
    const WIDTH: usize = if cfg!(miri) { 30 } else { 1000 };
    const RUNS: u64 = if cfg!(miri) { 3 } else { 20 };
    let commands: Vec<_> = (0..WIDTH + 2)
        .map(|_| {
            let count = count.clone();
            call(&**DEVICE, move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        })
        .collect();
    let mut after = vec![vec![0]; WIDTH + 2];
    after[0].clear();
    after[WIDTH + 1] = (1..WIDTH + 1).collect();
    let buffer = buffer(&**DEVICE, GRAPH, &commands, &after);
    assert_eq!(buffer.info().lowering, "dependency-counted run");
    let queue = queue(&**DEVICE, QueueOrder::InOrder);
    for _ in 0..RUNS {
        start(&**DEVICE, &*buffer, &*queue, &[]);
    }
    queue.finish().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), RUNS * (WIDTH as u64 + 2));
}

#[test]
fn an_in_order_buffer_stops_at_the_first_failure() {
    let (sender, receiver) = channel();
    let commands: Vec<_> = (0..4)
        .map(|i| {
            let sender = sender.clone();
            call(&**DEVICE, move || {
                sender.send(i).unwrap();
                if i == 2 { Err(Error::new(ErrorKind::InvalidSize, "two")) } else { Ok(()) }
            })
        })
        .collect();
    let buffer = buffer(&**DEVICE, IN_ORDER, &commands, &[]);
    let event = start(&**DEVICE, &*buffer, &*queue(&**DEVICE, QueueOrder::InOrder), &[]);
    assert_eq!(failure(&*event).kind(), ErrorKind::InvalidSize);
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn an_update_applies_to_later_enqueues_only() {
    let (sender, receiver) = channel();
    let other_tell = sender.clone();
    let (release, hold) = held();
    let params = [value_param("v", 4)];
    let kernel = kernel_with_params(&**DEVICE, "sender", &params, move |range, args| {
        hold();
        sender.send((args.value::<u32>()?, *range)).unwrap();
        Ok(())
    });
    let other = kernel_with_params(&**DEVICE, "other", &params, move |range, args| {
        other_tell.send((args.value::<u32>()? + 1000, *range)).unwrap();
        Ok(())
    });
    let value = |v: u32| KernelArg::Value(v.to_ne_bytes().as_slice().into());
    let Command::Kernel(mut first) = launch(kernel, vec![value(1)]) else { unreachable!() };
    let range = Range::new([8, 4]).local([2, 2]).starting_at([1]);
    let launch = Arc::make_mut(&mut first);
    (launch.range, launch.alternatives) = (range, vec![other.clone()]);

    let desc = IN_ORDER.updatable(true);
    let mut buffer = DEVICE.create_command_buffer(&desc).unwrap();
    let handle = buffer.append(&Command::Kernel(first), &[]).unwrap().handle.unwrap();
    buffer.finalize().unwrap();
    let queue = queue(&**DEVICE, QueueOrder::InOrder);
    start(&**DEVICE, &*buffer, &*queue, &[]);
    start(&**DEVICE, &*buffer, &*queue, &[]);

    let mut update = CommandUpdate::new(handle);
    update.args = vec![(0, value(2))].into();
    buffer.update(&[update]).unwrap();
    start(&**DEVICE, &*buffer, &*queue, &[]);

    let mut update = CommandUpdate::new(handle);
    (update.kernel, update.local_size) = (Some(other), Some(None));
    (update.global_size, update.global_offset) = (Some([6, 2, 1]), Some([3, 1, 0]));
    let mut bad = CommandUpdate::new(handle);
    bad.args = vec![(9, value(0))].into();
    assert!(buffer.update(&[update.clone(), bad]).is_err());
    start(&**DEVICE, &*buffer, &*queue, &[]);
    buffer.update(&[update]).unwrap();
    start(&**DEVICE, &*buffer, &*queue, &[]);

    (0..4).for_each(|_| release.open());
    queue.finish().unwrap();
    let updated = Range::new([6, 2]).starting_at([3, 1]);
    let expected = [(1, range), (1, range), (2, range), (2, range), (1002, updated)];
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn command_times_are_in_the_order_of_appends() {
    for (in_order, after) in [(true, vec![]), (false, vec![vec![], vec![], vec![0, 1], vec![0]])] {
        let commands: Vec<_> = (0..4).map(|_| call(&**DEVICE, || Ok(()))).collect();
        let desc = CommandBufferDesc::new().in_order(in_order).profiling(true);
        let buffer = buffer(&**DEVICE, desc, &commands, &after);
        let queue = queue(&**DEVICE, QueueOrder::InOrder);
        for _ in 0..2 {
            let event = start(&**DEVICE, &*buffer, &*queue, &[]);
            assert_complete(&*event);
            let profile = event.profile().unwrap();
            let times = &profile.commands;
            assert_eq!(times.len(), 4);
            assert!(
                times.iter().all(|t| profile.start <= t.start && t.start <= t.end && t.end <= profile.end)
            );
            assert!(times[0].end <= times[2].start && times[1].end <= times[2].start || in_order);
            assert!(!in_order || times.is_sorted_by_key(|t| t.start));
        }
    }
}

#[test]
fn buffers_say_what_state_they_are_in() {
    let mut buffer = DEVICE.create_command_buffer(&GRAPH).unwrap();
    let queue = queue(&**DEVICE, QueueOrder::InOrder);
    let done = event(&**DEVICE);
    let early = enqueue(&*buffer, &*queue, &[], &done, None).unwrap_err();
    buffer.append(&Command::Empty, &[]).unwrap();
    buffer.finalize().unwrap();
    for error in [early, buffer.finalize().unwrap_err(), buffer.append(&Command::Empty, &[]).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    }
    assert_eq!(buffer.info().commands, 1);
}

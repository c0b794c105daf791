//! Times of enqueues and commands.
#![expect(unsafe_code, reason = "enqueues by hand")]

use std::sync::Arc;
use std::time::Duration;

use wakegraph::ErrorKind;
use wakegraph::hal::{Command, CommandBufferDesc, QueueDesc, QueueOrder, Signal, WaitList};

use super::bench::{Bench, append, complete, enqueue, enqueue_command};
use crate::suite::{Need, Setup, lacks, tests};

tests!("profiling":
    &[] => [without_profiling_there_are_none],
    &[Need::Execution] => [commands_have_times, every_use_may_have_an_event_of_its_own, queues_have_times,
        timed_signals_keep_times, times_advance]);

fn commands_have_times(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().profiling {
        return lacks("profiling");
    }
    for in_order in [true, false] {
        let mut buffer = bench.buffer(CommandBufferDesc::new().profiling(true).in_order(in_order));
        let fill = Command::BufferFill { dst: bench.memory(&[0; 64]), pattern: [1, 2].as_slice().into() };
        let mut points = Vec::new();
        append(&mut buffer, &fill, &mut points, &[]);
        append(&mut buffer, &Command::Empty, &mut points, &[]);
        append(&mut buffer, &fill, &mut points, &[0, 1]);
        buffer.finalize().unwrap();
        let event = bench.event();
        for _ in 0..3 {
            let before = bench.device.clock().unwrap().device;
            enqueue(&buffer, &bench.queue, &event).unwrap();
            complete(&event);
            let after = bench.device.clock().unwrap().device;
            let profile = event.profile().unwrap();
            assert!(before <= profile.submitted && profile.submitted <= profile.start, "{profile:?}");
            assert!(profile.start <= profile.end && profile.end <= after, "{profile:?}");
            assert_eq!(profile.commands.len(), 3);
            for command in &profile.commands {
                assert!(profile.start <= command.start && command.start <= command.end, "{profile:?}");
                assert!(command.end <= profile.end, "{profile:?}");
            }
            assert!(profile.commands[0].end <= profile.commands[2].start, "{profile:?}");
        }
    }
}

// A command-buffer does not depend on the events of its earlier uses, which are gone by the next.
fn every_use_may_have_an_event_of_its_own(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().profiling {
        return lacks("profiling");
    }
    let desc = CommandBufferDesc::new().profiling(true);
    let fill = Command::BufferFill { dst: bench.memory(&[0; 64]), pattern: [1].as_slice().into() };
    let buffers = [1usize, 4, 2].map(|commands| {
        let mut buffer = bench.buffer(desc);
        let mut points = Vec::new();
        for index in 0..commands {
            append(&mut buffer, &fill, &mut points, index.checked_sub(1).as_slice());
        }
        buffer.finalize().unwrap();
        (buffer, commands)
    });
    for _ in 0..100 {
        for (buffer, commands) in &buffers {
            let event = bench.event();
            enqueue(buffer, &bench.queue, &event).unwrap();
            complete(&event);
            assert_eq!(event.profile().unwrap().commands.len(), *commands);
        }
    }
}

fn queues_have_times(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().profiling {
        return lacks("profiling");
    }
    let desc = QueueDesc::new(QueueOrder::InOrder).profiling(true);
    let queue = bench.device.create_queue(&desc).unwrap();
    assert_eq!((queue.desc(), queue.device()), (&desc, bench.device.info().id));
    let (a, b) = (bench.event(), bench.event());
    let fill = Command::BufferFill { dst: bench.memory(&[0; 64]), pattern: [1].as_slice().into() };
    // Where the clock is that of events, it may be read anew between the two.
    let clock_error = || bench.device.clock().map_or(Duration::ZERO, |clock| clock.error).as_nanos() as u64;
    let error_before = clock_error();
    enqueue_command(&fill, &queue, WaitList::NONE, &a).unwrap();
    let buffer = bench.recorded(&[fill]);
    enqueue(&buffer, &queue, &b).unwrap();
    complete(&b);
    let (first, second) = (a.profile().unwrap(), b.profile().unwrap());
    assert!(first.submitted <= first.start && first.start <= first.end, "{first:?}");
    let off = error_before + clock_error();
    assert!(
        first.end <= second.end + off && second.start <= second.end,
        "{first:?} {second:?}, off by {off}"
    );
    assert!(second.commands.is_empty());
}

// Neither the queue nor the command-buffer was created with profiling.
fn timed_signals_keep_times(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().profiling {
        return lacks("profiling");
    }
    let fill = Command::BufferFill { dst: bench.memory(&[0; 64]), pattern: [1].as_slice().into() };
    let (buffer, event) = (bench.recorded(&[fill.clone(), fill.clone()]), bench.event());
    let mut last = 0;
    for round in 0..20 {
        let is_timed = round % 3 > 0;
        let signal = Signal::new(&event).timed(is_timed);
        let enqueued = if round % 2 == 0 {
            // SAFETY: all that is used is kept, and nothing else uses it.
            unsafe { buffer.enqueue(&bench.queue, WaitList::NONE, signal) }
        } else {
            // SAFETY: as above.
            unsafe { bench.queue.enqueue(&Arc::new(fill.clone()), WaitList::NONE, signal) }
        };
        enqueued.unwrap();
        complete(&event);
        match event.profile() {
            Ok(profile) => {
                assert!(is_timed && profile.commands.is_empty(), "in round {round}: {profile:?}");
                assert!(last <= profile.submitted && profile.submitted <= profile.start, "{profile:?}");
                assert!(profile.start <= profile.end, "{profile:?}");
                last = profile.submitted;
            }
            Err(error) => assert!(!is_timed && error.kind() == ErrorKind::InvalidOperation, "{error}"),
        }
    }
}

fn without_profiling_there_are_none(setup: &Setup) {
    let bench = Bench::new(setup);
    let event = bench.event();
    assert_eq!(event.profile().unwrap_err().kind(), ErrorKind::InvalidOperation);
    let buffer = bench.recorded(&[Command::Empty]);
    enqueue(&buffer, &bench.queue, &event).unwrap();
    complete(&event);
    assert_eq!(event.profile().unwrap_err().kind(), ErrorKind::InvalidOperation);
}

fn times_advance(setup: &Setup) {
    let device = setup.hal();
    let mut last = 0;
    for _ in 0..100 {
        let now = device.clock().unwrap().device;
        assert!(now >= last);
        last = now;
    }
}

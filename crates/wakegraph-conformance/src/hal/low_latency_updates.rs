//! Command-buffers whose end should be seen early, and that are updated between their enqueues: a
//! device may do more for them, and nothing else changes.

use std::sync::Arc;

use wakegraph::hal::{
    Command, CommandBufferDesc, CommandHandle, CommandUpdate, Event, KernelArg, UpdateCapabilities as Can,
    ValidatedCommandBuffer, WaitList,
};

use super::bench::{Bench, append, complete, enqueue, enqueue_after, read};
use super::launches::{ground, mixed, number, words};
use crate::suite::{Need, Setup, lacks, tests};

tests!("low_latency/updates": &[Need::Results] => [one_after_the_other, on_several_queues, in_flight,
    very_often, others_wait, switches, kernels, operands_on_the_host, with_times]);

/// So often that a device which decides by what it has seen has decided.
pub(super) const OFTEN: u32 = 20;

/// So often that it may have decided again.
const LONG: u32 = 150;

pub(super) const UPDATABLE: CommandBufferDesc =
    CommandBufferDesc::new().updatable(true).in_order(true).low_latency(true);

/// A bench, if its device can do this.
pub(super) fn bench(setup: &Setup, needed: Can) -> Option<Bench> {
    let can = setup.hal().capabilities().update.contains(needed);
    if !can {
        lacks("this update");
    }
    can.then(|| Bench::new(setup))
}

pub(super) type Recorded = (ValidatedCommandBuffer, Vec<CommandHandle>);

pub(super) fn record(bench: &Bench, desc: CommandBufferDesc, commands: &[Command]) -> Recorded {
    let mut buffer = bench.buffer(desc);
    let handles =
        commands.iter().map(|command| buffer.append(command, &[]).unwrap().handle.unwrap()).collect();
    buffer.finalize().unwrap();
    (buffer, handles)
}

pub(super) fn with_number(handle: CommandHandle, n: u32) -> CommandUpdate {
    CommandUpdate::new(handle).args(vec![(0, number(n))])
}

fn one_after_the_other(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let (x, event) = (bench.memory(&[0; 4]), bench.event());
    let (mut buffer, handles) =
        record(&bench, UPDATABLE, &[bench.grind(&x), bench.mix(0, &x), bench.mix(0, &x)]);
    let (mut expected, mut last) = (0, 0);
    for n in 0..3 * OFTEN {
        // Some are enqueued again as they are.
        if n % 5 != 4 {
            buffer.update(&[with_number(handles[1], n)]).unwrap();
            last = n;
        }
        enqueue(&buffer, &bench.queue, &event).unwrap();
        expected = mixed(mixed(ground(expected), last), 0);
        complete(&event);
        assert_eq!(words(&x), [expected], "enqueue {n}");
    }
}

fn on_several_queues(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let queues = [bench.another_queue(), bench.another_queue()];
    for turn in [1, OFTEN] {
        let x = bench.memory(&[0; 4]);
        let (mut buffer, handles) = record(&bench, UPDATABLE, &[bench.grind(&x), bench.mix(0, &x)]);
        let events: Vec<_> = (0..4 * OFTEN).map(|_| bench.event()).collect();
        let mut expected = 0;
        for (n, event) in (0..).zip(&events) {
            buffer.update(&[with_number(handles[1], n)]).unwrap();
            enqueue(&buffer, &queues[(n / turn % 2) as usize], event).unwrap();
            expected = mixed(ground(expected), n);
            if n % 10 == 9 {
                complete(event);
                assert_eq!(words(&x), [expected], "enqueue {n}");
            }
        }
        // The last first: the others are over then, too.
        events.iter().rev().for_each(complete);
        assert_eq!(words(&x), [expected]);
    }
}

// None is waited for before the next.
fn in_flight(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let x = bench.memory(&[0; 4]);
    let (mut buffer, handles) = record(&bench, UPDATABLE, &[bench.grind(&x), bench.mix(0, &x)]);
    let events: Vec<_> = (0..OFTEN + LONG + OFTEN).map(|_| bench.event()).collect();
    let mut expected = 0;
    for (n, event) in (0..).zip(&events) {
        buffer.update(&[with_number(handles[1], n)]).unwrap();
        enqueue(&buffer, &bench.queue, event).unwrap();
        expected = mixed(ground(expected), n);
    }
    for event in events.iter().rev() {
        complete(event);
        assert_eq!(words(&x), [expected]);
    }
}

fn very_often(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let (x, event) = (bench.memory(&[0; 4]), bench.event());
    let (mut buffer, handles) = record(&bench, UPDATABLE, &[bench.mix(0, &x)]);
    let (mut expected, mut n) = (0, 0);
    for round in 0..6 {
        for _ in 0..LONG {
            n += 1;
            buffer.update(&[with_number(handles[0], n)]).unwrap();
            enqueue(&buffer, &bench.queue, &event).unwrap();
            expected = mixed(expected, n);
            complete(&event);
            assert_eq!(words(&x), [expected], "round {round}, enqueue {n}");
        }
    }
}

// grind x, mix n x -> on another queue: mix 2 x -> the first again ...
fn others_wait(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let other_queue = bench.another_queue();
    let x = bench.memory(&[0; 4]);
    let (mut first, handles) = record(&bench, UPDATABLE, &[bench.grind(&x), bench.mix(0, &x)]);
    let other = bench.recorded(&[bench.mix(2, &x)]);
    let (first_done, other_done) = (bench.event(), bench.event());
    let mut expected = 0;
    for n in 0..2 * OFTEN {
        first.update(&[with_number(handles[1], n)]).unwrap();
        enqueue(&first, &bench.queue, &first_done).unwrap();
        let wait: [&dyn Event; 1] = [&*first_done];
        let wait = match n % 2 {
            0 => WaitList::dependencies(&wait),
            _ => WaitList::order(&wait),
        };
        enqueue_after(&other, &other_queue, wait, &other_done).unwrap();
        expected = mixed(mixed(ground(expected), n), 2);
        complete(&other_done);
        complete(&first_done);
        assert_eq!(words(&x), [expected], "enqueue {n}");
    }
}

// mix x --+--> mix x      mix y: each enabled or not, the last ones of the graph, too
fn switches(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS | Can::ENABLED) else { return };
    let [x, y] = [(); 2].map(|()| bench.memory(&[0; 4]));
    let (mut buffer, mut points) = (bench.buffer(UPDATABLE.in_order(false)), Vec::new());
    let commands: [(Command, &[usize]); 3] =
        [(bench.mix(1, &x), &[]), (bench.mix(2, &x), &[0]), (bench.mix(3, &y), &[])];
    let handles =
        commands.map(|(command, after)| append(&mut buffer, &command, &mut points, after).handle.unwrap());
    buffer.finalize().unwrap();
    let event = bench.event();
    let mut expected = [0, 0];
    for n in 0..4 * OFTEN {
        let on = [n % 2 == 0, n % 3 != 0, n % 5 < 3];
        let updates: Vec<_> =
            handles.iter().zip(on).map(|(&handle, on)| with_number(handle, n).enabled(Some(on))).collect();
        buffer.update(&updates).unwrap();
        enqueue(&buffer, &bench.queue, &event).unwrap();
        for (place, on) in [(0, on[0]), (0, on[1]), (1, on[2])] {
            expected[place] = if on { mixed(expected[place], n) } else { expected[place] };
        }
        complete(&event);
        assert_eq!([words(&x)[0], words(&y)[0]], expected, "enqueue {n}");
    }
}

// The test holds neither the kernels that are replaced nor those that replace them.
fn kernels(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS | Can::KERNEL_HANDLE) else { return };
    let x = bench.memory(&[0; 4]);
    let mut expected = 0;
    for when in [0, OFTEN / 2, 2 * OFTEN] {
        let (Command::Kernel(mut grind), Command::Kernel(mix)) = (bench.grind(&x), bench.mix(1, &x)) else {
            unreachable!("both are kernels")
        };
        Arc::make_mut(&mut grind).alternatives = vec![mix.kernel.clone()];
        let mut kernel = Some(mix.kernel.clone());
        drop(mix);
        let (mut buffer, handles) = record(&bench, UPDATABLE, &[Command::Kernel(grind)]);
        let events: Vec<_> = (0..3 * OFTEN).map(|_| bench.event()).collect();
        for (n, event) in (0..).zip(&events) {
            if n == when {
                let kernel = kernel.take();
                buffer.update(&[with_number(handles[0], 7).kernel(kernel)]).unwrap();
            }
            enqueue(&buffer, &bench.queue, event).unwrap();
            expected = if n < when { ground(expected) } else { mixed(expected, 7) };
        }
        events.iter().for_each(complete);
        assert_eq!(words(&x), [expected], "replaced at {when}");
    }
}

// An operand on the host comes and goes: the host sees what is written there at once.
fn operands_on_the_host(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    let views = [bench.memory(&[0; 4]), bench.host_memory(&[0; 4])];
    if !bench.device.can_access(&**views[1].memory()) {
        return lacks("kernels on host memory");
    }
    let (mut buffer, handles) = record(&bench, UPDATABLE, &[bench.mix(0, &views[0])]);
    let (mut expected, event) = ([0u32; 2], bench.event());
    for n in 0..10 * OFTEN {
        let place = (n / 15 % 2) as usize;
        let mut update = with_number(handles[0], n);
        update.args.push((1, KernelArg::Memory(views[place].clone())));
        buffer.update(&[update]).unwrap();
        enqueue(&buffer, &bench.queue, &event).unwrap();
        expected[place] = mixed(expected[place], n);
        complete(&event);
        assert_eq!(read(&views[place]), expected[place].to_ne_bytes(), "enqueue {n}");
    }
}

fn with_times(setup: &Setup) {
    let Some(bench) = bench(setup, Can::KERNEL_ARGUMENTS) else { return };
    if !bench.device.capabilities().profiling {
        return lacks("profiling");
    }
    let (x, event) = (bench.memory(&[0; 4]), bench.event());
    let desc = UPDATABLE.profiling(true);
    let (mut buffer, handles) = record(&bench, desc, &[bench.grind(&x), bench.mix(0, &x)]);
    let mut expected = 0;
    for n in 0..2 * OFTEN {
        buffer.update(&[with_number(handles[1], n)]).unwrap();
        enqueue(&buffer, &bench.queue, &event).unwrap();
        expected = mixed(ground(expected), n);
        complete(&event);
        assert_eq!(words(&x), [expected]);
        let profile = event.profile().unwrap();
        assert_eq!(profile.commands.len(), 2);
        assert!(
            profile.start <= profile.commands[1].end && profile.commands[1].end <= profile.end,
            "{profile:?}"
        );
    }
}

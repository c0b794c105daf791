//! Everything may be dropped while the device uses it: more than the contract asks for.

use wakegraph::Range;
use wakegraph::hal::{AccessMode, KernelArg, WaitList};

use super::bench::{Bench, bytes, complete, enqueue, enqueue_command, launch, part};
use crate::suite::{Need, Setup, tests};
use crate::support::{Hold, Tracker};

tests!("lifetime": &[Need::Results, Need::DeferredDrops] => [drop_everything_in_flight, single_commands_keep_their_operands,
    events_may_go_first]);

fn drop_everything_in_flight(setup: &Setup) {
    let (hold, tracker) = (Hold::new(), Tracker::new());
    let last = {
        let bench = Bench::new(setup);
        let (held, token) = (hold.held(), tracker.token());
        let params = [bytes("data", AccessMode::ReadWrite)];
        let kernel = bench.kernel("held", &params, move |_, args| {
            let _token = &token;
            held.pass();
            args.write::<u8>()?.fill(1);
            Ok(())
        });
        let memory = bench.memory(&[0; 1000]);
        let args = vec![KernelArg::Memory(part(&memory, 500, 500))];
        let buffer = bench.recorded(&[launch(&kernel, args, Range::linear(1))]);
        let last = bench.event();
        for _ in 0..3 {
            enqueue(&buffer, &bench.queue, &bench.event()).unwrap();
        }
        enqueue(&buffer, &bench.queue, &last).unwrap();
        hold.wait_for(1);
        last
    };
    assert_eq!(tracker.alive(), 1);
    hold.open();
    complete(&last);
    assert_eq!(hold.arrived(), 4);
    tracker.wait_until_freed();
}

fn single_commands_keep_their_operands(setup: &Setup) {
    let bench = Bench::new(setup);
    let (hold, tracker) = (Hold::new(), Tracker::new());
    let event = bench.event();
    {
        let (held, token) = (hold.held(), tracker.token());
        let command = bench.call("held", move || {
            let _token = &token;
            held.pass();
            Ok(())
        });
        enqueue_command(&command, &bench.queue, WaitList::NONE, &event).unwrap();
    }
    hold.wait_for(1);
    assert_eq!(tracker.alive(), 1);
    hold.open();
    complete(&event);
    tracker.wait_until_freed();
}

fn events_may_go_first(setup: &Setup) {
    let bench = Bench::new(setup);
    let hold = Hold::new();
    let held = hold.held();
    let buffer = bench.recorded(&[bench.call("held", move || {
        held.pass();
        Ok(())
    })]);
    for _ in 0..100 {
        enqueue(&buffer, &bench.queue, &bench.event()).unwrap();
    }
    hold.open();
    bench.queue.finish().unwrap();
    assert_eq!(hold.arrived(), 100);
}

//! Updates: each capability bit alone, all or nothing, later enqueues only.

use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph::hal::{
    Command, CommandBuffer, CommandBufferDesc, CommandHandle, CommandUpdate, Kernel, KernelArg, KernelLaunch,
    UpdateCapabilities, ValueBytes,
};
use wakegraph::{ErrorKind, Range, Result};

use super::bench::{Bench, complete, enqueue, value};
use crate::registry::{Need, Setup, lacks, tests};
use crate::support::Hold;

tests!("updates":
    &[Need::Results, Need::Closures] => [arguments, global_sizes, local_sizes, offsets, kernels, several_at_once,
        an_enqueue_already_made_keeps_the_old_values, all_or_nothing],
    &[] => [missing_capabilities_are_refused]);

/// What a launch saw: which kernel, its argument, its index space.
type Seen = (&'static str, u32, Range);

struct Updatable {
    bench: Bench,
    buffer: Box<dyn CommandBuffer>,
    handle: CommandHandle,
    other: Arc<dyn Kernel>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

fn argument(number: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&number.to_ne_bytes()))
}

fn kernel(bench: &Bench, name: &'static str, seen: &Arc<Mutex<Vec<Seen>>>) -> Arc<dyn Kernel> {
    let seen = seen.clone();
    bench.kernel(name, &[value("number", 4)], move |range, args| {
        seen.lock().push((name, args.value()?, *range));
        Ok(())
    })
}

impl Updatable {
    fn new(setup: &Setup, range: Range) -> Self {
        let bench = Bench::new(setup);
        let seen = Arc::default();
        let (one, other) = (kernel(&bench, "one", &seen), kernel(&bench, "other", &seen));
        let mut buffer = bench.buffer(CommandBufferDesc { updatable: true, ..CommandBufferDesc::default() });
        let alternatives = vec![other.clone()];
        let launch = KernelLaunch { kernel: one, args: vec![argument(1)], range, alternatives };
        let handle = buffer.append(&Command::Kernel(Box::new(launch)), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        Self { bench, buffer, handle, other, seen }
    }

    fn update(&mut self, change: impl FnOnce(&mut CommandUpdate)) -> Result<()> {
        let mut update = CommandUpdate::new(self.handle);
        change(&mut update);
        self.buffer.update(&[update])
    }

    fn run(&self) -> Seen {
        self.bench.run_buffer(&*self.buffer);
        self.seen.lock().pop().unwrap()
    }
}

fn can(setup: &Setup, bit: UpdateCapabilities) -> bool {
    setup.hal().capabilities().update.contains(bit)
}

fn arguments(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_ARGUMENTS) {
        return lacks("this update");
    }
    let range = Range::linear(4);
    let mut this = Updatable::new(setup, range);
    assert_eq!(this.run(), ("one", 1, range));
    for number in 2..5 {
        this.update(|update| update.args.push((0, argument(number)))).unwrap();
        assert_eq!((this.run(), this.run()), (("one", number, range), ("one", number, range)));
    }
}

fn global_sizes(setup: &Setup) {
    if !can(setup, UpdateCapabilities::GLOBAL_WORK_SIZE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::new([4, 4]).offset([1, 1]));
    this.update(|update| update.global_size = Some([8, 2, 1])).unwrap();
    assert_eq!(this.run(), ("one", 1, Range::new([8, 2]).offset([1, 1])));
    let error = this.update(|update| update.global_size = Some([8, 2, 2])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "the dimensions stay: {error}");
}

fn local_sizes(setup: &Setup) {
    if !can(setup, UpdateCapabilities::LOCAL_WORK_SIZE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(8).local([2]));
    this.update(|update| update.local_size = Some(Some([4, 1, 1]))).unwrap();
    assert_eq!(this.run().2, Range::linear(8).local([4]));
    this.update(|update| update.local_size = Some(None)).unwrap();
    assert_eq!(this.run().2, Range::linear(8));
    let error = this.update(|update| update.local_size = Some(Some([3, 1, 1]))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
}

fn offsets(setup: &Setup) {
    if !can(setup, UpdateCapabilities::GLOBAL_WORK_OFFSET) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::new([2, 2, 2]));
    this.update(|update| update.global_offset = Some([1, 2, 3])).unwrap();
    assert_eq!(this.run().2, Range::new([2, 2, 2]).offset([1, 2, 3]));
}

fn kernels(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_HANDLE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(1));
    let other = this.other.clone();
    this.update(|update| update.kernel = Some(other)).unwrap();
    assert_eq!(this.run().0, "other");
    let stranger = kernel(&this.bench, "stranger", &this.seen);
    let error = this.update(|update| update.kernel = Some(stranger)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(this.run().0, "other");
}

fn several_at_once(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_ARGUMENTS | UpdateCapabilities::GLOBAL_WORK_SIZE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(4));
    let [mut first, mut second, mut third] = [(); 3].map(|()| CommandUpdate::new(this.handle));
    first.args.push((0, argument(7)));
    second.global_size = Some([16, 1, 1]);
    third.args.push((0, argument(9)));
    this.buffer.update(&[first, second, third]).unwrap();
    assert_eq!(this.run(), ("one", 9, Range::linear(16)));
    this.buffer.update(&[]).unwrap();
    assert_eq!(this.run(), ("one", 9, Range::linear(16)));
}

fn an_enqueue_already_made_keeps_the_old_values(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_ARGUMENTS) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(1));
    let hold = Hold::new();
    let held = hold.held();
    let blocker = this.bench.recorded(&[this.bench.call("held", move || {
        held.pass();
        Ok(())
    })]);
    let events = [(); 3].map(|()| this.bench.event());
    enqueue(&*blocker, &*this.bench.queue, &this.bench.event()).unwrap();
    for (event, next) in events.iter().zip(2..) {
        enqueue(&*this.buffer, &*this.bench.queue, event).unwrap();
        this.update(|update| update.args.push((0, argument(next)))).unwrap();
    }
    hold.open();
    complete(&events[2]);
    let numbers: Vec<_> = this.seen.lock().drain(..).map(|seen| seen.1).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(this.run().1, 4);
}

fn all_or_nothing(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_ARGUMENTS) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(4));
    let mut good = CommandUpdate::new(this.handle);
    good.args.push((0, argument(5)));
    let mut bad = CommandUpdate::new(this.handle);
    bad.args.push((1, argument(5)));
    let error = this.buffer.update(&[good, bad]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(this.run(), ("one", 1, Range::linear(4)));
}

/// On a device that lacks a bit, the change is refused by name; on one that has all there is nothing to show.
fn missing_capabilities_are_refused(setup: &Setup) {
    let device = setup.hal();
    if device.capabilities().update.is_empty() {
        let desc = CommandBufferDesc { updatable: true, ..CommandBufferDesc::default() };
        let error = device.create_command_buffer(&desc).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
        return;
    }
    type Change = fn(&mut CommandUpdate);
    let changes: [(UpdateCapabilities, Change); 4] = [
        (UpdateCapabilities::KERNEL_ARGUMENTS, |update| update.args.push((0, argument(2)))),
        (UpdateCapabilities::GLOBAL_WORK_SIZE, |update| update.global_size = Some([8, 1, 1])),
        (UpdateCapabilities::LOCAL_WORK_SIZE, |update| update.local_size = Some(Some([2, 1, 1]))),
        (UpdateCapabilities::GLOBAL_WORK_OFFSET, |update| update.global_offset = Some([1, 0, 0])),
    ];
    for (bit, change) in changes {
        let mut this = Updatable::new(setup, Range::linear(4));
        match this.update(change) {
            Ok(()) => assert!(can(setup, bit), "{bit:?}"),
            Err(error) => {
                assert!(!can(setup, bit), "{bit:?}: {error}");
                assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
            }
        }
    }
}

//! Updates: each capability bit alone, all or nothing, later enqueues only.

use std::sync::Arc;

use wakegraph::hal::{
    Command, CommandBufferDesc, CommandHandle, CommandUpdate, Event, Kernel, KernelLaunch,
    UpdateCapabilities, ValidatedCommandBuffer, WaitList,
};
use wakegraph::{ErrorKind, Range, Result};

use super::bench::{Bench, complete, enqueue, enqueue_after};
use super::launches::{mixed, number};
use super::records::{Record, Seen};
use crate::suite::{Need, Setup, lacks, tests};

tests!("updates":
    &[Need::Results] => [arguments, global_sizes, local_sizes, offsets, kernels, several_at_once,
        an_enqueue_already_made_keeps_the_old_values, all_or_nothing],
    &[] => [missing_capabilities_are_refused]);

struct Updatable {
    bench: Bench,
    buffer: ValidatedCommandBuffer,
    handle: CommandHandle,
    record: Record,
}

impl Updatable {
    fn new(setup: &Setup, range: Range) -> Self {
        let bench = Bench::new(setup);
        let record = Record::new(&bench);
        let mut buffer = bench.buffer(CommandBufferDesc::new().updatable(true));
        let (kernel, alternatives) = (record.kernel.clone(), vec![record.other.clone()]);
        let launch = KernelLaunch::new(kernel, record.args(1), range).alternatives(alternatives);
        let handle = buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        Self { bench, buffer, handle, record }
    }

    fn update(&mut self, change: impl FnOnce(&mut CommandUpdate)) -> Result<()> {
        let mut update = CommandUpdate::new(self.handle);
        change(&mut update);
        self.buffer.update(&[update])
    }

    fn run(&self) -> Seen {
        self.bench.run_buffer(&self.buffer);
        self.record.take()
    }

    /// Runs the kernel, which must see this.
    #[track_caller]
    fn expect(&self, kernel: u64, number: u32, range: Range) {
        let seen = self.run();
        assert!(seen.is(range), "{seen:?} is not {range}");
        assert_eq!((seen.kernel, seen.number, seen.items), (kernel, number, range.count()));
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
    this.expect(1, 1, range);
    for n in 2..5 {
        this.update(|update| update.args.push((0, number(n)))).unwrap();
        this.expect(1, n, range);
        this.expect(1, n, range);
    }
}

fn global_sizes(setup: &Setup) {
    if !can(setup, UpdateCapabilities::GLOBAL_WORK_SIZE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::new([4, 4]).starting_at([1, 1]));
    this.update(|update| update.global_size = Some([8, 2, 1])).unwrap();
    this.expect(1, 1, Range::new([8, 2]).starting_at([1, 1]));
    let error = this.update(|update| update.global_size = Some([8, 2, 2])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "the dimensions stay: {error}");
}

fn local_sizes(setup: &Setup) {
    if !can(setup, UpdateCapabilities::LOCAL_WORK_SIZE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(8).local([2]));
    this.update(|update| update.local_size = Some(Some([4, 1, 1]))).unwrap();
    this.expect(1, 1, Range::linear(8).local([4]));
    this.update(|update| update.local_size = Some(None)).unwrap();
    this.expect(1, 1, Range::linear(8));
    let error = this.update(|update| update.local_size = Some(Some([3, 1, 1]))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
}

fn offsets(setup: &Setup) {
    if !can(setup, UpdateCapabilities::GLOBAL_WORK_OFFSET) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::new([2, 2, 2]));
    this.update(|update| update.global_offset = Some([1, 2, 3])).unwrap();
    this.expect(1, 1, Range::new([2, 2, 2]).starting_at([1, 2, 3]));
}

fn kernels(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_HANDLE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(1));
    let other = this.record.other.clone();
    this.update(|update| update.kernel = Some(other)).unwrap();
    this.expect(2, 1, Range::linear(1));
    let stranger: Arc<dyn Kernel> = Record::stranger(&this.bench);
    let error = this.update(|update| update.kernel = Some(stranger)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    this.expect(2, 1, Range::linear(1));
}

fn several_at_once(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_ARGUMENTS | UpdateCapabilities::GLOBAL_WORK_SIZE) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(4));
    let [mut first, mut second, mut third] = [(); 3].map(|()| CommandUpdate::new(this.handle));
    first.args.push((0, number(7)));
    second.global_size = Some([16, 1, 1]);
    third.args.push((0, number(9)));
    this.buffer.update(&[first, second, third]).unwrap();
    this.expect(1, 9, Range::linear(16));
    this.buffer.update(&[]).unwrap();
    this.expect(1, 9, Range::linear(16));
}

fn an_enqueue_already_made_keeps_the_old_values(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_ARGUMENTS) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(1));
    let x = this.bench.memory(&[0; 4]);
    let slow = this.bench.recorded(&[this.bench.grind(&x)]);
    let events = [(); 4].map(|()| this.bench.event());
    enqueue(&slow, &this.bench.queue, &events[0]).unwrap();
    // On an out-of-order queue nothing else holds them back, or says that `x` is not used any more.
    let first: [&dyn Event; 1] = [&*events[0]];
    let behind = WaitList::order(&first);
    for (event, next) in events[1..].iter().zip(2..) {
        enqueue_after(&this.buffer, &this.bench.queue, behind, event).unwrap();
        this.update(|update| update.args.push((0, number(next)))).unwrap();
    }
    complete(&events[3]);
    let seen = this.record.take();
    assert_eq!((seen.items, seen.numbers), (3, [1, 2, 3].into_iter().fold(0, mixed)));
    this.expect(1, 4, Range::linear(1));
}

fn all_or_nothing(setup: &Setup) {
    if !can(setup, UpdateCapabilities::KERNEL_ARGUMENTS) {
        return lacks("this update");
    }
    let mut this = Updatable::new(setup, Range::linear(4));
    let mut good = CommandUpdate::new(this.handle);
    good.args.push((0, number(5)));
    let mut bad = CommandUpdate::new(this.handle);
    bad.args.push((3, number(5)));
    let error = this.buffer.update(&[good, bad]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    this.expect(1, 1, Range::linear(4));
}

/// On a device that lacks a bit, the change is refused by name; on one that has all there is nothing to show.
fn missing_capabilities_are_refused(setup: &Setup) {
    let device = setup.hal();
    if device.capabilities().update.is_empty() {
        let desc = CommandBufferDesc::new().updatable(true);
        let error = device.create_command_buffer(&desc).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
        return;
    }
    type Change = fn(&mut CommandUpdate);
    let changes: [(UpdateCapabilities, Change); 4] = [
        (UpdateCapabilities::KERNEL_ARGUMENTS, |update| update.args.push((0, number(2)))),
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

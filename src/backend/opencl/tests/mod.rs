//! Failures that the driver reports. The public contract cannot cause one on purpose; a user event
//! can.
#![expect(unsafe_code, reason = "enqueues, and fails events by hand")]

mod host_buffers;
mod prefetch;
mod refusals;
mod releases;
mod updates;

use std::sync::Arc;

use super::device::OpenclDevice;
use super::event::OpenclEvent;
use super::signal::{OpenclSignal, StartedWork};
use super::sys::call;
use super::{OpenclBackend, OpenclOptions};
use crate::hal::support::dependency::Dependencies;
use crate::hal::support::signals::EnqueueSignal;
use crate::hal::{
    Backend as _, Command, Device as _, Event as _, EventStatus, MemoryDesc, MemoryKind, MemoryView,
    Queue as _, QueueDesc, QueueOrder, WaitList,
};
use crate::types::ErrorKind;

/// The code with which the tests fail events; not one of OpenCL's.
const CODE: i32 = -4711;

/// Every device of this machine; without OpenCL none.
fn devices() -> Vec<OpenclDevice> {
    let count = OpenclBackend.device_count().unwrap_or(0);
    (0..count).map(|index| OpenclDevice::open(index, OpenclOptions::new()).unwrap()).collect()
}

/// An event that is pending until `end` is called on the driver's event.
fn pending(device: &OpenclDevice, queue: &super::queue::OpenclQueue) -> (Arc<OpenclEvent>, sys_event::Raw) {
    let context = device.context();
    let user = context.user_event().unwrap();
    let raw = sys_event::Raw(user.raw());
    let started = StartedWork { event: Some(user), ..StartedWork::default() };
    let signal = OpenclSignal::new(context, queue.driver(), started, Dependencies::default());
    (Arc::new(OpenclEvent::signalled(signal)), raw)
}

mod sys_event {
    /// The driver's event, which the test's own event keeps alive.
    pub(super) struct Raw(pub(super) *mut std::ffi::c_void);
}

fn end(device: &OpenclDevice, event: &sys_event::Raw, status: i32) {
    // SAFETY: a user event that is alive, whose status has not been set.
    unsafe { call!(device.context().core, clSetUserEventStatus(event.0, status)) }.unwrap();
}

fn queue(device: &OpenclDevice) -> super::queue::OpenclQueue {
    let desc = QueueDesc::new(QueueOrder::InOrder);
    super::queue::OpenclQueue::create(device.context(), desc).unwrap()
}

/// `a` fails, `b` waits for `a`, and `c` for `b`. Intel's runtime reports the events of `b` and `c` as
/// complete.
#[test]
fn failures_are_inherited_whatever_the_driver_reports() {
    for device in devices() {
        let memory = device.allocate(&MemoryDesc { len: 4, kind: MemoryKind::Device }).unwrap();
        let (dst, pattern) = (MemoryView::whole(memory.clone()), [7].as_slice().into());
        let fill = Arc::new(Command::BufferFill { dst, pattern });
        let (first, second) = (queue(&device), queue(&device));
        let (a, driver_event) = pending(&device, &first);
        let events = [(); 2].map(|()| Arc::new(OpenclEvent::new(device.context())));
        let [b, c] = events.map(|event| event as Arc<dyn crate::hal::Event>);
        let enqueue = |queue: &super::queue::OpenclQueue, wait: &dyn crate::hal::Event, event| {
            let signal = crate::hal::Signal::new(event);
            // SAFETY: the memory lives until the end of this test, and nothing else uses it.
            unsafe { queue.enqueue(&fill, WaitList::dependencies(&[wait]), signal) }.unwrap();
        };
        enqueue(&first, &*a, &b);
        enqueue(&second, &*b, &c);
        assert!(matches!(a.status(), EventStatus::Pending));
        assert!(matches!(c.status(), EventStatus::Pending));
        end(&device, &driver_event, CODE);
        for event in [&*c, &*b, &*a as &dyn crate::hal::Event] {
            match event.wait(None) {
                EventStatus::Failed(error) => {
                    assert_eq!(error.kind(), ErrorKind::Driver);
                    assert!(error.to_string().contains("-4711"), "{error}");
                }
                status => panic!("{status:?}"),
            }
        }
        let mut bytes = [9; 4];
        // SAFETY: nothing is in flight.
        unsafe { memory.read(0, &mut bytes) }.unwrap();
        assert_eq!(bytes, [0; 4], "neither of them ran");
        device.status().unwrap();
    }
}

/// Signals that wait for each other are settled and dropped without recursion.
#[test]
fn long_chains_do_not_need_the_stack() {
    for device in devices().into_iter().take(1) {
        let queue = queue(&device);
        let (first, driver_event) = pending(&device, &queue);
        let mut last = first.signal.get().unwrap();
        for _ in 0..200_000 {
            let started = StartedWork::default();
            let mut dependencies = Dependencies::default();
            dependencies.push(last);
            last = Arc::new(OpenclSignal::new(device.context(), queue.driver(), started, dependencies));
        }
        assert!(matches!(last.status(), EventStatus::Pending));
        end(&device, &driver_event, CODE);
        assert!(matches!(last.status(), EventStatus::Failed(_)));
        drop(last);
    }
}

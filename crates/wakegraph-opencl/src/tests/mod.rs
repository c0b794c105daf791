//! Failures that the driver reports. The public contract cannot cause one on purpose; a user event
//! can.
#![expect(unsafe_code, reason = "enqueues, and fails events by hand")]

mod failed_order;
mod failing_calls;
mod host_buffers;
mod prefetch;
mod refusals;
mod releases;
mod stream_tasks;
mod updates;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use wakegraph_hal::support::signals::{Dependencies, EnqueueSignal};
use wakegraph_hal::{
    Backend as _, Command, Device as _, ErrorKind, Event as _, EventStatus, MemoryDesc, MemoryKind,
    MemoryView, Notification, Notify, Queue as _, QueueDesc, QueueOrder, WaitList,
};

use super::OpenclDevice;
use super::events::{OpenclEvent, OpenclSignal, StartedWork};
use super::sys::{self, call};
use super::{OpenclBackend, OpenclOptions};

/// The code with which the tests fail events; not one of OpenCL's.
const CODE: i32 = -4711;

/// Every device of this machine; without OpenCL none.
fn devices() -> Vec<OpenclDevice> {
    let count = OpenclBackend.device_count().unwrap_or(0);
    (0..count).map(|index| OpenclDevice::open(index, OpenclOptions::new()).unwrap()).collect()
}

/// A table of functions for ever, which a leak checker finds here.
fn kept(core: sys::Core) -> &'static sys::Core {
    static KEPT: Mutex<Vec<&'static sys::Core>> = Mutex::new(Vec::new());
    let core = Box::leak(Box::new(core));
    KEPT.lock().push(core);
    core
}

/// An event that is pending until `end` is called on the driver's event.
fn pending(device: &OpenclDevice, queue: &super::queue::OpenclQueue) -> (Arc<OpenclEvent>, sys_event::Raw) {
    let context = &device.context;
    let user = context.user_event().unwrap();
    let raw = sys_event::Raw(user.raw());
    let started = StartedWork { event: Some(user), ..StartedWork::default() };
    let signal = OpenclSignal::new(context, &queue.main, started, Dependencies::default());
    (Arc::new(OpenclEvent::signalled(&device.context, signal)), raw)
}

mod sys_event {
    /// The driver's event, which the test's own event keeps alive.
    pub(super) struct Raw(pub(super) *mut std::ffi::c_void);
}

fn end(device: &OpenclDevice, event: &sys_event::Raw, status: i32) {
    // SAFETY: a user event that is alive, whose status has not been set.
    unsafe { call!(device.context.core, clSetUserEventStatus(event.0, status)) }.unwrap();
}

fn queue(device: &OpenclDevice) -> super::queue::OpenclQueue {
    let desc = QueueDesc::new(QueueOrder::InOrder);
    super::queue::OpenclQueue::create(&device.context, desc).unwrap()
}

/// `a` fails, `b` waits for `a`, and `c` for `b`. Intel's runtime reports the events of `b` and `c` as
/// complete.
#[test]
fn failures_are_inherited_whatever_the_driver_reports() {
    for device in devices() {
        let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
        let (dst, pattern) = (MemoryView::whole(memory.clone()), [7].as_slice().into());
        let fill = Arc::new(Command::BufferFill { dst, pattern });
        let (first, second) = (queue(&device), queue(&device));
        let (a, driver_event) = pending(&device, &first);
        let events = [(); 2].map(|()| Arc::new(OpenclEvent::new(&device.context)));
        let [b, c] = events.map(|event| event as Arc<dyn wakegraph_hal::Event>);
        let enqueue = |queue: &super::queue::OpenclQueue, wait: &dyn wakegraph_hal::Event, event| {
            let signal = wakegraph_hal::Signal::new(event);
            // SAFETY: the memory lives until the end of this test, and nothing else uses it.
            unsafe { queue.enqueue(&fill, WaitList::dependencies(&[wait]), signal) }.unwrap();
        };
        enqueue(&first, &*a, &b);
        enqueue(&second, &*b, &c);
        assert!(matches!(a.status(), EventStatus::Pending));
        assert!(matches!(c.status(), EventStatus::Pending));
        end(&device, &driver_event, CODE);
        for event in [&*c, &*b, &*a as &dyn wakegraph_hal::Event] {
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

/// Tells that it was notified.
struct Notified(mpsc::Sender<u64>);

impl Notify for Notified {
    fn notify(&self, token: u64) {
        let _ = self.0.send(token);
    }
}

/// What an application gives its own event as an error is no news about the device.
#[test]
fn a_failed_event_of_another_library_does_not_lose_the_device() {
    for device in devices() {
        let user = device.context.user_event().unwrap();
        let raw = sys_event::Raw(user.raw());
        let signal = OpenclSignal::foreign(&device.context, user);
        let event = OpenclEvent::signalled(&device.context, signal);
        assert!(matches!(event.status(), EventStatus::Pending));
        end(&device, &raw, sys::CL_OUT_OF_RESOURCES);
        let EventStatus::Failed(error) = event.wait(None) else { panic!("it has failed") };
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        device.status().unwrap();
    }
}

/// `b` needs `a`, which fails, and `c`, which ends later. Intel's runtime, which can call back although it is
/// polled, does so for `b` when `a` fails; PoCL 3.1 never calls back for what fails.
#[test]
fn an_event_is_final_when_it_is_notified() {
    for device in devices().into_iter().filter(|device| device.context.features.failure_skips) {
        let (first, second) = (queue(&device), queue(&device));
        let ((a, end_a), (c, end_c)) = (pending(&device, &first), pending(&device, &second));
        let event = Arc::new(OpenclEvent::new(&device.context));
        let b: Arc<dyn wakegraph_hal::Event> = event.clone();
        let (sender, notified) = mpsc::channel();
        let notification = Notification { target: Arc::new(Notified(sender)), token: 7 };
        let signal = wakegraph_hal::Signal::new(&b);
        let wait: &[&dyn wakegraph_hal::Event] = &[&*a, &*c];
        // SAFETY: the command uses no memory.
        unsafe { first.enqueue(&Arc::new(Command::Empty), WaitList::dependencies(wait), signal) }.unwrap();
        event.signal.get().unwrap().notify(notification);
        end(&device, &end_a, CODE);
        // A driver that ends it early has done so by now, or will in time for the end of `c`.
        assert!(matches!(b.wait(Some(Duration::from_millis(20))), EventStatus::Pending));
        assert!(notified.try_recv().is_err());
        end(&device, &end_c, 0);
        assert_eq!(notified.recv_timeout(Duration::from_secs(60)), Ok(7));
        assert!(matches!(b.status(), EventStatus::Failed(_)));
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
            last = Arc::new(OpenclSignal::new(&device.context, &queue.main, started, dependencies));
        }
        assert!(matches!(last.status(), EventStatus::Pending));
        end(&device, &driver_event, CODE);
        assert!(matches!(last.status(), EventStatus::Failed(_)));
        drop(last);
    }
}

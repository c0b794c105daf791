//! Failures that a driver tells of itself. The public contract cannot make one happen on purpose; a user event can.
#![expect(unsafe_code, reason = "enqueues, and fails events by hand")]

use std::sync::Arc;

use super::device::OpenclDevice;
use super::event::OpenclEvent;
use super::replay::Started;
use super::signal::{self, Signal, Waited};
use super::sys::{Event, Owned, call};
use super::{OpenclBackend, OpenclOptions};
use crate::hal::{
    Backend as _, Command, Device as _, Event as _, EventStatus, MemoryDesc, MemoryKind, MemoryView,
    Queue as _, QueueDesc, QueueOrder, WaitList,
};
use crate::types::ErrorKind;

/// The code with which events are failed: one of the user's own.
const CODE: i32 = -4711;

/// Every device there is; without OpenCL there is nothing to show.
fn devices() -> Vec<OpenclDevice> {
    let count = OpenclBackend.device_count().unwrap_or(0);
    (0..count).map(|index| OpenclDevice::open(index, OpenclOptions::new()).unwrap()).collect()
}

/// An event of ours that is pending until `end` is called on the driver's.
fn pending(device: &OpenclDevice, queue: &super::queue::OpenclQueue) -> (Arc<OpenclEvent>, sys_event::Raw) {
    let shared = device.shared();
    let user = signal::user_event(shared).unwrap();
    let raw = sys_event::Raw(user.raw());
    let started = Started { event: Some(user), failure: None, times: None };
    let event = OpenclEvent::new(shared);
    *event.slot() = Some(Arc::new(Signal::new(shared, queue.driver(), true, started, Waited::new())));
    (Arc::new(event), raw)
}

mod sys_event {
    /// The driver's event, which the test's own event keeps alive.
    pub(super) struct Raw(pub(super) *mut std::ffi::c_void);
}

fn end(device: &OpenclDevice, event: &sys_event::Raw, status: i32) {
    // SAFETY: a user event that is alive, whose status has not been set.
    unsafe { call!(device.shared().core, clSetUserEventStatus(event.0, status)) }.unwrap();
}

fn queue(device: &OpenclDevice) -> super::queue::OpenclQueue {
    let desc = QueueDesc { order: QueueOrder::InOrder, profiling: false };
    super::queue::OpenclQueue::create(device.shared(), desc).unwrap()
}

// fails on the device -> b -> c: Intel's runtime reports the events of b and c as complete.
#[test]
fn what_waits_for_a_failure_fails_whatever_the_driver_says() {
    for device in devices() {
        let memory = device.allocate(&MemoryDesc { len: 4, kind: MemoryKind::Device }).unwrap();
        let fill =
            Command::BufferFill { dst: MemoryView::whole(memory.clone()), pattern: [7].as_slice().into() };
        let (first, second) = (queue(&device), queue(&device));
        let (a, driver_event) = pending(&device, &first);
        let events = [(); 2].map(|()| Arc::new(OpenclEvent::new(device.shared())));
        let [b, c] = events.map(|event| event as Arc<dyn crate::hal::Event>);
        let enqueue = |queue: &super::queue::OpenclQueue, wait: &dyn crate::hal::Event, event| {
            let signal = crate::hal::Signal { event, notification: None };
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

/// What kind of command the driver says an event is of, once it is over.
fn kind_of(device: &OpenclDevice, signal: &Signal) -> u32 {
    let (core, event) = (device.shared().core, signal.event().unwrap());
    // SAFETY: the event is alive.
    unsafe { call!(core, clWaitForEvents(1, &raw const event)) }.unwrap();
    let (mut kind, what) = (0u32, super::sys::CL_EVENT_COMMAND_TYPE);
    // SAFETY: the event is alive, and there is room for the answer.
    unsafe { call!(core, clGetEventInfo(event, what, 4, (&raw mut kind).cast(), std::ptr::null_mut())) }
        .unwrap();
    kind
}

/// Shared virtual memory is really moved, and memory of Intel's extension where there is such; what the driver refuses
/// keeps its place in the order, and so does a prefetch where nothing can be moved.
#[test]
fn prefetches_reach_the_driver_or_keep_the_order() {
    for device in devices() {
        let shared = device.shared();
        if !shared.features.shared_memory {
            continue;
        }
        let queue = queue(&device);
        let prefetch = |memory: crate::hal::UsmPointer| {
            let event: Arc<dyn crate::hal::Event> = Arc::new(OpenclEvent::new(shared));
            let signal = crate::hal::Signal { event: &event, notification: None };
            // SAFETY: the memory lives until the end of this test.
            unsafe { queue.enqueue(&Command::UsmPrefetch { memory }, WaitList::NONE, signal) }.unwrap();
            assert!(matches!(event.wait(None), EventStatus::Complete));
            let event = event.as_any().downcast_ref::<OpenclEvent>().unwrap();
            kind_of(&device, &event.signal().unwrap())
        };
        let (svm, usm) = (super::sys::CL_COMMAND_SVM_MIGRATE_MEM, super::sys::CL_COMMAND_MIGRATEMEM_INTEL);
        let memory = device.allocate(&MemoryDesc { len: 4096, kind: MemoryKind::Device }).unwrap();
        if shared.features.migrates_shared_memory {
            let kind = prefetch(memory.usm().unwrap());
            assert_eq!(kind, svm, "{kind:#x}");
        }
        if shared.features.unified_memory {
            let unified = unified::Memory::new(&device, 4096);
            let command = Command::UsmPrefetch { memory: unified.pointer() };
            let lowered = format!("{:?}", super::lower::lower(shared, &command).unwrap());
            assert!(lowered.contains("way: Unified"), "{lowered}");
            // Intel's runtime for CPUs knows the way to the host only.
            let kind = prefetch(unified.pointer());
            assert!([usm, super::sys::CL_COMMAND_MARKER].contains(&kind), "{kind:#x}");
        }
        // Memory of the host's own: some drivers take it, others refuse it.
        let own = vec![0u8; 4096];
        // SAFETY: the bytes live until the end of this test.
        prefetch(unsafe { crate::hal::UsmPointer::new(own.as_ptr().expose_provenance(), own.len()) });
        // Without memory that can be shared, or with a driver too old, a prefetch is a marker.
        let mut old = OpenclDevice::open(0, OpenclOptions::new()).unwrap();
        let features = old.features_mut();
        (features.migrates_shared_memory, features.unified_memory) = (false, false);
        let lowered =
            super::lower::lower(old.shared(), &Command::UsmPrefetch { memory: memory.usm().unwrap() });
        assert!(matches!(lowered.unwrap().ops[..], [super::op::Op::Marker]));
    }
}

/// Memory of `cl_intel_unified_shared_memory`, which the backend itself does not allocate.
mod unified {
    use std::ffi::{CStr, c_void};

    use super::super::sys;
    use super::*;
    use crate::hal::UsmPointer;

    pub(super) struct Memory<'a> {
        device: &'a OpenclDevice,
        start: *mut c_void,
        len: usize,
    }

    impl<'a> Memory<'a> {
        pub(super) fn new(device: &'a OpenclDevice, len: usize) -> Self {
            let (context, id) = (device.shared().context.raw(), device.shared().id.raw());
            // SAFETY: the function of this name has this type.
            let allocate: sys::clSharedMemAllocINTEL_t =
                unsafe { std::mem::transmute(function(device, c"clSharedMemAllocINTEL")) };
            // SAFETY: the context and its device are alive.
            let start =
                unsafe { allocate.unwrap()(context, id, std::ptr::null(), len, 0, std::ptr::null_mut()) };
            assert!(!start.is_null());
            Self { device, start, len }
        }

        pub(super) fn pointer(&self) -> UsmPointer {
            // SAFETY: the memory lives as long as `self`, which outlives the commands.
            unsafe { UsmPointer::new(self.start.expose_provenance(), self.len) }
        }
    }

    impl Drop for Memory<'_> {
        fn drop(&mut self) {
            // SAFETY: the function of this name has this type.
            let free: sys::clMemFreeINTEL_t =
                unsafe { std::mem::transmute(function(self.device, c"clMemFreeINTEL")) };
            // SAFETY: allocated in this context, freed once, when the commands are over.
            unsafe { free.unwrap()(self.device.shared().context.raw(), self.start) };
        }
    }

    fn function(device: &OpenclDevice, name: &CStr) -> *mut c_void {
        let shared = device.shared();
        let find = shared.core.clGetExtensionFunctionAddressForPlatform.unwrap();
        // SAFETY: the platform is the driver's own, and the name ends in NUL.
        unsafe { find(shared.platform.id(), name.as_ptr()) }
    }
}

/// Signals that wait for each other are settled and dropped one by one, not one inside the other.
#[test]
fn long_chains_do_not_need_the_stack() {
    for device in devices().into_iter().take(1) {
        let queue = queue(&device);
        let (first, driver_event) = pending(&device, &queue);
        let mut last = first.signal().unwrap();
        for _ in 0..200_000 {
            let event: Option<Owned<Event>> = None;
            let started = Started { event, failure: None, times: None };
            let waited = std::iter::once(last).collect();
            last = Arc::new(Signal::new(device.shared(), queue.driver(), true, started, waited));
        }
        assert!(matches!(last.status(), EventStatus::Pending));
        end(&device, &driver_event, CODE);
        assert!(matches!(last.status(), EventStatus::Failed(_)));
        drop(last);
    }
}

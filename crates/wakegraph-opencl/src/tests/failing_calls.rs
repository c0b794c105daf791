//! Calls about work in flight that fail say nothing about that work, and block nobody for good.
#![expect(unsafe_code, reason = "stands in for the driver")]

use std::cell::Cell;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use wakegraph_hal::{
    Backend as _, Command, Device as _, ErrorKind, Event, EventStatus, Notification, Notify, Queue, Signal,
    WaitList,
};

use super::super::OpenclDevice;
use super::super::events::OpenclEvent;
use super::super::lower::HostCopy;
use super::super::{OpenclBackend, OpenclOptions, sys};
use super::{end, kept, pending, queue};

/// Every device of this machine, with functions that `change` has replaced.
fn changed(change: impl Fn(&mut sys::Core)) -> Vec<OpenclDevice> {
    let open = |index| {
        let device = OpenclDevice::open_changed(index, OpenclOptions::new(), |platform| {
            let mut core = platform.core.clone();
            change(&mut core);
            platform.core = kept(core);
        });
        device.unwrap()
    };
    (0..OpenclBackend.device_count().unwrap_or(0)).map(open).collect()
}

thread_local! {
    /// How many calls from now on fail.
    static FAILING: Cell<usize> = const { Cell::new(0) };
}

/// Whether this call is to fail.
fn fails() -> bool {
    let failing = FAILING.get();
    FAILING.set(failing.saturating_sub(1));
    failing > 0
}

unsafe extern "C" fn fail_query(
    event: *mut c_void,
    what: u32,
    size: usize,
    place: *mut c_void,
    needed: *mut usize,
) -> i32 {
    if fails() {
        return sys::CL_OUT_OF_HOST_MEMORY;
    }
    let query = sys::core().unwrap().clGetEventInfo.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { query(event, what, size, place, needed) }
}

#[test]
fn a_query_that_fails_leaves_the_event_pending() {
    for device in changed(|core| core.clGetEventInfo = Some(fail_query)) {
        let (a, end_a) = pending(&device, &queue(&device));
        FAILING.set(1);
        let status = a.status();
        assert_eq!(FAILING.get(), 0);
        assert!(matches!(status, EventStatus::Pending), "{status:?}");
        end(&device, &end_a, 0);
        assert!(matches!(a.wait(None), EventStatus::Complete));
    }
}

unsafe extern "C" fn fail_split(
    _: *mut c_void,
    _: *const isize,
    _: u32,
    _: *mut *mut c_void,
    _: *mut u32,
) -> i32 {
    if fails() { sys::CL_OUT_OF_HOST_MEMORY } else { sys::CL_DEVICE_PARTITION_FAILED }
}

#[test]
fn a_split_that_fails_is_not_called_refused() {
    for device in changed(|core| core.clCreateSubDevices = Some(fail_split)) {
        let parts = NonZeroUsize::MIN;
        for kind in [ErrorKind::OutOfMemory, ErrorKind::FeatureNotSupported] {
            FAILING.set(usize::from(kind == ErrorKind::OutOfMemory));
            assert_eq!(device.sub_devices(parts).unwrap_err().kind(), kind);
            if device.info().compute_units > 1 {
                FAILING.set(usize::from(kind == ErrorKind::OutOfMemory));
                let error = device.share(1).unwrap_err();
                assert_eq!(error.kind(), kind);
                assert!(error.to_string().contains(&*device.info().selector), "{error}");
            }
        }
    }
}

thread_local! {
    /// What to do in the first wait that does not fail.
    static IN_WAIT: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

unsafe extern "C" fn fail_wait(count: u32, events: *const *mut c_void) -> i32 {
    if fails() {
        return sys::CL_OUT_OF_HOST_MEMORY;
    }
    IN_WAIT.take().into_iter().for_each(|then| then());
    let wait = sys::core().unwrap().clWaitForEvents.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { wait(count, events) }
}

unsafe extern "C" fn refuse_callback(
    _: *mut c_void,
    _: i32,
    _: Option<unsafe extern "C" fn(*mut c_void, i32, *mut c_void)>,
    _: *mut c_void,
) -> i32 {
    sys::CL_OUT_OF_HOST_MEMORY
}

/// Remembers the status of an event when it is notified.
#[derive(Default)]
struct StatusThen(OnceLock<(Arc<dyn Event>, OnceLock<EventStatus>)>);

impl Notify for StatusThen {
    fn notify(&self, _: u64) {
        let (event, status) = self.0.get().unwrap();
        status.set(event.status()).unwrap();
    }
}

/// A driver that refuses the callback, and at first to wait.
#[test]
fn a_wait_that_fails_ends_nothing() {
    let change = |core: &mut sys::Core| {
        core.clSetEventCallback = Some(refuse_callback);
        core.clWaitForEvents = Some(fail_wait);
    };
    for device in changed(change).into_iter().filter(|device| device.capabilities().notifies) {
        let device = Arc::new(device);
        let (queue, other) = (queue(&device), queue(&device));
        let (a, end_a) = pending(&device, &other);
        let b: Arc<dyn Event> = Arc::new(OpenclEvent::new(&device.context));
        let then = Arc::new(StatusThen::default());
        assert!(then.0.set((Arc::clone(&b), OnceLock::new())).is_ok());
        let notification = Notification::new(Arc::clone(&then) as _, 0);
        let signal = Signal::new(&b).notification(Some(notification));
        FAILING.set(2);
        let ending = Arc::clone(&device);
        IN_WAIT.set(Some(Box::new(move || end(&ending, &end_a, 0))));
        // SAFETY: the command uses no memory.
        unsafe { queue.enqueue(&Arc::new(Command::Empty), WaitList::dependencies(&[&*a]), signal) }.unwrap();
        let status = then.0.get().unwrap().1.get().expect("it was notified");
        assert!(matches!(status, EventStatus::Complete), "{status:?}");
    }
}

thread_local! {
    /// How many markers succeed before one is refused.
    static MARKERS: Cell<usize> = const { Cell::new(usize::MAX) };
}

unsafe extern "C" fn refuse_marker(
    queue: *mut c_void,
    count: u32,
    events: *const *mut c_void,
    event: *mut *mut c_void,
) -> i32 {
    let markers = MARKERS.get();
    MARKERS.set(markers.wrapping_sub(1));
    if markers == 0 {
        return sys::CL_OUT_OF_HOST_MEMORY;
    }
    let enqueue = sys::core().unwrap().clEnqueueMarkerWithWaitList.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { enqueue(queue, count, events, event) }
}

/// A copy on the host is two markers. The second waits for an event that the copy signals, which is made once
/// both are there.
#[test]
fn a_copy_on_the_host_whose_second_marker_is_refused_fails() {
    for device in changed(|core| core.clEnqueueMarkerWithWaitList = Some(refuse_marker)) {
        let (sender, over) = mpsc::channel();
        let copy = move || {
            let queue = queue(&device);
            let (from, mut to) = ([7_u8; 4], [0_u8; 4]);
            let (source, target) = (from.as_ptr().expose_provenance(), to.as_mut_ptr().expose_provenance());
            let copy = HostCopy { from: source, to: target, len: 4 };
            MARKERS.set(1);
            // SAFETY: nothing else uses the bytes, which stay until the queue is finished.
            let refused = unsafe { copy.enqueue(&device.context, &queue.main, &[]) };
            queue.finish().unwrap();
            sender.send((refused.is_err(), to)).unwrap();
        };
        std::thread::spawn(copy);
        let outcome = over.recv_timeout(Duration::from_secs(60)).expect("it is not waited for");
        assert_eq!(outcome, (true, [0; 4]));
    }
}

unsafe extern "C" fn refuse_several(
    properties: *const sys::cl_context_properties,
    count: u32,
    devices: *const *mut c_void,
    callback: Option<unsafe extern "C" fn(*const std::ffi::c_char, *const c_void, usize, *mut c_void)>,
    data: *mut c_void,
    code: *mut i32,
) -> *mut c_void {
    if count > 1 {
        // SAFETY: the place is that of a code.
        unsafe { code.write(sys::CL_DEVICE_NOT_AVAILABLE) };
        return std::ptr::null_mut();
    }
    let create = sys::core().unwrap().clCreateContext.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { create(properties, count, devices, callback, data, code) }
}

/// Another device of the platform is broken, or another process keeps it for itself.
#[test]
fn a_device_is_opened_beside_one_that_cannot_be() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let device = OpenclDevice::open_changed(index, OpenclOptions::new(), |platform| {
            let mut core = platform.core.clone();
            core.clCreateContext = Some(refuse_several);
            platform.core = kept(core);
            // The platforms of a machine without GPUs have one device each.
            platform.devices.push(platform.devices[0]);
        });
        let (device, event) = (device.unwrap(), |device: &OpenclDevice| OpenclEvent::new(&device.context));
        let done: Arc<dyn Event> = Arc::new(event(&device));
        let signal = Signal::new(&done);
        // SAFETY: the command uses no memory.
        unsafe { queue(&device).enqueue(&Arc::new(Command::Empty), WaitList::NONE, signal) }.unwrap();
        assert!(matches!(done.wait(None), EventStatus::Complete));
    }
}

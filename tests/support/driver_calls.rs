//! Counts the calls of the CUDA driver by name, those of all libraries of the process, through CUPTI.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Mutex;

use libloading::Library;

/// By the driver's name of the function.
pub(crate) type Calls = BTreeMap<String, usize>;

static CALLS: Mutex<Calls> = Mutex::new(Calls::new());

/// What CUPTI says about a call.
#[repr(C)]
struct CallbackData {
    /// 0 before the call, 1 after it.
    site: u32,
    function: *const c_char,
}

type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const CallbackData);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;
type EnableDomain = unsafe extern "C" fn(u32, *mut c_void, u32) -> u32;

const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

fn open() -> Option<Library> {
    // SAFETY: a vendor's library, whose initialisers may run on any thread.
    NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())
}

pub(crate) fn can_count() -> bool {
    open().is_some()
}

/// Counts from now on, until the process ends.
pub(crate) fn start() {
    const DRIVER_API: u32 = 1;
    let library = Box::leak(Box::new(open().unwrap()));
    let mut subscriber = ptr::null_mut();
    // SAFETY: this is how the vendor's headers declare the function.
    let subscribe = unsafe { library.get::<Subscribe>("cuptiSubscribe") }.unwrap();
    // SAFETY: the place is a pointer's; the callback keeps to CUPTI's contract.
    let code = unsafe { subscribe(&raw mut subscriber, called, ptr::null_mut()) };
    assert_eq!(code, 0, "CUPTI takes no callback");
    // SAFETY: this is how the vendor's headers declare the function.
    let enable = unsafe { library.get::<EnableDomain>("cuptiEnableDomain") }.unwrap();
    // SAFETY: the subscriber is CUPTI's.
    let code = unsafe { enable(1, subscriber, DRIVER_API) };
    assert_eq!(code, 0, "CUPTI does not call back for the driver");
}

/// The calls since the last time.
pub(crate) fn take() -> Calls {
    std::mem::take(&mut *CALLS.lock().unwrap())
}

/// Whether a call waits for the device, or may.
pub(crate) fn synchronises(function: &str) -> bool {
    const MAY_WAIT: [&str; 6] =
        ["cuMemcpy", "cuMemset", "cuMemFree", "cuMemAlloc", "cuMemHost", "cuModuleLoad"];
    let is_async = function.contains("Async");
    function.contains("Synchronize") || !is_async && MAY_WAIT.iter().any(|name| function.starts_with(name))
}

unsafe extern "C" fn called(_: *mut c_void, _: u32, _: u32, data: *const CallbackData) {
    // SAFETY: CUPTI gives the data of a call of the driver's, which begins so.
    let data = unsafe { &*data };
    if data.site != 0 || data.function.is_null() {
        return;
    }
    // SAFETY: the name is CUPTI's own.
    let function = unsafe { CStr::from_ptr(data.function) }.to_string_lossy().into_owned();
    *CALLS.lock().unwrap().entry(function).or_default() += 1;
}

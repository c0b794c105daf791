//! Frees what only a call that waits for the device can free, on a thread of the device's own.
//!
//! `hipFree`, `hipHostFree` and the end of a stream wait for everything that runs on the device. No
//! drop may do that: it may be on a thread that runs other tasks.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use wakegraph_hal::{Error, ErrorKind, Result};

use super::sys::{Driver, HipFailure, call, hipDevice_t, hipErrorDeinitialized};

/// A call that may wait, with what it needs.
type Release = Box<dyn FnOnce(&'static Driver) -> Result<(), HipFailure> + Send>;

/// The thread of a device on which things are freed in the order in which they were dropped. It ends
/// when this object is dropped and nothing is left to free.
#[derive(Debug)]
pub(super) struct ReleaseThread {
    releases: Mutex<Sender<Release>>,
}

impl ReleaseThread {
    pub(super) fn start(driver: &'static Driver, device: hipDevice_t) -> Result<Self> {
        let (sender, releases) = mpsc::channel::<Release>();
        let run = move || {
            // SAFETY: the driver gave the device. The thread calls for no other.
            let set_device = move |_: &_| unsafe { call!(driver, hipSetDevice(device)) };
            make(driver, Box::new(set_device));
            releases.into_iter().for_each(|release| make(driver, release));
        };
        thread::Builder::new().name(format!("hip:{device} frees")).spawn(run).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the thread that frees memory cannot be started")
                .caused_by(error.to_string())
        })?;
        Ok(Self { releases: Mutex::new(sender) })
    }

    /// Has the thread make this call, after those that it was given before.
    pub(super) fn later(
        &self,
        release: impl FnOnce(&'static Driver) -> Result<(), HipFailure> + Send + 'static,
    ) {
        // The thread ends after this object only.
        let _ = self.releases.lock().send(Box::new(release));
    }

    /// Waits until the thread has made all calls that it was given before.
    pub(super) fn drain(&self) {
        let (done, is_done) = mpsc::channel();
        self.later(move |_| {
            let _ = done.send(());
            Ok(())
        });
        let _ = is_done.recv();
    }
}

/// Held for each call of these threads, and for good when the process exits.
static CALLS: RwLock<()> = RwLock::new(());

/// The longest that the process's exit waits for a call.
const LONGEST_EXIT: Duration = Duration::from_secs(5);

/// Lets none of these threads make calls while the process exits: the driver's own destructors run then,
/// and a call beside them ends in a fault. To be called once, when the driver is initialised and so has
/// registered what it destroys.
pub(super) fn stop_at_exit() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    extern "C" fn stop() {
        std::mem::forget(CALLS.try_write_for(LONGEST_EXIT));
    }
    // SAFETY: C's function takes any function, which the process keeps.
    if unsafe { atexit(stop) } != 0 {
        tracing::debug!(target: "wakegraph::hip", "there is no room for another function at exit");
    }
}

/// Makes a call. No caller waits for its outcome.
fn make(driver: &'static Driver, release: Release) {
    let _calls = CALLS.read();
    if let Err(failure) = release(driver)
        && failure.code != hipErrorDeinitialized
    {
        let error = Error::from(failure);
        tracing::warn!(target: "wakegraph", %error, "a driver object could not be destroyed");
    }
}

/// One lock for all devices: host memory belongs to all of them.
static ADDRESSES: RwLock<()> = RwLock::new(());

/// Keeps allocations apart from frees of host memory, where there are several devices.
///
/// The driver frees host memory once for each device: it frees what it finds at the address. From the second
/// device on it should find nothing. But once the first has freed the memory, the system may give the address
/// to another thread that allocates, and the driver frees that memory, too (5.7.1 and 6.4.3 do so).
///
/// Held for each call that allocates, as instantiating a graph and loading code do, too, that registers
/// memory, or that frees host memory; not where there is only one device. Callers take it before the lock of
/// arguments, which launches need: so no launch waits for a free.
#[derive(Clone, Copy, Debug)]
pub(super) struct HipAddressLock {
    is_needed: bool,
}

impl HipAddressLock {
    pub(super) fn for_devices(count: usize) -> Self {
        Self { is_needed: count > 1 }
    }

    /// Waits until no memory of the host is being freed.
    pub(super) fn hold_to_allocate(self) -> Option<RwLockReadGuard<'static, ()>> {
        self.is_needed.then(|| ADDRESSES.read())
    }

    /// Calls `wait`, and then waits for all calls that allocate. A free waits for what runs on the device:
    /// with `wait` it does most of that before anyone has to wait for the lock.
    pub(super) fn hold_to_free(self, wait: impl FnOnce()) -> Option<RwLockWriteGuard<'static, ()>> {
        self.is_needed.then(|| {
            wait();
            ADDRESSES.write()
        })
    }
}

//! Platforms, and the list of all their devices in a stable order.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use wakegraph_hal::support::signal_handlers::keep_handlers;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::query::{self, Query as _};
use super::sys::{self, Context, Core, DriverResult, Extensions, Owned, call, create};

/// The driver's handle of a device or platform. It stays valid for the life of the process, or, for a
/// part of a device, of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) *mut c_void);

// SAFETY: an id is only ever handed back to the driver, which takes it on any thread.
unsafe impl Send for Id {}
// SAFETY: as for `Send`.
unsafe impl Sync for Id {}

impl Id {
    pub(super) fn raw(self) -> *mut c_void {
        self.0
    }
}

/// One vendor's OpenCL.
#[derive(Debug)]
pub(super) struct Platform {
    pub(super) core: &'static Core,
    #[cfg(test)]
    id: Id,
    pub(super) name: String,
    version: String,
    /// The vendor's short name for loaders, such as `POCL` or `INTEL`; empty where the driver has none.
    tag: String,
    /// All devices in the driver's order: the context is for these.
    pub(super) devices: Vec<Id>,
    pub(super) extensions: Extensions,
    /// The context that all whole devices share while one is open: buffers and events do not leave
    /// it, and no device can be added to it.
    context: Mutex<Weak<Owned<Context>>>,
}

impl Platform {
    fn new(core: &'static Core, id: Id) -> DriverResult<Self> {
        let all = sys::CL_DEVICE_TYPE_ALL;
        let devices = list_ids(sys::CL_DEVICE_NOT_FOUND, |room, places, count| {
            // SAFETY: the platform is the library's own; there is room for as many ids as `room` says.
            unsafe { call!(core, clGetDeviceIDs(id.raw(), all, room, places, count)) }
        })?;
        let query = query::platform(core, id.raw());
        Ok(Self {
            core,
            #[cfg(test)]
            id,
            name: query.text(sys::CL_PLATFORM_NAME)?,
            version: query.text(sys::CL_PLATFORM_VERSION)?,
            tag: query.text(sys::CL_PLATFORM_ICD_SUFFIX_KHR).unwrap_or_default(),
            devices,
            extensions: Extensions::of(core, id.raw()),
            context: Mutex::default(),
        })
    }

    /// The same platform with a context of its own, for tests that replace its functions.
    #[cfg(test)]
    pub(super) fn again(&self) -> DriverResult<Self> {
        Self::new(self.core, self.id)
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> *mut c_void {
        self.id.raw()
    }

    /// A context for one of the platform's whole devices, and whether it is the only one there: the
    /// context is that of all, unless the driver refuses that because of one of the others.
    pub(super) fn context(&self, device: Id) -> Result<(Arc<Owned<Context>>, bool)> {
        let (mut known, alone) = (self.context.lock(), self.devices.len() == 1);
        if let Some(context) = known.upgrade() {
            return Ok((context, alone));
        }
        let context = match create_context(self.core, &self.devices) {
            Err(failure) if !alone => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph::opencl", %error, "no context for all devices of a platform");
                return Ok((Arc::new(create_context(self.core, &[device])?), true));
            }
            created => Arc::new(created?),
        };
        *known = Arc::downgrade(&context);
        Ok((context, alone))
    }
}

/// A context of these devices, which are all of one platform.
pub(super) fn create_context(core: &'static Core, devices: &[Id]) -> DriverResult<Owned<Context>> {
    let raw: Vec<_> = devices.iter().map(|device| device.raw()).collect();
    let count = raw.len() as sys::cl_uint;
    // Intel's CPU runtime takes signals over when it makes a context.
    keep_handlers(|| {
        // SAFETY: the devices are the library's own; no properties and no callback.
        unsafe { create!(core, clCreateContext(ptr::null(), count, raw.as_ptr(), None, ptr::null_mut())) }
    })
}

/// A device of a platform.
#[derive(Clone, Debug)]
pub(super) struct PlatformDevice {
    pub(super) platform: Arc<Platform>,
    pub(super) id: Id,
    /// The names that a selector may use: its own, its vendor's and its platform's.
    pub(super) names: String,
    /// The place of its kind in the order in which devices are counted.
    rank: u8,
}

impl PlatformDevice {
    fn new(platform: &Arc<Platform>, id: Id) -> DriverResult<Self> {
        let query = query::device(platform.core, id.raw());
        let (name, vendor) = (query.text(sys::CL_DEVICE_NAME)?, query.text(sys::CL_DEVICE_VENDOR)?);
        let kind = query.value::<sys::cl_device_type>(sys::CL_DEVICE_TYPE)?;
        let rank = match kind {
            kind if kind & sys::CL_DEVICE_TYPE_GPU != 0 => GPU,
            kind if kind & sys::CL_DEVICE_TYPE_ACCELERATOR != 0 => 1,
            kind if kind & sys::CL_DEVICE_TYPE_CPU != 0 => 3,
            _ => 2,
        };
        let Platform { name: platform_name, tag, .. } = &**platform;
        let separator = if tag.is_empty() { "" } else { ", " };
        let names = format!("{name} ({vendor}, {platform_name}{separator}{tag})");
        Ok(Self { platform: Arc::clone(platform), id, names, rank })
    }

    pub(super) fn is_gpu(&self) -> bool {
        self.rank == GPU
    }
}

/// The rank of a GPU.
const GPU: u8 = 0;

/// Sorts devices by their kind, then by their platform. Devices of one platform keep the driver's order.
///
/// The loader's order is ignored: it is the order of the files in a directory, which differs between
/// machines and changes when a runtime is installed again.
fn sort(devices: &mut [PlatformDevice]) {
    devices.sort_by_cached_key(|found| {
        let platform = &found.platform;
        (found.rank, platform.name.clone(), platform.version.clone())
    });
}

/// The devices of all platforms, in the order in which they are counted. They are found once; while
/// none has been found, every call searches again.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without a library, a platform or a device, with the remedy.
pub(super) fn devices() -> Result<Arc<[PlatformDevice]>> {
    static FOUND: Mutex<Option<Arc<[PlatformDevice]>>> = Mutex::new(None);
    let mut found = FOUND.lock();
    if let Some(devices) = &*found {
        return Ok(devices.clone());
    }
    // PoCL takes signals over when it is asked for its platform.
    let devices = keep_handlers(find_devices)?;
    *found = Some(devices.clone());
    Ok(devices)
}

fn find_devices() -> Result<Arc<[PlatformDevice]>> {
    let core = sys::core().map_err(|why| {
        Error::new(ErrorKind::Unavailable, format!("the OpenCL library cannot be loaded: {why}")).help(
            "install an OpenCL loader, for instance Debian's ocl-icd-libopencl1, and a vendor's runtime",
        )
    })?;
    let ids = list_ids(sys::CL_PLATFORM_NOT_FOUND_KHR, |room, places, count| {
        // SAFETY: there is room for as many ids as `room` says.
        unsafe { call!(core, clGetPlatformIDs(room, places, count)) }
    });
    let ids = ids.map_err(|failure| {
        no_platform("the OpenCL loader finds no platform").caused_by(Error::from(failure))
    })?;
    let mut devices = Vec::new();
    for id in ids {
        let found = Platform::new(core, id).map(Arc::new).and_then(|platform| {
            let found = platform.devices.iter().map(|&device| PlatformDevice::new(&platform, device));
            found.collect::<DriverResult<Vec<_>>>()
        });
        match found {
            Ok(found) => devices.extend(found),
            Err(failure) => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph::opencl", %error, "a platform is left out");
            }
        }
    }
    if devices.is_empty() {
        return Err(no_platform("no OpenCL platform has a device"));
    }
    sort(&mut devices);
    Ok(devices.into())
}

fn no_platform(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why).help(
        "install a vendor's OpenCL runtime, or for CPUs Debian's pocl-opencl-icd; `clinfo` lists platforms",
    )
}

/// All ids that `list` gives. It takes how many there is room for, the places for them, and the place
/// for their number; `none` is its code for an empty list.
fn list_ids(
    none: sys::cl_int,
    list: impl Fn(sys::cl_uint, *mut *mut c_void, *mut sys::cl_uint) -> DriverResult,
) -> DriverResult<Vec<Id>> {
    let mut count = 0;
    match list(0, ptr::null_mut(), &raw mut count) {
        Err(failure) if failure.code == none => return Ok(Vec::new()),
        other => other?,
    }
    let mut ids = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        list(count, ids.as_mut_ptr(), ptr::null_mut())?;
    }
    Ok(ids.into_iter().map(Id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_devices_does_not_depend_on_the_loader() {
        let Ok(devices) = devices() else { return };
        let names =
            |devices: &[PlatformDevice]| devices.iter().map(|found| found.names.clone()).collect::<Vec<_>>();
        let mut platforms: Vec<Vec<PlatformDevice>> = Vec::new();
        for found in &*devices {
            match platforms.iter_mut().find(|known| Arc::ptr_eq(&known[0].platform, &found.platform)) {
                Some(platform) => platform.push(found.clone()),
                None => platforms.push(vec![found.clone()]),
            }
        }
        for _ in 0..platforms.len() {
            platforms.rotate_left(1);
            let mut other = platforms.concat();
            sort(&mut other);
            assert_eq!(names(&other), names(&devices));
        }
    }
}

//! Platforms, and the devices of all of them in one row, in an order of our own.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::query::{self, DeviceQuery};
use super::sys::{self, Context, Core, Extensions, Failure, OldExtensions, Owned, call, create};
use crate::types::{Error, ErrorKind, Result};

/// What the driver knows a device or platform by. It stays valid; a part of a device is released by
/// its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(*mut c_void);

// SAFETY: an id is only ever handed back to the driver, which takes it on any thread.
unsafe impl Send for Id {}
// SAFETY: as for `Send`.
unsafe impl Sync for Id {}

impl Id {
    pub(super) fn new(raw: *mut c_void) -> Self {
        Self(raw)
    }

    pub(super) fn raw(self) -> *mut c_void {
        self.0
    }
}

/// One vendor's OpenCL.
pub(super) struct Platform {
    pub(super) core: &'static Core,
    #[cfg(test)]
    id: Id,
    pub(super) name: String,
    version: String,
    /// The tag by which loaders know the vendor, such as `POCL` or `INTEL`; empty where the driver has none.
    tag: String,
    /// All devices in the driver's order: those of the context.
    devices: Vec<Id>,
    pub(super) extensions: Extensions,
    pub(super) old_extensions: OldExtensions,
    /// The context that all whole devices share while one is open: buffers and events do not leave it.
    context: Mutex<Weak<Owned<Context>>>,
}

impl Platform {
    fn new(core: &'static Core, id: Id) -> Result<Self, Failure> {
        let (extensions, old_extensions) = sys::load_extensions(core, id.raw());
        Ok(Self {
            core,
            #[cfg(test)]
            id,
            name: query::platform_text(core, id.raw(), sys::CL_PLATFORM_NAME)?,
            version: query::platform_text(core, id.raw(), sys::CL_PLATFORM_VERSION)?,
            tag: query::platform_text(core, id.raw(), sys::CL_PLATFORM_ICD_SUFFIX_KHR).unwrap_or_default(),
            devices: device_ids(core, id)?,
            extensions,
            old_extensions,
            context: Mutex::default(),
        })
    }

    /// The same platform with a context of its own, for tests that change its functions.
    #[cfg(test)]
    pub(super) fn again(&self) -> Result<Self, Failure> {
        Self::new(self.core, self.id)
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> *mut c_void {
        self.id.raw()
    }

    /// Whether the context of the platform's whole devices has one device only.
    pub(super) fn has_one_device(&self) -> bool {
        self.devices.len() == 1
    }

    /// The context of the platform's whole devices.
    pub(super) fn context(&self) -> Result<Arc<Owned<Context>>> {
        let mut known = self.context.lock();
        if let Some(context) = known.upgrade() {
            return Ok(context);
        }
        let context = Arc::new(create_context(self.core, &self.devices)?);
        *known = Arc::downgrade(&context);
        Ok(context)
    }
}

impl Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform").field("name", &self.name).field("devices", &self.devices.len()).finish()
    }
}

/// A context of these devices, which are all of one platform.
pub(super) fn create_context(core: &'static Core, devices: &[Id]) -> Result<Owned<Context>, Failure> {
    let raw: Vec<_> = devices.iter().map(|device| device.raw()).collect();
    let count = raw.len() as sys::cl_uint;
    // SAFETY: the devices are the library's own; no properties and no callback.
    let context =
        unsafe { create!(core, clCreateContext(ptr::null(), count, raw.as_ptr(), None, ptr::null_mut())) }?;
    // SAFETY: the context has just been created, for us.
    Ok(unsafe { Owned::new(core, context) })
}

/// A device, before it is opened.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) platform: Arc<Platform>,
    pub(super) id: Id,
    /// Its own name, and those of its platform and vendor: what a selector may use.
    pub(super) names: String,
    rank: Rank,
}

/// The kinds of devices in the order in which they are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Gpu,
    Accelerator,
    Other,
    Cpu,
}

impl Found {
    fn new(platform: &Arc<Platform>, id: Id) -> Result<Self, Failure> {
        let query = DeviceQuery { core: platform.core, device: id.raw() };
        let (name, vendor) = (query.text(sys::CL_DEVICE_NAME)?, query.text(sys::CL_DEVICE_VENDOR)?);
        let kind = query.value::<sys::cl_device_type>(sys::CL_DEVICE_TYPE)?;
        let rank = match kind {
            kind if kind & sys::CL_DEVICE_TYPE_GPU != 0 => Rank::Gpu,
            kind if kind & sys::CL_DEVICE_TYPE_ACCELERATOR != 0 => Rank::Accelerator,
            kind if kind & sys::CL_DEVICE_TYPE_CPU != 0 => Rank::Cpu,
            _ => Rank::Other,
        };
        let Platform { name: platform_name, tag, .. } = &**platform;
        let separator = if tag.is_empty() { "" } else { ", " };
        let names = format!("{name} ({vendor}, {platform_name}{separator}{tag})");
        Ok(Self { platform: Arc::clone(platform), id, names, rank })
    }
}

/// Sorts devices by their kind, then by their platform. Devices of one platform keep the driver's order.
///
/// The loader's order does not count: that is the order of the files in a directory, which differs
/// between machines and changes when a runtime is installed anew.
fn sort(devices: &mut [Found]) {
    devices.sort_by(|a, b| {
        let key = |found: &Found| (found.rank, found.platform.name.clone(), found.platform.version.clone());
        key(a).cmp(&key(b))
    });
}

/// The devices of all platforms, in the order in which they are counted. Found once; where there
/// was none, the next call looks for them again.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without a library, a platform or a device, with the remedy.
pub(super) fn devices() -> Result<Arc<[Found]>> {
    static FOUND: Mutex<Option<Arc<[Found]>>> = Mutex::new(None);
    let mut found = FOUND.lock();
    if let Some(devices) = &*found {
        return Ok(devices.clone());
    }
    let core = sys::core().map_err(|why| {
        Error::new(ErrorKind::Unavailable, format!("the OpenCL library cannot be loaded: {why}")).help(
            "install an OpenCL loader, for instance Debian's ocl-icd-libopencl1, and a vendor's runtime",
        )
    })?;
    let ids = platform_ids(core).map_err(|failure| {
        no_platform("the OpenCL loader finds no platform").caused_by(Error::from(failure))
    })?;
    let mut devices = Vec::new();
    for id in ids {
        let found = Platform::new(core, id).and_then(|platform| {
            let platform = Arc::new(platform);
            platform
                .devices
                .iter()
                .map(|&device| Found::new(&platform, device))
                .collect::<Result<Vec<_>, _>>()
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
    let devices: Arc<[_]> = devices.into();
    *found = Some(devices.clone());
    Ok(devices)
}

fn no_platform(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why)
        .help("install a vendor's OpenCL runtime, or for CPUs Debian's pocl-opencl-icd; `clinfo` lists what is found")
}

fn platform_ids(core: &Core) -> Result<Vec<Id>, Failure> {
    let mut count = 0;
    // SAFETY: asks for the number only.
    match unsafe { call!(core, clGetPlatformIDs(0, ptr::null_mut(), &raw mut count)) } {
        Err(Failure { code: sys::CL_PLATFORM_NOT_FOUND_KHR, .. }) => return Ok(Vec::new()),
        other => other?,
    }
    let mut ids = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        // SAFETY: there is room for `count` ids.
        unsafe { call!(core, clGetPlatformIDs(count, ids.as_mut_ptr(), ptr::null_mut())) }?;
    }
    Ok(ids.into_iter().map(Id).collect())
}

fn device_ids(core: &Core, platform: Id) -> Result<Vec<Id>, Failure> {
    let (platform, all) = (platform.raw(), sys::CL_DEVICE_TYPE_ALL);
    let mut count = 0;
    // SAFETY: asks for the number only.
    match unsafe { call!(core, clGetDeviceIDs(platform, all, 0, ptr::null_mut(), &raw mut count)) } {
        Err(Failure { code: sys::CL_DEVICE_NOT_FOUND, .. }) => return Ok(Vec::new()),
        other => other?,
    }
    let mut ids = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        // SAFETY: there is room for `count` ids.
        unsafe { call!(core, clGetDeviceIDs(platform, all, count, ids.as_mut_ptr(), ptr::null_mut())) }?;
    }
    Ok(ids.into_iter().map(Id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_in_the_same_order_whatever_the_loader_finds_first() {
        let Ok(devices) = devices() else { return };
        let names = |devices: &[Found]| devices.iter().map(|found| found.names.clone()).collect::<Vec<_>>();
        let mut platforms: Vec<Vec<Found>> = Vec::new();
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

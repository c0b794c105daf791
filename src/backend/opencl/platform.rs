//! Platforms, and the devices of all of them in one row.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::query;
use super::sys::{self, Context, Core, Extensions, Failure, OldExtensions, Owned, call, create};
use crate::types::{Error, ErrorKind, Result};

/// What the driver knows a device or platform by. It stays valid; a part of a device is released by its owner.
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
    pub(super) devices: Vec<Id>,
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
            devices: device_ids(core, id)?,
            extensions,
            old_extensions,
            context: Mutex::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> *mut c_void {
        self.id.raw()
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

/// All platforms that have devices, in the loader's order. Found once; what was not there is looked for again.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without a library, a platform or a device, with the remedy.
pub(super) fn platforms() -> Result<Arc<[Arc<Platform>]>> {
    static FOUND: Mutex<Option<Arc<[Arc<Platform>]>>> = Mutex::new(None);
    let mut found = FOUND.lock();
    if let Some(platforms) = &*found {
        return Ok(platforms.clone());
    }
    let core = sys::core().map_err(|why| {
        Error::new(ErrorKind::Unavailable, format!("the OpenCL library cannot be loaded: {why}")).help(
            "install an OpenCL loader, for instance Debian's ocl-icd-libopencl1, and a vendor's runtime",
        )
    })?;
    let ids = platform_ids(core).map_err(|failure| {
        no_platform("the OpenCL loader finds no platform").caused_by(Error::from(failure))
    })?;
    let mut platforms = Vec::with_capacity(ids.len());
    for id in ids {
        match Platform::new(core, id) {
            Ok(platform) if !platform.devices.is_empty() => platforms.push(Arc::new(platform)),
            Ok(_) => {}
            Err(failure) => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph::opencl", %error, "a platform is left out");
            }
        }
    }
    if platforms.is_empty() {
        return Err(no_platform("no OpenCL platform has a device"));
    }
    let platforms: Arc<[_]> = platforms.into();
    *found = Some(platforms.clone());
    Ok(platforms)
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

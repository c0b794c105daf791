//! The drivers that the loader knows, and the list of all their devices.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

use bytemuck::Zeroable;
use parking_lot::Mutex;
use wakegraph_hal::{Error, Result};

use super::error::no_driver;
use super::sys::{self, Api, Context, DriverResult, Owned, call, fill, get};

/// One vendor's driver. Memory and events belong to its context and do not leave it.
#[derive(Debug)]
pub(super) struct LoadedDriver {
    pub(super) api: &'static Api,
    raw: sys::ze_driver_handle_t,
    /// The version of Level Zero that the driver implements. The loader may be newer.
    pub(super) version: sys::ze_api_version_t,
    pub(super) name: String,
    extensions: Vec<String>,
    devices: Vec<sys::ze_device_handle_t>,
    /// The context that all open devices of the driver share.
    context: Mutex<Weak<Owned<Context>>>,
}

// SAFETY: handles of drivers and devices are valid for the life of the process, on any thread.
unsafe impl Send for LoadedDriver {}
// SAFETY: as for `Send`.
unsafe impl Sync for LoadedDriver {}

impl LoadedDriver {
    fn new(api: &'static Api, raw: sys::ze_driver_handle_t) -> DriverResult<Self> {
        // SAFETY: the loader gave the driver.
        let version = unsafe { get!(api, zeDriverGetApiVersion(raw)) }?;
        let properties = sys::ze_driver_properties_t::new();
        // SAFETY: as above.
        let properties = unsafe { fill!(api, zeDriverGetProperties(raw), properties) }?;
        let extension = sys::ze_driver_extension_properties_t::zeroed();
        let extensions = list(extension, |count, places| {
            // SAFETY: as above; there is room for as many as `count` says.
            unsafe { call!(api, zeDriverGetExtensionProperties(raw, count, places)) }
        })?;
        let devices = list(ptr::null_mut(), |count, places| {
            // SAFETY: as above; there is room for as many as `count` says.
            unsafe { call!(api, zeDeviceGet(raw, count, places)) }
        })?;
        let own = properties.driverVersion;
        Ok(Self {
            api,
            raw,
            version,
            name: format!(
                "Level Zero {}.{}, driver {}.{}.{}",
                version >> 16,
                version & 0xffff,
                own >> 24,
                own >> 16 & 0xff,
                own & 0xffff
            ),
            extensions: extensions.iter().map(|extension| text(&extension.name)).collect(),
            devices,
            context: Mutex::default(),
        })
    }

    /// Whether the driver reports an extension of this name.
    pub(super) fn has(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| known == extension)
    }

    /// The context of the driver's devices.
    pub(super) fn context(&self) -> DriverResult<Arc<Owned<Context>>> {
        let mut known = self.context.lock();
        if let Some(context) = known.upgrade() {
            return Ok(context);
        }
        let (api, desc) = (self.api, sys::ze_context_desc_t::new());
        // SAFETY: the driver is there.
        let raw = unsafe { get!(api, zeContextCreate(self.raw, &raw const desc)) }?;
        // SAFETY: the driver has just created the context for this object.
        let context = Arc::new(unsafe { Owned::new(api, raw) });
        *known = Arc::downgrade(&context);
        Ok(context)
    }
}

/// A device of a driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriverDevice {
    pub(super) driver: &'static LoadedDriver,
    pub(super) raw: sys::ze_device_handle_t,
}

impl DriverDevice {
    /// The structure of version 1.2, in which the timer's resolution is in cycles per second, where
    /// the driver has it.
    pub(super) fn properties(self) -> DriverResult<sys::ze_device_properties_t> {
        let mut properties = sys::ze_device_properties_t::new();
        if self.driver.version >= sys::version(1, 2) {
            properties.stype = sys::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
        }
        // SAFETY: the driver gave the device.
        unsafe { fill!(self.driver.api, zeDeviceGetProperties(self.raw), properties) }
    }

    /// The device's parts, which the hardware fixes.
    pub(super) fn parts(self) -> DriverResult<Vec<Self>> {
        let parts = list(ptr::null_mut(), |count, places| {
            // SAFETY: the driver gave the device; there is room for as many as `count` says.
            unsafe { call!(self.driver.api, zeDeviceGetSubDevices(self.raw, count, places)) }
        })?;
        Ok(parts.into_iter().map(|raw| Self { raw, ..self }).collect())
    }
}

/// All GPUs of all drivers, in the loader's order.
///
/// # Errors
/// [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) without a loader or without a driver, with the
/// remedy.
pub(super) fn devices() -> Result<Vec<DriverDevice>> {
    static DRIVERS: OnceLock<Vec<LoadedDriver>> = OnceLock::new();
    // After a failure the next call tries again. Of two threads that come first, one's list is used.
    let drivers = match DRIVERS.get() {
        Some(drivers) => drivers,
        None => {
            let found = self::drivers()?;
            DRIVERS.get_or_init(|| found)
        }
    };
    let mut found = Vec::new();
    for driver in drivers {
        for raw in &driver.devices {
            let device = DriverDevice { driver, raw: *raw };
            if device.properties()?.type_ == sys::ZE_DEVICE_TYPE_GPU {
                found.push(device);
            }
        }
    }
    Ok(found)
}

fn drivers() -> Result<Vec<LoadedDriver>> {
    let api = sys::api().map_err(Error::from)?;
    let handles = handles(api).map_err(no_driver)?;
    let drivers = handles.into_iter().map(|raw| LoadedDriver::new(api, raw));
    Ok(drivers.collect::<DriverResult<_>>()?)
}

/// The drivers, by the new call where the loader has it. It fails on a loader whose drivers are too
/// old.
fn handles(api: &Api) -> DriverResult<Vec<sys::ze_driver_handle_t>> {
    let mut desc = sys::ze_init_driver_type_desc_t::new();
    desc.flags = sys::ZE_INIT_DRIVER_TYPE_FLAG_GPU;
    let new = list(ptr::null_mut(), |count, places| {
        // SAFETY: there is room for as many as `count` says.
        unsafe { call!(api, zeInitDrivers(count, places, &raw mut desc)) }
    });
    match new {
        Ok(handles) if !handles.is_empty() => Ok(handles),
        _ => {
            // SAFETY: the flag is one of the function's.
            unsafe { call!(api, zeInit(sys::ZE_INIT_FLAG_GPU_ONLY)) }?;
            list(ptr::null_mut(), |count, places| {
                // SAFETY: there is room for as many as `count` says.
                unsafe { call!(api, zeDriverGet(count, places)) }
            })
        }
    }
}

/// The items of a function that tells how many there are and then writes them. `empty` is what it
/// writes over.
pub(super) fn list<T: Copy>(
    empty: T,
    mut call: impl FnMut(*mut u32, *mut T) -> DriverResult,
) -> DriverResult<Vec<T>> {
    let mut count = 0;
    call(&raw mut count, ptr::null_mut())?;
    let mut items = vec![empty; count as usize];
    if count > 0 {
        call(&raw mut count, items.as_mut_ptr())?;
        items.truncate(count as usize);
    }
    Ok(items)
}

/// The text in an array, up to its NUL.
pub(super) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|char| char.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| String::from_utf8_lossy(&bytes).into_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

//! Shares of a device's multiprocessors: green contexts (CUDA 12.4).
//!
//! A kernel keeps to the multiprocessors of a green context if it was launched or captured on a stream of it,
//! or if it is a node that was added while the green context was current, of a function that was loaded so
//! (measured on an H200). Memory and events belong to the primary context.
//!
//! The driver asks that a green context is current on one thread at a time. So it is current only while code
//! is loaded, and while nodes are made or changed, under a lock. For every other call the primary context is.
//! Streams are created under the lock, too. Code may take long to load, as the driver compiles PTX: an
//! enqueue does not wait for that to get a stream, but for the graph of a single command it does.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;
use std::ptr;

use parking_lot::Mutex;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::sys::{
    CU_DEV_RESOURCE_TYPE_SM, CU_GREEN_CTX_DEFAULT_STREAM, CU_STREAM_NON_BLOCKING,
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, CUDA_ERROR_INVALID_VALUE, CUcontext, CUdevResource, CUdevice,
    CUgreenCtx, CUresult, CUstream, CudaFailure, Driver, call_newer,
};

/// A green context.
#[derive(Debug)]
pub(super) struct GreenContext {
    driver: &'static Driver,
    device: CUdevice,
    raw: CUgreenCtx,
    /// The handle to make it current, on the thread that holds the lock.
    pub(super) context: CUcontext,
    pub(super) alone: Mutex<()>,
    pub(super) multiprocessors: Multiprocessors,
}

// SAFETY: any thread may use a green context, one at a time.
unsafe impl Send for GreenContext {}

/// The green contexts of shares that are gone, for new shares of the same multiprocessors. The driver keeps
/// 4 MiB of the device's memory for a green context, also after it has been destroyed, until the primary
/// context ends (580).
static IDLE: Mutex<Vec<GreenContext>> = Mutex::new(Vec::new());

/// Some of a device's multiprocessors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Multiprocessors(CUdevResource);

impl Multiprocessors {
    /// All that a device has.
    pub(super) fn of_device(driver: &Driver, device: CUdevice) -> Result<Self, CudaFailure> {
        let (mut all, kind) = (CUdevResource::default(), CU_DEV_RESOURCE_TYPE_SM);
        // SAFETY: the driver gave the device; the place is valid.
        unsafe { call_newer!(driver, cuDeviceGetDevResource(device, &raw mut all, kind)) }?;
        Ok(Self(all))
    }

    pub(super) fn count(&self) -> usize {
        self.0.smCount as usize
    }

    /// At least `count` of them, and the others.
    pub(super) fn split(&self, driver: &Driver, count: usize) -> Result<[Self; 2]> {
        let (mut share, mut rest, mut groups) = (CUdevResource::default(), CUdevResource::default(), 1);
        let least = u32::try_from(count).unwrap_or(u32::MAX);
        let (first, others, all) = (&raw mut share, &raw mut rest, &raw const self.0);
        // SAFETY: the driver wrote what is split; there is a place for one group, and one for the rest.
        let split = unsafe {
            call_newer!(driver, cuDevSmResourceSplitByCount(first, &raw mut groups, all, others, 0, least))
        };
        let refused = match split {
            Ok(()) if groups == 1 && rest.smCount > 0 => return Ok([Self(share), Self(rest)]),
            Ok(()) => None,
            Err(failure) if NOT_SO_MANY.contains(&failure.code) => Some(Error::from(failure)),
            Err(failure) => return Err(failure.into()),
        };
        let why = format!("the driver does not divide {} multiprocessors at {count}", self.count());
        let error = Error::new(ErrorKind::FeatureNotSupported, why)
            .help("ask for a multiple of 8 (of 2 before compute capability 9.0) that leaves some");
        Err(refused.into_iter().fold(error, Error::caused_by))
    }
}

/// The codes with which the driver refuses to divide multiprocessors so.
const NOT_SO_MANY: [CUresult; 2] = [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION];

impl GreenContext {
    /// One that a share has given back, or a new one. The caller has made the primary context current.
    pub(super) fn take(
        driver: &'static Driver,
        device: CUdevice,
        multiprocessors: Multiprocessors,
    ) -> Result<Self, CudaFailure> {
        let fits = |idle: &Self| idle.device == device && idle.multiprocessors == multiprocessors;
        let taken = {
            let mut idle = IDLE.lock();
            idle.iter().position(fits).map(|place| idle.swap_remove(place))
        };
        taken.map_or_else(|| Self::create(driver, device, multiprocessors), Ok)
    }

    /// The caller has destroyed everything that was made in it.
    pub(super) fn give_back(self) {
        IDLE.lock().push(self);
    }

    fn create(
        driver: &'static Driver,
        device: CUdevice,
        mut multiprocessors: Multiprocessors,
    ) -> Result<Self, CudaFailure> {
        let (mut desc, mut raw, mut context) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let resource = &raw mut multiprocessors.0;
        // SAFETY: the driver wrote the one resource; the place is valid.
        unsafe { call_newer!(driver, cuDevResourceGenerateDesc(&raw mut desc, resource, 1)) }?;
        let flags = CU_GREEN_CTX_DEFAULT_STREAM;
        // SAFETY: the driver made the description, of resources of this device; the place is valid.
        unsafe { call_newer!(driver, cuGreenCtxCreate(&raw mut raw, desc, device, flags)) }?;
        // SAFETY: the green context has just been made; the place is valid.
        let converted = unsafe { call_newer!(driver, cuCtxFromGreenCtx(&raw mut context, raw)) };
        if let Err(failure) = converted {
            // SAFETY: it was created, and this is the last use.
            return unsafe { call_newer!(driver, cuGreenCtxDestroy(raw)) }.and(Err(failure));
        }
        Ok(Self { driver, device, raw, context, alone: Mutex::default(), multiprocessors })
    }

    /// Writes a new stream to the place, which is valid. The caller holds the lock.
    pub(super) fn create_stream(&self, place: *mut CUstream, priority: c_int) -> Result<(), CudaFailure> {
        let flags = CU_STREAM_NON_BLOCKING;
        // SAFETY: the green context is alive; the caller gives the place.
        unsafe { call_newer!(self.driver, cuGreenCtxStreamCreate(place, self.raw, flags, priority)) }
    }
}

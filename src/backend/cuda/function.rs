//! The functions of loaded code.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use super::context::CudaContext;
use super::memory_pool::MemoryPool;
use super::sys::{
    CUfunction, CUfunction_attribute as Attribute, CUjit_option, CUmodule, CUresult, CudaFailure, call,
};
use crate::types::{Error, ErrorKind, Result};

/// A function, and the loaded code that it is in.
#[derive(Debug)]
pub(super) struct CudaFunction {
    pub(super) raw: CUfunction,
    module: CUmodule,
    pub(super) context: Arc<CudaContext>,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for CudaFunction {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaFunction {}

impl CudaFunction {
    /// Loads the code, a binary or PTX with a NUL at its end, and finds this entry point. Errors name
    /// the kernel. The caller has bound the context.
    pub(super) fn load(pool: &MemoryPool, code: &[u8], entry: &str, kernel: &str) -> Result<Self> {
        let context = Arc::clone(pool.context());
        let module = pool.retry_with_room(|| load_module(&context, code, kernel))?;
        // From here on the code is unloaded when something fails.
        let mut function = Self { raw: ptr::null_mut(), module, context };
        let entry = CString::new(entry)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "the kernel's name holds a NUL"))?;
        let (driver, place, name) = (function.context.driver, &raw mut function.raw, entry.as_ptr());
        // SAFETY: the code is loaded, the name ends in NUL, the pointer is valid for a pointer.
        match unsafe { call!(driver, cuModuleGetFunction(place, module, name)) } {
            Ok(()) => Ok(function),
            Err(failure) if failure.code == CUresult::CUDA_ERROR_NOT_FOUND as u32 => {
                let why = format!("the code has no kernel '{kernel}'");
                Err(Error::new(ErrorKind::Driver, why).help(
                    "declare the kernel under the name it has in the code, which must be `extern \"C\"`",
                ))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) fn attribute(&self, attribute: Attribute) -> Result<usize, CudaFailure> {
        let mut value: c_int = 0;
        // SAFETY: the function is loaded, its context bound; the pointer is valid for a number.
        unsafe { call!(self.context.driver, cuFuncGetAttribute(&raw mut value, attribute, self.raw)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

impl Drop for CudaFunction {
    fn drop(&mut self) {
        self.context.destroy(|| {
            // SAFETY: loaded once, unloaded once; nothing that uses it is in flight.
            unsafe { call!(self.context.driver, cuModuleUnload(self.module)) }
        });
    }
}

fn load_module(context: &CudaContext, code: &[u8], kernel: &str) -> Result<CUmodule> {
    let mut log = vec![0u8; 8 << 10];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
    let mut raw = ptr::null_mut();
    let (count, options, values) = (options.len() as c_uint, options.as_mut_ptr(), values.as_mut_ptr());
    let image = code.as_ptr().cast();
    // SAFETY: the image is a binary or a text that ends in NUL; the options are as many, and the log as
    // long, as they say.
    let loaded =
        unsafe { call!(context.driver, cuModuleLoadDataEx(&raw mut raw, image, count, options, values)) };
    loaded.map(|()| raw).map_err(|failure| {
        let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
        let error = Error::from(failure);
        let why = format!("kernel '{kernel}' cannot be loaded: {}", error.message());
        let error = Error::new(error.kind(), why);
        match text.is_empty() {
            true => error,
            false => error.caused_by(String::from_utf8_lossy(text).into_owned()),
        }
    })
}

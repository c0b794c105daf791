//! The functions of loaded code.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::{Error, ErrorKind, Result};

use super::context::CudaContext;
use super::handle::CudaObject;
use super::memory_pool::MemoryPool;
use super::sys::{
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CUDA_ERROR_NOT_FOUND, CUfunction,
    CUfunction_attribute, CUmod_st, CudaFailure, call, get,
};

/// A function, and the loaded code that it is in.
#[derive(Debug)]
pub(super) struct CudaFunction {
    pub(super) raw: CUfunction,
    module: CudaObject<CUmod_st>,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for CudaFunction {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaFunction {}

impl CudaFunction {
    /// Loads the code, a binary or PTX with a NUL at its end, and finds this entry point. Errors
    /// name the kernel. The caller has bound the context.
    pub(super) fn load(pool: &MemoryPool, code: &[u8], entry: &str, kernel: &str) -> Result<Self> {
        let module = pool.retry_with_room(|| load_module(pool.context(), code, kernel))?;
        let entry = CString::new(entry)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "the kernel's name holds a NUL"))?;
        // SAFETY: the code is loaded, the name ends in NUL.
        match unsafe { get!(module.driver(), cuModuleGetFunction(module.raw(), entry.as_ptr())) } {
            Ok(raw) => Ok(Self { raw, module }),
            Err(failure) if failure.code == CUDA_ERROR_NOT_FOUND => {
                let why = format!("the code has no kernel '{kernel}'");
                Err(Error::new(ErrorKind::Driver, why).help(
                    "declare the kernel under the name it has in the code, which must be `extern \"C\"`",
                ))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.module.context()
    }

    pub(super) fn attribute(&self, attribute: CUfunction_attribute) -> Result<usize, CudaFailure> {
        // SAFETY: the function is loaded, its context bound.
        let value: c_int = unsafe { get!(self.module.driver(), cuFuncGetAttribute(attribute, self.raw)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

fn load_module(context: &Arc<CudaContext>, code: &[u8], kernel: &str) -> Result<CudaObject<CUmod_st>> {
    let mut log = vec![0u8; 8 << 10];
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
    let (count, options, values) = (options.len() as c_uint, options.as_mut_ptr(), values.as_mut_ptr());
    let image = code.as_ptr().cast();
    let loaded = CudaObject::create_by(context, |driver, place| {
        // SAFETY: the image is a binary or a text that ends in NUL; the options are as many, and
        // the log as long, as they say.
        unsafe { call!(driver, cuModuleLoadDataEx(place, image, count, options, values)) }
    });
    loaded.map_err(|failure| {
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

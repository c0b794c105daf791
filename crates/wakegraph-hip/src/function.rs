//! The functions of loaded code.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CString, c_int};
use std::sync::Arc;

use wakegraph_hal::{Error, ErrorKind, Result};

use super::context::HipContext;
use super::handle::HipObject;
use super::memory_pool::HipMemoryPool;
use super::sys::{
    HipFailure, call, get, hipErrorNotFound, hipFunction_attribute, hipFunction_t, ihipModule_t,
};

/// A function, and the loaded code that it is in.
#[derive(Debug)]
pub(super) struct HipFunction {
    pub(super) raw: hipFunction_t,
    module: HipObject<ihipModule_t>,
    /// After the module, which is unloaded on the same thread.
    _code: ModuleCode,
}

/// The code object of a module. The driver reads it as long as the module is loaded.
#[derive(Debug)]
struct ModuleCode {
    code: Arc<[u8]>,
    context: Arc<HipContext>,
}

impl Drop for ModuleCode {
    fn drop(&mut self) {
        let code = Arc::clone(&self.code);
        self.context.releases.later(move |_| {
            drop(code);
            Ok(())
        });
    }
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for HipFunction {}
// SAFETY: as for `Send`.
unsafe impl Sync for HipFunction {}

impl HipFunction {
    /// Loads a code object and finds this entry point. Errors name the kernel. The caller has bound
    /// the context.
    pub(super) fn load(
        pool: &HipMemoryPool,
        code: &Arc<[u8]>,
        entry: &str,
        kernel: &str,
        architecture: &str,
    ) -> Result<Self> {
        let module = pool.retry_with_room(|| load_module(pool.context(), code, kernel, architecture))?;
        let entry = CString::new(entry)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "the kernel's name holds a NUL"))?;
        // SAFETY: the code is loaded, the name ends in NUL.
        match unsafe { get!(module.driver(), hipModuleGetFunction(module.raw(), entry.as_ptr())) } {
            Ok(raw) => {
                let (code, context) = (Arc::clone(code), Arc::clone(module.context()));
                Ok(Self { raw, module, _code: ModuleCode { code, context } })
            }
            Err(failure) if failure.code == hipErrorNotFound => {
                let why = format!("the code has no kernel '{kernel}'");
                Err(Error::new(ErrorKind::Driver, why).help(
                    "declare the kernel under the name it has in the code, which must be `extern \"C\"`",
                ))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) fn context(&self) -> &Arc<HipContext> {
        self.module.context()
    }

    pub(super) fn attribute(&self, attribute: hipFunction_attribute) -> Result<usize, HipFailure> {
        // SAFETY: the function is loaded, its context bound.
        let value: c_int = unsafe { get!(self.module.driver(), hipFuncGetAttribute(attribute, self.raw)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

fn load_module(
    context: &Arc<HipContext>,
    code: &[u8],
    kernel: &str,
    architecture: &str,
) -> Result<HipObject<ihipModule_t>> {
    let addresses = context.addresses.hold_to_allocate();
    let loaded = HipObject::create_by(context, |driver, place| {
        // SAFETY: the image is as long as its own headers say, or the driver refuses it.
        unsafe { call!(driver, hipModuleLoadData(place, code.as_ptr().cast())) }
    });
    drop(addresses);
    loaded.map_err(|failure| {
        let error = Error::from(failure);
        let why = format!("kernel '{kernel}' cannot be loaded: {}", error.message());
        let error = Error::new(error.kind(), why);
        match is_other_code(failure) {
            true => error.help(format!(
                "give a code object for {architecture}, or source (`hip_c:`, `c:`), which hipRTC compiles"
            )),
            false => error,
        }
    })
}

/// Whether the failure says that the bytes are no code for this device.
fn is_other_code(failure: HipFailure) -> bool {
    use super::sys::{
        hipErrorInvalidImage, hipErrorInvalidKernelFile, hipErrorInvalidValue, hipErrorNoBinaryForGpu,
        hipErrorSharedObjectInitFailed,
    };
    matches!(
        failure.code,
        hipErrorInvalidValue
            | hipErrorInvalidImage
            | hipErrorNoBinaryForGpu
            | hipErrorInvalidKernelFile
            | hipErrorSharedObjectInitFailed
    )
}

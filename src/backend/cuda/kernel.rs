//! Kernels: a module, loaded from the first source variant that CUDA takes, and its function.
#![expect(unsafe_code, reason = "calls the driver")]

use std::any::Any;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use super::context::CudaContext;
use super::device_inner::CudaDeviceInner;
use super::nvrtc;
use super::sys::{
    CUfunction, CUfunction_attribute as Attribute, CUjit_option, CUmodule, CUresult, CudaFailure, call,
};
use crate::hal::{Kernel, KernelDesc, Param, ParamKind, dialect};
use crate::types::{Error, ErrorKind, Result};

/// A loaded kernel.
#[derive(Debug)]
pub(super) struct CudaKernel {
    name: String,
    params: Vec<Param>,
    module: CudaModule,
    function: CUfunction,
    /// Whether it is in the portable dialect: its entry point also takes the launch's size and
    /// offset, and skips work-items beyond that size.
    portable: bool,
    max_work_group_size: usize,
    /// Shared memory that its source declares.
    static_shared: usize,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for CudaKernel {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaKernel {}

impl CudaKernel {
    pub(super) fn load(device: &CudaDeviceInner, desc: &KernelDesc<'_>) -> Result<Self> {
        let (code, portable) = code(device.compute_capability, desc)?;
        let entry = if portable { dialect::entry_name(desc.name) } else { desc.name.to_owned() };
        let context = &device.context;
        let _bound = context.bind()?;
        let module = device.pool.retry_with_room(|| CudaModule::load(context, &code, desc.name))?;
        let function = module.function(&entry, desc.name)?;
        let attribute = |attribute: Attribute| function_attribute(context, function, attribute);
        let kernel = Self {
            name: desc.name.into(),
            params: desc.params.into(),
            function,
            portable,
            max_work_group_size: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            module,
        };
        kernel.check_parameters()?;
        Ok(kernel)
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.module.context
    }

    pub(super) fn function(&self) -> CUfunction {
        self.function
    }

    pub(super) fn is_portable(&self) -> bool {
        self.portable
    }

    /// Lets launches of the function have so much dynamic shared memory. The caller has bound the context.
    pub(super) fn allow_shared(&self, bytes: usize) -> Result<(), CudaFailure> {
        // What a work-group may have without this call, its static part included.
        const GRANTED: usize = 48 << 10;
        if bytes == 0 || bytes + self.static_shared <= GRANTED {
            return Ok(());
        }
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the function is loaded, its context bound.
        unsafe { call!(self.context().driver, cuFuncSetAttribute(self.function, attribute, bytes)) }
    }

    /// Whether the code's parameters have the declared sizes, on drivers that tell (from 12.4 on).
    fn check_parameters(&self) -> Result<()> {
        let Some(ask) = self.context().driver.cuFuncGetParamInfo else { return Ok(()) };
        let expected = parameters(&self.params, self.portable);
        // The last parameter of the entry point is not declared in the source.
        let declared = expected.len() - usize::from(self.portable);
        for index in 0..=expected.len() {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is loaded; both pointers are valid for numbers.
            let outcome = unsafe { ask(self.function, index, &raw mut offset, &raw mut size) };
            let found = match outcome {
                super::sys::SUCCESS => Some(size),
                code if code == CUresult::CUDA_ERROR_INVALID_VALUE as u32 => None,
                code => return Err(CudaFailure { call: "cuFuncGetParamInfo", code }.into()),
            };
            if found == expected.get(index).map(|(_, size)| *size) {
                continue;
            }
            let why = match (found, expected.get(index)) {
                (Some(found), Some((name, size))) => {
                    format!(
                        "parameter {index}, {name}, is declared with {size} bytes and has {found} in the code"
                    )
                }
                (None, _) => format!("it is declared with {declared} parameters, its code has {index}"),
                (Some(_), None) => format!("it is declared with {declared} parameters, its code has more"),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, format!("kernel '{}': {why}", self.name))
                .help("declare the parameters of the code, in its order"));
        }
        Ok(())
    }
}

/// The parameters that the code must have, and their bytes.
fn parameters(params: &[Param], portable: bool) -> Vec<(String, usize)> {
    let mut all = Vec::new();
    for Param { name, kind } in params {
        let size = match kind {
            ParamKind::Value { size } => *size,
            ParamKind::Buffer { .. } => size_of::<u64>(),
            // Its offset in the dynamic shared memory.
            ParamKind::Local { .. } => size_of::<u32>(),
        };
        all.push((format!("'{name}'"), size));
        if portable && !matches!(kind, ParamKind::Value { .. }) {
            all.push((format!("the length of '{name}'"), size_of::<u64>()));
        }
    }
    if portable {
        all.push(("the launch".into(), size_of::<[u64; 6]>()));
    }
    all
}

/// The code that the driver loads, and whether it is in the portable dialect.
fn code(capability: u32, desc: &KernelDesc<'_>) -> Result<(Arc<[u8]>, bool)> {
    let KernelDesc { name, params, sources } = *desc;
    if let Some(cubin) = &sources.cubin {
        return Ok((Arc::from(&cubin[..]), false));
    }
    if let Some(ptx) = &sources.ptx {
        let text = CString::new(ptx.as_bytes()).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("kernel '{name}': the PTX holds a NUL"))
        })?;
        return Ok((text.into_bytes_with_nul().into(), false));
    }
    if let Some(source) = &sources.cuda_c {
        return Ok((nvrtc::compile(name, source, &[], capability)?, false));
    }
    if let Some(source) = &sources.c {
        let text = format!("{}{source}{}", dialect::CUDA, dialect::entry_point(name, params));
        return Ok((nvrtc::compile(name, &text, dialect::CUDA_OPTIONS, capability)?, true));
    }
    let why = format!("kernel '{name}' has no variant for CUDA, only {:?}", sources.names());
    Err(Error::new(ErrorKind::FeatureNotSupported, why)
        .help("add a source in the portable C dialect (`c:`), CUDA C++, PTX or a cubin"))
}

fn function_attribute(
    context: &CudaContext,
    function: CUfunction,
    attribute: Attribute,
) -> Result<usize, CudaFailure> {
    let mut value: c_int = 0;
    // SAFETY: the function is loaded, its context bound; the pointer is valid for a number.
    unsafe { call!(context.driver, cuFuncGetAttribute(&raw mut value, attribute, function)) }?;
    Ok(usize::try_from(value).unwrap_or(0))
}

/// Loaded code.
#[derive(Debug)]
struct CudaModule {
    context: Arc<CudaContext>,
    raw: CUmodule,
}

// SAFETY: any thread may use the driver's modules.
unsafe impl Send for CudaModule {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaModule {}

impl CudaModule {
    fn load(context: &Arc<CudaContext>, code: &[u8], name: &str) -> Result<Self> {
        let mut log = vec![0u8; 8 << 10];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let mut raw = ptr::null_mut();
        let (count, options, values) = (options.len() as c_uint, options.as_mut_ptr(), values.as_mut_ptr());
        let image = code.as_ptr().cast();
        // SAFETY: the image is a binary or a text that ends in NUL; the options are as many, and the
        // log as long, as they say.
        let outcome =
            unsafe { call!(context.driver, cuModuleLoadDataEx(&raw mut raw, image, count, options, values)) };
        outcome.map_err(|failure| {
            let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let error = Error::from(failure);
            let why = format!("kernel '{name}' cannot be loaded: {}", error.message());
            let error = Error::new(error.kind(), why);
            match text.is_empty() {
                true => error,
                false => error.caused_by(String::from_utf8_lossy(text).into_owned()),
            }
        })?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    fn function(&self, entry: &str, name: &str) -> Result<CUfunction> {
        let entry = CString::new(entry)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "the kernel's name holds a NUL"))?;
        let mut function = ptr::null_mut();
        let text = entry.as_ptr();
        // SAFETY: the module is loaded, the name ends in NUL, the pointer is valid for a pointer.
        let outcome =
            unsafe { call!(self.context.driver, cuModuleGetFunction(&raw mut function, self.raw, text)) };
        match outcome {
            Ok(()) => Ok(function),
            Err(failure) if failure.code == CUresult::CUDA_ERROR_NOT_FOUND as u32 => {
                let why = format!("the code has no kernel '{name}'");
                Err(Error::new(ErrorKind::Driver, why).help(
                    "declare the kernel under the name it has in the code, which must be `extern \"C\"`",
                ))
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        self.context.destroy(|| {
            // SAFETY: loaded once, unloaded once; nothing that uses it is in flight.
            unsafe { call!(self.context.driver, cuModuleUnload(self.raw)) }
        });
    }
}

impl Kernel for CudaKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn max_work_group_size(&self) -> usize {
        self.max_work_group_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::AccessMode;

    #[test]
    fn slices_of_the_dialect_have_two_parameters() {
        let param = |name: &'static str, kind| Param { name: name.into(), kind };
        let params = [
            param("a", ParamKind::Value { size: 4 }),
            param("x", ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 }),
            param("tile", ParamKind::Local { element_size: 4 }),
        ];
        let sizes =
            |portable| parameters(&params, portable).into_iter().map(|(_, size)| size).collect::<Vec<_>>();
        assert_eq!(sizes(false), [4, 8, 4]);
        assert_eq!(sizes(true), [4, 8, 8, 4, 8, 48]);
    }
}

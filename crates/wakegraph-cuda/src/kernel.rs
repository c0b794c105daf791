//! Kernels: a function, loaded from the first source variant that CUDA takes.
#![expect(unsafe_code, reason = "calls the driver")]

use std::any::Any;
use std::ffi::{CString, c_int};
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::launch_arguments::HIDDEN_WORDS;
use wakegraph_hal::support::source_params::source_params;
use wakegraph_hal::support::streams::DriverContext as _;
use wakegraph_hal::{Error, ErrorKind, Kernel, KernelDesc, Param, ParamKind, Result, dialect};

use super::device_inner::CudaDeviceInner;
use super::function::CudaFunction;
use super::overlap::{KernelWait, OVERLAP_CAPABILITY};
use super::program;
use super::sys::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE,
    CudaFailure, call,
};

/// A loaded kernel.
#[derive(Debug)]
pub(super) struct CudaKernel {
    name: String,
    params: Vec<Param>,
    pub(super) function: CudaFunction,
    /// Whether it is in the portable dialect: its entry point also takes the launch's flags, offset
    /// and size, and skips work-items beyond that size.
    pub(super) is_portable: bool,
    pub(super) wait: KernelWait,
    max_work_group_size: usize,
    /// Shared memory that its source declares.
    static_shared: usize,
    /// The most dynamic shared memory that launches have been allowed; 0 for what they have in any case.
    allowed_shared: Mutex<usize>,
}

impl CudaKernel {
    pub(super) fn load(device: &CudaDeviceInner, desc: &KernelDesc<'_>) -> Result<Self> {
        let (code, portable) = code(device.compute_capability, desc)?;
        let entry = if portable { dialect::entry_name(desc.name) } else { desc.name.to_owned() };
        let _bound = device.context.bind()?;
        let function = CudaFunction::load(&device.pool, &code, &entry, desc.name)?;
        // Code for older devices knows no wait.
        let version = || function.attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION);
        let capability = device.compute_capability;
        let wait = match portable {
            true if program::compiles_for(capability, OVERLAP_CAPABILITY) => KernelWait::IfTold,
            false if desc.sources.cuda_waits && version()? >= OVERLAP_CAPABILITY as usize => {
                KernelWait::Always
            }
            _ => KernelWait::Never,
        };
        let kernel = Self {
            name: desc.name.into(),
            params: desc.params.into(),
            is_portable: portable,
            wait,
            max_work_group_size: function.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared: function.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            allowed_shared: Mutex::new(0),
            function,
        };
        kernel.check_parameters()?;
        Ok(kernel)
    }

    /// Lets launches of the function have so much dynamic shared memory. The limit is only ever raised: other
    /// threads launch with more, and so do nodes of graphs. The caller has bound the context.
    pub(super) fn allow_shared(&self, bytes: usize) -> Result<(), CudaFailure> {
        // What a work-group may have without this call, its static part included.
        const GRANTED: usize = 48 << 10;
        if bytes == 0 || bytes + self.static_shared <= GRANTED {
            return Ok(());
        }
        let mut allowed = self.allowed_shared.lock();
        if bytes > *allowed {
            let (driver, attribute) =
                (self.function.context().driver, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
            let limit = c_int::try_from(bytes).unwrap_or(c_int::MAX);
            // SAFETY: the function is loaded, its context bound.
            unsafe { call!(driver, cuFuncSetAttribute(self.function.raw, attribute, limit)) }?;
            *allowed = bytes;
        }
        Ok(())
    }

    /// Whether the code's parameters have the declared sizes, on drivers that tell (from 12.4 on).
    fn check_parameters(&self) -> Result<()> {
        let Some(ask) = self.function.context().driver.cuFuncGetParamInfo else { return Ok(()) };
        let expected = parameters(&self.params, self.is_portable);
        // The last parameter of the entry point is not declared in the source.
        let declared = expected.len() - usize::from(self.is_portable);
        for index in 0..=expected.len() {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is loaded; both pointers are valid for numbers.
            let outcome = unsafe { ask(self.function.raw, index, &raw mut offset, &raw mut size) };
            let found = match outcome {
                super::sys::CUDA_SUCCESS => Some(size),
                code if code == CUDA_ERROR_INVALID_VALUE => None,
                code => return Err(CudaFailure::new("cuFuncGetParamInfo", code).into()),
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
    let size = |kind: Option<&ParamKind>| match kind {
        Some(ParamKind::Value { size }) => *size,
        // Its offset in the dynamic shared memory.
        Some(ParamKind::Local { .. }) => size_of::<u32>(),
        Some(ParamKind::Buffer { .. }) | None => size_of::<u64>(),
    };
    let launch = portable.then(|| ("the launch".into(), size_of::<[u64; HIDDEN_WORDS]>()));
    source_params(params, portable).map(|(name, kind)| (name, size(kind))).chain(launch).collect()
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
        return Ok((program::compile(name, source, &[], capability)?, false));
    }
    if let Some(source) = &sources.c {
        let text = format!("{}{source}{}", dialect::CUDA, dialect::entry_point(name, params));
        return Ok((program::compile(name, &text, dialect::CUDA_OPTIONS, capability)?, true));
    }
    let why = format!("kernel '{name}' has no variant for CUDA, only {:?}", sources.names());
    Err(Error::new(ErrorKind::FeatureNotSupported, why)
        .help("add a source in the portable C dialect (`c:`), CUDA C++, PTX or a cubin"))
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

    fn own_local_memory(&self) -> usize {
        self.static_shared
    }
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::AccessMode;

    use super::*;

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
        assert_eq!(sizes(true), [4, 8, 8, 4, 8, 56]);
    }
}

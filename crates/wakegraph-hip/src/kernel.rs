//! Kernels: a function, loaded from the first source variant that HIP takes.

use std::any::Any;
use std::sync::Arc;

use wakegraph_hal::support::streams::DriverContext as _;
use wakegraph_hal::{Error, ErrorKind, Kernel, KernelDesc, Param, Result, dialect};

use super::device_inner::HipDeviceInner;
use super::function::HipFunction;
use super::program;
use super::sys::{HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES};

/// A loaded kernel.
#[derive(Debug)]
pub(super) struct HipKernel {
    name: String,
    params: Vec<Param>,
    pub(super) function: HipFunction,
    /// Whether it is in the portable dialect: its entry point also takes the launch's size and
    /// offset, and skips work-items beyond that size.
    pub(super) is_portable: bool,
    max_work_group_size: usize,
    /// Local memory that its source declares.
    static_local: usize,
}

impl HipKernel {
    pub(super) fn load(device: &HipDeviceInner, desc: &KernelDesc<'_>) -> Result<Self> {
        let architecture = &device.architecture;
        let (code, portable) = code(architecture, desc)?;
        let entry = if portable { dialect::entry_name(desc.name) } else { desc.name.to_owned() };
        let _bound = device.context.bind()?;
        let function = HipFunction::load(&device.pool, &code, &entry, desc.name, architecture)?;
        Ok(Self {
            name: desc.name.into(),
            params: desc.params.into(),
            is_portable: portable,
            max_work_group_size: function.attribute(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_local: function.attribute(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            function,
        })
    }

    /// Checks that a work-group can have so much dynamic local memory beside the kernel's own. The
    /// driver would end the process.
    pub(super) fn check_local(&self, dynamic: usize, most: usize) -> Result<()> {
        let needed = self.static_local + dynamic;
        if needed <= most {
            return Ok(());
        }
        let why =
            format!("kernel '{}' needs {needed} bytes of local memory, the device has {most}", self.name);
        Err(Error::new(ErrorKind::InvalidSize, why).help("use smaller work-groups, or less memory for each"))
    }
}

/// The code object that the driver loads, and whether it is in the portable dialect.
fn code(architecture: &str, desc: &KernelDesc<'_>) -> Result<(Arc<[u8]>, bool)> {
    let KernelDesc { name, params, sources } = *desc;
    if let Some(object) = &sources.code_object {
        return Ok((Arc::from(&object[..]), false));
    }
    if let Some(source) = &sources.hip_c {
        return Ok((program::compile(name, source, architecture)?, false));
    }
    if let Some(source) = &sources.c {
        let text = format!("{}{source}{}", dialect::HIP, dialect::entry_point(name, params));
        return Ok((program::compile(name, &text, architecture)?, true));
    }
    let why = format!("kernel '{name}' has no variant for HIP, only {:?}", sources.names());
    Err(Error::new(ErrorKind::FeatureNotSupported, why)
        .help("add a source in the portable C dialect (`c:`), HIP C++ or a code object"))
}

impl Kernel for HipKernel {
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

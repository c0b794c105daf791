//! Kernels: the closure that the sources hold for the host.

use std::any::Any;
use std::fmt::{self, Debug};

use wakegraph_hal::{Error, ErrorKind, HostFn, Kernel, KernelDesc, Param, Result};

/// A closure with its signature.
pub(super) struct HostKernel {
    name: String,
    params: Vec<Param>,
    function: HostFn,
    max_work_group_size: usize,
}

impl HostKernel {
    pub(super) fn load(desc: &KernelDesc<'_>, max_work_group_size: usize) -> Result<Self> {
        let Some(function) = desc.sources.host.clone() else {
            let why = format!("kernel '{}' has no variant for the host", desc.name);
            return Err(Error::new(ErrorKind::FeatureNotSupported, why)
                .help("add a Rust closure to the kernel's sources (`host: |range, ...| ...`)"));
        };
        Ok(Self { name: desc.name.into(), params: desc.params.into(), function, max_work_group_size })
    }

    pub(super) fn function(&self) -> &HostFn {
        &self.function
    }
}

impl Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel").field("name", &self.name).field("params", &self.params).finish()
    }
}

impl Kernel for HostKernel {
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

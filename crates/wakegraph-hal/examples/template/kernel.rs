//! Kernels. **Fill in:** take the first variant of the sources that the device understands, compile it, and
//! keep the driver's module and function.

use wakegraph_hal::{Kernel, KernelDesc, Param};

/// A signature without code.
#[derive(Debug)]
pub(crate) struct TemplateKernel {
    name: String,
    params: Vec<Param>,
    max_work_group_size: usize,
}

impl TemplateKernel {
    pub(crate) fn load(desc: &KernelDesc<'_>, max_work_group_size: usize) -> Self {
        Self { name: desc.name.into(), params: desc.params.into(), max_work_group_size }
    }
}

impl Kernel for TemplateKernel {
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

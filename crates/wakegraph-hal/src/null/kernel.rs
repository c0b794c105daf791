//! Kernels. **Fill in:** pick a variant out of the sources, compile it, keep the driver's module
//! and function.

use std::any::Any;

use crate::{Kernel, KernelDesc, Param};

/// A signature without code.
#[derive(Debug)]
pub(super) struct NullKernel {
    name: String,
    params: Vec<Param>,
    max_work_group_size: usize,
}

impl NullKernel {
    pub(super) fn load(desc: &KernelDesc<'_>, max_work_group_size: usize) -> Self {
        Self { name: desc.name.into(), params: desc.params.into(), max_work_group_size }
    }
}

impl Kernel for NullKernel {
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

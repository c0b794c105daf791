//! Kernels, as they are loaded on devices.

use std::any::Any;
use std::fmt::Debug;

use super::{KernelSources, Param};

/// What [`Device::create_kernel`](super::Device::create_kernel) loads.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KernelDesc<'a> {
    /// The name of the function in the sources.
    pub name: &'a str,
    /// Its parameters, in order.
    pub params: &'a [Param],
    /// Its code.
    pub sources: &'a KernelSources,
}

impl<'a> KernelDesc<'a> {
    /// The kernel `name` of these sources.
    pub const fn new(name: &'a str, params: &'a [Param], sources: &'a KernelSources) -> Self {
        Self { name, params, sources }
    }
}

/// A kernel loaded on a device.
pub trait Kernel: Debug + Send + Sync + 'static {
    /// For a backend to recognise its own.
    fn as_any(&self) -> &dyn Any;

    /// Its name.
    fn name(&self) -> &str;

    /// Its parameters, in order.
    fn params(&self) -> &[Param];

    /// The largest work-group it can be launched with.
    fn max_work_group_size(&self) -> usize;
}

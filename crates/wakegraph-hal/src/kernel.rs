//! Kernels, as they are loaded on devices.

use std::any::Any;
use std::fmt::Debug;

use super::{KernelSources, Param};

/// What [`Device::create_kernel`](super::Device::create_kernel) loads.
#[derive(Clone, Copy, Debug)]
pub struct KernelDesc<'a> {
    /// The name of the function in the sources.
    pub name: &'a str,
    /// The kernel's parameters, in order.
    pub params: &'a [Param],
    /// The kernel's code.
    pub sources: &'a KernelSources,
}

impl<'a> KernelDesc<'a> {
    /// Describes the kernel `name` of these sources.
    pub const fn new(name: &'a str, params: &'a [Param], sources: &'a KernelSources) -> Self {
        Self { name, params, sources }
    }
}

/// A kernel loaded on a device.
pub trait Kernel: Debug + Send + Sync + 'static {
    /// Lets a backend recognise its own objects.
    fn as_any(&self) -> &dyn Any;

    /// The kernel's name.
    fn name(&self) -> &str;

    /// The kernel's parameters, in order.
    fn params(&self) -> &[Param];

    /// Largest work-group that the kernel can be launched with.
    fn max_work_group_size(&self) -> usize;

    /// Local memory that the code declares for each work-group beside its parameters, in bytes; 0 where
    /// it is not known.
    fn own_local_memory(&self) -> usize {
        0
    }
}

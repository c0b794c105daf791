//! Kernels, and their instances: a handle of the driver for each recorded launch, with its arguments set.

use std::ffi::c_void;

use smallvec::SmallVec;

use super::context::LevelZeroContext;
use super::sys::{self, Kernel as DriverKernel, Owned};
use crate::hal::{Kernel, KernelArg, Param};
use crate::types::{Error, ErrorKind, Range, Result};

#[derive(Debug)]
pub(super) struct LevelZeroKernel {
    raw: Owned<DriverKernel>,
}

/// A kernel of the driver with its arguments and the size of its work-groups.
#[derive(Debug)]
pub(super) struct KernelInstance {
    kernel: Owned<DriverKernel>,
    pub(super) groups: sys::ze_group_count_t,
}

/// One argument as the driver takes it.
#[derive(Debug)]
pub(super) struct Argument<'a>(&'a [u8]);

/// The index space of a launch as the driver takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchShape {
    pub(super) group_size: [u32; 3],
    pub(super) groups: sys::ze_group_count_t,
    pub(super) offset: [u32; 3],
}

impl Argument<'_> {
    /// Its size and the address of its value.
    pub(super) fn value(&self) -> (usize, *const c_void) {
        (self.0.len(), self.0.as_ptr().cast())
    }
}

impl KernelInstance {
    pub(super) fn raw(&self) -> sys::ze_kernel_handle_t {
        self.kernel.raw()
    }
}

impl LevelZeroKernel {
    pub(super) fn of<'a>(_: &'a dyn Kernel, _: &LevelZeroContext) -> Result<&'a Self> {
        Err(unfinished())
    }

    pub(super) fn raw(&self) -> sys::ze_kernel_handle_t {
        self.raw.raw()
    }

    pub(super) fn instance(&self, _: &[KernelArg], _: &Range) -> Result<KernelInstance> {
        Err(unfinished())
    }

    pub(super) fn arguments<'a>(&self, _: &'a [KernelArg]) -> Result<SmallVec<[(&Param, Argument<'a>); 8]>> {
        Err(unfinished())
    }

    pub(super) fn shape(&self, _: &Range) -> Result<LaunchShape> {
        Err(unfinished())
    }
}

fn unfinished() -> Error {
    Error::new(ErrorKind::FeatureNotSupported, "the level_zero backend has no kernels yet")
}

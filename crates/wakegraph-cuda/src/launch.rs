//! A kernel launch in the driver's form: work-groups, their size, and the bytes of the parameters.
#![expect(unsafe_code, reason = "holds the driver's function")]

use std::sync::Arc;

use wakegraph_hal::support::launch_arguments::LaunchArguments;
use wakegraph_hal::support::launch_geometry::{LaunchGeometry, LaunchLimits};
use wakegraph_hal::support::refusal::foreign;
use wakegraph_hal::{Error, ErrorKind, Kernel as _, KernelLaunch, Result};

use super::device_inner::CudaDeviceInner;
use super::kernel::CudaKernel;
use super::memory::CudaMemory;
use super::overlap::{KernelWait, OverlapPolicy, fits_twice};
use super::sys::{CUDA_KERNEL_NODE_PARAMS_v2, CUfunction};

/// Threads that the hardware issues together.
const WARP: usize = 32;

/// A launch with all its parameters, as a graph's node takes them.
#[derive(Clone, Debug)]
pub(super) struct CudaLaunch {
    function: CUfunction,
    geometry: LaunchGeometry,
    arguments: LaunchArguments,
    wait: KernelWait,
    /// Whether it waits for the end of the kernel before it, so that it may be started earlier, and
    /// lets the one behind it be started so.
    pub(super) overlaps: bool,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for CudaLaunch {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaLaunch {}

impl CudaLaunch {
    /// Also lets the kernel have the shared memory that the launch needs. The caller has bound the
    /// context.
    pub(super) fn of(device: &CudaDeviceInner, launch: &KernelLaunch) -> Result<Self> {
        let kernel = launch.kernel.as_any().downcast_ref::<CudaKernel>();
        let kernel = kernel.filter(|kernel| Arc::ptr_eq(kernel.function.context(), &device.context));
        let kernel = kernel.ok_or_else(|| foreign("kernel"))?;
        let range = &launch.range;
        if range.global_offset() != [0; 3] && !kernel.is_portable {
            let why = format!("kernel '{}': {range} starts at an offset", kernel.name());
            return Err(Error::new(ErrorKind::FeatureNotSupported, why).help(
                "CUDA knows no offset: pass it as an argument, or write the kernel in the portable C dialect",
            ));
        }
        let limits = LaunchLimits {
            block: device.capabilities.max_work_item_sizes,
            grid: device.capabilities.max_work_groups,
            items: usize::MAX,
            warp: WARP,
        };
        let geometry = LaunchGeometry::of(range, kernel.max_work_group_size(), &limits)?;
        let arguments = match kernel.is_portable {
            true => {
                let (params, args) = (kernel.params(), &launch.args);
                LaunchArguments::portable(params, args, range, &geometry, CudaMemory::address_of)?
            }
            false => LaunchArguments::as_declared(&launch.args, CudaMemory::address_of)?,
        };
        kernel.allow_shared(arguments.local())?;
        let (function, wait) = (kernel.function.raw, kernel.wait);
        Ok(Self { function, geometry, arguments, wait, overlaps: false })
    }

    /// Has it [overlap](super::overlap) with kernels before and behind it, if it can and is small
    /// enough. The caller has bound the context.
    pub(super) fn overlap(&mut self, device: &CudaDeviceInner) {
        let fits_twice = || {
            let (driver, multiprocessors) = (device.context.driver, device.info.compute_units as u64);
            fits_twice(driver, multiprocessors, self.function, &self.geometry, self.arguments.local())
        };
        let is_wanted = || match device.overlap {
            OverlapPolicy::Never => false,
            OverlapPolicy::IfSmall => fits_twice(),
            OverlapPolicy::Always => true,
        };
        self.set_overlaps(self.wait != KernelWait::Never && is_wanted());
    }

    /// As [`overlap`](Self::overlap), for the launch that takes the place of another one: most have
    /// its size, and the driver need not be asked again.
    pub(super) fn overlap_like(&mut self, current: &Self, device: &CudaDeviceInner) {
        let size = |launch: &Self| (launch.function, launch.geometry, launch.arguments.local());
        match current.overlaps && size(self) == size(current) {
            true => self.set_overlaps(true),
            false => self.overlap(device),
        }
    }

    fn set_overlaps(&mut self, overlaps: bool) {
        self.overlaps = overlaps;
        if overlaps && self.wait == KernelWait::IfTold {
            self.arguments.set_overlaps();
        }
    }

    /// A launch of the backend's own function over so many work-items, each argument in a word.
    pub(super) fn builtin(function: CUfunction, args: &[u64], items: usize) -> Self {
        let (geometry, arguments) = (LaunchGeometry::linear(items), LaunchArguments::of_words(args));
        Self { function, geometry, arguments, wait: KernelWait::Never, overlaps: false }
    }

    /// Gives it the argument with this index of `launch`. False, and without effect, if it has to be made
    /// again for that.
    pub(super) fn replace_argument(&mut self, launch: &KernelLaunch, index: usize) -> Result<bool> {
        let (params, arg) = (launch.kernel.params(), &launch.args[index]);
        self.arguments.replace(params, index, arg, CudaMemory::address_of)
    }

    /// Calls `use_it` with the launch as the driver takes it. The driver copies what the pointers
    /// point to.
    pub(super) fn with_params<R>(&self, use_it: impl FnOnce(&CUDA_KERNEL_NODE_PARAMS_v2) -> R) -> R {
        let ([x, y, z], [block_x, block_y, block_z]) = (self.geometry.grid, self.geometry.block);
        self.arguments.with_pointers(|pointers| {
            use_it(&CUDA_KERNEL_NODE_PARAMS_v2 {
                func: self.function,
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: u32::try_from(self.arguments.local()).unwrap_or(u32::MAX),
                kernelParams: pointers.as_mut_ptr(),
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: std::ptr::null_mut(),
            })
        })
    }
}

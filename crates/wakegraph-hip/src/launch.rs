//! A kernel launch in the driver's form: work-groups, their size, and the bytes of the parameters.
#![expect(unsafe_code, reason = "holds the driver's function")]

use std::sync::Arc;

use wakegraph_hal::support::launch_arguments::LaunchArguments;
use wakegraph_hal::support::launch_geometry::{LaunchGeometry, LaunchLimits};
use wakegraph_hal::support::refusal::foreign;
use wakegraph_hal::{Error, ErrorKind, Kernel as _, KernelArg, KernelLaunch, Param, Range, Result};

use super::device_inner::{HipDeviceInner, LOCAL_GAPS};
use super::kernel::HipKernel;
use super::memory::HipMemory;
use super::stream::HipStream;
use super::sys::{HipFailure, call, dim3, hipFunction_t, hipKernelNodeParams};

/// The packet of a launch has its size in work-items, in 32 bits for each dimension.
const MOST_ITEMS: usize = u32::MAX as usize;

/// A launch with all its parameters, as a graph's node takes them.
#[derive(Clone, Debug)]
pub(super) struct HipLaunch {
    function: hipFunction_t,
    geometry: LaunchGeometry,
    arguments: LaunchArguments,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for HipLaunch {}
// SAFETY: as for `Send`.
unsafe impl Sync for HipLaunch {}

impl HipLaunch {
    /// The launch of a kernel of this device.
    pub(super) fn of(device: &HipDeviceInner, launch: &KernelLaunch) -> Result<Self> {
        let kernel = launch.kernel.as_any().downcast_ref::<HipKernel>();
        let kernel = kernel.filter(|kernel| Arc::ptr_eq(kernel.function.context(), &device.context));
        let kernel = kernel.ok_or_else(|| foreign("kernel"))?;
        let range = &launch.range;
        if range.global_offset() != [0; 3] && !kernel.is_portable {
            let why = format!("kernel '{}': {range} starts at an offset", kernel.name());
            return Err(Error::new(ErrorKind::FeatureNotSupported, why).help(
                "HIP knows no offset: pass it as an argument, or write the kernel in the portable C dialect",
            ));
        }
        let limits = LaunchLimits {
            block: device.capabilities.max_work_item_sizes,
            grid: device.capabilities.max_work_groups,
            items: MOST_ITEMS,
            warp: device.wavefront,
        };
        let geometry = LaunchGeometry::of(range, kernel.max_work_group_size(), &limits)?;
        let arguments = match kernel.is_portable {
            true => {
                let (params, args) = (kernel.params(), &launch.args);
                LaunchArguments::portable(params, args, range, &geometry, HipMemory::address_of)?
            }
            false => LaunchArguments::as_declared(&launch.args, HipMemory::address_of)?,
        };
        kernel.check_local(arguments.local(), device.capabilities.local_memory + LOCAL_GAPS)?;
        Ok(Self { function: kernel.function.raw, geometry, arguments })
    }

    /// A launch of one of the backend's own functions, which are in the portable dialect, over a
    /// range in one dimension.
    pub(super) fn builtin(
        function: hipFunction_t,
        params: &[Param],
        args: &[KernelArg],
        items: usize,
    ) -> Result<Self> {
        let (range, geometry) = (Range::linear(items), LaunchGeometry::linear(items));
        let arguments = LaunchArguments::portable(params, args, &range, &geometry, HipMemory::address_of)?;
        Ok(Self { function, geometry, arguments })
    }

    /// Gives it the argument with this index of `launch`. False, and without effect, if it has to be made
    /// again for that.
    pub(super) fn replace_argument(&mut self, launch: &KernelLaunch, index: usize) -> Result<bool> {
        let (params, arg) = (launch.kernel.params(), &launch.args[index]);
        self.arguments.replace(params, index, arg, HipMemory::address_of)
    }

    /// Calls `use_it` with the launch as the driver takes it. The driver copies what the pointers
    /// point to.
    pub(super) fn with_params<R>(&self, use_it: impl FnOnce(&hipKernelNodeParams) -> R) -> R {
        let three = |[x, y, z]: [u32; 3]| dim3 { x, y, z };
        self.arguments.with_pointers(|pointers| {
            use_it(&hipKernelNodeParams {
                blockDim: three(self.geometry.block),
                extra: std::ptr::null_mut(),
                func: self.function.cast(),
                gridDim: three(self.geometry.grid),
                kernelParams: pointers.as_mut_ptr(),
                sharedMemBytes: u32::try_from(self.arguments.local()).unwrap_or(u32::MAX),
            })
        })
    }
}

impl HipLaunch {
    /// Starts it on a stream, outside of graphs. The caller has bound the context.
    pub(super) fn start(&self, stream: &HipStream) -> Result<(), HipFailure> {
        self.with_params(|params| {
            let hipKernelNodeParams { blockDim: block, gridDim: grid, .. } = *params;
            let (shared, arguments, extra) = (params.sharedMemBytes, params.kernelParams, params.extra);
            let _arguments = stream.context().arguments.hold();
            // SAFETY: function and stream are of one device; the driver copies the arguments.
            unsafe {
                call!(
                    stream.driver(),
                    hipModuleLaunchKernel(
                        self.function,
                        grid.x,
                        grid.y,
                        grid.z,
                        block.x,
                        block.y,
                        block.z,
                        shared,
                        stream.raw(),
                        arguments,
                        extra
                    )
                )
            }
        })
    }
}

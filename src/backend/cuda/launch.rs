//! A kernel launch in the driver's form: work-groups, their size, and the bytes of the parameters.
#![expect(unsafe_code, reason = "holds the driver's function")]

use std::ffi::c_void;
use std::sync::Arc;

use smallvec::SmallVec;

use super::device_inner::CudaDeviceInner;
use super::kernel::CudaKernel;
use super::memory::CudaMemory;
use super::sys::{CUDA_KERNEL_NODE_PARAMS_v2, CUfunction};
use crate::hal::support::refusal::foreign;
use crate::hal::{Kernel as _, KernelArg, KernelLaunch, MemoryView, Param, dialect};
use crate::types::{Error, ErrorKind, Range, Result};

/// Work-items of a work-group for which no size is given.
const USUAL_BLOCK: usize = 256;

/// Words that kernels in the portable dialect also take: global size and offset.
const HIDDEN_WORDS: usize = 6;

/// Threads that the hardware issues together.
const WARP: usize = 32;

/// A launch with all its parameters, as a graph's node takes them.
#[derive(Clone, Debug)]
pub(super) struct CudaLaunch {
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: LaunchArguments,
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
        let largest = (device.capabilities.max_work_item_sizes, device.capabilities.max_work_groups);
        let (grid, block) = geometry(range, kernel.max_work_group_size(), largest)?;
        let arguments = match kernel.is_portable {
            true => LaunchArguments::portable(kernel.params(), &launch.args, range)?,
            false => LaunchArguments::as_declared(&launch.args)?,
        };
        kernel.allow_shared(arguments.shared)?;
        Ok(Self { function: kernel.function.raw, grid, block, arguments })
    }

    /// A launch of the backend's own function over so many work-items, each argument in a word.
    pub(super) fn builtin(function: CUfunction, args: &[u64], items: usize) -> Self {
        let block = items.clamp(1, USUAL_BLOCK);
        let arguments =
            LaunchArguments { words: args.into(), starts: (0..args.len() as u32).collect(), shared: 0 };
        Self { function, grid: [items.div_ceil(block) as u32, 1, 1], block: [block as u32, 1, 1], arguments }
    }

    /// Calls `use_it` with the launch as the driver takes it. The driver copies what the pointers
    /// point to.
    pub(super) fn with_params<R>(&self, use_it: impl FnOnce(&CUDA_KERNEL_NODE_PARAMS_v2) -> R) -> R {
        let mut pointers = self.arguments.pointers();
        let ([x, y, z], [block_x, block_y, block_z]) = (self.grid, self.block);
        use_it(&CUDA_KERNEL_NODE_PARAMS_v2 {
            func: self.function,
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: u32::try_from(self.arguments.shared).unwrap_or(u32::MAX),
            kernelParams: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        })
    }
}

/// The address at which a view begins. Kernels take CUDA's memory only.
pub(super) fn address(view: &MemoryView) -> Result<u64> {
    let memory = view.memory().as_any().downcast_ref::<CudaMemory>().ok_or_else(|| foreign("memory"))?;
    Ok(memory.address() + view.offset() as u64)
}

/// The bytes of all parameters, each at an address that suits any type.
#[derive(Clone, Default, Debug)]
struct LaunchArguments {
    words: Vec<u64>,
    /// The index of each in `words`.
    starts: SmallVec<[u32; 8]>,
    /// Dynamic shared memory so far.
    shared: usize,
}

impl LaunchArguments {
    /// For code in a vendor's language, which takes what the kernel declares.
    fn as_declared(args: &[KernelArg]) -> Result<Self> {
        let mut arguments = Self::with_capacity(args.len());
        args.iter().try_for_each(|arg| arguments.push(arg))?;
        Ok(arguments)
    }

    /// For the portable dialect's entry point, which also takes the length of each slice, and the
    /// launch's size and offset.
    fn portable(params: &[Param], args: &[KernelArg], range: &Range) -> Result<Self> {
        let mut arguments = Self::with_capacity(2 * args.len() + HIDDEN_WORDS);
        for (param, arg) in params.iter().zip(args) {
            arguments.push(arg)?;
            if let Some(len) = dialect::slice_len(param, arg) {
                arguments.push_bytes(&len.to_ne_bytes());
            }
        }
        let (size, offset) = (range.global_size(), range.global_offset());
        let words: SmallVec<[u64; HIDDEN_WORDS]> = size.into_iter().chain(offset).map(|n| n as u64).collect();
        arguments.push_bytes(bytemuck::cast_slice(&words));
        Ok(arguments)
    }

    /// With room for so many words: most arguments take one.
    fn with_capacity(words: usize) -> Self {
        Self { words: Vec::with_capacity(words), ..Self::default() }
    }

    fn push(&mut self, arg: &KernelArg) -> Result<()> {
        match arg {
            KernelArg::Value(bytes) => self.push_bytes(bytes),
            KernelArg::Memory(view) => self.push_bytes(&address(view)?.to_ne_bytes()),
            KernelArg::Usm(pointer) => self.push_bytes(&(pointer.address() as u64).to_ne_bytes()),
            KernelArg::Local(bytes) => {
                // The kernel gets the offset, a multiple of what the widest type needs.
                let start = self.shared.next_multiple_of(16);
                self.shared = start + bytes;
                self.push_bytes(&(start as u32).to_ne_bytes());
            }
        }
        Ok(())
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        // Vector types are aligned to 16 bytes and these words only to 8. The driver copies them.
        let start = self.words.len();
        self.starts.push(start as u32);
        self.words.resize(start + bytes.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut(&mut self.words[start..])[..bytes.len()].copy_from_slice(bytes);
    }

    fn pointers(&self) -> SmallVec<[*mut c_void; 16]> {
        let words = self.words.as_ptr();
        self.starts.iter().map(|&start| words.wrapping_add(start as usize).cast_mut().cast()).collect()
    }
}

/// The largest sizes of a launch in each dimension: work-items of a work-group, and work-groups.
type LaunchLimits = ([usize; 3], [usize; 3]);

/// The number of work-groups and their size: the one that the range gives, or one that suits it.
fn geometry(range: &Range, most: usize, (max_block, max_grid): LaunchLimits) -> Result<([u32; 3], [u32; 3])> {
    let global = range.global_size();
    let block = range.local_size().unwrap_or_else(|| usual_block(range, most, max_block));
    let mut grid = [0; 3];
    for (dimension, groups) in grid.iter_mut().enumerate() {
        *groups = global[dimension].div_ceil(block[dimension].max(1));
        let allowed = max_grid[dimension];
        if *groups > allowed {
            let why = format!(
                "{range}: {groups} work-groups in dimension {dimension}, the device allows {allowed}"
            );
            return Err(Error::new(ErrorKind::InvalidSize, why)
                .help("put the largest dimension first, or launch the kernel over parts"));
        }
    }
    let narrow = |sizes: [usize; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    Ok((narrow(grid), narrow(block)))
}

/// A work-group of whole warps along the first dimension, if there are as many work-items, and as
/// many rows of them as the usual size allows.
fn usual_block(range: &Range, most: usize, max_block: [usize; 3]) -> [usize; 3] {
    let global = range.global_size();
    let mut left = USUAL_BLOCK.min(most).max(1);
    let mut block = [1; 3];
    let first = if range.dimensions() == 1 { left } else { WARP.min(left) };
    block[0] = first.min(global[0]).min(max_block[0]);
    left /= block[0].max(1);
    for dimension in 1..3 {
        // A power of two, so that the rest can be used up.
        let fits = global[dimension].next_power_of_two().min(max_block[dimension]).min(left.max(1));
        block[dimension] = if fits.is_power_of_two() { fits } else { fits.next_power_of_two() / 2 };
        left /= block[dimension].max(1);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hal::{ParamKind, UsmPointer};
    use crate::types::AccessMode;

    const LIMITS: LaunchLimits = ([1024, 1024, 64], [(1 << 31) - 1, 65_535, 65_535]);

    #[test]
    fn the_usual_work_group_covers_the_range_and_stays_within_limits() {
        for range in [
            Range::linear(1),
            Range::linear(31),
            Range::linear(1 << 33),
            Range::new([3, 5]),
            Range::new([5000, 3000]),
            Range::new([1, 100_000]),
            Range::new([2, 3, 4]),
            Range::new([1, 1, 100_000]),
            Range::new([640, 480, 20]),
        ] {
            for most in [1, 32, 96, 256, 1024] {
                let (grid, block) = geometry(&range, most, LIMITS).unwrap_or_default();
                if most < 256 && grid == [0; 3] {
                    continue;
                }
                assert!(block.iter().product::<u32>() as usize <= most.min(256), "{range} {block:?}");
                for dimension in 0..3 {
                    let covered = grid[dimension] as usize * block[dimension] as usize;
                    assert!(covered >= range.global_size()[dimension], "{range} {grid:?} {block:?}");
                    assert!(block[dimension] as usize <= LIMITS.0[dimension]);
                }
            }
        }
        let (_, block) = geometry(&Range::linear(1 << 20), 1024, LIMITS).unwrap();
        assert_eq!(block, [256, 1, 1]);
        let (grid, block) = geometry(&Range::linear(5), 1024, LIMITS).unwrap();
        assert_eq!((grid, block), ([1, 1, 1], [5, 1, 1]));
        let (_, block) = geometry(&Range::new([640, 480]), 1024, LIMITS).unwrap();
        assert_eq!(block, [32, 8, 1]);
    }

    #[test]
    fn a_given_work_group_is_kept_and_too_many_are_refused() {
        let (grid, block) = geometry(&Range::new([8, 6]).local([4, 2]), 1024, LIMITS).unwrap();
        assert_eq!((grid, block), ([2, 3, 1], [4, 2, 1]));
        let error = geometry(&Range::new([1, 70_000]).local([1, 1]), 1024, LIMITS).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize);
    }

    #[test]
    fn arguments_lie_apart_and_keep_their_bytes() {
        let mut arguments = LaunchArguments::default();
        let values: [&[u8]; 4] = [&[1, 2, 3], &[4; 8], &[5; 17], &[6]];
        for value in values {
            arguments.push(&KernelArg::Value(value.into())).unwrap();
        }
        let bytes: &[u8] = bytemuck::cast_slice(&arguments.words);
        for (value, &start) in values.iter().zip(&arguments.starts) {
            assert_eq!(&bytes[8 * start as usize..][..value.len()], *value);
        }
        assert_eq!(arguments.pointers().len(), 4);
    }

    fn params() -> [Param; 3] {
        let param = |kind| Param { name: "p".into(), kind };
        [
            param(ParamKind::Value { size: 4 }),
            param(ParamKind::Buffer { access: AccessMode::Read, element_size: 12, element_align: 4 }),
            param(ParamKind::Local { element_size: 2 }),
        ]
    }

    fn args() -> [KernelArg; 3] {
        // SAFETY: nothing follows the pointer.
        let pointer = unsafe { UsmPointer::new(0x1000, 36) };
        [KernelArg::Value([7, 0, 0, 0][..].into()), KernelArg::Usm(pointer), KernelArg::Local(10)]
    }

    #[test]
    fn the_dialect_gets_the_length_of_each_slice_behind_it() {
        let range = Range::new([4, 5]).offset([1, 2]);
        let arguments = LaunchArguments::portable(&params(), &args(), &range).unwrap();
        assert_eq!(arguments.words, [7, 0x1000, 3, 0, 5, 4, 5, 1, 1, 2, 0]);
        assert_eq!(arguments.starts[..], [0, 1, 2, 3, 4, 5]);
        assert_eq!(arguments.shared, 10);
    }

    #[test]
    fn other_code_gets_the_declared_parameters_only() {
        let arguments = LaunchArguments::as_declared(&args()).unwrap();
        assert_eq!((&arguments.words[..], &arguments.starts[..]), (&[7, 0x1000, 0][..], &[0, 1, 2][..]));
    }

    #[test]
    fn local_memory_begins_at_multiples_of_16() {
        let mut arguments = LaunchArguments::default();
        for bytes in [4, 20, 8] {
            arguments.push(&KernelArg::Local(bytes)).unwrap();
        }
        let starts: Vec<u64> = arguments.words.iter().map(|word| word & u64::from(u32::MAX)).collect();
        assert_eq!((starts, arguments.shared), (vec![0, 16, 48], 56));
    }
}

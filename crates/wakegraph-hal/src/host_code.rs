//! Kernels in Rust: their code, and the arguments of a launch as that code receives them.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use super::kernel::{KernelArg, Param, ParamKind};
use crate::{Block, BlockUnit, Error, ErrorKind, GroupParts, Range, Result};

/// A kernel's code in Rust.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "closures have nothing to show")]
pub enum HostCode {
    /// Runs a launch in one call.
    Whole(HostFn),
    /// Runs a launch in blocks, several at the same time.
    Blocks(BlockCode),
}

/// A kernel that runs on the host: called once per launch, with the whole index space and all
/// arguments.
pub type HostFn = Arc<dyn Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync>;

/// Runs one block of a launch, of whose arguments it writes only its [items](HostArgs::items) or
/// [groups](HostArgs::groups).
///
/// # Safety
/// The processor has what the version was compiled for.
pub type BlockFn = unsafe fn(Block, &mut HostArgs<'_>) -> Result<()>;

/// Code that runs blocks, compiled for several generations of processors. All versions compute the same bits.
#[derive(Clone, Copy, Debug)]
pub struct BlockCode {
    unit: BlockUnit,
    dimensions: usize,
    baseline: BlockFn,
    versions: &'static [(CpuLevel, BlockFn)],
}

/// A generation of processors, by the levels of the x86-64 psABI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum CpuLevel {
    /// AVX2 and what came with it.
    X86_64V3,
    /// AVX-512: F, BW, CD, DQ and VL.
    X86_64V4,
}

impl CpuLevel {
    /// Whether this processor has all of the level.
    pub fn is_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::is_x86_feature_detected as has;
            let v3 = has!("avx2")
                && has!("bmi1")
                && has!("bmi2")
                && has!("f16c")
                && has!("fma")
                && has!("lzcnt")
                && has!("movbe")
                && has!("popcnt");
            let v4 = || {
                has!("avx512f")
                    && has!("avx512bw")
                    && has!("avx512cd")
                    && has!("avx512dq")
                    && has!("avx512vl")
            };
            match self {
                Self::X86_64V3 => v3,
                Self::X86_64V4 => v3 && v4(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

impl BlockCode {
    /// Code that takes blocks of these units, for ranges of so many dimensions (0 for any).
    ///
    /// # Safety
    /// The baseline runs on every processor that the program runs on, and each other version on all
    /// processors of its level.
    #[expect(unsafe_code, reason = "the caller vouches for what the versions need")]
    pub const unsafe fn new(
        unit: BlockUnit,
        dimensions: usize,
        baseline: BlockFn,
        versions: &'static [(CpuLevel, BlockFn)],
    ) -> Self {
        Self { unit, dimensions, baseline, versions }
    }

    /// The unit that is never divided.
    pub fn unit(&self) -> BlockUnit {
        self.unit
    }

    /// The dimensions of the index that the code takes; 0 if it takes ranges of any.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The version for the newest generation up to `most` that this processor belongs to.
    pub fn version(&self, most: Option<CpuLevel>) -> BlockFn {
        let fits = |level: CpuLevel| Some(level) <= most && level.is_supported();
        let newest = self.versions.iter().filter(|(level, _)| fits(*level)).max_by_key(|(level, _)| *level);
        newest.map_or(self.baseline, |(_, version)| *version)
    }
}

/// The arguments of one launch as a host kernel receives them: read one after the other, in the
/// parameters' order.
///
/// Each argument is handed out once, so two mutable slices can never be the same memory.
pub struct HostArgs<'a> {
    args: &'a [KernelArg],
    params: &'a [Param],
    next: usize,
    /// The block that they are for, unless they are for the whole launch.
    block: Option<Block>,
    // Slices handed out live as long as the launch, not longer.
    launch: PhantomData<&'a mut [u8]>,
}

impl Debug for HostArgs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostArgs").field("args", &self.args).field("next", &self.next).finish()
    }
}

#[expect(unsafe_code, reason = "turns the device's memory into the slices that the launch was given")]
impl<'a> HostArgs<'a> {
    /// Starts to read the arguments of one launch.
    ///
    /// # Safety
    /// For `'a`, all memory arguments are valid host memory, nothing else accesses a range that the
    /// parameters say is written, nothing writes a range that they say is read, and the ranges of
    /// one launch do not overlap where one of them is written.
    pub unsafe fn new(args: &'a [KernelArg], params: &'a [Param]) -> Self {
        Self { args, params, next: 0, block: None, launch: PhantomData }
    }

    /// Starts to read the arguments of one block of a launch.
    ///
    /// # Safety
    /// As for [`new`](Self::new), but that other blocks of the launch, which have no unit in common with this
    /// one, may use their parts of what is written.
    pub unsafe fn of_block(args: &'a [KernelArg], params: &'a [Param], block: Block) -> Self {
        Self { args, params, next: 0, block: Some(block), launch: PhantomData }
    }

    /// Number of arguments that have not been read yet.
    pub fn remaining(&self) -> usize {
        self.args.len() - self.next
    }

    /// Reads the next argument, which is a value.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not a value of this size.
    pub fn value<T: bytemuck::AnyBitPattern>(&mut self) -> Result<T> {
        match self.take()? {
            (KernelArg::Value(bytes), param) => bytemuck::try_pod_read_unaligned(bytes)
                .map_err(|error| mismatch(param, format!("is not of the type asked for: {error}"))),
            (_, param) => Err(mismatch(param, "is not a value".into())),
        }
    }

    /// Reads the next argument, which is memory that the kernel reads.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not memory, or does not hold
    /// whole elements of `T`, or when these are the arguments of a block and other blocks may write it.
    pub fn read<T: bytemuck::AnyBitPattern>(&mut self) -> Result<&'a [T]> {
        let (address, len, param) = self.memory()?;
        if self.block.is_some() && is_written(param) {
            return Err(mismatch(param, "is written by other blocks".into()));
        }
        let len = elements::<T>(address, len, param)?;
        // SAFETY: the caller of the constructor vouched for the range and that nothing writes it, but for
        // other blocks what the kernel writes; `elements` checked size and alignment; every bit pattern is
        // a `T`.
        Ok(unsafe { std::slice::from_raw_parts(address as *const T, len) })
    }

    /// Reads the next argument, which is memory that the kernel writes.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not memory that the parameter
    /// says is written, or does not hold whole elements of `T`.
    pub fn write<T: bytemuck::Pod>(&mut self) -> Result<&'a mut [T]> {
        let (address, len, param) = self.written::<T>()?;
        if self.block.is_some() {
            return Err(mismatch(param, "is shared by several blocks".into()));
        }
        // SAFETY: as in `read`; nothing else accesses the range, and it is handed out once.
        Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) })
    }

    /// Reads the next argument, which is memory that the kernel writes: the elements of the block's
    /// work-items, and those that lie between them.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and when these are not the arguments of a block of work-items, or the
    /// memory does not hold [an element for each](Range::elements).
    pub fn items<T: bytemuck::Pod + Send + Sync>(&mut self) -> Result<&'a mut [T]> {
        let (address, len, param) = self.written::<T>()?;
        let block = self.block.filter(|block| block.unit() == BlockUnit::WorkItem);
        let block = block.ok_or_else(|| mismatch(param, "is divided among work-items only".into()))?;
        if block.range().elements() != Some(len) {
            return Err(mismatch(param, format!("has {len} elements, not one for each work-item")));
        }
        let places = block.places();
        // SAFETY: the places of work-items are below the number of elements of the range, just compared.
        let first = unsafe { (address as *mut T).add(places.start) };
        // SAFETY: as in `read`; blocks without a common work-item have no common place, as places rise from
        // one work-item to the next, and the part is handed out once.
        Ok(unsafe { std::slice::from_raw_parts_mut(first, places.len()) })
    }

    /// Reads the next argument, which is memory that the kernel writes: what [belongs](GroupParts) to the
    /// work-groups of the block.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and when these are not the arguments of a block of work-groups, or the
    /// memory cannot be divided among the groups.
    pub fn groups<T: bytemuck::Pod + Send + Sync>(&mut self) -> Result<GroupParts<'a, T>> {
        let (address, len, param) = self.written::<T>()?;
        let block = self.block.filter(|block| block.unit() == BlockUnit::WorkGroup);
        let block = block.ok_or_else(|| mismatch(param, "is divided among work-groups only".into()))?;
        // SAFETY: the caller of `of_block` vouched for the memory of the block's groups; `written` checked
        // size and alignment, and the argument is handed out once.
        let parts = unsafe { GroupParts::new(address as *mut T, len, block) };
        parts
            .ok_or_else(|| mismatch(param, format!("has {len} elements, which its work-groups cannot share")))
    }

    /// The next argument, which is memory that the kernel writes: its address and elements.
    fn written<T>(&mut self) -> Result<(usize, usize, &'a Param)> {
        let (address, len, param) = self.memory()?;
        if !is_written(param) {
            return Err(mismatch(param, "is declared read-only".into()));
        }
        Ok((address, elements::<T>(address, len, param)?, param))
    }

    /// The next argument, local memory: its size in bytes. A host kernel brings its own scratch
    /// space.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when it is not local memory.
    pub fn local(&mut self) -> Result<usize> {
        match self.take()? {
            (KernelArg::Local(bytes), _) => Ok(*bytes),
            (_, param) => Err(mismatch(param, "is not local memory".into())),
        }
    }

    fn take(&mut self) -> Result<(&'a KernelArg, &'a Param)> {
        let index = self.next;
        let (Some(arg), Some(param)) = (self.args.get(index), self.params.get(index)) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the kernel has no parameter {index}"),
            ));
        };
        self.next += 1;
        Ok((arg, param))
    }

    fn memory(&mut self) -> Result<(usize, usize, &'a Param)> {
        match self.take()? {
            (KernelArg::Memory(view), param) => {
                let base = view.memory().host_ptr();
                let base = base.ok_or_else(|| mismatch(param, "is not host memory".into()))?;
                Ok((base.as_ptr() as usize + view.offset(), view.len(), param))
            }
            // A slice of no elements needs an address that is aligned and not null.
            (KernelArg::Usm(pointer), param) if pointer.is_empty() => Ok((ALIGNED, 0, param)),
            (KernelArg::Usm(pointer), param) => Ok((pointer.address(), pointer.len(), param)),
            (_, param) => Err(mismatch(param, "is not memory".into())),
        }
    }
}

/// An address that is aligned for any element.
const ALIGNED: usize = 4096;

fn elements<T>(address: usize, len: usize, param: &Param) -> Result<usize> {
    let size = size_of::<T>();
    if size == 0 || !len.is_multiple_of(size) || !address.is_multiple_of(align_of::<T>()) {
        let type_name = std::any::type_name::<T>();
        return Err(mismatch(param, format!("is {len} bytes, not aligned whole elements of {type_name}")));
    }
    Ok(len / size)
}

fn is_written(param: &Param) -> bool {
    matches!(param.kind, ParamKind::Buffer { access, .. } if access.writes())
}

fn mismatch(param: &Param, why: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("argument '{}' {why}", param.name))
}

#[cfg(test)]
#[expect(unsafe_code, reason = "hands out memory of the test's own")]
mod tests {
    use super::*;
    use crate::{AccessMode, UsmPointer};

    #[test]
    fn a_block_gets_no_more_than_its_part_of_what_is_written() {
        let mut memory = [0u32; 8];
        let address = memory.as_mut_ptr().expose_provenance();
        // SAFETY: the memory stays until the end of the test.
        let args = [KernelArg::Usm(unsafe { UsmPointer::new(address, size_of_val(&memory)) })];
        let kind = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let params = [Param { name: "x".into(), kind }];
        let of = |unit| {
            let block = Block::new(Range::linear(8).local([2]), unit, 1..3);
            // SAFETY: nothing else uses the memory meanwhile, and one part is alive at a time.
            unsafe { HostArgs::of_block(&args, &params, block) }
        };
        for unit in [BlockUnit::WorkItem, BlockUnit::WorkGroup] {
            let refused = |error: Error| assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            refused(of(unit).read::<u32>().unwrap_err());
            refused(of(unit).write::<u32>().unwrap_err());
        }
        of(BlockUnit::WorkItem).items::<u32>().unwrap().fill(1);
        of(BlockUnit::WorkGroup).groups::<u32>().unwrap().next_part().row(0, 0).fill(2);
        assert!(of(BlockUnit::WorkGroup).items::<u32>().is_err());
        assert!(of(BlockUnit::WorkItem).groups::<u32>().is_err());
        assert_eq!(memory, [0, 1, 2, 2, 0, 0, 0, 0]);
    }
}

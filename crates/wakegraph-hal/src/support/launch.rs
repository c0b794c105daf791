//! Launches as drivers take them: the number and the size of the work-groups, for devices that launch whole
//! ones; the declaration of a kernel; and the arguments, one by one in the order of the source, or as
//! packed bytes with a pointer to each.

use std::ffi::{CString, c_void};
use std::ptr;

use smallvec::SmallVec;

use crate::dialect::{self, LaunchFlags};
use crate::{Error, ErrorKind, KernelArg, KernelDesc, MemoryView, Param, ParamKind, Range, Result};

/// Work-items of a work-group for which no size is given.
const USUAL_BLOCK: usize = 256;

/// Limits of a device for launches.
#[derive(Clone, Copy, Debug)]
pub struct LaunchLimits {
    /// The largest size of a work-group in each dimension.
    pub block: [usize; 3],
    /// The most work-groups in each dimension.
    pub grid: [usize; 3],
    /// The most work-items in each dimension, those of the last work-group included.
    pub items: usize,
    /// Work-items that the hardware issues together.
    pub warp: usize,
}

/// The number of work-groups in each dimension, and their size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchGeometry {
    /// Number of work-groups in each dimension.
    pub grid: [u32; 3],
    /// Work-items of a work-group in each dimension.
    pub block: [u32; 3],
}

impl LaunchGeometry {
    /// Work-groups of the size that the range gives, or of one that suits it and has at most `most`
    /// work-items.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) where the device cannot launch as many.
    pub fn of(range: &Range, most: usize, limits: &LaunchLimits) -> Result<Self> {
        let global = range.global_size();
        let block = range.local_size().unwrap_or_else(|| usual_block(range, most, limits));
        let mut grid = [0; 3];
        for (dimension, groups) in grid.iter_mut().enumerate() {
            // Most dimensions have work-groups of one: a division takes as long as the rest.
            let size = block[dimension];
            let (needed, most) = match size {
                0 | 1 => (global[dimension], limits.items),
                size => (global[dimension].div_ceil(size), limits.items / size),
            };
            *groups = needed;
            let allowed = limits.grid[dimension].min(most);
            if *groups > allowed {
                let why = format!(
                    "{range}: {groups} work-groups in dimension {dimension}, the device allows {allowed}"
                );
                return Err(Error::new(ErrorKind::InvalidSize, why)
                    .help("put the largest dimension first, or launch the kernel over parts"));
            }
        }
        let narrow = |sizes: [usize; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        Ok(Self { grid: narrow(grid), block: narrow(block) })
    }

    /// Whether there are more work-items than these in any dimension.
    pub fn is_larger_than(&self, global: [usize; 3]) -> bool {
        (0..3).any(|d| u64::from(self.grid[d]) * u64::from(self.block[d]) > global[d] as u64)
    }

    /// Work-groups for so many work-items, in one dimension.
    pub fn linear(items: usize) -> Self {
        let block = items.clamp(1, USUAL_BLOCK);
        Self { grid: [items.div_ceil(block) as u32, 1, 1], block: [block as u32, 1, 1] }
    }
}

/// A work-group of whole warps along the first dimension, if there are as many work-items, and as
/// many rows of them as the usual size allows.
fn usual_block(range: &Range, most: usize, limits: &LaunchLimits) -> [usize; 3] {
    let global = range.global_size();
    let mut left = USUAL_BLOCK.min(most).max(1);
    let mut block = [1; 3];
    let first = if range.dimensions() == 1 { left } else { limits.warp.min(left) };
    block[0] = first.min(global[0]).min(limits.block[0]);
    if range.dimensions() == 1 {
        return block;
    }
    left /= block[0].max(1);
    for dimension in 1..3 {
        // A power of two, so that the rest can be used up.
        let wanted = global[dimension].min(USUAL_BLOCK).next_power_of_two();
        let fits = wanted.min(limits.block[dimension]).min(left.max(1));
        block[dimension] = if fits.is_power_of_two() { fits } else { fits.next_power_of_two() / 2 };
        left /= block[dimension].max(1);
    }
    block
}

/// Words that kernels in the portable dialect also take: [flags](dialect::LaunchFlags), global
/// offset and size.
pub const HIDDEN_WORDS: usize = 7;

/// The bytes of all parameters, each at an address that suits any type.
#[derive(Clone, Default, Debug)]
pub struct LaunchArguments {
    words: SmallVec<[u64; 8]>,
    /// The index of each in `words`.
    starts: SmallVec<[u32; 8]>,
    /// Local memory so far, in bytes.
    local: usize,
    /// Whether each slice is followed by its length.
    has_lengths: bool,
}

impl LaunchArguments {
    /// Lays arguments out for code in a vendor's language, which takes what the kernel declares. `address`
    /// gives the address at which a view begins.
    pub fn as_declared(args: &[KernelArg], address: impl Fn(&MemoryView) -> Result<u64>) -> Result<Self> {
        let mut arguments = Self::with_capacity(args.len());
        args.iter().try_for_each(|arg| arguments.push(arg, &address))?;
        Ok(arguments)
    }

    /// Lays arguments out for the portable dialect's entry point, which also takes the length of each slice,
    /// and flags, offset and size of the launch.
    pub fn portable(
        params: &[Param],
        args: &[KernelArg],
        range: &Range,
        geometry: &LaunchGeometry,
        address: impl Fn(&MemoryView) -> Result<u64>,
    ) -> Result<Self> {
        let mut arguments = Self::with_capacity(2 * args.len() + HIDDEN_WORDS);
        arguments.has_lengths = true;
        for (param, arg) in params.iter().zip(args) {
            arguments.push(arg, &address)?;
            if let Some(len) = dialect::slice_len(param, arg) {
                arguments.push_word(len);
            }
        }
        let (size, offset) = (range.global_size(), range.offset());
        let mut flags = LaunchFlags::empty();
        flags.set(LaunchFlags::PARTIAL, geometry.is_larger_than(size));
        flags.set(LaunchFlags::OFFSET, offset != [0; 3]);
        let words = [flags.bits()].into_iter().chain(offset.into_iter().chain(size).map(|n| n as u64));
        arguments.push_bytes(bytemuck::cast_slice(&words.collect::<SmallVec<[u64; HIDDEN_WORDS]>>()));
        Ok(arguments)
    }

    /// Replaces the argument of the parameter with this index. False, and without effect, for local
    /// memory, and for another number of bytes: the sizes of the launch may depend on them.
    pub fn replace(
        &mut self,
        params: &[Param],
        index: usize,
        arg: &KernelArg,
        address: impl Fn(&MemoryView) -> Result<u64>,
    ) -> Result<bool> {
        let is_slice = |param: &&Param| !matches!(param.kind, ParamKind::Value { .. });
        let slices = if self.has_lengths { params[..index].iter().filter(is_slice).count() } else { 0 };
        let slot = index + slices;
        match arg {
            KernelArg::Local(_) => return Ok(false),
            KernelArg::Value(bytes) => return Ok(self.set_bytes(slot, bytes)),
            KernelArg::Memory(view) => self.set_bytes(slot, &address(view)?.to_ne_bytes()),
            KernelArg::Usm(pointer) => self.set_bytes(slot, &(pointer.address() as u64).to_ne_bytes()),
        };
        if self.has_lengths
            && let Some(len) = dialect::slice_len(&params[index], arg)
        {
            self.set_bytes(slot + 1, &len.to_ne_bytes());
        }
        Ok(true)
    }

    /// Whether the argument had as many words. Otherwise it stays.
    fn set_bytes(&mut self, slot: usize, bytes: &[u8]) -> bool {
        let start = self.starts[slot] as usize;
        let end = self.starts.get(slot + 1).map_or(self.words.len(), |end| *end as usize);
        let words = &mut self.words[start..end];
        let fits = words.len() == bytes.len().div_ceil(8);
        if fits {
            bytemuck::cast_slice_mut(words)[..bytes.len()].copy_from_slice(bytes);
        }
        fits
    }

    /// Tells a kernel in the portable dialect that it may be started before the one before it has ended.
    pub fn set_overlaps(&mut self) {
        if let Some(flags) = self.words.iter_mut().nth_back(HIDDEN_WORDS - 1) {
            *flags |= LaunchFlags::OVERLAPS.bits();
        }
    }

    /// Each argument in a word, of which a shorter parameter takes the low bytes.
    pub fn of_words(args: &[u64]) -> Self {
        Self { words: args.into(), starts: (0..args.len() as u32).collect(), ..Self::default() }
    }

    /// With room for so many words: most arguments take one.
    fn with_capacity(words: usize) -> Self {
        Self { words: SmallVec::with_capacity(words), ..Self::default() }
    }

    fn push(&mut self, arg: &KernelArg, address: impl Fn(&MemoryView) -> Result<u64>) -> Result<()> {
        match arg {
            KernelArg::Value(bytes) => self.push_bytes(bytes),
            KernelArg::Memory(view) => self.push_word(address(view)?),
            KernelArg::Usm(pointer) => self.push_word(pointer.address() as u64),
            KernelArg::Local(bytes) => {
                // The kernel gets the offset, a multiple of what the widest type needs.
                let start = self.local.next_multiple_of(16);
                self.local = start + bytes;
                self.push_bytes(&(start as u32).to_ne_bytes());
            }
        }
        Ok(())
    }

    fn push_word(&mut self, word: u64) {
        self.starts.push(self.words.len() as u32);
        self.words.push(word);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.len() <= size_of::<u64>() {
            let mut word = [0; size_of::<u64>()];
            word[..bytes.len()].copy_from_slice(bytes);
            return self.push_word(u64::from_ne_bytes(word));
        }
        // Vector types are aligned to 16 bytes and these words only to 8. The driver copies them.
        let start = self.words.len();
        self.starts.push(start as u32);
        self.words.resize(start + bytes.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut(&mut self.words[start..])[..bytes.len()].copy_from_slice(bytes);
    }

    /// Calls `use_it` with pointers to all arguments.
    pub fn with_pointers<R>(&self, use_it: impl FnOnce(&mut [*mut c_void]) -> R) -> R {
        const FEW: usize = 16;
        let words = self.words.as_ptr();
        let pointers = self.starts.iter().map(|&start| words.wrapping_add(start as usize).cast_mut().cast());
        if self.starts.len() > FEW {
            return use_it(&mut pointers.collect::<Vec<_>>());
        }
        let mut few = [ptr::null_mut(); FEW];
        few.iter_mut().zip(pointers).for_each(|(place, pointer)| *place = pointer);
        use_it(&mut few[..self.starts.len()])
    }

    /// Bytes of local memory that the arguments ask for, with the gaps between them.
    pub fn local(&self) -> usize {
        self.local
    }
}

/// A kernel as the program declares it.
#[derive(Debug)]
pub struct KernelDeclaration {
    /// The kernel's name in its source.
    pub name: String,
    /// Parameters, in the order of the source.
    pub params: Vec<Param>,
    /// Whether the source is in the portable dialect, where each slice is followed by its length.
    portable: bool,
    /// The work-group size that the source requires, if it does.
    required_work_group: Option<[usize; 3]>,
}

/// An argument in the order of the source. `M` is memory as the driver takes it.
#[derive(PartialEq, Eq, Debug)]
pub enum SourceArgument<'a, M> {
    /// The bytes of a value.
    Value(&'a [u8]),
    /// Memory of the device.
    Memory(M),
    /// Local memory of this many bytes.
    Local(usize),
    /// The length of the slice before it, in elements.
    Length(u64),
}

/// Memory as a driver takes it.
pub trait MemoryArgument {
    /// Returns the size, and the address of the value.
    fn value(&self) -> (usize, *const c_void);
}

/// All arguments of a launch, each with its parameter.
pub type SourceArguments<'a, M> = SmallVec<[(&'a Param, SourceArgument<'a, M>); 8]>;

impl<M: MemoryArgument> SourceArgument<'_, M> {
    /// Returns the size and the address of the value, which is null for local memory.
    pub fn value(&self) -> (usize, *const c_void) {
        match self {
            Self::Value(bytes) => (bytes.len(), bytes.as_ptr().cast()),
            Self::Memory(memory) => memory.value(),
            Self::Local(bytes) => (*bytes, ptr::null()),
            Self::Length(len) => (size_of::<u64>(), ptr::from_ref(len).cast()),
        }
    }
}

impl KernelDeclaration {
    /// The declaration of a kernel; `portable` for source in the dialect.
    pub fn new(desc: &KernelDesc<'_>, portable: bool, required_work_group: Option<[usize; 3]>) -> Self {
        Self { name: desc.name.to_owned(), params: desc.params.into(), portable, required_work_group }
    }

    /// The arguments in the order of the source. `memory` gives those that are memory or an address.
    ///
    /// # Errors
    /// Those of `memory`, with the parameter's name.
    pub fn arguments<'a, M>(
        &'a self,
        args: &'a [KernelArg],
        mut memory: impl FnMut(&'a KernelArg) -> Result<M>,
    ) -> Result<SourceArguments<'a, M>> {
        let mut all = SmallVec::new();
        for (param, arg) in self.params.iter().zip(args) {
            let (own, len) = self.argument(param, arg, &mut memory)?;
            all.push((param, own));
            if let Some(len) = len {
                all.push((param, len));
            }
        }
        Ok(all)
    }

    /// The argument of one parameter, and the length that follows it if it is a slice of the dialect.
    ///
    /// # Errors
    /// Those of `memory`, with the parameter's name.
    pub fn argument<'a, M>(
        &self,
        param: &Param,
        arg: &'a KernelArg,
        memory: impl FnOnce(&'a KernelArg) -> Result<M>,
    ) -> Result<(SourceArgument<'a, M>, Option<SourceArgument<'a, M>>)> {
        let own = match arg {
            KernelArg::Value(bytes) => SourceArgument::Value(bytes),
            KernelArg::Local(bytes) => SourceArgument::Local(*bytes),
            KernelArg::Usm(_) | KernelArg::Memory(_) => {
                SourceArgument::Memory(memory(arg).map_err(|error| self.not_accepted(param, error))?)
            }
        };
        let len = dialect::slice_len(param, arg).filter(|_| self.portable);
        Ok((own, len.map(SourceArgument::Length)))
    }

    /// The place of a parameter's argument in the order of the source.
    pub fn place(&self, index: usize) -> usize {
        let is_slice = |param: &&Param| !matches!(param.kind, ParamKind::Value { .. });
        index + if self.portable { self.params[..index].iter().filter(is_slice).count() } else { 0 }
    }

    /// The error for an argument that the driver or the backend refuses.
    pub fn not_accepted(&self, param: &Param, error: Error) -> Error {
        let why = format!("kernel '{}': argument '{}' is not accepted", self.name, param.name);
        Error::new(error.kind(), why).caused_by(error)
    }

    /// The work-group size for a launch: the range's or else the source's; `None` leaves it to the
    /// device.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) for another size than the source requires, and for one
    /// that does not divide the global size.
    pub fn local_size(&self, range: &Range) -> Result<Option<[usize; 3]>> {
        let Some(required) = self.required_work_group else { return Ok(range.local_size()) };
        let local = range.local_size().unwrap_or(required);
        if local != required || !divides(local, range.global_size()) {
            let why =
                format!("the kernel's source demands work-groups of {required:?}, not those of {range}");
            return Err(Error::new(ErrorKind::InvalidSize, why)
                .help("leave the work-group size to the device, and make the global size a multiple of it"));
        }
        Ok(Some(local))
    }
}

/// The name of a kernel in its program, for a driver.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for a NUL in the name.
pub fn kernel_symbol(name: &str) -> Result<CString> {
    CString::new(name)
        .map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("kernel {name:?}: a NUL in the name")))
}

/// The error for a kernel without a variant that the device takes. The backend adds what it takes.
pub fn no_variant(desc: &KernelDesc<'_>) -> Error {
    let (name, found) = (desc.name, desc.sources.names());
    let why = format!("kernel '{name}' has no variant for this device, only {found:?}");
    Error::new(ErrorKind::FeatureNotSupported, why)
}

/// Whether work-groups of this size cover the global size.
pub fn divides(local: [usize; 3], global: [usize; 3]) -> bool {
    global.iter().zip(local).all(|(global, local)| local > 0 && global % local == 0)
}

#[cfg(test)]
#[expect(unsafe_code, reason = "makes a pointer that nothing follows")]
mod tests {
    use super::*;
    use crate::{AccessMode, KernelSources, UsmPointer};

    const LIMITS: LaunchLimits = LaunchLimits {
        block: [1024, 1024, 64],
        grid: [(1 << 31) - 1, 65_535, 65_535],
        items: usize::MAX,
        warp: 32,
    };

    fn geometry(range: &Range, most: usize) -> Result<([u32; 3], [u32; 3])> {
        LaunchGeometry::of(range, most, &LIMITS).map(|LaunchGeometry { grid, block }| (grid, block))
    }

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
                let (grid, block) = geometry(&range, most).unwrap_or_default();
                if most < 256 && grid == [0; 3] {
                    continue;
                }
                assert!(block.iter().product::<u32>() as usize <= most.min(256), "{range} {block:?}");
                for dimension in 0..3 {
                    let covered = grid[dimension] as usize * block[dimension] as usize;
                    assert!(covered >= range.global_size()[dimension], "{range} {grid:?} {block:?}");
                    assert!(block[dimension] as usize <= LIMITS.block[dimension]);
                }
            }
        }
        let (_, block) = geometry(&Range::linear(1 << 20), 1024).unwrap();
        assert_eq!(block, [256, 1, 1]);
        let (grid, block) = geometry(&Range::linear(5), 1024).unwrap();
        assert_eq!((grid, block), ([1, 1, 1], [5, 1, 1]));
        let (_, block) = geometry(&Range::new([640, 480]), 1024).unwrap();
        assert_eq!(block, [32, 8, 1]);
        let wide = LaunchGeometry::of(&Range::new([640, 480]), 1024, &LaunchLimits { warp: 64, ..LIMITS });
        assert_eq!(wide.unwrap().block, [64, 4, 1]);
    }

    #[test]
    fn a_given_work_group_is_kept_and_too_many_are_refused() {
        let (grid, block) = geometry(&Range::new([8, 6]).local([4, 2]), 1024).unwrap();
        assert_eq!((grid, block), ([2, 3, 1], [4, 2, 1]));
        for range in
            [Range::new([1, 70_000]).local([1, 1]), Range::new([1, usize::MAX]), Range::linear(1 << 63)]
        {
            assert_eq!(geometry(&range, 1024).unwrap_err().kind(), ErrorKind::InvalidSize, "{range}");
        }
    }

    #[test]
    fn whole_work_groups_count_as_work_items() {
        let limits = LaunchLimits { items: u32::MAX as usize, ..LIMITS };
        let launch = |items| LaunchGeometry::of(&Range::linear(items), 1024, &limits);
        assert_eq!(launch((1 << 32) - 256).unwrap().grid, [(1 << 24) - 1, 1, 1]);
        for items in [(1 << 32) - 255, 1 << 32, 1 << 40] {
            assert_eq!(launch(items).unwrap_err().kind(), ErrorKind::InvalidSize, "{items}");
        }
    }

    #[test]
    fn linear_work_groups_cover_all_work_items() {
        for items in [1, 5, 256, 257, 1 << 19] {
            let LaunchGeometry { grid, block } = LaunchGeometry::linear(items);
            assert!((grid[0] * block[0]) as usize >= items && block[0] <= 256);
        }
    }

    fn address(view: &MemoryView) -> Result<u64> {
        panic!("there is no memory: {view:?}")
    }

    #[test]
    fn arguments_lie_apart_and_keep_their_bytes() {
        let values: [&[u8]; 4] = [&[1, 2, 3], &[4; 8], &[5; 17], &[6]];
        let args = values.map(|value| KernelArg::Value(value.into()));
        let arguments = LaunchArguments::as_declared(&args, address).unwrap();
        let bytes: &[u8] = bytemuck::cast_slice(&arguments.words);
        for (value, &start) in values.iter().zip(&arguments.starts) {
            assert_eq!(&bytes[8 * start as usize..][..value.len()], *value);
        }
        assert_eq!(arguments.with_pointers(|pointers| pointers.len()), 4);
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
        let range = Range::new([4, 5]).starting_at([1, 2]);
        let geometry = LaunchGeometry { grid: [1, 5, 1], block: [4, 1, 1] };
        let mut arguments =
            LaunchArguments::portable(&params(), &args(), &range, &geometry, address).unwrap();
        assert_eq!(arguments.words[..], [7, 0x1000, 3, 0, 5, 4, 1, 2, 0, 4, 5, 1]);
        arguments.set_overlaps();
        assert_eq!(arguments.words[5], 5);
        let geometry = LaunchGeometry { block: [8, 1, 1], ..geometry };
        let arguments = LaunchArguments::portable(&params(), &args(), &range, &geometry, address).unwrap();
        assert_eq!(arguments.words[5], 6);
        assert_eq!(arguments.starts[..], [0, 1, 2, 3, 4, 5]);
        assert_eq!(arguments.local(), 10);
    }

    #[test]
    fn other_code_gets_the_declared_parameters_only() {
        let arguments = LaunchArguments::as_declared(&args(), address).unwrap();
        assert_eq!((&arguments.words[..], &arguments.starts[..]), (&[7, 0x1000, 0][..], &[0, 1, 2][..]));
    }

    #[test]
    fn local_memory_begins_at_multiples_of_16() {
        let args = [4, 20, 8].map(KernelArg::Local);
        let arguments = LaunchArguments::as_declared(&args, address).unwrap();
        let starts: Vec<u64> = arguments.words.iter().map(|word| word & u64::from(u32::MAX)).collect();
        assert_eq!((starts, arguments.local()), (vec![0, 16, 48], 56));
    }

    struct FakeAddress;

    impl MemoryArgument for FakeAddress {
        fn value(&self) -> (usize, *const c_void) {
            (8, ptr::null())
        }
    }

    fn declared(portable: bool, required: Option<[usize; 3]>) -> KernelDeclaration {
        let param = |name: &'static str, kind| Param { name: name.into(), kind };
        let params =
            [param("a", ParamKind::Value { size: 4 }), param("tile", ParamKind::Local { element_size: 4 })];
        let sources = KernelSources::new();
        let desc = KernelDesc { name: "k", params: &params, sources: &sources };
        KernelDeclaration::new(&desc, portable, required)
    }

    #[test]
    fn lengths_follow_slices_in_the_dialect_only() {
        let args = [KernelArg::Value([1, 2, 3, 4].as_slice().into()), KernelArg::Local(64)];
        let sizes = |portable| {
            let kernel = declared(portable, None);
            let all = kernel.arguments(&args, |_| Ok(FakeAddress)).unwrap();
            all.iter().map(|(param, arg)| (param.name.to_string(), arg.value().0)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(false), [("a".into(), 4), ("tile".into(), 64)]);
        assert_eq!(sizes(true), [("a".into(), 4), ("tile".into(), 64), ("tile".into(), 8)]);
        assert_eq!([true, false].map(|portable| declared(portable, None).place(1)), [1, 1]);
        let local = SourceArgument::<FakeAddress>::Local(64);
        assert!(local.value().1.is_null());
    }

    #[test]
    fn work_groups_are_those_that_the_source_requires() {
        let free = declared(false, None);
        assert_eq!(free.local_size(&Range::linear(10)).unwrap(), None);
        assert_eq!(free.local_size(&Range::linear(10).local([5, 1, 1])).unwrap(), Some([5, 1, 1]));
        let bound = declared(false, Some([4, 1, 1]));
        assert_eq!(bound.local_size(&Range::linear(8)).unwrap(), Some([4, 1, 1]));
        for range in [Range::linear(8).local([2, 1, 1]), Range::linear(10)] {
            assert_eq!(bound.local_size(&range).unwrap_err().kind(), ErrorKind::InvalidSize);
        }
    }
}

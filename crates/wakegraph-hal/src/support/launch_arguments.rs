//! The bytes of a launch's arguments, as drivers take them that want a pointer to each.

use std::ffi::c_void;
use std::ptr;

use smallvec::SmallVec;

use super::launch_geometry::LaunchGeometry;
use crate::dialect::{self, LaunchFlags};
use crate::{KernelArg, MemoryView, Param, ParamKind, Range, Result};

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
    /// For code in a vendor's language, which takes what the kernel declares. `address` gives the
    /// address at which a view begins.
    pub fn as_declared(args: &[KernelArg], address: impl Fn(&MemoryView) -> Result<u64>) -> Result<Self> {
        let mut arguments = Self::with_capacity(args.len());
        args.iter().try_for_each(|arg| arguments.push(arg, &address))?;
        Ok(arguments)
    }

    /// For the portable dialect's entry point, which also takes the length of each slice, and flags,
    /// offset and size of the launch.
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
                arguments.push_bytes(&len.to_ne_bytes());
            }
        }
        let (size, offset) = (range.global_size(), range.global_offset());
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
            KernelArg::Memory(view) => self.push_bytes(&address(view)?.to_ne_bytes()),
            KernelArg::Usm(pointer) => self.push_bytes(&(pointer.address() as u64).to_ne_bytes()),
            KernelArg::Local(bytes) => {
                // The kernel gets the offset, a multiple of what the widest type needs.
                let start = self.local.next_multiple_of(16);
                self.local = start + bytes;
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

#[cfg(test)]
#[expect(unsafe_code, reason = "makes a pointer that nothing follows")]
mod tests {
    use super::*;
    use crate::{AccessMode, ParamKind, UsmPointer};

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
        let range = Range::new([4, 5]).offset([1, 2]);
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
}

//! Memory of a driver, which the host uses at its address or the driver copies; zeroed memory on the heap,
//! for backends whose memory is the host's; and copies and fills as drivers take them.
//!
//! Copies and fills are few large pieces where a driver takes them, and a piece for each row where it does
//! not; boxes, which are rows of equal length in slices of equal height; rows of equal elements of 1, 2 or 4
//! bytes in consecutive memory. Drivers copy boxes whose slices are a whole number of rows apart. The
//! contract allows any pitch.
#![expect(unsafe_code, reason = "allocates, and accesses memory that the caller orders")]

use super::errors::DeviceContext;
use super::errors::{check_range, empty_allocation, foreign};
use crate::{
    Command, DeviceId, Error, ErrorKind, Memory, MemoryDesc, MemoryKind, MemoryView, Pitch, Rect, ResourceId,
    Result, UsmPointer,
};
use std::alloc::{self, Layout};
use std::ffi::c_void;
use std::fmt::Debug;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of the driver, which is freed when dropped.
pub trait DriverAllocation: Debug + Send + Sync + Sized + 'static {
    /// The context that its device shares.
    type Context: DeviceContext;

    /// Memory of a length that is not 0, zeroed unless the description says otherwise.
    fn allocate(context: &Arc<Self::Context>, desc: &MemoryDesc) -> Result<Self>;

    /// The context that it was allocated in.
    fn context(&self) -> &Arc<Self::Context>;

    /// Address of the bytes for the host, if it can access them.
    fn host_start(&self) -> Option<NonNull<u8>>;

    /// The address in the memory of the device, if kernels can use one.
    fn usm_address(&self) -> Option<usize>;

    /// The driver's object.
    fn native_handle(&self) -> Option<NonNull<c_void>> {
        None
    }

    /// Has the driver write bytes that the host cannot access, and returns when that is done. The range has
    /// been checked.
    ///
    /// # Safety
    /// As for [`Memory::write`].
    unsafe fn write_by_driver(&self, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Has the driver read such bytes, likewise.
    ///
    /// # Safety
    /// As for [`Memory::read`].
    unsafe fn read_by_driver(&self, offset: usize, bytes: &mut [u8]) -> Result<()>;
}

/// One allocation.
#[derive(Debug)]
pub struct DriverMemory<A> {
    resource: ResourceId,
    kind: MemoryKind,
    len: usize,
    allocation: A,
}

impl<A> Deref for DriverMemory<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.allocation
    }
}

impl<A: DriverAllocation> DriverMemory<A> {
    /// The memory that an allocation is.
    pub fn new(desc: &MemoryDesc, allocation: A) -> Self {
        Self { resource: ResourceId::unique(), kind: desc.kind, len: desc.len, allocation }
    }

    /// Allocates memory.
    pub fn allocate(context: &Arc<A::Context>, desc: &MemoryDesc) -> Result<Self> {
        if desc.len == 0 {
            return Err(empty_allocation());
        }
        Ok(Self::new(desc, A::allocate(context, desc)?))
    }

    /// The memory behind a view, if this backend made it.
    pub fn of(view: &MemoryView) -> Result<&Self> {
        view.memory().downcast_ref().ok_or_else(|| foreign("memory"))
    }
}

impl<A: DriverAllocation> Memory for DriverMemory<A> {
    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.allocation.context().id()
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.allocation.host_start()
    }

    fn native_handle(&self) -> Option<NonNull<c_void>> {
        self.allocation.native_handle()
    }

    fn usm(&self) -> Option<UsmPointer> {
        let address = self.allocation.usm_address()?;
        // SAFETY: these bytes are valid on the device, and where the host can access them there, too. Callers
        // that enqueue the pointer keep the memory alive (`CommandBuffer::enqueue`).
        Some(unsafe { UsmPointer::new(address, self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        check_range(offset, bytes.len(), self.len)?;
        match self.allocation.host_start() {
            _ if bytes.is_empty() => Ok(()),
            Some(start) => {
                // SAFETY: the offset is inside the allocation.
                let to = unsafe { start.add(offset) };
                // SAFETY: the range was checked; the caller vouched that nothing else accesses the bytes.
                unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
                Ok(())
            }
            // SAFETY: passed on to the caller.
            None => unsafe { self.allocation.write_by_driver(offset, bytes) },
        }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check_range(offset, bytes.len(), self.len)?;
        match self.allocation.host_start() {
            _ if bytes.is_empty() => Ok(()),
            Some(start) => {
                // SAFETY: the offset is inside the allocation.
                let from = unsafe { start.add(offset) };
                // SAFETY: the range was checked; the caller vouched that nothing writes the bytes.
                unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
                Ok(())
            }
            // SAFETY: passed on to the caller.
            None => unsafe { self.allocation.read_by_driver(offset, bytes) },
        }
    }
}

/// Alignment of the first byte.
const ALIGN: usize = 64;

/// The alignment to ask the allocator for: one that it gives to every block, so that it can take
/// untouched, already zeroed pages from the system instead of clearing memory page by page.
const ALLOCATOR_ALIGN: usize = 16;

/// A zeroed block.
#[derive(Debug)]
pub struct HeapBlock {
    /// First byte, aligned.
    start: NonNull<u8>,
    len: usize,
    /// The block to give back to the allocator.
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block belongs to this object alone, and the methods that touch it are `unsafe` with
// the ordering of accesses as their contract.
unsafe impl Send for HeapBlock {}
// SAFETY: as for `Send`.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    /// The largest length that a block can have at all.
    pub const MAX_LEN: usize = isize::MAX as usize - 2 * ALIGN;

    /// # Errors
    /// [`OutOfMemory`](ErrorKind::OutOfMemory); [`InvalidSize`](ErrorKind::InvalidSize) for no bytes.
    pub fn zeroed(len: usize) -> Result<Self> {
        if len == 0 {
            return Err(empty_allocation());
        }
        let out_of_memory = || {
            Error::new(ErrorKind::OutOfMemory, format!("{len} bytes cannot be allocated"))
                .help("free memory, or work in smaller pieces")
        };
        let padded = len.checked_add(ALIGN - ALLOCATOR_ALIGN).ok_or_else(out_of_memory)?;
        let layout = Layout::from_size_align(padded, ALLOCATOR_ALIGN).map_err(|_| out_of_memory())?;
        // SAFETY: the layout's size is not 0.
        let block = unsafe { alloc::alloc_zeroed(layout) };
        let block = NonNull::new(block).ok_or_else(out_of_memory)?;
        let gap = block.as_ptr().align_offset(ALIGN);
        // SAFETY: the block is aligned to 16 bytes, so the gap is at most 48, which is what the
        // padding added.
        let start = unsafe { block.add(gap) };
        Ok(Self { start, len, block, layout })
    }

    /// The first byte, aligned to 64 bytes.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a block of no bytes is a block like any other")]
    pub fn len(&self) -> usize {
        self.len
    }

    fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        check_range(offset, len, self.len)?;
        // SAFETY: the offset is inside the block or one past its end.
        Ok(unsafe { self.start.add(offset) })
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) beyond the end.
    ///
    /// # Safety
    /// Nothing else accesses these bytes of the block.
    pub unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.range(offset, bytes.len())?;
        // SAFETY: `range` checked the bounds; the caller vouched that nothing else touches the bytes.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Reads bytes at an offset.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) beyond the end.
    ///
    /// # Safety
    /// Nothing writes these bytes of the block.
    pub unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.range(offset, bytes.len())?;
        // SAFETY: `range` checked the bounds; the caller vouched that nothing writes the bytes.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with this layout, given back once.
        unsafe { alloc::dealloc(self.block.as_ptr(), self.layout) }
    }
}

/// Start of one side of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyAddress {
    /// The address, for pointers.
    pub address: u64,
    /// Whether it is host memory that the driver has not allocated.
    pub is_foreign: bool,
}

/// A copy of a box between two addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyBox {
    /// Source of the copy.
    pub from: BoxSide,
    /// Destination of the copy.
    pub to: BoxSide,
    /// Bytes in a row.
    pub width: usize,
    /// Rows in a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// One side of a copy: its start, and the distances between its rows and slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoxSide {
    /// First byte.
    pub start: CopyAddress,
    /// Bytes from one row to the next.
    pub pitch: usize,
    /// Rows from one slice to the next.
    pub rows: usize,
}

/// The largest pitch that every device takes.
const LARGEST_PITCH: usize = (1 << 31) - 1;

impl CopyBox {
    /// A copy of `len` bytes.
    pub fn row(from: CopyAddress, to: CopyAddress, len: usize) -> Self {
        let side = |start| BoxSide { start, pitch: len, rows: 1 };
        Self { from: side(from), to: side(to), width: len, height: 1, depth: 1 }
    }

    /// The boxes of a rectangular copy: one where the driver `takes` it whole, else one for each
    /// slice or row.
    pub fn of_rect(
        rect: Rect,
        (from, from_pitch): (CopyAddress, Pitch),
        (to, to_pitch): (CopyAddress, Pitch),
        takes: impl Fn(&Self) -> bool,
    ) -> Vec<Self> {
        let whole = |rect: Rect, from_pitch, to_pitch| {
            let (from, to) = BoxSide::of(rect, from, from_pitch).zip(BoxSide::of(rect, to, to_pitch))?;
            let whole = Self { from, to, width: rect.width, height: rect.height, depth: rect.depth };
            takes(&whole).then_some(whole)
        };
        let row = |from_offset, to_offset, len| Self::row(from.at(from_offset), to.at(to_offset), len);
        rect_pieces(rect, from_pitch, to_pitch, &whole, &row)
    }

    /// The boxes of a copy command; none for others. `address` gives where memory begins for the
    /// driver.
    pub fn of_command(
        command: &Command,
        address: impl Fn(&MemoryView) -> Result<CopyAddress>,
        takes: impl Fn(&Self) -> bool,
    ) -> Result<Vec<Self>> {
        Ok(match command {
            Command::UsmCopy { src, dst, len } => {
                let start = |address| CopyAddress { address, is_foreign: false };
                vec![Self::row(start(src.address() as u64), start(dst.address() as u64), *len)]
            }
            Command::BufferCopy { src, dst }
            | Command::BufferRead { src, host: dst }
            | Command::BufferWrite { host: src, dst } => {
                vec![Self::row(address(src)?, address(dst)?, src.len())]
            }
            Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
            | Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
            | Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch } => {
                Self::of_rect(*rect, (address(src)?, *src_pitch), (address(dst)?, *dst_pitch), takes)
            }
            _ => Vec::new(),
        })
    }

    /// Cuts a single row into rows of at most `most` bytes.
    pub fn cut(self, most: usize) -> Vec<Self> {
        let (from, to) = (self.from.start, self.to.start);
        match self.is_row() {
            true => (0..self.width)
                .step_by(most)
                .map(|at| Self::row(from.at(at), to.at(at), most.min(self.width - at)))
                .collect(),
            false => vec![self],
        }
    }

    /// Whether it is a single row.
    pub fn is_row(&self) -> bool {
        self.height == 1 && self.depth == 1
    }

    /// The number of rows in a slice of each side, as drivers want it: that of the copy where there
    /// is one slice.
    pub fn slice_rows(&self) -> [usize; 2] {
        [self.from, self.to].map(|side| if self.depth == 1 { self.height } else { side.rows })
    }
}

impl CopyAddress {
    fn at(self, offset: usize) -> Self {
        Self { address: self.address + offset as u64, ..self }
    }
}

impl BoxSide {
    /// One side of a rectangle of several rows, if its pitch is one that the driver takes.
    fn of(rect: Rect, start: CopyAddress, pitch: Pitch) -> Option<Self> {
        let rows = match rect.depth {
            1 => rect.height,
            _ if pitch.slice.is_multiple_of(pitch.row) => pitch.slice / pitch.row,
            _ => return None,
        };
        let fits = pitch.row >= rect.width && pitch.row <= LARGEST_PITCH && rows >= rect.height;
        fits.then_some(Self { start: start.at(pitch.offset), pitch: pitch.row, rows })
    }
}

/// The pieces of a rectangular copy.
///
/// `whole` gives the piece that copies all of a rectangle, where the driver takes it, and `row` the
/// one that copies consecutive bytes, given the two offsets and the length.
pub fn rect_pieces<T>(
    rect: Rect,
    from: Pitch,
    to: Pitch,
    whole: &impl Fn(Rect, Pitch, Pitch) -> Option<T>,
    row: &impl Fn(usize, usize, usize) -> T,
) -> Vec<T> {
    if rect.height == 1 && rect.depth == 1 {
        return vec![row(from.offset, to.offset, rect.width)];
    }
    if rect.height == 1 {
        // Slices of one row each are the rows of one slice.
        let flat = Rect { height: rect.depth, depth: 1, ..rect };
        let rows = |pitch: Pitch| Pitch { row: pitch.slice, ..pitch };
        return rect_pieces(flat, rows(from), rows(to), whole, row);
    }
    if let Some(piece) = whole(rect, from, to) {
        return vec![piece];
    }
    if rect.depth > 1 {
        let slice = Rect { depth: 1, ..rect };
        let at = |pitch: Pitch, z: usize| Pitch { offset: pitch.offset + z * pitch.slice, ..pitch };
        let slices = (0..rect.depth).flat_map(|z| rect_pieces(slice, at(from, z), at(to, z), whole, row));
        return slices.collect();
    }
    rect.rows(from).zip(rect.rows(to)).map(|(from, to)| row(from, to, rect.width)).collect()
}

/// The shortest element that repeats to the same bytes as `pattern` does.
pub fn shortest_element(pattern: &[u8]) -> &[u8] {
    let repeats = |&len: &usize| {
        pattern.len().is_multiple_of(len) && pattern.chunks(len).all(|part| part == &pattern[..len])
    };
    &pattern[..(1..pattern.len()).find(repeats).unwrap_or(pattern.len())]
}

/// The element with which a driver's own fill writes `pattern` over `len` bytes from `start` on: as
/// long as a power of two, at most `longest`, and a divisor of `start` and `len`. None where the
/// driver cannot do that.
pub fn fill_element(pattern: &[u8], start: u64, len: usize, longest: usize) -> Option<&[u8]> {
    let element = shortest_element(pattern);
    let size = element.len();
    let fits = size.is_power_of_two() && size <= longest;
    (fits && start.is_multiple_of(size as u64) && len.is_multiple_of(size)).then_some(element)
}

/// Copies that fill `len` bytes by copying what is filled already, when the first `filled` bytes are:
/// the offset and the length of each copy, whose source is the beginning. Few large copies.
pub fn doublings(mut filled: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let (at, more) = (filled, filled.min(len - filled));
        filled += more;
        (more > 0).then_some((at, more))
    })
}

/// Elements to set in consecutive memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillRow {
    /// First byte.
    pub address: u64,
    /// The value of each element.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements.
    pub count: usize,
}

impl FillRow {
    /// A fill that the driver can do: of a pattern that repeats every 1, 2 or 4 bytes, to which the
    /// memory is aligned.
    pub fn of(address: u64, len: usize, pattern: &[u8]) -> Option<Self> {
        let element = fill_element(pattern, address, len, 4)?;
        let value = match *element {
            [a] => u32::from(a),
            [a, b] => u32::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
            _ => return None,
        };
        Some(Self { address, value, element: element.len() as u32, count: len / element.len() })
    }

    /// The four bytes that repeat. The byte with index `i` is set at the addresses that leave a
    /// remainder of `i` when divided by 4.
    pub fn word(&self) -> u32 {
        match self.element {
            1 => self.value * 0x0101_0101,
            2 => self.value * 0x0001_0001,
            _ => self.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_and_aligned() {
        for len in [1, 7, 64, 4097, 1 << 20] {
            let block = HeapBlock::zeroed(len).unwrap();
            assert_eq!((block.start().as_ptr() as usize % ALIGN, block.len()), (0, len));
            let mut bytes = vec![1; len];
            // SAFETY: nothing else uses the memory.
            unsafe { block.read(0, &mut bytes) }.unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends when an allocation is too large")]
    fn absurd_sizes_are_errors() {
        assert_eq!(HeapBlock::zeroed(0).unwrap_err().kind(), ErrorKind::InvalidSize);
        for len in [usize::MAX, isize::MAX as usize, HeapBlock::MAX_LEN] {
            assert_eq!(HeapBlock::zeroed(len).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn reads_and_writes_stay_inside() {
        let block = HeapBlock::zeroed(10).unwrap();
        let mut bytes = [0; 3];
        // SAFETY: nothing else uses the memory.
        unsafe { block.write(7, &[1, 2, 3]) }.unwrap();
        // SAFETY: as above.
        unsafe { block.read(7, &mut bytes) }.unwrap();
        assert_eq!(bytes, [1, 2, 3]);
        for offset in [8, 11, usize::MAX] {
            // SAFETY: as above.
            let error = unsafe { block.read(offset, &mut bytes) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize);
        }
    }
}

#[cfg(test)]
mod copy_tests {
    use super::*;

    fn start(address: u64) -> CopyAddress {
        CopyAddress { address, is_foreign: false }
    }

    /// Every byte that the boxes move, as pairs of addresses.
    fn bytes(boxes: &[CopyBox]) -> Vec<(u64, u64)> {
        let mut moved = Vec::new();
        for shape in boxes {
            for (z, y) in (0..shape.depth).flat_map(|z| (0..shape.height).map(move |y| (z, y))) {
                let at = |side: BoxSide| side.start.address + (side.pitch * (y + side.rows * z)) as u64;
                let (from, to) = (at(shape.from), at(shape.to));
                moved.extend((0..shape.width as u64).map(|x| (from + x, to + x)));
            }
        }
        moved.sort_unstable();
        moved
    }

    #[test]
    fn every_layout_moves_the_same_bytes() {
        let pitches = [
            Pitch { offset: 0, row: 3, slice: 6 },
            Pitch { offset: 5, row: 4, slice: 16 },
            Pitch { offset: 7, row: 4, slice: 9 },
            Pitch { offset: 2, row: 5, slice: 8 },
            Pitch { offset: 100, row: 10, slice: 23 },
            Pitch { offset: 1, row: 1 << 40, slice: 1 << 44 },
        ];
        for (width, height, depth) in [(3, 2, 2), (3, 1, 2), (3, 2, 1), (3, 1, 1), (1, 2, 3)] {
            let rect = Rect { width, height, depth };
            for (from, to) in pitches.iter().flat_map(|from| pitches.iter().map(move |to| (*from, *to))) {
                let rows = rect.rows(from).zip(rect.rows(to));
                let mut expected: Vec<_> = rows
                    .flat_map(|(from, to)| {
                        (0..width as u64).map(move |x| (1000 + from as u64 + x, 9000 + to as u64 + x))
                    })
                    .collect();
                expected.sort_unstable();
                let boxes = CopyBox::of_rect(rect, (start(1000), from), (start(9000), to), |_| true);
                assert_eq!(bytes(&boxes), expected, "{rect:?} {from:?} {to:?}");
                for shape in boxes {
                    for side in [shape.from, shape.to] {
                        assert!(side.pitch >= shape.width && side.rows >= shape.height, "{shape:?}");
                        assert!(shape.height == 1 || side.pitch <= LARGEST_PITCH, "{shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_in_parts_moves_the_same_bytes() {
        for (len, parts) in [(1, 1), (4, 1), (5, 2), (11, 3)] {
            let row = CopyBox::row(start(1000), start(9000), len);
            let cut = row.cut(4);
            assert_eq!((bytes(&cut), cut.len()), (bytes(&[row]), parts));
        }
        let rect = Rect { width: 8, height: 2, depth: 1 };
        let pitch = Pitch { offset: 0, row: 9, slice: 18 };
        let boxes = CopyBox::of_rect(rect, (start(0), pitch), (start(99), pitch), |_| true);
        assert_eq!(boxes[0].cut(4), boxes);
    }

    #[test]
    fn a_rectangle_that_the_driver_takes_is_one_box() {
        let rect = Rect { width: 3, height: 2, depth: 2 };
        let dense = (start(0), Pitch { offset: 0, row: 3, slice: 6 });
        let boxes = |rect, offset, row, slice| {
            CopyBox::of_rect(rect, dense, (start(0), Pitch { offset, row, slice }), |_| true).len()
        };
        assert_eq!(boxes(rect, 17, 5, 15), 1);
        assert_eq!(boxes(rect, 17, 5, 13), 2, "one per slice");
        assert_eq!(boxes(Rect { width: 3, height: 1, depth: 4 }, 17, 0, 13), 1);
    }

    /// A piece, and where it begins on both sides.
    type Piece = (Rect, Pitch, Pitch);

    fn cut(rect: Rect, from: Pitch, to: Pitch, takes: impl Fn(Piece) -> bool) -> Vec<Piece> {
        let whole = |rect, from, to| takes((rect, from, to)).then_some((rect, from, to));
        let row = |from, to, width| {
            let pitch = |offset| Pitch { offset, row: width, slice: width };
            (Rect { width, height: 1, depth: 1 }, pitch(from), pitch(to))
        };
        rect_pieces(rect, from, to, &whole, &row)
    }

    /// Every byte that the pieces move, as pairs of offsets.
    fn offsets(pieces: &[Piece]) -> Vec<(usize, usize)> {
        let mut moved = Vec::new();
        for &(rect, from, to) in pieces {
            let rows = rect.rows(from).zip(rect.rows(to));
            moved.extend(rows.flat_map(|(from, to)| (0..rect.width).map(move |x| (from + x, to + x))));
        }
        moved.sort_unstable();
        moved
    }

    #[test]
    fn all_ways_to_cut_a_rectangle_move_the_same_bytes() {
        let pitches = [
            Pitch { offset: 0, row: 3, slice: 6 },
            Pitch { offset: 5, row: 4, slice: 16 },
            Pitch { offset: 7, row: 4, slice: 9 },
            Pitch { offset: 100, row: 10, slice: 23 },
            Pitch { offset: 1, row: 1 << 40, slice: 1 << 44 },
        ];
        for (width, height, depth) in [(3, 2, 2), (3, 1, 2), (3, 2, 1), (3, 1, 1), (1, 2, 3)] {
            let rect = Rect { width, height, depth };
            for (from, to) in pitches.iter().flat_map(|from| pitches.iter().map(move |to| (*from, *to))) {
                let expected = offsets(&[(rect, from, to)]);
                let rows = cut(rect, from, to, |_| false);
                assert_eq!(rows.len(), height * depth);
                assert_eq!(offsets(&rows), expected, "{rect:?} {from:?} {to:?}");
                let slices = cut(rect, from, to, |(rect, ..)| rect.depth == 1);
                assert_eq!(offsets(&slices), expected, "{rect:?} {from:?} {to:?}");
                let even = cut(rect, from, to, |(_, from, _)| from.offset % 2 == 0);
                assert_eq!(offsets(&even), expected, "{rect:?} {from:?} {to:?}");
            }
        }
    }

    #[test]
    fn a_rectangle_is_cut_no_further_than_needed() {
        let pitch = Pitch { offset: 0, row: 4, slice: 9 };
        let rect = Rect { width: 3, height: 2, depth: 2 };
        assert_eq!(cut(rect, pitch, pitch, |_| true).len(), 1);
        assert_eq!(cut(rect, pitch, pitch, |(rect, ..)| rect.depth == 1).len(), 2);
        let one_slice_fits = |(rect, from, _): Piece| rect.depth == 1 && from.offset == 0;
        assert_eq!(cut(rect, pitch, pitch, one_slice_fits).len(), 3);
        let rows = Rect { height: 1, ..rect };
        assert_eq!(cut(rows, pitch, pitch, |(rect, ..)| rect.depth == 1).len(), 1, "the rows of one slice");
    }

    #[test]
    fn the_shortest_element_divides_the_pattern() {
        for (pattern, expected) in
            [(&[5u8][..], 1), (&[5, 5, 5], 1), (&[1, 2, 1], 3), (&[1, 2, 1, 2], 2), (&[1, 1, 2, 1, 1, 2], 3)]
        {
            assert_eq!(shortest_element(pattern).len(), expected, "{pattern:?}");
        }
    }

    #[test]
    fn an_element_for_the_driver_is_aligned_and_not_too_long() {
        assert_eq!(fill_element(&[7, 7, 7], 1, 9, 4), Some(&[7][..]));
        assert_eq!(fill_element(&[1, 2, 1, 2], 2, 8, 4), Some(&[1, 2][..]));
        assert_eq!(fill_element(&[1, 2], 1, 8, 4), None, "not aligned");
        assert_eq!(fill_element(&[1, 2, 3, 4], 2, 8, 4), None, "not aligned");
        assert_eq!(fill_element(&[1, 2, 3], 0, 6, 4), None, "no power of two");
        assert_eq!(fill_element(&[1, 2, 3, 4, 5, 6, 7, 8], 0, 16, 4), None, "too long");
        assert_eq!(fill_element(&[1, 2, 3, 4, 5, 6, 7, 8], 0, 16, 8).map(<[_]>::len), Some(8));
    }

    #[test]
    fn doublings_cover_everything_once() {
        assert_eq!(doublings(3, 20).collect::<Vec<_>>(), [(3, 3), (6, 6), (12, 8)]);
        assert_eq!(doublings(5, 5).count(), 0);
    }

    #[test]
    fn fills_use_the_shortest_element() {
        let fill = |address, value, element, count| Some(FillRow { address, value, element, count });
        assert_eq!(FillRow::of(1, 6, &[7, 7]), fill(1, 7, 1, 6));
        let short = u32::from(u16::from_ne_bytes([1, 2]));
        assert_eq!(FillRow::of(2, 8, &[1, 2, 1, 2]), fill(2, short, 2, 4));
        let word = u32::from_ne_bytes([1, 2, 3, 4]);
        assert_eq!(FillRow::of(4, 8, &[1, 2, 3, 4]), fill(4, word, 4, 2));
        assert_eq!(FillRow::of(2, 8, &[1, 2, 3, 4]), None, "not aligned");
        assert_eq!(FillRow::of(0, 16, &[1, 2, 3, 4, 5, 6, 7, 8]), None, "too long");
    }

    #[test]
    fn the_repeated_word_holds_the_byte_of_each_address() {
        for (address, pattern) in [(5, &[9u8][..]), (6, &[1, 2]), (8, &[1, 2, 3, 4]), (4, &[0xFF; 4])] {
            let len = 8;
            let word = FillRow::of(address, len, pattern).unwrap().word().to_le_bytes();
            let seen: Vec<u8> = (address..).take(len).map(|at| word[at as usize % 4]).collect();
            let expected: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
            assert_eq!(seen, expected);
        }
    }
}

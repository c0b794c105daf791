//! Copies and fills in the form that the driver takes.
//!
//! The driver copies boxes whose slices are a whole number of rows apart, and sets elements of 1, 2
//! or 4 bytes. The contract allows any pitch, and a pattern of any length.

use std::ffi::c_void;
use std::ptr;

use super::sys::{CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};
use crate::hal::support::transfer::{fill_element, rect_pieces};
use crate::types::{Pitch, Rect};

/// Where one side of a copy begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CopyAddress {
    pub(super) address: u64,
    /// Whether it is host memory that CUDA has not allocated.
    pub(super) is_foreign: bool,
}

/// A copy of a box between two addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CopyBox {
    from: BoxSide,
    to: BoxSide,
    /// Bytes in a row.
    width: usize,
    /// Rows in a slice.
    height: usize,
    /// Slices.
    depth: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BoxSide {
    start: CopyAddress,
    /// Bytes from one row to the next.
    pitch: usize,
    /// Rows from one slice to the next.
    rows: usize,
}

/// The largest pitch that every device takes.
const LARGEST_PITCH: usize = (1 << 31) - 1;

impl CopyBox {
    /// A copy of `len` bytes.
    pub(super) fn row(from: CopyAddress, to: CopyAddress, len: usize) -> Self {
        let side = |start| BoxSide { start, pitch: len, rows: 1 };
        Self { from: side(from), to: side(to), width: len, height: 1, depth: 1 }
    }

    /// The boxes of a rectangular copy: one where the driver takes it whole, else one for each
    /// slice or row.
    pub(super) fn of_rect(
        rect: Rect,
        (from, from_pitch): (CopyAddress, Pitch),
        (to, to_pitch): (CopyAddress, Pitch),
    ) -> Vec<Self> {
        let whole = |rect: Rect, from_pitch, to_pitch| {
            let (from, to) = BoxSide::of(rect, from, from_pitch).zip(BoxSide::of(rect, to, to_pitch))?;
            Some(Self { from, to, width: rect.width, height: rect.height, depth: rect.depth })
        };
        let row = |from_offset, to_offset, len| Self::row(from.at(from_offset), to.at(to_offset), len);
        rect_pieces(rect, from_pitch, to_pitch, &whole, &row)
    }

    /// Whether the driver changes the copy in an instantiated graph: it does so for single rows.
    pub(super) fn is_row(&self) -> bool {
        self.height == 1 && self.depth == 1
    }

    pub(super) fn params(&self) -> CUDA_MEMCPY3D {
        let Self { from, to, width, height, depth } = *self;
        // The driver knows its own addresses, those of pinned memory among them. Others have to be
        // named as the host's.
        let kind = |side: BoxSide| match side.start.is_foreign {
            true => CU_MEMORYTYPE_HOST,
            false => CU_MEMORYTYPE_UNIFIED,
        };
        let rows = |side: BoxSide| if depth == 1 { height } else { side.rows };
        CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: kind(from),
            srcHost: from.start.address as *const c_void,
            srcDevice: from.start.address,
            srcArray: ptr::null_mut(),
            reserved0: ptr::null_mut(),
            srcPitch: from.pitch,
            srcHeight: rows(from),
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: kind(to),
            dstHost: to.start.address as *mut c_void,
            dstDevice: to.start.address,
            dstArray: ptr::null_mut(),
            reserved1: ptr::null_mut(),
            dstPitch: to.pitch,
            dstHeight: rows(to),
            WidthInBytes: width,
            Height: height,
            Depth: depth,
        }
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

/// Elements to set in consecutive memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FillRow {
    pub(super) address: u64,
    pub(super) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(super) element: u32,
    /// Elements.
    pub(super) count: usize,
}

impl FillRow {
    /// A fill that the driver can do: of a pattern that repeats every 1, 2 or 4 bytes, to which the
    /// memory is aligned.
    pub(super) fn of(address: u64, len: usize, pattern: &[u8]) -> Option<Self> {
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
    pub(super) fn word(&self) -> u32 {
        match self.element {
            1 => self.value * 0x0101_0101,
            2 => self.value * 0x0001_0001,
            _ => self.value,
        }
    }

    pub(super) fn params(&self) -> CUDA_MEMSET_NODE_PARAMS {
        let Self { address, value, element, count } = *self;
        CUDA_MEMSET_NODE_PARAMS {
            dst: address,
            pitch: 0,
            value,
            elementSize: element,
            width: count,
            height: 1,
        }
    }
}

#[cfg(test)]
mod tests {
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
                let boxes = CopyBox::of_rect(rect, (start(1000), from), (start(9000), to));
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
    fn a_rectangle_that_the_driver_takes_is_one_box() {
        let rect = Rect { width: 3, height: 2, depth: 2 };
        let dense = (start(0), Pitch { offset: 0, row: 3, slice: 6 });
        let boxes = |rect, offset, row, slice| {
            CopyBox::of_rect(rect, dense, (start(0), Pitch { offset, row, slice })).len()
        };
        assert_eq!(boxes(rect, 17, 5, 15), 1);
        assert_eq!(boxes(rect, 17, 5, 13), 2, "one per slice");
        assert_eq!(boxes(Rect { width: 3, height: 1, depth: 4 }, 17, 0, 13), 1);
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

//! Copies in boxes: rows of equal length, in slices of equal height, as drivers of GPUs take them.
//!
//! Drivers copy boxes whose slices are a whole number of rows apart. The contract allows any pitch.

use super::transfer::rect_pieces;
use crate::{Command, MemoryView, Pitch, Rect, Result};

/// Where one side of a copy begins.
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

    /// The same copy in rows of at most `most` bytes, if it is a single row.
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
}

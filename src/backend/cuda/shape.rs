//! Copies and fills as shapes that the driver takes, plain data.
//!
//! The driver copies boxes whose slices are a whole number of rows apart, and sets elements of 1, 2
//! or 4 bytes. Ours may have any pitch, and a pattern any length.

use crate::types::{Pitch, Rect};

/// A copy of a box between two addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CopyShape {
    pub(super) from: Side,
    pub(super) to: Side,
    /// Bytes in a row.
    pub(super) width: usize,
    /// Rows in a slice.
    pub(super) height: usize,
    /// Slices.
    pub(super) depth: usize,
}

/// One side of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Side {
    pub(super) address: u64,
    /// Bytes from one row to the next.
    pub(super) pitch: usize,
    /// Rows from one slice to the next.
    pub(super) rows: usize,
}

/// Elements to set, in one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SetShape {
    pub(super) address: u64,
    pub(super) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(super) element: u32,
    /// Elements.
    pub(super) count: usize,
}

impl SetShape {
    /// The four bytes that repeat: each is set where an address has its index as the remainder of a
    /// division by 4.
    pub(super) fn word(&self) -> u32 {
        match self.element {
            1 => self.value * 0x0101_0101,
            2 => self.value * 0x0001_0001,
            _ => self.value,
        }
    }
}

/// The largest pitch that every device takes.
const LARGEST_PITCH: usize = (1 << 31) - 1;

/// A copy of `len` bytes.
pub(super) fn linear(from: u64, to: u64, len: usize) -> CopyShape {
    let side = |address| Side { address, pitch: len, rows: 1 };
    CopyShape { from: side(from), to: side(to), width: len, height: 1, depth: 1 }
}

/// A rectangular copy: one box where the driver can take it whole, else one for each slice or row.
pub(super) fn boxes(
    rect: Rect,
    (from, from_pitch): (u64, Pitch),
    (to, to_pitch): (u64, Pitch),
) -> Vec<CopyShape> {
    // Slices of one row are the rows of one slice.
    if rect.height == 1 && rect.depth > 1 {
        let flat = Rect { height: rect.depth, depth: 1, ..rect };
        let rows = |pitch: Pitch| Pitch { row: pitch.slice, ..pitch };
        return boxes(flat, (from, rows(from_pitch)), (to, rows(to_pitch)));
    }
    if let Some((from, to)) = side(rect, from, from_pitch).zip(side(rect, to, to_pitch)) {
        return vec![CopyShape { from, to, width: rect.width, height: rect.height, depth: rect.depth }];
    }
    if rect.depth > 1 {
        let slice = Rect { depth: 1, ..rect };
        let at = |pitch: Pitch, z: usize| Pitch { offset: pitch.offset + z * pitch.slice, ..pitch };
        let slices =
            (0..rect.depth).flat_map(|z| boxes(slice, (from, at(from_pitch, z)), (to, at(to_pitch, z))));
        return slices.collect();
    }
    let rows = rect.rows(from_pitch).zip(rect.rows(to_pitch));
    rows.map(|(source, target)| linear(from + source as u64, to + target as u64, rect.width)).collect()
}

/// One side of the whole rectangle, if its pitches can be told.
fn side(rect: Rect, base: u64, pitch: Pitch) -> Option<Side> {
    let address = base + pitch.offset as u64;
    // A pitch that nothing follows says nothing.
    let row = if rect.height == 1 { rect.width } else { pitch.row };
    let rows = match rect.depth {
        1 => rect.height,
        _ if pitch.slice.is_multiple_of(row) => pitch.slice / row,
        _ => return None,
    };
    (row >= rect.width && row <= LARGEST_PITCH && rows >= rect.height).then_some(Side {
        address,
        pitch: row,
        rows,
    })
}

/// A fill by setting elements, where the pattern repeats every 1, 2 or 4 bytes and the memory is
/// aligned for that.
pub(super) fn set(address: u64, len: usize, pattern: &[u8]) -> Option<SetShape> {
    let period = period(pattern);
    let value = match *pattern.get(..period)? {
        [a] => u32::from(a),
        [a, b] => u32::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        _ => return None,
    };
    let aligned = address.is_multiple_of(period as u64) && len.is_multiple_of(period);
    aligned.then_some(SetShape { address, value, element: period as u32, count: len / period })
}

/// After how many bytes the pattern repeats itself.
pub(super) fn period(pattern: &[u8]) -> usize {
    let repeats = |&period: &usize| {
        pattern.len().is_multiple_of(period) && pattern.chunks(period).all(|part| part == &pattern[..period])
    };
    (1..=pattern.len()).find(repeats).unwrap_or(pattern.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte that the boxes move, as pairs of addresses.
    fn bytes(boxes: &[CopyShape]) -> Vec<(u64, u64)> {
        let mut moved = Vec::new();
        for shape in boxes {
            for (z, y) in (0..shape.depth).flat_map(|z| (0..shape.height).map(move |y| (z, y))) {
                let at = |side: Side| side.address + (side.pitch * (y + side.rows * z)) as u64;
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
                let boxes = boxes(rect, (1000, from), (9000, to));
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
    fn what_the_driver_takes_whole_is_one_box() {
        let rect = Rect { width: 3, height: 2, depth: 2 };
        let dense = (0, Pitch { offset: 0, row: 3, slice: 6 });
        assert_eq!(boxes(rect, dense, (0, Pitch { offset: 17, row: 5, slice: 15 })).len(), 1);
        assert_eq!(
            boxes(rect, dense, (0, Pitch { offset: 17, row: 5, slice: 13 })).len(),
            2,
            "a box a slice"
        );
        let rows = Rect { width: 3, height: 1, depth: 4 };
        assert_eq!(boxes(rows, dense, (0, Pitch { offset: 17, row: 0, slice: 13 })).len(), 1);
    }

    #[test]
    fn fills_are_set_by_the_shortest_element() {
        assert_eq!(set(1, 6, &[7, 7]), Some(SetShape { address: 1, value: 7, element: 1, count: 6 }));
        let short = u32::from(u16::from_ne_bytes([1, 2]));
        assert_eq!(
            set(2, 8, &[1, 2, 1, 2]),
            Some(SetShape { address: 2, value: short, element: 2, count: 4 })
        );
        let word = u32::from_ne_bytes([1, 2, 3, 4]);
        assert_eq!(
            set(4, 8, &[1, 2, 3, 4]),
            Some(SetShape { address: 4, value: word, element: 4, count: 2 })
        );
        assert_eq!(set(1, 8, &[1, 2]), None, "not aligned");
        assert_eq!(set(2, 8, &[1, 2, 3, 4]), None, "not aligned");
        assert_eq!(set(0, 6, &[1, 2, 3]), None, "no such element");
        assert_eq!(set(0, 16, &[1, 2, 3, 4, 5, 6, 7, 8]), None, "no such element");
    }

    #[test]
    fn the_repeated_word_holds_what_is_set_at_each_address() {
        for (address, pattern) in [(5, &[9u8][..]), (6, &[1, 2]), (8, &[1, 2, 3, 4]), (4, &[0xFF; 4])] {
            let len = 8;
            let word = set(address, len, pattern).unwrap().word().to_le_bytes();
            let seen: Vec<u8> = (address..).take(len).map(|at| word[at as usize % 4]).collect();
            let expected: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn periods_divide_the_pattern() {
        for (pattern, expected) in
            [(&[5u8][..], 1), (&[5, 5, 5], 1), (&[1, 2, 1], 3), (&[1, 2, 1, 2], 2), (&[1, 1, 2, 1, 1, 2], 3)]
        {
            assert_eq!(period(pattern), expected, "{pattern:?}");
        }
    }
}

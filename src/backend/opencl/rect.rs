//! Rectangles in the form that the driver takes: few calls where it can take them whole, a call a
//! row where it cannot.
//!
//! The driver wants rows to fit their pitch, slices to be whole rows apart, and one pitch for both
//! sides inside one buffer. Ours may start anywhere and lie anyhow, as long as rows do not overlap.

use super::op::Corner;
use crate::types::{Pitch, Rect};

/// Part of a rectangular copy, for one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// A rectangle on both sides.
    Rect { from: Corner, to: Corner, region: [usize; 3] },
    /// Consecutive bytes on both sides.
    Row { from: usize, to: usize, len: usize },
}

/// The copy of `rect` from one place to another, as calls. `same_buffer`: both places are in one
/// buffer object.
pub(super) fn pieces(rect: Rect, from: Pitch, to: Pitch, same_buffer: bool) -> Vec<Piece> {
    if rect.height == 1 && rect.depth == 1 {
        return vec![Piece::Row { from: from.offset, to: to.offset, len: rect.width }];
    }
    if !same_buffer {
        if let Some((from, to)) = corner(rect, from).zip(corner(rect, to)) {
            return vec![Piece::Rect { from, to, region: [rect.width, rect.height, rect.depth] }];
        }
        let slice = Rect { depth: 1, ..rect };
        let slices: Option<Vec<_>> = (0..rect.depth)
            .map(|z| {
                let at = |pitch: Pitch| Pitch { offset: pitch.offset + z * pitch.slice, ..pitch };
                let (from, to) = corner(slice, at(from)).zip(corner(slice, at(to)))?;
                Some(Piece::Rect { from, to, region: [rect.width, rect.height, 1] })
            })
            .collect();
        if let Some(slices) = slices.filter(|_| rect.height > 1) {
            return slices;
        }
    }
    let rows = rect.rows(from).zip(rect.rows(to));
    rows.map(|(from, to)| Piece::Row { from, to, len: rect.width }).collect()
}

/// Where the driver finds the rectangle, if it can be told.
fn corner(rect: Rect, pitch: Pitch) -> Option<Corner> {
    // A pitch that nothing follows is free to choose.
    let row = match (rect.height, rect.depth) {
        (1, 1) => rect.width,
        // Slices of one row are rows, and their pitch is what the driver may divide by.
        (1, _) => pitch.slice,
        _ => pitch.row,
    };
    let slice = if rect.depth == 1 { row.checked_mul(rect.height)? } else { pitch.slice };
    if row < rect.width || !slice.is_multiple_of(row) || slice < row.checked_mul(rect.height)? {
        return None;
    }
    let (x, rows) = (pitch.offset % row, pitch.offset / row);
    let rows_in_slice = slice / row;
    let (y, z) = if rect.depth == 1 { (rows, 0) } else { (rows % rows_in_slice, rows / rows_in_slice) };
    let fits = x + rect.width <= row && (rect.depth == 1 || y + rect.height <= rows_in_slice);
    fits.then_some(Corner { origin: [x, y, z], row, slice })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECT: Rect = Rect { width: 3, height: 2, depth: 2 };

    /// Every byte that the calls move, as pairs of offsets.
    fn bytes(pieces: &[Piece]) -> Vec<(usize, usize)> {
        let mut moved = Vec::new();
        for piece in pieces {
            match *piece {
                Piece::Row { from, to, len } => moved.extend((0..len).map(|i| (from + i, to + i))),
                Piece::Rect { from, to, region: [width, height, depth] } => {
                    let start = |c: Corner| c.origin[0] + c.origin[1] * c.row + c.origin[2] * c.slice;
                    for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
                        let at = |c: Corner| start(c) + y * c.row + z * c.slice;
                        moved.extend((0..width).map(|x| (at(from) + x, at(to) + x)));
                    }
                }
            }
        }
        moved.sort_unstable();
        moved
    }

    fn expected(rect: Rect, from: Pitch, to: Pitch) -> Vec<(usize, usize)> {
        let rows = rect.rows(from).zip(rect.rows(to));
        let mut moved: Vec<_> =
            rows.flat_map(|(from, to)| (0..rect.width).map(move |x| (from + x, to + x))).collect();
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
        ];
        for (width, height, depth) in [(3, 2, 2), (3, 1, 2), (3, 2, 1), (3, 1, 1), (1, 2, 3)] {
            let rect = Rect { width, height, depth };
            for (from, to) in pitches.iter().flat_map(|from| pitches.iter().map(move |to| (*from, *to))) {
                for same_buffer in [false, true] {
                    let pieces = pieces(rect, from, to, same_buffer);
                    assert_eq!(bytes(&pieces), expected(rect, from, to), "{rect:?} {from:?} {to:?}");
                }
            }
        }
    }

    #[test]
    fn what_the_driver_takes_whole_is_one_call() {
        let pitch = Pitch { offset: 2 + 16, row: 5, slice: 15 };
        let from = Pitch { offset: 0, row: 3, slice: 6 };
        assert_eq!(pieces(RECT, from, Pitch { offset: 15, ..pitch }, false).len(), 1);
        assert_eq!(pieces(RECT, from, Pitch { slice: 9, ..pitch }, false).len(), 4, "rows wrap around");
        assert_eq!(
            pieces(RECT, from, Pitch { offset: 0, row: 5, slice: 11 }, false).len(),
            2,
            "a call a slice"
        );
    }
}

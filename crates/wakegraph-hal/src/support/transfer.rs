//! Cuts rectangular copies and fills into pieces that a driver takes: few large ones where it takes
//! them, a piece for each row where it does not.

use crate::{Pitch, Rect};

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

/// How to fill `len` bytes by copying what is filled already, when the first `filled` bytes are:
/// the offset and the length of each copy, whose source is the beginning. Few large copies.
pub fn doublings(mut filled: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let (at, more) = (filled, filled.min(len - filled));
        filled += more;
        (more > 0).then_some((at, more))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn bytes(pieces: &[Piece]) -> Vec<(usize, usize)> {
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
                let expected = bytes(&[(rect, from, to)]);
                let rows = cut(rect, from, to, |_| false);
                assert_eq!(rows.len(), height * depth);
                assert_eq!(bytes(&rows), expected, "{rect:?} {from:?} {to:?}");
                let slices = cut(rect, from, to, |(rect, ..)| rect.depth == 1);
                assert_eq!(bytes(&slices), expected, "{rect:?} {from:?} {to:?}");
                let even = cut(rect, from, to, |(_, from, _)| from.offset % 2 == 0);
                assert_eq!(bytes(&even), expected, "{rect:?} {from:?} {to:?}");
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
}

//! Rectangular regions of linear memory.

use std::fmt;

use super::{Error, ErrorKind, Result};

/// A rectangular region inside linear memory, all in bytes except rows and slices, which are counts.
///
/// The layout is the one of OpenCL's and Unified Runtime's rectangular copies: a row is `width`
/// bytes, rows follow each other every `row` bytes, slices every `slice` bytes (see [`Pitch`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rect {
    /// Bytes in a row.
    pub width: usize,
    /// Rows in a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// Where a [`Rect`] lies in an allocation, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pitch {
    /// Of the first byte of the first row.
    pub offset: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one slice to the next.
    pub slice: usize,
}

impl Rect {
    /// All bytes of the region, without the gaps.
    pub fn len(&self) -> usize {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    /// Whether the region has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One past the last byte that the region touches under `pitch`, gaps included.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSize`] when a dimension is 0, rows or slices overlap, or the end overflows.
    pub fn end(&self, pitch: &Pitch) -> Result<usize> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidSize, format!("{why}: {self}, {pitch}"));
        let overflows = || invalid("the rectangle's end does not fit into usize".into());
        if self.is_empty() {
            return Err(invalid("the rectangle has a dimension of size 0".into()));
        }
        if self.height > 1 && pitch.row < self.width {
            let (row, width) = (pitch.row, self.width);
            return Err(invalid(format!("the row pitch of {row} bytes is less than a row's {width}")));
        }
        let rows = (self.height - 1).checked_mul(pitch.row).and_then(|n| n.checked_add(self.width));
        let slice = rows.ok_or_else(overflows)?;
        if self.depth > 1 && pitch.slice < slice {
            let given = pitch.slice;
            return Err(invalid(format!("the slice pitch of {given} bytes is less than a slice's {slice}")));
        }
        (self.depth - 1)
            .checked_mul(pitch.slice)
            .and_then(|n| n.checked_add(slice))
            .and_then(|n| n.checked_add(pitch.offset))
            .ok_or_else(overflows)
    }

    /// [`end`](Self::end), if it lies within `len` bytes of memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSize`] when it does not; those of [`end`](Self::end).
    pub fn end_within(&self, pitch: &Pitch, len: usize) -> Result<usize> {
        let end = self.end(pitch)?;
        if end <= len {
            return Ok(end);
        }
        let beyond = end - len;
        Err(Error::new(
            ErrorKind::InvalidSize,
            format!("the rectangle ends at byte {end} of {len}, {beyond} too far: {self}, {pitch}"),
        ))
    }

    /// The byte offset of every row under `pitch`, in order.
    pub fn rows(self, pitch: Pitch) -> impl Iterator<Item = usize> {
        (0..self.depth)
            .flat_map(move |z| (0..self.height).map(move |y| pitch.offset + z * pitch.slice + y * pitch.row))
    }
}

impl fmt::Display for Rect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes x {} rows x {} slices", self.width, self.height, self.depth)
    }
}

impl fmt::Display for Pitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "from byte {} on, a row every {} bytes, a slice every {}",
            self.offset, self.row, self.slice
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECT: Rect = Rect { width: 4, height: 3, depth: 2 };

    #[test]
    fn the_end_includes_gaps_between_rows_and_slices() {
        let pitch = Pitch { offset: 5, row: 10, slice: 40 };
        assert_eq!(RECT.end(&pitch).unwrap(), 5 + 40 + 20 + 4);
        assert_eq!(RECT.rows(pitch).collect::<Vec<_>>(), [5, 15, 25, 45, 55, 65]);
    }

    #[test]
    fn overlaps_and_overflow_are_refused() {
        for (rect, pitch) in [
            (RECT, Pitch { offset: 0, row: 3, slice: 40 }),
            (RECT, Pitch { offset: 0, row: 10, slice: 23 }),
            (RECT, Pitch { offset: usize::MAX, row: 10, slice: 40 }),
            (RECT, Pitch { offset: 0, row: usize::MAX, slice: 40 }),
            (Rect { width: 0, ..RECT }, Pitch { offset: 0, row: 10, slice: 40 }),
        ] {
            assert_eq!(rect.end(&pitch).unwrap_err().kind(), ErrorKind::InvalidSize);
        }
    }

    #[test]
    fn errors_name_the_excess() {
        let message = |pitch| RECT.end_within(&pitch, 48).unwrap_err().message().to_owned();
        let where_ = "4 bytes x 3 rows x 2 slices, from byte 5 on";
        for (pitch, why) in [
            (Pitch { offset: 5, row: 10, slice: 40 }, "the rectangle ends at byte 69 of 48, 21 too far: "),
            (Pitch { offset: 5, row: 3, slice: 40 }, "the row pitch of 3 bytes is less than a row's 4: "),
            (
                Pitch { offset: 5, row: 10, slice: 23 },
                "the slice pitch of 23 bytes is less than a slice's 24: ",
            ),
        ] {
            assert!(message(pitch).starts_with(&format!("{why}{where_}")), "{}", message(pitch));
        }
    }
}

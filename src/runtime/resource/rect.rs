//! Rectangular copies in elements.

use wakegraph_hal::{Error, ErrorKind, Pitch, Rect, Result, setters};

/// Position of a rectangle in a buffer, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The first element, as x, y, z.
    pub origin: [usize; 3],
    /// Elements from one row to the next.
    pub row: usize,
    /// Elements from one slice to the next; 0 stands for "no gap": rows times the number of rows copied.
    pub slice: usize,
}

impl Layout {
    /// A two-dimensional image of `row` elements a line, from its first element on.
    pub fn rows(row: usize) -> Self {
        Self { origin: [0; 3], row, slice: 0 }
    }

    /// Starts at this element instead.
    #[must_use]
    pub fn origin<const D: usize>(mut self, origin: [usize; D]) -> Self {
        const { assert!(D >= 1 && D <= 3, "an origin has 1, 2 or 3 dimensions") };
        self.origin[..D].copy_from_slice(&origin);
        self
    }

    fn pitch(&self, size: usize, height: usize) -> Result<Pitch> {
        let slice = if self.slice == 0 { self.row.checked_mul(height) } else { Some(self.slice) };
        let [x, y, z] = self.origin;
        let offset = slice.and_then(|slice| {
            z.checked_mul(slice)?.checked_add(y.checked_mul(self.row)?)?.checked_add(x)?.checked_mul(size)
        });
        let pitch = offset.and_then(|offset| {
            Some(Pitch { offset, row: self.row.checked_mul(size)?, slice: slice?.checked_mul(size)? })
        });
        pitch.ok_or_else(|| Error::new(ErrorKind::InvalidSize, format!("{self:?} overflows")))
    }
}

setters! {
    Layout {
        /// Sets the elements from one slice to the next: a multiple of those from one row to the next,
        /// else a copy of several rows and slices is refused.
        slice: usize,
    }
}

/// A rectangular copy: how much, from where, to where, in elements.
///
/// ```
/// use wakegraph::memory::{Layout, RectCopy};
/// // The 16 x 16 tile at (32, 64) of an image 640 wide, to a buffer that holds the tile alone.
/// let tile = RectCopy::new([16, 16], Layout::rows(640).origin([32, 64]), Layout::rows(16));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RectCopy {
    extent: [usize; 3],
    src: Layout,
    dst: Layout,
}

/// A rectangle measured in bytes.
pub(crate) struct RectBytes {
    pub(crate) rect: Rect,
    pub(crate) src: Pitch,
    pub(crate) dst: Pitch,
}

impl RectCopy {
    /// Copies `extent` elements (width, height, depth; those not named are 1).
    pub fn new<const D: usize>(extent: [usize; D], src: Layout, dst: Layout) -> Self {
        const { assert!(D >= 1 && D <= 3, "an extent has 1, 2 or 3 dimensions") };
        let mut all = [1; 3];
        all[..D].copy_from_slice(&extent);
        Self { extent: all, src, dst }
    }

    pub(crate) fn to_bytes(self, size: usize) -> Result<RectBytes> {
        let [width, height, depth] = self.extent;
        let width = width.checked_mul(size).ok_or_else(|| {
            Error::new(ErrorKind::InvalidSize, format!("a row of {width} elements overflows"))
        })?;
        Ok(RectBytes {
            rect: Rect { width, height, depth },
            src: self.src.pitch(size, height)?,
            dst: self.dst.pitch(size, height)?,
        })
    }
}

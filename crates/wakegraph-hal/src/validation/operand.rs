//! Operands in memory: views under their names, the bytes that they cover, and whether two of them share
//! some.

use std::fmt::{self, Display};

use crate::{Device, Error, ErrorKind, MemoryView, Pitch, Rect, ResourceId, Result, UsmPointer};

/// A view under the name it has in its command.
#[derive(Clone, Copy)]
pub(super) struct ViewOperand<'a> {
    pub(super) name: &'a str,
    pub(super) view: &'a MemoryView,
}

impl ViewOperand<'_> {
    /// Whether commands on `device` can use the memory; `subject` opens the message.
    pub(super) fn check_access(&self, subject: &dyn Display, device: &dyn Device) -> Result<()> {
        let memory = &**self.view.memory();
        if device.can_access(memory) {
            return Ok(());
        }
        let this = &device.info().selector;
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{subject}: {self} is memory of another device, and cannot be accessed from {this}"),
        )
        .help("allocate it on this device, or copy it there through host memory"))
    }
}

impl Display for ViewOperand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end, total) = (self.view.offset(), self.view.end(), self.view.memory().len());
        write!(f, "'{}' (bytes {start}..{end} of {total})", self.name)
    }
}

/// A range of bytes, known by its allocation, its address, or both.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    resource: Option<ResourceId>,
    address: Option<usize>,
    /// Inside the allocation; the address of a raw pointer, which has none.
    start: usize,
    len: usize,
}

impl Extent {
    pub(super) fn of_view(view: &MemoryView) -> Self {
        let memory = view.memory();
        Self {
            resource: Some(memory.resource()),
            address: address(view),
            start: view.offset(),
            len: view.len(),
        }
    }

    /// The first `len` bytes behind `pointer`.
    pub(super) fn of_pointer(pointer: UsmPointer, len: usize) -> Self {
        Self { resource: None, address: Some(pointer.address()), start: pointer.address(), len }
    }

    /// Whether the two share a byte. Memory without an address and a raw pointer are taken to be
    /// apart.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self.resource, other.resource, self.address, other.address) {
            (Some(a), Some(b), ..) => {
                a == b && share_a_byte((self.start, self.len), (other.start, other.len))
            }
            (_, _, Some(a), Some(b)) => share_a_byte((a, self.len), (b, other.len)),
            _ => false,
        }
    }
}

impl Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.start.saturating_add(self.len);
        match self.resource {
            Some(_) => write!(f, "bytes {}..{end} of an allocation", self.start),
            None => write!(f, "addresses {:#x}..{end:#x}", self.start),
        }
    }
}

/// The address of the view's first byte, where the memory has one.
pub(super) fn address(view: &MemoryView) -> Option<usize> {
    let memory = view.memory();
    let base = match memory.usm() {
        Some(pointer) => Some(pointer.address()),
        None => memory.host_ptr().map(|pointer| pointer.as_ptr() as usize),
    };
    base.map(|base| base.saturating_add(view.offset()))
}

fn share_a_byte((a, a_len): (usize, usize), (b, b_len): (usize, usize)) -> bool {
    a_len > 0 && b_len > 0 && a < b.saturating_add(b_len) && b < a.saturating_add(a_len)
}

/// The bytes of an allocation that a rectangle touches.
///
/// A region is `width` bytes, repeated `height` times every `row` bytes, and that `depth` times
/// every `slice` bytes.
#[derive(Clone, Copy)]
pub(super) struct Region {
    rect: Rect,
    row: usize,
    slice: usize,
    /// First byte.
    start: usize,
    /// One past the last byte, gaps included.
    end: usize,
}

impl Region {
    /// The region of `view`'s memory that `rect` covers under `pitch`.
    ///
    /// # Errors
    /// `InvalidSize` when the rectangle is empty, its rows or slices overlap, it does not fit the
    /// view, or the slice pitch is not a multiple of the row pitch, which no vendor's rectangular
    /// copy can express.
    pub(super) fn new(view: &MemoryView, rect: &Rect, pitch: &Pitch) -> Result<Self> {
        let end = rect.end_within(pitch, view.len())?;
        if rect.height > 1 && rect.depth > 1 && !pitch.slice.is_multiple_of(pitch.row) {
            let (slice, row) = (pitch.slice, pitch.row);
            return Err(Error::new(
                ErrorKind::InvalidSize,
                format!(
                    "the slice pitch of {slice} bytes is not a multiple of the row pitch of {row}: {rect}, \
                     {pitch}"
                ),
            ));
        }
        let (start, end) = (view.offset() + pitch.offset, view.offset() + end);
        Ok(Self { rect: *rect, row: pitch.row, slice: pitch.slice, start, end })
    }

    /// Whether the two regions of one allocation provably share no byte.
    ///
    /// They do not when one ends before the other starts, or when all rows (or all slices) of both
    /// fall into disjoint intervals modulo one of the pitches, so that they interleave. For boxes
    /// of one pitched image this is exact; of regions with different pitches it may call apart ones
    /// overlapping, never the other way round. It visits no single row, so it costs the same for
    /// any size.
    pub(super) fn apart_from(&self, other: &Self) -> bool {
        if self.end <= other.start || other.end <= self.start {
            return true;
        }
        self.strides().chain(other.strides()).any(|modulus| {
            let (a, b) = (self.start % modulus, other.start % modulus);
            let a_to_b = if b >= a { b - a } else { modulus - (a - b) };
            let b_to_a = if a_to_b == 0 { 0 } else { modulus - a_to_b };
            a_to_b >= self.extent_modulo(modulus) && b_to_a >= other.extent_modulo(modulus)
        })
    }

    /// The pitches that matter: a single row or slice has none.
    fn strides(&self) -> impl Iterator<Item = usize> {
        let row = (self.rect.height > 1).then_some(self.row);
        let slice = (self.rect.depth > 1).then_some(self.slice);
        row.into_iter().chain(slice)
    }

    /// Bytes from `start` on which the region stays, seen modulo `modulus`.
    fn extent_modulo(&self, modulus: usize) -> usize {
        let Rect { width, height, depth } = self.rect;
        if depth > 1 && !self.slice.is_multiple_of(modulus) {
            return self.end - self.start;
        }
        if height > 1 && !self.row.is_multiple_of(modulus) {
            return (height - 1) * self.row + width;
        }
        width
    }
}

impl Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}..{}", self.start, self.end)?;
        if self.rect.height > 1 {
            write!(f, ", a row every {}", self.row)?;
        }
        if self.rect.depth > 1 {
            write!(f, ", a slice every {}", self.slice)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn region(rect: Rect, pitch: Pitch) -> Region {
        let end = rect.end(&pitch).unwrap();
        Region { rect, row: pitch.row, slice: pitch.slice, start: pitch.offset, end }
    }

    fn share_bytes(rect: Rect, a: Pitch, b: Pitch) -> bool {
        let bytes = |pitch| rect.rows(pitch).flat_map(move |row| row..row + rect.width);
        let of_a: HashSet<usize> = bytes(a).collect();
        bytes(b).any(|byte| of_a.contains(&byte))
    }

    // Columns 0 and 1 to the left, 2 and 3 to the right, of an image four bytes wide:
    //
    //     a a b b
    //     a a b b
    #[test]
    fn two_halves_of_an_image_interleave() {
        let half = Rect { width: 2, height: 2, depth: 1 };
        let left = region(half, Pitch { offset: 0, row: 4, slice: 0 });
        let right = region(half, Pitch { offset: 2, row: 4, slice: 0 });
        let middle = region(half, Pitch { offset: 1, row: 4, slice: 0 });
        assert!(left.apart_from(&right) && right.apart_from(&left));
        assert!(!left.apart_from(&middle) && !middle.apart_from(&right));
    }

    fn pitch(rect: Rect) -> impl Strategy<Value = Pitch> {
        (0..60usize, 0..4usize, 0..3usize).prop_map(move |(offset, row, slice)| {
            let row = rect.width + row;
            Pitch { offset, row, slice: row * (rect.height + slice) }
        })
    }

    fn rect() -> impl Strategy<Value = Rect> {
        (1..5usize, 1..4usize, 1..4usize).prop_map(|(width, height, depth)| Rect { width, height, depth })
    }

    fn two_places() -> impl Strategy<Value = (Rect, Pitch, Pitch)> {
        rect().prop_flat_map(|rect| (Just(rect), pitch(rect), pitch(rect)))
    }

    /// Two boxes of one size in an image of 6 columns, 5 rows and 4 slices.
    fn two_boxes() -> impl Strategy<Value = (Rect, Pitch, Pitch)> {
        rect().prop_flat_map(|rect| {
            let corner = (0..=6 - rect.width, 0..=5 - rect.height, 0..=4 - rect.depth)
                .prop_map(|(x, y, z)| Pitch { offset: z * 30 + y * 6 + x, row: 6, slice: 30 });
            (Just(rect), corner.clone(), corner)
        })
    }

    proptest! {
        #[test]
        fn what_shares_bytes_is_never_called_apart((rect, a, b) in two_places()) {
            if share_bytes(rect, a, b) {
                prop_assert!(!region(rect, a).apart_from(&region(rect, b)));
            }
        }

        #[test]
        fn boxes_of_one_image_are_judged_exactly((rect, a, b) in two_boxes()) {
            prop_assert_eq!(region(rect, a).apart_from(&region(rect, b)), !share_bytes(rect, a, b));
        }
    }
}

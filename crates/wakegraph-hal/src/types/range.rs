//! Index spaces of launches, the bounds that kernels set on them, and rectangles of memory.

use std::{fmt, ops};

use super::{Error, ErrorKind, Result};

/// The index space of a kernel launch: 1 to 3 dimensions of work-items, optionally an offset,
/// optionally grouped into work-groups (an nd-range).
///
/// ```
/// use wakegraph::Range;
/// let pixels = Range::new([640, 480]).local([16, 16]);
/// assert_eq!(pixels.count(), 640 * 480);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    dimensions: u8,
    global: [usize; 3],
    local: Option<[usize; 3]>,
    offset: [usize; 3],
}

impl Range {
    /// A range of as many dimensions as the array has elements (1 to 3). `global[0]` varies fastest.
    pub fn new<const D: usize>(global: [usize; D]) -> Self {
        const { assert!(D >= 1 && D <= 3, "a range has 1, 2 or 3 dimensions") };
        Self { dimensions: D as u8, global: widen(global, 1), local: None, offset: [0; 3] }
    }

    /// A range of one dimension.
    pub fn linear(work_items: usize) -> Self {
        Self::new([work_items])
    }

    /// Groups the work-items: each work-group is `local` large. Dimensions not named are 1.
    #[must_use]
    pub fn local<const D: usize>(self, local: [usize; D]) -> Self {
        const { assert!(D >= 1 && D <= 3, "a range has 1, 2 or 3 dimensions") };
        Self { local: Some(widen(local, 1)), ..self }
    }

    /// Starts the indices at these instead of 0. Dimensions not named start at 0.
    #[must_use]
    pub fn starting_at<const D: usize>(self, offset: [usize; D]) -> Self {
        const { assert!(D >= 1 && D <= 3, "a range has 1, 2 or 3 dimensions") };
        Self { offset: widen(offset, 0), ..self }
    }

    /// Returns the number of dimensions: 1, 2 or 3.
    pub fn dimensions(&self) -> usize {
        usize::from(self.dimensions)
    }

    /// Work-items in each dimension; unused dimensions are 1.
    pub fn global_size(&self) -> [usize; 3] {
        self.global
    }

    /// Work-group size in each dimension, or `None` when the device may choose.
    pub fn local_size(&self) -> Option<[usize; 3]> {
        self.local
    }

    /// First index in each dimension: of a work-group's range, the index of its first work-item.
    pub fn offset(&self) -> [usize; 3] {
        self.offset
    }

    /// One past the last index in each dimension, or `None` where that overflows; 1 in unused dimensions.
    pub fn ends(&self) -> Option<[usize; 3]> {
        let mut ends = self.offset;
        for (end, size) in ends.iter_mut().zip(self.global) {
            *end = end.checked_add(size)?;
        }
        Some(ends)
    }

    /// The indices of the work-items of a range of one dimension, as `GLOBAL_ID(0)` has them on devices.
    ///
    /// ```
    /// use wakegraph::Range;
    /// let mut y = [0, 0, 0, 0];
    /// for i in Range::linear(2).starting_at([1]).indices() {
    ///     y[i] = 10 * i;
    /// }
    /// assert_eq!(y, [0, 10, 20, 0]);
    /// ```
    ///
    /// # Panics
    /// If the range has a size other than 1 in another dimension, where [`items`](Self::items) has the
    /// indices.
    pub fn indices(&self) -> ops::Range<usize> {
        let [width, height, depth] = self.global;
        assert!(height == 1 && depth == 1, "{self} has an index of several numbers: use `items`");
        self.offset[0]..self.offset[0].saturating_add(width)
    }

    /// The indices of all work-items, each as an array, as `GLOBAL_ID` has them on devices: they begin at
    /// the offset, and those of the first dimension follow each other. The pattern says how many dimensions
    /// the array has; further ones of the range are left out. In one dimension
    /// [`indices`](Self::indices) gives plain numbers.
    ///
    /// ```
    /// use wakegraph::Range;
    /// let mut pixels = Vec::new();
    /// for [x, y] in Range::new([2, 2]).items() {
    ///     pixels.push((x, y));
    /// }
    /// assert_eq!(pixels, [(0, 0), (1, 0), (0, 1), (1, 1)]);
    /// ```
    pub fn items<const D: usize>(&self) -> impl Iterator<Item = [usize; D]> + use<D> {
        const { assert!(D >= 1 && D <= 3, "a range has 1, 2 or 3 dimensions") };
        let [xs, ys, zs] = [0, 1, 2].map(|d| self.offset[d]..self.offset[d].saturating_add(self.global[d]));
        zs.flat_map(move |z| {
            let xs = xs.clone();
            ys.clone().flat_map(move |y| {
                xs.clone().map(move |x| {
                    let index = [x, y, z];
                    std::array::from_fn(|dimension| index[dimension])
                })
            })
        })
    }

    /// The work-groups, each as a range of its own that begins at the group's first index. A range
    /// without groups is one.
    ///
    /// ```
    /// use wakegraph::Range;
    /// let (x, mut sums) = ([1, 2, 3, 4, 5, 6], Vec::new());
    /// for group in Range::linear(6).local([3]).groups() {
    ///     sums.push(group.indices().map(|i| x[i]).sum::<i32>());
    /// }
    /// assert_eq!(sums, [6, 15]);
    /// ```
    pub fn groups(&self) -> impl Iterator<Item = Range> + use<> {
        let (range, counts) = (*self, self.group_counts());
        (0..counts.iter().product()).map(move |number| range.group_at(unfold(number, counts)))
    }

    /// Replaces the sizes in each dimension, and adds dimensions for those that are not 1. Groups and offset
    /// stay.
    #[must_use]
    pub fn resized(self, global: [usize; 3]) -> Self {
        Self { dimensions: self.dimensions.max(dimensions_named(global, 1) as u8), global, ..self }
    }

    /// Work-groups in each dimension.
    pub(crate) fn group_counts(&self) -> [usize; 3] {
        let local = self.local.unwrap_or(self.global);
        [0, 1, 2].map(|d| self.global[d] / local[d].max(1))
    }

    /// The work-group at these coordinates among the groups.
    pub(crate) fn group_at(&self, group: [usize; 3]) -> Self {
        let local = self.local.unwrap_or(self.global);
        let offset = [0, 1, 2].map(|d| self.offset[d].saturating_add(group[d] * local[d]));
        Self { global: local, offset, ..*self }
    }

    /// The index of the work-item with this number, those of the first dimension first.
    pub(crate) fn item(&self, number: usize) -> [usize; 3] {
        let item = unfold(number, self.global);
        [0, 1, 2].map(|d| self.offset[d].saturating_add(item[d]))
    }

    /// The number of an index among all indices from 0 to the [ends](Self::ends) of the range, those of the
    /// first dimension first: the element that a work-item owns in memory that has one for each.
    ///
    /// ```
    /// use wakegraph::Range;
    /// let lower_half = Range::new([640, 240]).starting_at([0, 240]);
    /// assert_eq!(lower_half.place([3, 240, 0]), 240 * 640 + 3);
    /// assert_eq!(lower_half.elements(), Some(640 * 480));
    /// ```
    /// Wraps where the number [overflows](Self::elements).
    pub fn place(&self, [x, y, z]: [usize; 3]) -> usize {
        let ends = [0, 1].map(|d| self.offset[d].wrapping_add(self.global[d]));
        z.wrapping_mul(ends[1]).wrapping_add(y).wrapping_mul(ends[0]).wrapping_add(x)
    }

    /// The elements of memory that has one for each index from 0 to the [ends](Self::ends) of the range;
    /// `None` where their number overflows.
    pub fn elements(&self) -> Option<usize> {
        self.ends()?.iter().try_fold(1usize, |elements, &end| elements.checked_mul(end))
    }

    /// All work-items. Saturates instead of overflowing; [`check`](Self::check) refuses such a range.
    pub fn count(&self) -> usize {
        self.global.iter().fold(1usize, |n, &d| n.saturating_mul(d))
    }

    /// Whether it has no work-item, as a dimension is 0. A launch over it does nothing.
    pub fn is_empty(&self) -> bool {
        self.global.contains(&0)
    }

    /// Whether this range can be launched at all, on any device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSize`] if the count overflows, if the offset is in a dimension that the range does
    /// not have, or if a work-group does not divide the range.
    pub fn check(&self) -> Result<()> {
        let invalid = |why: String, help| Err(Error::new(ErrorKind::InvalidSize, why).help(help));
        if self.global.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_none() {
            let help = "launch a part of the range at a time";
            return invalid(format!("{self} has more work-items than fit into usize"), help);
        }
        // Backends differ in the index that such a dimension has: on some it is 0.
        if self.offset[self.dimensions()..].iter().any(|&first| first != 0) {
            let help = "name the sizes of all dimensions in `Range::new`; that of a further one is 1";
            return invalid(format!("{self} starts in a dimension that it does not have"), help);
        }
        let Some(local) = self.local else { return Ok(()) };
        if local.contains(&0) {
            let help = "leave out `local` to let the device choose";
            return invalid(format!("{self} has a work-group dimension of size 0"), help);
        }
        if self.global.iter().zip(local).any(|(g, l)| g % l != 0) {
            let help = "choose a work-group size that divides the global size in each dimension";
            return invalid(format!("{self}: the work-group size does not divide the global size"), help);
        }
        Ok(())
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.dimensions();
        write!(f, "range {:?}", &self.global[..used])?;
        if let Some(local) = self.local {
            // It may have more dimensions than there are, which is a mistake. So may the offset.
            write!(f, " in groups of {:?}", &local[..used.max(dimensions_named(local, 1))])?;
        }
        if self.offset != [0; 3] {
            write!(f, " from {:?}", &self.offset[..used.max(dimensions_named(self.offset, 0))])?;
        }
        Ok(())
    }
}

/// The coordinates of the element with this number in a box of this size.
pub(crate) fn unfold(number: usize, size: [usize; 3]) -> [usize; 3] {
    let [x, y] = [size[0].max(1), size[1].max(1)];
    [number % x, number / x % y, number / x / y]
}

/// Number of dimensions that have to be named, where further ones are `rest`.
fn dimensions_named(all: [usize; 3], rest: usize) -> usize {
    all.iter().rposition(|&given| given != rest).map_or(0, |last| last + 1)
}

pub(super) fn widen<const D: usize>(given: [usize; D], rest: usize) -> [usize; 3] {
    let mut all = [rest; 3];
    all[..D].copy_from_slice(&given);
    all
}

/// A bound on the ranges that a kernel may be launched over.
///
/// The author of the kernel declares it (`range:` in `kernel!`, or
/// `RawKernel::range_bound`), the runtime checks every
/// launch and update against it, and the device code relies on it. In each dimension a range ends
/// at its offset plus its size. The bound is
///
/// | made from | a range is within it if |
/// |---|---|
/// | `[usize; D]` | in each dimension it ends at or before that; in further dimensions it ends at 1 |
/// | `usize` | the ends of all dimensions, multiplied, are at most that; there may be 1 to 3 dimensions |
/// | [`RangeBound::ANY`] | always: the device code compares each index with a length |
///
/// ```
/// use wakegraph::Range;
/// use wakegraph::kernel::RangeBound;
/// assert!(RangeBound::from([8]).allows(&Range::linear(5).starting_at([3])));
/// assert!(!RangeBound::from([8]).allows(&Range::new([2, 2])));
/// assert!(RangeBound::from(8).allows(&Range::new([2, 2])));
/// assert!(!RangeBound::from(8).allows(&Range::new([2, 2]).starting_at([0, 3])));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RangeBound(BoundKind);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum BoundKind {
    Any,
    Product(usize),
    Ends { dimensions: u8, ends: [usize; 3] },
}

impl RangeBound {
    /// Every range is within it.
    pub const ANY: Self = Self(BoundKind::Any);

    /// Whether the range is within it. A range without work-items always is.
    pub fn allows(&self, range: &Range) -> bool {
        if range.is_empty() {
            return true;
        }
        let ends = range.ends();
        match self.0 {
            BoundKind::Any => true,
            BoundKind::Product(most) => {
                let product =
                    |ends: [usize; 3]| ends.iter().try_fold(1usize, |all, &end| all.checked_mul(end));
                ends.and_then(product).is_some_and(|product| product <= most)
            }
            BoundKind::Ends { ends: most, .. } => {
                ends.is_some_and(|ends| ends.iter().zip(most).all(|(&end, most)| end <= most))
            }
        }
    }
}

impl From<usize> for RangeBound {
    fn from(work_items: usize) -> Self {
        Self(BoundKind::Product(work_items))
    }
}

impl<const D: usize> From<[usize; D]> for RangeBound {
    fn from(ends: [usize; D]) -> Self {
        const { assert!(D >= 1 && D <= 3, "a range has 1, 2 or 3 dimensions") };
        Self(BoundKind::Ends { dimensions: D as u8, ends: widen(ends, 1) })
    }
}

impl fmt::Display for RangeBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BoundKind::Any => f.write_str("none"),
            BoundKind::Product(most) => write!(f, "{most} in all dimensions multiplied"),
            BoundKind::Ends { dimensions, ends } => write!(f, "{:?}", &ends[..usize::from(dimensions)]),
        }
    }
}

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

/// Position of a [`Rect`] in an allocation, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pitch {
    /// Offset of the first byte of the first row.
    pub offset: usize,
    /// Distance from one row to the next.
    pub row: usize,
    /// Distance from one slice to the next.
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

    #[test]
    fn impossible_ranges_are_refused() {
        for bad in [Range::new([usize::MAX, 2]), Range::linear(8).local([3]), Range::linear(8).local([0])] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::InvalidSize, "{bad}");
        }
        for empty in [Range::linear(0), Range::new([4, 0]), Range::linear(0).local([8])] {
            assert!(empty.is_empty() && RangeBound::from(0).allows(&empty));
            empty.check().unwrap();
        }
        Range::new([8, 8, 8]).local([2, 4, 8]).starting_at([1]).check().unwrap();
        let error = Range::linear(4).starting_at([1, 5]).check().unwrap_err();
        assert!(error.message().starts_with("range [4] from [1, 5] starts in a dimension"), "{error}");
        Range::new([4, 1]).starting_at([1, 5]).check().unwrap();
    }

    #[test]
    fn resized_ranges_have_a_dimension_for_each_size() {
        let range = Range::linear(0).starting_at([3]);
        assert_eq!(range.resized([4, 1, 1]), Range::linear(4).starting_at([3]));
        assert_eq!(range.resized([4, 2, 1]), Range::new([4, 2]).starting_at([3]));
        assert_eq!(Range::new([1, 1, 1]).resized([4, 1, 1]).dimensions(), 3);
    }

    #[test]
    fn items_start_at_the_offset_in_first_dimension_order() {
        let all: Vec<[usize; 3]> = Range::new([2, 1, 2]).starting_at([5, 6, 7]).items().collect();
        assert_eq!(all, [[5, 6, 7], [6, 6, 7], [5, 6, 8], [6, 6, 8]]);
        let first: Vec<[usize; 1]> = Range::new([2, 2]).starting_at([3]).items().collect();
        assert_eq!(first, [[3], [4], [3], [4]]);
        assert_eq!(Range::linear(3).items().collect::<Vec<[usize; 2]>>(), [[0, 0], [1, 0], [2, 0]]);
        assert_eq!(Range::linear(0).items::<1>().count(), 0);
    }

    #[test]
    fn indices_are_those_of_one_dimension() {
        let group = Range::new([8, 1]).local([2]).groups().nth(3).unwrap();
        assert_eq!((group.indices(), group.offset()), (6..8, [6, 0, 0]));
        assert!(std::panic::catch_unwind(|| Range::new([2, 2]).indices()).is_err());
    }

    #[test]
    fn groups_cover_all_items_once() {
        let range = Range::new([4, 6]).starting_at([1, 2]).local([2, 3]);
        let groups: Vec<_> = range.groups().collect();
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[1], Range::new([2, 3]).starting_at([3, 2]).local([2, 3]));
        let mut items: Vec<[usize; 2]> = groups.iter().flat_map(Range::items).collect();
        items.sort_by_key(|[x, y]| (*y, *x));
        assert!(items.into_iter().eq(range.items()));
        let whole = Range::linear(5).starting_at([1]);
        assert!(whole.groups().eq([whole]));
    }

    #[test]
    fn display_shows_only_what_was_given() {
        assert_eq!(Range::linear(7).to_string(), "range [7]");
        assert_eq!(
            Range::new([8, 4]).local([2, 2]).starting_at([1]).to_string(),
            "range [8, 4] in groups of [2, 2] from [1, 0]"
        );
    }

    #[test]
    fn ends_count_the_offset_and_hold_in_every_dimension() {
        let bound = RangeBound::from([8, 4]);
        for within in [
            Range::linear(8),
            Range::new([8, 4]),
            Range::new([6, 3]).starting_at([2, 1]),
            Range::new([8, 4, 1]).local([2, 2]),
        ] {
            assert!(bound.allows(&within), "{within}");
        }
        for beyond in [
            Range::linear(9),
            Range::new([1, 5]),
            Range::new([6, 3]).starting_at([3, 1]),
            Range::new([1, 1, 2]),
            Range::new([1, 1, 1]).starting_at([0, 0, 1]),
            Range::linear(2).starting_at([usize::MAX]),
        ] {
            assert!(!bound.allows(&beyond), "{beyond}");
        }
    }

    #[test]
    fn products_are_of_the_ends_and_do_not_wrap() {
        let bound = RangeBound::from(24);
        assert!(bound.allows(&Range::new([2, 3, 4])));
        assert!(bound.allows(&Range::new([1, 3, 4]).starting_at([1])));
        for beyond in [
            Range::linear(25),
            Range::new([2, 3, 4]).starting_at([0, 1]),
            Range::linear(1).starting_at([usize::MAX]),
            Range::new([1, 1]).starting_at([usize::MAX / 2, 4]),
        ] {
            assert!(!bound.allows(&beyond), "{beyond}");
        }
        assert!(RangeBound::ANY.allows(&Range::linear(2).starting_at([usize::MAX])));
        assert!(!RangeBound::from(0).allows(&Range::linear(1)));
    }

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

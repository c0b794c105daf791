//! The index space of a kernel launch.

use std::fmt;

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

    /// Starts the indices at `offset` instead of 0. Dimensions not named are 0.
    #[must_use]
    pub fn offset<const D: usize>(self, offset: [usize; D]) -> Self {
        const { assert!(D >= 1 && D <= 3, "a range has 1, 2 or 3 dimensions") };
        Self { offset: widen(offset, 0), ..self }
    }

    /// How many dimensions there are: 1, 2 or 3.
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

    /// First index in each dimension.
    pub fn global_offset(&self) -> [usize; 3] {
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

    /// The indices of all work-items, as `GLOBAL_ID` has them on devices: they begin at the offset,
    /// and those of the first dimension follow each other. Of a range with more dimensions than
    /// `D`, the further ones are left out.
    ///
    /// ```
    /// use wakegraph::Range;
    /// let mut y = [0, 0, 0, 0];
    /// for [i] in Range::linear(2).offset([1]).items() {
    ///     y[i] = 10 * i;
    /// }
    /// assert_eq!(y, [0, 10, 20, 0]);
    /// let pixels: Vec<_> = Range::new([2, 2]).items().map(|[x, y]| (x, y)).collect();
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
    ///     sums.push(group.items().map(|[i]| x[i]).sum::<i32>());
    /// }
    /// assert_eq!(sums, [6, 15]);
    /// ```
    pub fn groups(&self) -> impl Iterator<Item = Range> + use<> {
        let (whole, local) = (*self, self.local.unwrap_or(self.global));
        let counts = [0, 1, 2].map(|d| self.global[d] / local[d].max(1));
        let groups = Self { dimensions: 3, global: counts, local: None, offset: [0; 3] };
        groups.items().map(move |group: [usize; 3]| {
            let offset = [0, 1, 2].map(|d| whole.offset[d].saturating_add(group[d] * local[d]));
            Self { global: local, offset, ..whole }
        })
    }

    /// All work-items. Saturates instead of overflowing; [`check`](Self::check) refuses such a range.
    pub fn count(&self) -> usize {
        self.global.iter().fold(1usize, |n, &d| n.saturating_mul(d))
    }

    /// Whether this range can be launched at all, on any device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSize`] if a dimension is 0, if the count overflows, or if a work-group does not
    /// divide the range.
    pub fn check(&self) -> Result<()> {
        let invalid = |why: String, help| Err(Error::new(ErrorKind::InvalidSize, why).help(help));
        if self.global.contains(&0) {
            return invalid(format!("{self} has a dimension of size 0"), "leave out what has nothing to do");
        }
        if self.global.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_none() {
            let help = "launch a part of the range at a time";
            return invalid(format!("{self} has more work-items than fit into usize"), help);
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
            // It may have more dimensions than there are, which is a mistake.
            let given = local.iter().rposition(|&size| size != 1).map_or(0, |last| last + 1);
            write!(f, " in groups of {:?}", &local[..used.max(given)])?;
        }
        if self.offset != [0; 3] {
            write!(f, " from {:?}", &self.offset[..used])?;
        }
        Ok(())
    }
}

pub(super) fn widen<const D: usize>(given: [usize; D], rest: usize) -> [usize; 3] {
    let mut all = [rest; 3];
    all[..D].copy_from_slice(&given);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_ranges_are_refused() {
        for bad in [
            Range::linear(0),
            Range::new([4, 0]),
            Range::new([usize::MAX, 2]),
            Range::linear(8).local([3]),
            Range::linear(8).local([0]),
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::InvalidSize, "{bad}");
        }
        Range::new([8, 8, 8]).local([2, 4, 8]).offset([1]).check().unwrap();
    }

    #[test]
    fn items_start_at_the_offset_in_first_dimension_order() {
        let all: Vec<[usize; 3]> = Range::new([2, 1, 2]).offset([5, 6, 7]).items().collect();
        assert_eq!(all, [[5, 6, 7], [6, 6, 7], [5, 6, 8], [6, 6, 8]]);
        let first: Vec<[usize; 1]> = Range::new([2, 2]).offset([3]).items().collect();
        assert_eq!(first, [[3], [4], [3], [4]]);
        assert_eq!(Range::linear(3).items().collect::<Vec<[usize; 2]>>(), [[0, 0], [1, 0], [2, 0]]);
        assert_eq!(Range::linear(0).items::<1>().count(), 0);
    }

    #[test]
    fn groups_cover_all_items_once() {
        let range = Range::new([4, 6]).offset([1, 2]).local([2, 3]);
        let groups: Vec<_> = range.groups().collect();
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[1], Range::new([2, 3]).offset([3, 2]).local([2, 3]));
        let mut items: Vec<[usize; 2]> = groups.iter().flat_map(Range::items).collect();
        items.sort_by_key(|[x, y]| (*y, *x));
        assert!(items.into_iter().eq(range.items()));
        let whole = Range::linear(5).offset([1]);
        assert!(whole.groups().eq([whole]));
    }

    #[test]
    fn display_shows_only_what_was_given() {
        assert_eq!(Range::linear(7).to_string(), "range [7]");
        assert_eq!(
            Range::new([8, 4]).local([2, 2]).offset([1]).to_string(),
            "range [8, 4] in groups of [2, 2] from [1, 0]"
        );
    }
}

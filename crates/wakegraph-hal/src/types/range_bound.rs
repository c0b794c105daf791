//! The bound on the range of a launch.

use std::fmt;

use super::Range;
use super::range::widen;

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
/// use wakegraph::{Range, RangeBound};
/// assert!(RangeBound::from([8]).allows(&Range::linear(5).offset([3])));
/// assert!(!RangeBound::from([8]).allows(&Range::new([2, 2])));
/// assert!(RangeBound::from(8).allows(&Range::new([2, 2])));
/// assert!(!RangeBound::from(8).allows(&Range::new([2, 2]).offset([0, 3])));
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

    /// Whether the range is within it.
    pub fn allows(&self, range: &Range) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_count_the_offset_and_hold_in_every_dimension() {
        let bound = RangeBound::from([8, 4]);
        for within in [
            Range::linear(8),
            Range::new([8, 4]),
            Range::new([6, 3]).offset([2, 1]),
            Range::new([8, 4, 1]).local([2, 2]),
        ] {
            assert!(bound.allows(&within), "{within}");
        }
        for beyond in [
            Range::linear(9),
            Range::new([1, 5]),
            Range::new([6, 3]).offset([3, 1]),
            Range::new([1, 1, 2]),
            Range::new([1, 1, 1]).offset([0, 0, 1]),
            Range::linear(2).offset([usize::MAX]),
        ] {
            assert!(!bound.allows(&beyond), "{beyond}");
        }
    }

    #[test]
    fn products_are_of_the_ends_and_do_not_wrap() {
        let bound = RangeBound::from(24);
        assert!(bound.allows(&Range::new([2, 3, 4])));
        assert!(bound.allows(&Range::new([1, 3, 4]).offset([1])));
        for beyond in [
            Range::linear(25),
            Range::new([2, 3, 4]).offset([0, 1]),
            Range::linear(1).offset([usize::MAX]),
            Range::new([1, 1]).offset([usize::MAX / 2, 4]),
        ] {
            assert!(!bound.allows(&beyond), "{beyond}");
        }
        assert!(RangeBound::ANY.allows(&Range::linear(2).offset([usize::MAX])));
        assert!(!RangeBound::from(0).allows(&Range::linear(1)));
    }
}

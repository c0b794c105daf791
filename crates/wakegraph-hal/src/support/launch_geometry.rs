//! How many work-groups a launch has, and how large they are, for devices that launch whole
//! work-groups.

use crate::{Error, ErrorKind, Range, Result};

/// Work-items of a work-group for which no size is given.
const USUAL_BLOCK: usize = 256;

/// What a device can launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchLimits {
    /// The largest size of a work-group in each dimension.
    pub block: [usize; 3],
    /// The most work-groups in each dimension.
    pub grid: [usize; 3],
    /// The most work-items in each dimension, those of the last work-group included.
    pub items: usize,
    /// Work-items that the hardware issues together.
    pub warp: usize,
}

/// The number of work-groups in each dimension, and their size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchGeometry {
    /// Number of work-groups in each dimension.
    pub grid: [u32; 3],
    /// Work-items of a work-group in each dimension.
    pub block: [u32; 3],
}

impl LaunchGeometry {
    /// Work-groups of the size that the range gives, or of one that suits it and has at most `most`
    /// work-items.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) where the device cannot launch as many.
    pub fn of(range: &Range, most: usize, limits: &LaunchLimits) -> Result<Self> {
        let global = range.global_size();
        let block = range.local_size().unwrap_or_else(|| usual_block(range, most, limits));
        let mut grid = [0; 3];
        for (dimension, groups) in grid.iter_mut().enumerate() {
            let size = block[dimension].max(1);
            *groups = global[dimension].div_ceil(size);
            let allowed = limits.grid[dimension].min(limits.items / size);
            if *groups > allowed {
                let why = format!(
                    "{range}: {groups} work-groups in dimension {dimension}, the device allows {allowed}"
                );
                return Err(Error::new(ErrorKind::InvalidSize, why)
                    .help("put the largest dimension first, or launch the kernel over parts"));
            }
        }
        let narrow = |sizes: [usize; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        Ok(Self { grid: narrow(grid), block: narrow(block) })
    }

    /// Whether there are more work-items than these in any dimension.
    pub fn is_larger_than(&self, global: [usize; 3]) -> bool {
        (0..3).any(|d| u64::from(self.grid[d]) * u64::from(self.block[d]) > global[d] as u64)
    }

    /// Work-groups for so many work-items, in one dimension.
    pub fn linear(items: usize) -> Self {
        let block = items.clamp(1, USUAL_BLOCK);
        Self { grid: [items.div_ceil(block) as u32, 1, 1], block: [block as u32, 1, 1] }
    }
}

/// A work-group of whole warps along the first dimension, if there are as many work-items, and as
/// many rows of them as the usual size allows.
fn usual_block(range: &Range, most: usize, limits: &LaunchLimits) -> [usize; 3] {
    let global = range.global_size();
    let mut left = USUAL_BLOCK.min(most).max(1);
    let mut block = [1; 3];
    let first = if range.dimensions() == 1 { left } else { limits.warp.min(left) };
    block[0] = first.min(global[0]).min(limits.block[0]);
    left /= block[0].max(1);
    for dimension in 1..3 {
        // A power of two, so that the rest can be used up.
        let wanted = global[dimension].min(USUAL_BLOCK).next_power_of_two();
        let fits = wanted.min(limits.block[dimension]).min(left.max(1));
        block[dimension] = if fits.is_power_of_two() { fits } else { fits.next_power_of_two() / 2 };
        left /= block[dimension].max(1);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LaunchLimits = LaunchLimits {
        block: [1024, 1024, 64],
        grid: [(1 << 31) - 1, 65_535, 65_535],
        items: usize::MAX,
        warp: 32,
    };

    fn geometry(range: &Range, most: usize) -> Result<([u32; 3], [u32; 3])> {
        LaunchGeometry::of(range, most, &LIMITS).map(|LaunchGeometry { grid, block }| (grid, block))
    }

    #[test]
    fn the_usual_work_group_covers_the_range_and_stays_within_limits() {
        for range in [
            Range::linear(1),
            Range::linear(31),
            Range::linear(1 << 33),
            Range::new([3, 5]),
            Range::new([5000, 3000]),
            Range::new([1, 100_000]),
            Range::new([2, 3, 4]),
            Range::new([1, 1, 100_000]),
            Range::new([640, 480, 20]),
        ] {
            for most in [1, 32, 96, 256, 1024] {
                let (grid, block) = geometry(&range, most).unwrap_or_default();
                if most < 256 && grid == [0; 3] {
                    continue;
                }
                assert!(block.iter().product::<u32>() as usize <= most.min(256), "{range} {block:?}");
                for dimension in 0..3 {
                    let covered = grid[dimension] as usize * block[dimension] as usize;
                    assert!(covered >= range.global_size()[dimension], "{range} {grid:?} {block:?}");
                    assert!(block[dimension] as usize <= LIMITS.block[dimension]);
                }
            }
        }
        let (_, block) = geometry(&Range::linear(1 << 20), 1024).unwrap();
        assert_eq!(block, [256, 1, 1]);
        let (grid, block) = geometry(&Range::linear(5), 1024).unwrap();
        assert_eq!((grid, block), ([1, 1, 1], [5, 1, 1]));
        let (_, block) = geometry(&Range::new([640, 480]), 1024).unwrap();
        assert_eq!(block, [32, 8, 1]);
        let wide = LaunchGeometry::of(&Range::new([640, 480]), 1024, &LaunchLimits { warp: 64, ..LIMITS });
        assert_eq!(wide.unwrap().block, [64, 4, 1]);
    }

    #[test]
    fn a_given_work_group_is_kept_and_too_many_are_refused() {
        let (grid, block) = geometry(&Range::new([8, 6]).local([4, 2]), 1024).unwrap();
        assert_eq!((grid, block), ([2, 3, 1], [4, 2, 1]));
        for range in
            [Range::new([1, 70_000]).local([1, 1]), Range::new([1, usize::MAX]), Range::linear(1 << 63)]
        {
            assert_eq!(geometry(&range, 1024).unwrap_err().kind(), ErrorKind::InvalidSize, "{range}");
        }
    }

    #[test]
    fn whole_work_groups_count_as_work_items() {
        let limits = LaunchLimits { items: u32::MAX as usize, ..LIMITS };
        let launch = |items| LaunchGeometry::of(&Range::linear(items), 1024, &limits);
        assert_eq!(launch((1 << 32) - 256).unwrap().grid, [(1 << 24) - 1, 1, 1]);
        for items in [(1 << 32) - 255, 1 << 32, 1 << 40] {
            assert_eq!(launch(items).unwrap_err().kind(), ErrorKind::InvalidSize, "{items}");
        }
    }

    #[test]
    fn linear_work_groups_cover_all_work_items() {
        for items in [1, 5, 256, 257, 1 << 19] {
            let LaunchGeometry { grid, block } = LaunchGeometry::linear(items);
            assert!((grid[0] * block[0]) as usize >= items && block[0] <= 256);
        }
    }
}

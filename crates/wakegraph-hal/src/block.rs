//! Blocks: the parts into which a host device divides a launch, to run them on several threads.
//!
//! A launch that is divided writes memory of which each unit, a work-item or a work-group, owns a part of
//! its own. So blocks without a common unit write no common element, whatever the code is.
#![expect(unsafe_code, reason = "gives each work-group its part of memory that several threads write")]

use std::marker::PhantomData;
use std::ops::{self, Index, IndexMut};
use std::slice;

use crate::Range;
use crate::types::unfold;

/// The unit of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockUnit {
    /// Single work-items.
    WorkItem,
    /// Whole work-groups.
    WorkGroup,
}

impl BlockUnit {
    /// Number of them in a range.
    pub fn count(self, range: &Range) -> usize {
        match self {
            Self::WorkItem => range.count(),
            Self::WorkGroup => range.group_counts().iter().product(),
        }
    }
}

/// Units of a launch that follow each other, those of the first dimension first.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    range: Range,
    unit: BlockUnit,
    first: usize,
    end: usize,
}

impl Block {
    /// The units with these numbers, of those that the launch has.
    pub fn new(range: Range, unit: BlockUnit, units: ops::Range<usize>) -> Self {
        let end = units.end.min(unit.count(&range));
        Self { range, unit, first: units.start.min(end), end }
    }

    /// All work-items of a range.
    pub fn whole(range: Range) -> Self {
        Self::new(range, BlockUnit::WorkItem, 0..usize::MAX)
    }

    /// The range of the launch.
    pub fn range(&self) -> &Range {
        &self.range
    }

    /// The unit of the block.
    pub fn unit(&self) -> BlockUnit {
        self.unit
    }

    /// Number of units.
    pub fn len(&self) -> usize {
        self.end - self.first
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The [places](Range::place) of its work-items, and those between them.
    pub(crate) fn places(&self) -> ops::Range<usize> {
        match self.first < self.end {
            true => {
                let place = |item| self.range.place(self.range.item(item));
                place(self.first)..place(self.end - 1).wrapping_add(1)
            }
            false => 0..0,
        }
    }

    /// Iterates over its work-items, one row of the first dimension after the other.
    pub fn rows(&self) -> impl Iterator<Item = Row> + use<> {
        let Self { range, end, .. } = *self;
        let (width, begin) = (range.global_size()[0].max(1), self.places().start);
        let mut next = self.first;
        std::iter::from_fn(move || {
            let first = (next < end).then(|| range.item(next))?;
            let len = (width - next % width).min(end - next);
            next += len;
            Some(Row { first, len, start: range.place(first).wrapping_sub(begin) })
        })
    }

    /// Iterates over its work-groups, each as [`Range::groups`] has them.
    pub fn groups(&self) -> impl Iterator<Item = Range> + use<> {
        let (range, mut groups) = (self.range, self.cursor());
        std::iter::from_fn(move || groups.next().map(|(_, at)| range.group_at(at)))
    }

    fn cursor(&self) -> GroupCursor {
        let counts = self.range.group_counts();
        GroupCursor { counts, next: self.first, at: unfold(self.first, counts), end: self.end }
    }
}

/// Goes through the work-groups of a block without a division for each.
#[derive(Clone, Copy, Debug)]
struct GroupCursor {
    counts: [usize; 3],
    next: usize,
    at: [usize; 3],
    end: usize,
}

impl GroupCursor {
    /// The number of the next group, and where it is among the groups.
    #[inline]
    fn next(&mut self) -> Option<(usize, [usize; 3])> {
        let group = (self.next < self.end).then_some((self.next, self.at));
        self.next += 1;
        self.at[0] += 1;
        for d in [0, 1] {
            if self.at[d] == self.counts[d] {
                self.at[d] = 0;
                self.at[d + 1] += 1;
            }
        }
        group
    }
}

/// Work-items of a block that follow each other in the first dimension.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    first: [usize; 3],
    len: usize,
    start: usize,
}

impl Row {
    /// The index of the first one in the first dimension.
    #[inline]
    pub fn first(&self) -> usize {
        self.first[0]
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Their elements, of those that [belong](crate::HostArgs::items) to the block.
    ///
    /// # Panics
    /// If these are fewer than the block has.
    #[inline]
    pub fn elements<'a, T>(&self, of_block: &'a mut [T]) -> &'a mut [T] {
        &mut of_block[self.start..][..self.len]
    }

    /// The whole index of the work-item that has this one in the first dimension.
    #[inline]
    pub fn index<const D: usize>(&self, x: usize) -> [usize; D] {
        let index = [x, self.first[1], self.first[2]];
        std::array::from_fn(|dimension| index[dimension])
    }
}

/// Memory that the work-groups of a block write, each its own part.
///
/// | elements of the memory | a group's part |
/// |---|---|
/// | one for each [place](Range::elements) of the range | those of its work-items, as a rectangle |
/// | a multiple of the number of groups | an equal share, in the order of the groups |
#[derive(Debug)]
pub struct GroupParts<'a, T> {
    start: *mut T,
    groups: GroupCursor,
    division: Division,
    /// Of a part.
    size: [usize; 3],
    strides: [usize; 2],
    range: Range,
    memory: PhantomData<&'a mut [T]>,
}

/// Division of memory among work-groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// An element for each work-item.
    Items,
    /// An equal number of elements for each group.
    Share(usize),
}

impl Division {
    /// The division of so many elements, if there is one.
    pub fn of(elements: usize, range: &Range) -> Option<Self> {
        let groups = BlockUnit::WorkGroup.count(range);
        match () {
            () if range.elements() == Some(elements) => Some(Self::Items),
            () if groups > 0 && elements.is_multiple_of(groups) => Some(Self::Share(elements / groups)),
            () => None,
        }
    }
}

impl<T> GroupParts<'_, T> {
    /// Divides memory of so many elements, if it can be.
    ///
    /// # Safety
    /// For the object's lifetime, nothing else accesses what belongs to the groups of the block.
    pub(crate) unsafe fn new(start: *mut T, elements: usize, block: Block) -> Option<Self> {
        let division = Division::of(elements, &block.range)?;
        let (size, strides) = match division {
            Division::Share(len) => ([len, 1, 1], [len, len]),
            Division::Items => {
                let ends = block.range.ends()?;
                let local = block.range.local_size().unwrap_or(block.range.global_size());
                (local, [ends[0], ends[0] * ends[1]])
            }
        };
        let groups = block.cursor();
        Some(Self { start, groups, division, size, strides, range: block.range, memory: PhantomData })
    }

    /// The part of the block's next group, of those that [`Block::groups`] has, in their order.
    ///
    /// # Panics
    /// Behind the last group.
    #[inline]
    pub fn next_part(&mut self) -> Part<'_, T> {
        let (number, at) = self.groups.next().expect("a part is asked for behind the last group");
        let place = match self.division {
            Division::Share(len) => number * len,
            Division::Items => {
                let offset = self.range.offset();
                let [x, y, z] = [0, 1, 2].map(|d| offset[d] + at[d] * self.size[d]);
                z * self.strides[1] + y * self.strides[0] + x
            }
        };
        // SAFETY: the place is below the number of elements, which `Division::of` compared.
        let start = unsafe { self.start.add(place) };
        Part { start, size: self.size, strides: self.strides, memory: PhantomData }
    }
}

/// The elements that a work-group owns, up to three dimensions of them. Indices begin at 0 in each group, and
/// an index beyond the part panics, as that of a slice does.
#[derive(Debug)]
pub struct Part<'a, T> {
    start: *mut T,
    size: [usize; 3],
    /// Elements from one row to the next, and from one plane to the next.
    strides: [usize; 2],
    memory: PhantomData<&'a mut [T]>,
}

impl<T> Part<'_, T> {
    /// Elements in each dimension.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }

    /// Elements in all dimensions.
    pub fn len(&self) -> usize {
        self.size.iter().product()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A row, which is all there is in one dimension.
    ///
    /// # Panics
    /// If there are fewer rows or planes.
    #[inline]
    pub fn row(&mut self, y: usize, z: usize) -> &mut [T] {
        let row = self.row_start(y, z).cast_mut();
        // SAFETY: the row lies in the part, which belongs to this object; it is borrowed for as long.
        unsafe { slice::from_raw_parts_mut(row, self.size[0]) }
    }

    #[inline]
    fn row_start(&self, y: usize, z: usize) -> *const T {
        let [_, rows, planes] = self.size;
        assert!(y < rows && z < planes, "row {y} of plane {z} is beyond {:?}", self.size);
        // SAFETY: the row lies in the part, all of which is in one allocation.
        unsafe { self.start.add(z * self.strides[1] + y * self.strides[0]) }
    }

    #[inline]
    fn shared_row(&self, y: usize, z: usize) -> &[T] {
        let row = self.row_start(y, z);
        // SAFETY: as in `row`; this object is borrowed, so nothing writes the part.
        unsafe { slice::from_raw_parts(row, self.size[0]) }
    }
}

impl<T> Index<usize> for Part<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, x: usize) -> &T {
        &self.shared_row(0, 0)[x]
    }
}

impl<T> IndexMut<usize> for Part<'_, T> {
    #[inline]
    fn index_mut(&mut self, x: usize) -> &mut T {
        &mut self.row(0, 0)[x]
    }
}

impl<T> Index<[usize; 2]> for Part<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, [x, y]: [usize; 2]) -> &T {
        &self.shared_row(y, 0)[x]
    }
}

impl<T> IndexMut<[usize; 2]> for Part<'_, T> {
    #[inline]
    fn index_mut(&mut self, [x, y]: [usize; 2]) -> &mut T {
        &mut self.row(y, 0)[x]
    }
}

impl<T> Index<[usize; 3]> for Part<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, [x, y, z]: [usize; 3]) -> &T {
        &self.shared_row(y, z)[x]
    }
}

impl<T> IndexMut<[usize; 3]> for Part<'_, T> {
    #[inline]
    fn index_mut(&mut self, [x, y, z]: [usize; 3]) -> &mut T {
        &mut self.row(y, z)[x]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ranges of one to three dimensions, with offsets and work-groups.
    fn ranges() -> impl Strategy<Value = Range> {
        let dimension = (1usize..5, 1usize..4, 0usize..4);
        (1usize..4, [dimension.clone(), dimension.clone(), dimension]).prop_map(|(dimensions, sizes)| {
            let of = |d: usize, unused: usize, value: usize| if d < dimensions { value } else { unused };
            let global = [0, 1, 2].map(|d| of(d, 1, sizes[d].0 * sizes[d].1));
            let range = match dimensions {
                1 => Range::new([global[0]]),
                2 => Range::new([global[0], global[1]]),
                _ => Range::new(global),
            };
            range
                .local([0, 1, 2].map(|d| of(d, 1, sizes[d].1)))
                .starting_at([0, 1, 2].map(|d| of(d, 0, sizes[d].2)))
        })
    }

    /// Blocks of any sizes that make up the range.
    fn blocks(range: Range, unit: BlockUnit, sizes: &[usize]) -> Vec<Block> {
        let (mut first, mut blocks) = (0, Vec::new());
        for size in sizes.iter().cycle() {
            if first >= unit.count(&range) {
                return blocks;
            }
            blocks.push(Block::new(range, unit, first..first + size));
            first += size;
        }
        blocks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn rows_have_each_work_item_once_and_in_order(
            range in ranges(),
            sizes in prop::collection::vec(1usize..9, 1..4),
        ) {
            let mut items = Vec::new();
            for block in blocks(range, BlockUnit::WorkItem, &sizes) {
                let mut part: Vec<usize> = block.places().collect();
                for row in block.rows() {
                    for (at, place) in row.elements(&mut part).iter().enumerate() {
                        let index = row.index::<3>(row.first() + at);
                        prop_assert_eq!(*place, range.place(index));
                        items.push(index);
                    }
                }
            }
            prop_assert!(items.into_iter().eq(range.items::<3>()));
        }

        #[test]
        fn blocks_of_work_items_have_no_common_place(
            range in ranges(),
            sizes in prop::collection::vec(1usize..9, 1..4),
        ) {
            let elements = range.elements().unwrap();
            let mut end = 0;
            for block in blocks(range, BlockUnit::WorkItem, &sizes) {
                let places = block.places();
                prop_assert!(places.start >= end && places.end <= elements, "{places:?} after {end}");
                end = places.end;
            }
        }

        #[test]
        fn groups_own_each_element_of_their_work_items_once(
            range in ranges(),
            sizes in prop::collection::vec(1usize..4, 1..4),
        ) {
            let mut memory = vec![0u32; range.elements().unwrap()];
            for block in blocks(range, BlockUnit::WorkGroup, &sizes) {
                // SAFETY: nothing else uses the memory meanwhile.
                let mut parts = unsafe { GroupParts::new(memory.as_mut_ptr(), memory.len(), block) }.unwrap();
                for group in block.groups() {
                    let mut part = parts.next_part();
                    let first = group.offset();
                    for index in group.items::<3>() {
                        part[[0, 1, 2].map(|d| index[d] - first[d])] += 1;
                    }
                }
            }
            let mut expected = vec![0u32; memory.len()];
            range.items().for_each(|index| expected[range.place(index)] = 1);
            prop_assert_eq!(memory, expected);
        }

        #[test]
        fn groups_own_equal_shares(
            range in ranges(),
            sizes in prop::collection::vec(1usize..4, 1..4),
            each in 1usize..4,
        ) {
            let groups = BlockUnit::WorkGroup.count(&range);
            prop_assume!(range.elements() != Some(each * groups));
            let mut memory = vec![0; each * groups];
            for block in blocks(range, BlockUnit::WorkGroup, &sizes) {
                // SAFETY: as above.
                let mut parts = unsafe { GroupParts::new(memory.as_mut_ptr(), memory.len(), block) }.unwrap();
                for group in block.groups() {
                    let mut part = parts.next_part();
                    prop_assert_eq!(part.len(), each);
                    let number = range.groups().position(|other| other == group).unwrap();
                    part.row(0, 0).fill(number + 1);
                }
            }
            let expected: Vec<usize> = (0..groups).flat_map(|group| vec![group + 1; each]).collect();
            prop_assert_eq!(memory, expected);
        }
    }

    #[test]
    #[should_panic(expected = "behind the last group")]
    fn a_block_has_only_its_own_groups() {
        let range = Range::linear(8).local([2]);
        let mut memory = [0; 8];
        let block = Block::new(range, BlockUnit::WorkGroup, 0..2);
        // SAFETY: nothing else uses the memory meanwhile.
        let mut parts = unsafe { GroupParts::new(memory.as_mut_ptr(), memory.len(), block) }.unwrap();
        for _ in 0..3 {
            parts.next_part();
        }
    }

    #[test]
    #[should_panic(expected = "is beyond")]
    fn an_index_beyond_a_part_panics() {
        let range = Range::new([4, 4]).local([2, 2]);
        let mut memory = [0; 16];
        let block = Block::new(range, BlockUnit::WorkGroup, 0..4);
        // SAFETY: nothing else uses the memory meanwhile.
        let mut parts = unsafe { GroupParts::new(memory.as_mut_ptr(), memory.len(), block) }.unwrap();
        parts.next_part()[[0, 2]] = 1;
    }
}

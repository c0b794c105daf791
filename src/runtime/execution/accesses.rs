//! The accesses of an executable, a guard or a command to memory: to each allocation a list of disjoint
//! ranges of bytes.

use std::ops::Deref;
use std::sync::Arc;

use wakegraph_hal::{Access, AccessMode};

use crate::runtime::resource::allocation::Allocation;

/// The accesses of one executable, guard or command to one allocation, [`merged`]. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum MergedAccesses {
    One([Access; 1]),
    Several(Arc<[Access]>),
}

impl MergedAccesses {
    /// Whether both are known to be equal without a comparison of lists.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::One(one), Self::One(other)) => one == other,
            (Self::Several(one), Self::Several(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The ranges are merged already.
impl From<Vec<Access>> for MergedAccesses {
    fn from(accesses: Vec<Access>) -> Self {
        match accesses[..] {
            [one] => Self::One([one]),
            _ => Self::Several(accesses.into()),
        }
    }
}

impl From<Access> for MergedAccesses {
    fn from(access: Access) -> Self {
        Self::One([access])
    }
}

impl Deref for MergedAccesses {
    type Target = [Access];

    fn deref(&self) -> &[Access] {
        match self {
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

/// Whether any of these accesses writes.
pub(crate) fn writes(accesses: &[Access]) -> bool {
    accesses.iter().any(|access| access.mode.writes())
}

/// Whether two lists conflict: some byte is used by both and written by one. Both lists are [`merged`].
pub(crate) fn conflict(ours: &[Access], theirs: &[Access]) -> bool {
    let (mut a, mut b) = (0, 0);
    while let (Some(x), Some(y)) = (ours.get(a), theirs.get(b)) {
        if x.conflicts_with(y) {
            return true;
        }
        if x.end <= y.end { a += 1 } else { b += 1 }
    }
    false
}

/// Whether everything that conflicts with `theirs` also conflicts with `ours`. Both lists are [`merged`]. May
/// be false where several of our ranges are needed to cover one of theirs.
pub(crate) fn covers(ours: &[Access], theirs: &[Access]) -> bool {
    let mut ours = ours.iter().peekable();
    theirs.iter().all(|theirs| {
        while ours.next_if(|ours| ours.end < theirs.end).is_some() {}
        ours.peek()
            .is_some_and(|ours| ours.start <= theirs.start && (ours.mode.writes() || !theirs.mode.writes()))
    })
}

/// The accesses to one allocation as disjoint ranges in ascending order, each either written or only read.
/// Conflicts are decided on these, so their cost does not depend on the number of nodes.
pub(crate) fn merged(accesses: &[Access]) -> Vec<Access> {
    let Some(resource) = accesses.first().map(|access| access.resource) else { return Vec::new() };
    // Sweep over the boundaries, counting open reads and writes.
    let mut boundaries: Vec<(usize, i64, i64)> = Vec::with_capacity(2 * accesses.len());
    for access in accesses.iter().filter(|access| access.start < access.end) {
        let (reads, writes) = if access.mode.writes() { (0, 1) } else { (1, 0) };
        boundaries.push((access.start, reads, writes));
        boundaries.push((access.end, -reads, -writes));
    }
    boundaries.sort_unstable();
    let mut ranges: Vec<Access> = Vec::new();
    let (mut start, mut reads, mut writes) = (0, 0i64, 0i64);
    for (at, more_reads, more_writes) in boundaries {
        if at > start && (reads > 0 || writes > 0) {
            let mode = if writes > 0 { AccessMode::ReadWrite } else { AccessMode::Read };
            match ranges.last_mut() {
                Some(last) if last.end == start && last.mode == mode => last.end = at,
                _ => ranges.push(Access { resource, start, end: at, mode }),
            }
        }
        start = at;
        reads += more_reads;
        writes += more_writes;
    }
    ranges
}

/// The accesses of any allocations, [`merged`] for each of them, in the order of the resources.
pub(crate) fn merged_by_allocation(mut accesses: Vec<Access>) -> Vec<Access> {
    accesses.sort_by_key(|access| access.resource);
    accesses.chunk_by(|a, b| a.resource == b.resource).flat_map(merged).collect()
}

/// The memory of an executable that others use, or hold guards of, in a conflicting way, in the order of the
/// resources. Each submission records its run in the registers of these allocations; other allocations cost a
/// submission nothing.
#[derive(Clone, Default)]
pub(crate) struct Contested(Option<Arc<Vec<UsedAllocation>>>);

/// An allocation, and what an executable or a command does to it.
#[derive(Clone)]
pub(crate) struct UsedAllocation {
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) accesses: MergedAccesses,
}

impl UsedAllocation {
    /// An allocation with a single access to it.
    pub(crate) fn new(allocation: Arc<Allocation>, access: Access) -> Self {
        Self { allocation, accesses: access.into() }
    }
}

impl Contested {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether nothing has changed since `other` was cloned from it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (None, None) => true,
            _ => false,
        }
    }

    pub(super) fn all(&self) -> &[UsedAllocation] {
        self.0.as_ref().map_or(&[], |all| all)
    }

    pub(super) fn insert(&mut self, allocation: &Arc<Allocation>, accesses: &MergedAccesses) {
        let one = UsedAllocation { allocation: allocation.clone(), accesses: accesses.clone() };
        let all = Arc::make_mut(self.0.get_or_insert_default());
        match find(all, allocation) {
            Ok(at) => all[at] = one,
            Err(at) => all.insert(at, one),
        }
    }

    pub(super) fn remove(&mut self, allocation: &Arc<Allocation>) {
        let Some(all) = &mut self.0 else { return };
        let Ok(at) = find(all, allocation) else { return };
        if all.len() == 1 {
            self.0 = None;
        } else {
            Arc::make_mut(all).remove(at);
        }
    }
}

fn find(all: &[UsedAllocation], allocation: &Allocation) -> Result<usize, usize> {
    let resource = allocation.memory().resource();
    all.binary_search_by_key(&resource, |one| one.allocation.memory().resource())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use wakegraph_hal::ResourceId;

    use super::*;

    /// Some accesses to one allocation of 50 bytes.
    pub(crate) fn accesses(resource: ResourceId) -> impl Strategy<Value = Vec<Access>> {
        let one = (0usize..40, 0usize..10, any::<bool>()).prop_map(move |(start, len, write)| Access {
            resource,
            start,
            end: start + len,
            mode: if write { AccessMode::Write } else { AccessMode::Read },
        });
        prop::collection::vec(one, 1..8)
    }

    fn two_lists() -> impl Strategy<Value = (Vec<Access>, Vec<Access>)> {
        Just(ResourceId::unique()).prop_flat_map(|resource| (accesses(resource), accesses(resource)))
    }

    proptest! {
        #[test]
        fn merging_keeps_exactly_the_conflicts((ours, theirs) in two_lists()) {
            let pairwise = ours.iter().any(|x| theirs.iter().any(|y| x.conflicts_with(y)));
            prop_assert_eq!(conflict(&merged(&ours), &merged(&theirs)), pairwise);
        }

        #[test]
        fn merged_ranges_are_disjoint_and_ascending(ours in accesses(ResourceId::unique())) {
            let merged = merged(&ours);
            prop_assert!(merged.iter().all(|range| range.start < range.end));
            prop_assert!(merged.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }

        #[test]
        fn what_conflicts_with_the_covered_conflicts_with_the_cover((ours, theirs) in two_lists()) {
            let (ours, theirs) = (merged(&ours), merged(&theirs));
            prop_assert!(covers(&ours, &ours));
            let Some(&theirs_first) = theirs.first() else { return Ok(()) };
            if covers(&ours, &theirs) {
                let uses = |at| [(at, AccessMode::Read), (at, AccessMode::Write)];
                for (start, mode) in (0..50).flat_map(uses) {
                    let byte = [Access { start, end: start + 1, mode, ..theirs_first }];
                    prop_assert!(!conflict(&byte, &theirs) || conflict(&byte, &ours));
                }
            }
        }
    }
}

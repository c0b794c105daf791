//! Chains of events that wait for each other, for backends: settled and dropped without recursion,
//! so that the length of a chain is not limited by the stack.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

/// Where one link of a chain stands.
#[derive(Debug)]
pub(crate) enum Link<L> {
    /// How it ended is known.
    Settled,
    /// It is not over.
    Pending,
    /// It is over; how it ended depends on this link, which has to be settled first.
    Behind(L),
}

/// Settles a link, and before it all links that it depends on. `step` tries to settle one of them,
/// and is called again for a link that was [`Behind`](Link::Behind) another. Returns whether the
/// first link is settled.
pub(crate) fn settle<L>(first: L, mut step: impl FnMut(&L) -> Link<L>) -> bool {
    let mut open: SmallVec<[L; 4]> = smallvec![first];
    while let Some(last) = open.last() {
        match step(last) {
            Link::Settled => drop(open.pop()),
            Link::Pending => return false,
            Link::Behind(other) => open.push(other),
        }
    }
    true
}

/// Drops links, and every link that only they hold. `take` takes out the links that one holds.
pub(crate) fn release<T, I: IntoIterator<Item = Arc<T>>>(
    links: impl IntoIterator<Item = Arc<T>>,
    mut take: impl FnMut(&mut T) -> I,
) {
    let mut open: SmallVec<[Arc<T>; 4]> = links.into_iter().collect();
    while let Some(link) = open.pop() {
        if let Some(mut link) = Arc::into_inner(link) {
            open.extend(take(&mut link));
        }
    }
}

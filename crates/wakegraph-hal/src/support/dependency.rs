//! Spreads the failure of one enqueue to those that depend on it, for drivers that do not.
//!
//! Each enqueue has an [`EnqueueOutcome`] and the [`Dependencies`] whose results it needs. Chains
//! of them have any length, so they are settled and dropped without recursion.

use std::sync::{Arc, OnceLock};

use smallvec::{SmallVec, smallvec};

use crate::{Error, EventStatus};

/// How one enqueue ended, once that is known. It is set once.
#[derive(Debug, Default)]
pub struct EnqueueOutcome(OnceLock<Option<Error>>);

impl EnqueueOutcome {
    /// Sets how the enqueue ended, unless that is known already.
    pub fn set(&self, failure: Option<Error>) {
        let _ = self.0.set(failure);
    }

    /// Returns true once the enqueue has succeeded or failed.
    pub fn is_known(&self) -> bool {
        self.0.get().is_some()
    }

    /// Why the enqueue failed, if that is known and it did.
    pub fn failure(&self) -> Option<&Error> {
        self.0.get()?.as_ref()
    }

    /// Pending until the outcome is known.
    pub fn status(&self) -> EventStatus {
        match self.0.get() {
            None => EventStatus::Pending,
            Some(None) => EventStatus::Complete,
            Some(Some(error)) => EventStatus::Failed(error.clone()),
        }
    }
}

/// A reference to an enqueue whose result another one needs.
pub trait Dependency: Clone {
    /// The outcome of the enqueue that it stands for.
    fn outcome(&self) -> &EnqueueOutcome;
}

/// The enqueues whose results one needs.
#[derive(Debug)]
pub struct Dependencies<D>(SmallVec<[D; 2]>);

impl<D> Default for Dependencies<D> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<D: Dependency> Dependencies<D> {
    /// Adds a dependency.
    pub fn push(&mut self, dependency: D) {
        self.0.push(dependency);
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first one whose outcome is not known yet.
    pub fn first_open(&self) -> Option<D> {
        self.0.iter().find(|dependency| !dependency.outcome().is_known()).cloned()
    }

    /// The first failure that is known.
    pub fn failure(&self) -> Option<&Error> {
        self.0.iter().find_map(|dependency| dependency.outcome().failure())
    }
}

impl<D> IntoIterator for Dependencies<D> {
    type Item = D;
    type IntoIter = smallvec::IntoIter<[D; 2]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// What an attempt to settle an enqueue found.
#[derive(Debug)]
pub enum SettleStep<D> {
    /// Its outcome is known now.
    Settled,
    /// It still runs.
    Pending,
    /// It is over. How it ended depends on this one, which has to be settled first.
    Needs(D),
}

/// Settles an enqueue, and before it those whose results it needs. `attempt` tries to settle one of
/// them, and is called again after the one that it [needed](SettleStep::Needs). Returns whether the
/// first one is settled.
pub fn settle<D>(first: D, mut attempt: impl FnMut(&D) -> SettleStep<D>) -> bool {
    let mut open: SmallVec<[D; 4]> = smallvec![first];
    while let Some(last) = open.last() {
        match attempt(last) {
            SettleStep::Settled => drop(open.pop()),
            SettleStep::Pending => return false,
            SettleStep::Needs(other) => open.push(other),
        }
    }
    true
}

/// Drops references, and all that only they keep alive. `take` takes out the references that a
/// value holds.
pub fn release<T, I: IntoIterator<Item = Arc<T>>>(
    references: impl IntoIterator<Item = Arc<T>>,
    mut take: impl FnMut(&mut T) -> I,
) {
    let mut open: SmallVec<[Arc<T>; 4]> = references.into_iter().collect();
    while let Some(reference) = open.pop() {
        if let Some(mut value) = Arc::into_inner(reference) {
            open.extend(take(&mut value));
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::ErrorKind;

    #[derive(Default)]
    struct Enqueue {
        outcome: EnqueueOutcome,
        needs: Mutex<Dependencies<Arc<Enqueue>>>,
        fails: bool,
    }

    impl Dependency for Arc<Enqueue> {
        fn outcome(&self) -> &EnqueueOutcome {
            &self.outcome
        }
    }

    impl Drop for Enqueue {
        fn drop(&mut self) {
            release(std::mem::take(self.needs.get_mut()), |other| std::mem::take(other.needs.get_mut()));
        }
    }

    fn attempt(enqueue: &Arc<Enqueue>) -> SettleStep<Arc<Enqueue>> {
        let needs = enqueue.needs.lock();
        match needs.first_open() {
            Some(open) => SettleStep::Needs(open),
            None => {
                let own = || enqueue.fails.then(|| Error::new(ErrorKind::Driver, "broken"));
                enqueue.outcome.set(needs.failure().cloned().or_else(own));
                SettleStep::Settled
            }
        }
    }

    /// Each depends on the one before; the first may fail.
    fn chain(fails: bool) -> Vec<Arc<Enqueue>> {
        let mut first = Enqueue::default();
        first.fails = fails;
        let mut all = vec![Arc::new(first)];
        for index in 0..if cfg!(miri) { 300 } else { 100_000 } {
            let next = Enqueue::default();
            next.needs.lock().push(Arc::clone(&all[index]));
            all.push(Arc::new(next));
        }
        all
    }

    #[test]
    fn long_chains_settle_and_drop_without_recursion() {
        for fails in [false, true] {
            let mut all = chain(fails);
            let last = all.pop().unwrap();
            assert!(matches!(last.outcome.status(), EventStatus::Pending));
            assert!(settle(Arc::clone(&last), attempt));
            match last.outcome.status() {
                EventStatus::Failed(error) => assert!(fails && error.message() == "broken"),
                status => assert!(!fails && matches!(status, EventStatus::Complete)),
            }
            assert_eq!(all[0].outcome.failure().is_some(), fails);
            drop((all, last));
        }
    }

    #[test]
    fn a_pending_dependency_leaves_the_chain_pending() {
        let all = chain(false);
        let last = Arc::clone(&all[100]);
        let first = &all[0];
        let pending = |enqueue: &Arc<Enqueue>| match Arc::ptr_eq(enqueue, first) {
            true => SettleStep::Pending,
            false => attempt(enqueue),
        };
        assert!(!settle(last, pending));
        assert!(!all[100].outcome.is_known());
    }

    #[test]
    fn the_first_outcome_stays() {
        let outcome = EnqueueOutcome::default();
        outcome.set(None);
        outcome.set(Some(Error::new(ErrorKind::Driver, "late")));
        assert!(matches!(outcome.status(), EventStatus::Complete));
        assert!(outcome.is_known() && outcome.failure().is_none());
    }
}

//! The executables that use one allocation. Those that only read are apart from those that write: an
//! executable that reads has no conflict with the thousands that read the same.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;
use wakegraph_hal::Access;

use crate::runtime::execution::accesses::{MergedAccesses, conflict, writes};
use crate::runtime::execution::executable::{ExecutableId, ExecutableInner};

/// An executable that uses the allocation.
pub(super) struct User {
    pub(super) id: ExecutableId,
    pub(super) executable: Weak<ExecutableInner>,
    pub(super) accesses: MergedAccesses,
    /// Runs up to this number do not use it so. Those that use it in another way are on record.
    pub(super) since: u64,
    /// Whether its submissions come to the register, see [`Contested`](super::Contested).
    pub(super) is_contested: bool,
}

impl User {
    /// The executable, if there is still a handle to it or a run in flight. If not, what its runs wrote can
    /// be seen.
    pub(super) fn alive(&self) -> Option<Arc<ExecutableInner>> {
        let alive = self.executable.upgrade();
        if alive.is_none() {
            // A run lets go of its executable when it has ended, and letting go is a release; but an upgrade
            // that fails is no acquire by itself.
            fence(Ordering::Acquire);
        }
        alive
    }

    /// Whether the executable is gone. If it is, what its runs wrote can be seen.
    fn is_gone(&self) -> bool {
        let is_gone = self.executable.strong_count() == 0;
        if is_gone {
            fence(Ordering::Acquire);
        }
        is_gone
    }
}

/// All of them, each once.
#[derive(Default)]
pub(super) struct Users {
    /// The users that write, and the users that only read.
    lists: [Vec<User>; 2],
    places: FxHashMap<ExecutableId, Place>,
    /// Number from which on those that are gone are taken out.
    sweep_at: usize,
}

/// Place of a user: its list, and the index in it.
#[derive(Clone, Copy)]
struct Place {
    list: usize,
    at: usize,
}

const WRITING: usize = 0;
const READING: usize = 1;

/// The lists that may have users that conflict with these accesses.
fn lists_beside(accesses: &[Access]) -> &'static [usize] {
    if writes(accesses) { &[WRITING, READING] } else { &[WRITING] }
}

impl Users {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, id: ExecutableId) -> Option<&User> {
        let Place { list, at } = *self.places.get(&id)?;
        Some(&self.lists[list][at])
    }

    pub(super) fn get_mut(&mut self, id: ExecutableId) -> Option<&mut User> {
        let Place { list, at } = *self.places.get(&id)?;
        Some(&mut self.lists[list][at])
    }

    /// Adds a user that is not there, and from time to time takes out those that are gone.
    pub(super) fn insert(&mut self, user: User) {
        let list = if writes(&user.accesses) { WRITING } else { READING };
        self.places.insert(user.id, Place { list, at: self.lists[list].len() });
        self.lists[list].push(user);
        if self.places.len() >= self.sweep_at {
            for list in [WRITING, READING] {
                self.remove_gone(list);
            }
            // Doubled, so that on average a new user pays for a few old ones, however many there are.
            self.sweep_at = 2 * self.places.len() + 8;
        }
    }

    pub(super) fn remove(&mut self, id: ExecutableId) -> Option<User> {
        let place = *self.places.get(&id)?;
        Some(self.remove_at(place))
    }

    /// Passes each user that conflicts with these accesses to `each`, and takes out those about which it says
    /// that they are gone.
    pub(super) fn retain_conflicting(
        &mut self,
        accesses: &[Access],
        mut each: impl FnMut(&mut User) -> bool,
    ) {
        for &list in lists_beside(accesses) {
            let mut at = 0;
            while let Some(user) = self.lists[list].get_mut(at) {
                #[cfg(test)]
                tests::VISITED.set(tests::VISITED.get() + 1);
                if !conflict(&user.accesses, accesses) || each(user) {
                    at += 1;
                } else {
                    self.remove_at(Place { list, at });
                }
            }
        }
    }

    /// Whether a user other than this one conflicts with these accesses. Moves the one that it finds to the
    /// front: among many executables that all conflict, the search ends at once.
    pub(super) fn conflicts_with(&mut self, id: ExecutableId, accesses: &[Access]) -> bool {
        for &list in lists_beside(accesses) {
            let mut at = 0;
            while let Some(user) = self.lists[list].get(at) {
                #[cfg(test)]
                tests::VISITED.set(tests::VISITED.get() + 1);
                if user.is_gone() {
                    self.remove_at(Place { list, at });
                } else if user.id != id && conflict(&user.accesses, accesses) {
                    self.lists[list].swap(0, at);
                    self.set_place(Place { list, at });
                    self.set_place(Place { list, at: 0 });
                    return true;
                } else {
                    at += 1;
                }
            }
        }
        false
    }

    fn remove_gone(&mut self, list: usize) {
        let mut at = 0;
        while let Some(user) = self.lists[list].get(at) {
            if user.is_gone() {
                self.remove_at(Place { list, at });
            } else {
                at += 1;
            }
        }
    }

    fn remove_at(&mut self, place: Place) -> User {
        let user = self.lists[place.list].swap_remove(place.at);
        self.places.remove(&user.id);
        self.set_place(place);
        user
    }

    /// Notes where the user at this place is, if there is one.
    fn set_place(&mut self, place: Place) {
        if let Some(user) = self.lists[place.list].get(place.at) {
            self.places.insert(user.id, place);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Number of users that this thread has compared with accesses.
        pub(in super::super) static VISITED: Cell<usize> = const { Cell::new(0) };
    }
}

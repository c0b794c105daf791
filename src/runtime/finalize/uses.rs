//! What an executable uses: for keeping it alive, and for its order among others and in itself.

use std::collections::HashMap;
use std::sync::Arc;

use crate::plan::Origin;
use crate::runtime::execution::conflicts;
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::scratch::{Places, ScratchMemory};
use crate::types::{Access, ResourceId};

/// Allocations, and which node accesses what of them.
#[derive(Default)]
pub(crate) struct Uses(HashMap<ResourceId, Used>);

/// One allocation, and who accesses it how.
struct Used {
    allocation: Arc<Allocation>,
    accesses: Vec<(Origin, Access)>,
}

impl Uses {
    /// The shared arenas that scratch buffers lie in. They stand with the first node, and stay there
    /// whatever becomes of it: no access of a node is one to an arena.
    pub(crate) fn of_shared(scratch: &Places) -> Self {
        let node = Origin { instance: 0, node: 0 };
        let used = |(allocation, access): (&Arc<Allocation>, Access)| {
            (access.resource, Used { allocation: allocation.clone(), accesses: vec![(node, access)] })
        };
        Self(scratch.shared().map(used).collect())
    }

    /// Adds what a node does to these allocations.
    pub(crate) fn add<'a>(
        &mut self,
        node: Origin,
        allocations: impl Iterator<Item = &'a Arc<Allocation>>,
        accesses: &[Access],
    ) {
        for allocation in allocations {
            let resource = allocation.memory().resource();
            let used = || Used { allocation: allocation.clone(), accesses: Vec::new() };
            self.0.entry(resource).or_insert_with(used);
        }
        for access in accesses {
            if let Some(used) = self.0.get_mut(&access.resource) {
                used.accesses.push((node, *access));
            }
        }
    }

    /// Takes back what [`add`](Self::add) has added for a node.
    pub(crate) fn remove(&mut self, node: Origin, accesses: &[Access]) {
        for access in accesses {
            let Some(used) = self.0.get_mut(&access.resource) else { continue };
            if let Some(known) = used.accesses.iter().position(|known| *known == (node, *access)) {
                used.accesses.swap_remove(known);
            }
            if used.accesses.is_empty() {
                self.0.remove(&access.resource);
            }
        }
    }

    /// Who accesses the same memory as `access` in a conflicting way.
    pub(crate) fn conflicts(&self, access: Access) -> impl Iterator<Item = Origin> + '_ {
        let users = self.0.get(&access.resource).into_iter().flat_map(|used| &used.accesses);
        users.filter(move |(_, other)| other.conflicts_with(&access)).map(|(node, _)| *node)
    }

    pub(crate) fn allocation(&self, resource: ResourceId) -> Option<&Arc<Allocation>> {
        self.0.get(&resource).map(|used| &used.allocation)
    }

    /// All accesses with their allocations.
    pub(crate) fn accesses(&self) -> Vec<(Arc<Allocation>, Access)> {
        let of = |used: &Used| -> Vec<_> {
            used.accesses.iter().map(|(_, access)| (used.allocation.clone(), *access)).collect()
        };
        self.0.values().flat_map(of).collect()
    }

    /// Everything that is used, [merged](conflicts::merged).
    pub(crate) fn merged(&self) -> Vec<(Arc<Allocation>, Vec<Access>)> {
        self.merged_with([])
    }

    /// As [`merged`](Self::merged), with more accesses.
    pub(crate) fn merged_with(
        &self,
        more: impl IntoIterator<Item = (Arc<Allocation>, Access)>,
    ) -> Vec<(Arc<Allocation>, Vec<Access>)> {
        let mut all: HashMap<ResourceId, (Arc<Allocation>, Vec<Access>)> =
            HashMap::with_capacity(self.0.len());
        // No other executable uses a scratch buffer.
        let shared = self.0.iter().filter(|(_, used)| ScratchMemory::of(&used.allocation).is_none());
        for (resource, used) in shared {
            let accesses = used.accesses.iter().map(|(_, access)| *access).collect();
            all.insert(*resource, (used.allocation.clone(), accesses));
        }
        let more = more.into_iter().filter(|(allocation, _)| ScratchMemory::of(allocation).is_none());
        for (allocation, access) in more {
            all.entry(access.resource).or_insert_with(|| (allocation, Vec::new())).1.push(access);
        }
        let merged = |(allocation, accesses): (_, Vec<Access>)| (allocation, conflicts::merged(&accesses));
        all.into_values().map(merged).collect()
    }

    pub(crate) fn into_allocations(self) -> Box<[Arc<Allocation>]> {
        self.0.into_values().map(|used| used.allocation).collect()
    }
}

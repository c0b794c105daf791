//! Resources that an executable uses: to keep them alive, and to order it among others and in itself.

use std::collections::HashSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use wakegraph_hal::{Access, ResourceId};

use crate::plan::Origin;
use crate::runtime::execution::accesses;
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::scratch::{Places, ScratchMemory};

/// Allocations, and which node accesses what of them.
#[derive(Default)]
pub(crate) struct Uses(FxHashMap<ResourceId, Used>);

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

    /// Takes back what [`add`](Self::add) has added for nodes, which access these allocations and no others.
    pub(crate) fn remove(&mut self, nodes: &HashSet<Origin>, resources: &HashSet<ResourceId>) {
        for resource in resources {
            let Some(used) = self.0.get_mut(resource) else { continue };
            used.accesses.retain(|(node, _)| !nodes.contains(node));
            if used.accesses.is_empty() {
                self.0.remove(resource);
            }
        }
    }

    /// Users of an allocation, with their accesses.
    pub(crate) fn of(&self, resource: ResourceId) -> impl Iterator<Item = (Origin, Access)> + '_ {
        self.0.get(&resource).into_iter().flat_map(|used| used.accesses.iter().copied())
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

    /// Everything that is used, [merged](accesses::merged).
    pub(crate) fn merged(&self) -> Vec<(Arc<Allocation>, Vec<Access>)> {
        self.merged_with(self.0.values().map(|used| &used.allocation), |_| Vec::new())
    }

    /// As [`merged`](Self::merged), of some allocations, with `more` accesses to each.
    pub(crate) fn merged_with<'a>(
        &self,
        allocations: impl Iterator<Item = &'a Arc<Allocation>>,
        more: impl Fn(ResourceId) -> Vec<Access>,
    ) -> Vec<(Arc<Allocation>, Vec<Access>)> {
        // No other executable uses a scratch buffer.
        let shared = allocations.filter(|allocation| ScratchMemory::of(allocation).is_none());
        let merged = shared.map(|allocation| {
            let resource = allocation.memory().resource();
            let own = self.of(resource).map(|(_, access)| access);
            let mut accesses: Vec<_> = own.chain(more(resource)).collect();
            // Most nodes use memory as the one before them does.
            accesses.dedup();
            (allocation.clone(), accesses::merged(&accesses))
        });
        merged.filter(|(_, accesses)| !accesses.is_empty()).collect()
    }

    pub(crate) fn into_allocations(self) -> Box<[Arc<Allocation>]> {
        self.0.into_values().map(|used| used.allocation).collect()
    }
}

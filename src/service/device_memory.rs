//! The device memory of several executables: what more than one of them uses counts once.

use std::collections::HashMap;

use wakegraph_hal::ResourceId;

/// The device memory of the executables of a pool's device, or of a cache.
#[derive(Default)]
pub(super) struct DeviceMemory {
    bytes: u64,
    /// The number of executables that use each allocation.
    users: HashMap<ResourceId, usize>,
}

impl DeviceMemory {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an executable, which uses these allocations. Returns the bytes that no other uses.
    pub(super) fn add(&mut self, allocations: impl IntoIterator<Item = (ResourceId, u64)>) -> u64 {
        let before = self.bytes;
        for (resource, bytes) in allocations {
            let users = self.users.entry(resource).or_default();
            *users += 1;
            if *users == 1 {
                self.bytes += bytes;
            }
        }
        self.bytes - before
    }

    /// Takes out an executable that was added with these allocations.
    pub(super) fn remove(&mut self, allocations: impl IntoIterator<Item = (ResourceId, u64)>) {
        for (resource, bytes) in allocations {
            let Some(users) = self.users.get_mut(&resource) else { continue };
            *users -= 1;
            if *users == 0 {
                self.users.remove(&resource);
                self.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_several_executables_counts_once() {
        let [shared, first, second] = [(); 3].map(|()| ResourceId::unique());
        let mut memory = DeviceMemory::default();
        assert_eq!(memory.add([(shared, 100), (first, 1)]), 101);
        assert_eq!(memory.add([(shared, 100), (second, 2)]), 2);
        memory.remove([(shared, 100), (first, 1)]);
        assert_eq!(memory.bytes(), 102);
        memory.remove([(shared, 100), (second, 2)]);
        assert_eq!((memory.bytes(), memory.users.len()), (0, 0));
    }
}

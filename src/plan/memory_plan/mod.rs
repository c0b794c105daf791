//! Plans the memory of transient buffers, whose contents matter only within one run. Buffers that are
//! never in use at the same time share memory.
//!
//! Two buffers may share bytes if the plan runs every use of the one before every use of the other,
//! in every order that it allows ([`use_order`]). Up to a limit, buffers are placed [largest
//! first](largest_first). More of them are placed in one [sweep](sweep) over the plan, which takes
//! time proportional to their number but may need more memory.

mod largest_first;
mod sweep;
mod use_order;

use use_order::UseOrder;
use wakegraph_hal::DeviceId;

use super::Plan;

/// A buffer whose contents matter from its first use to its last, within one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transient {
    /// The device whose memory it is in.
    pub device: DeviceId,
    /// Size in bytes.
    pub bytes: usize,
    /// The planned nodes that use it.
    pub uses: Vec<u32>,
}

/// The places of transient buffers: one arena per device, and the offset of each buffer in its arena.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    offsets: Vec<usize>,
    sizes: Vec<ArenaSize>,
}

/// The size of a device's arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaSize {
    /// The device.
    pub device: DeviceId,
    /// Bytes that the device's transient buffers take together.
    pub bytes: usize,
    /// Bytes that they would take without sharing.
    pub unshared: usize,
}

impl MemoryPlan {
    /// The offset of each buffer in its arena, in the order of the buffers.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The arena sizes of the devices that have transient buffers.
    pub fn sizes(&self) -> &[ArenaSize] {
        &self.sizes
    }
}

/// Bounds on the time of planning. Beyond these limits buffers share less.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryPlanLimits {
    /// The most chains, see [`use_order`].
    pub(super) chains: usize,
    /// The most numbers in all vector clocks together. A few chains are always allowed.
    pub(super) clocks: usize,
    /// The most buffers that are placed largest first, which compares all pairs.
    pub(super) largest_first: usize,
    /// The most free blocks of one device in a sweep.
    pub(super) free_blocks: usize,
}

const LIMITS: MemoryPlanLimits =
    MemoryPlanLimits { chains: 1024, clocks: 1 << 24, largest_first: 4096, free_blocks: 512 };

/// Uses of a buffer.
struct Lifetime<'a> {
    transient: &'a Transient,
    /// The ranks of its uses in the plan's order, and of the first and last of them.
    uses: Vec<u32>,
    first: u32,
    last: u32,
    /// Bytes, rounded up.
    len: usize,
}

impl Plan {
    /// Places transient buffers. Offsets and sizes are multiples of `alignment`.
    ///
    /// A buffer without uses takes no memory. With more than 4096 buffers, or very many independent nodes,
    /// the result may be larger than necessary.
    ///
    /// # Panics
    /// If a use is not a planned node's number, or `alignment` is 0.
    pub fn plan_memory(&self, transients: &[Transient], alignment: usize) -> MemoryPlan {
        self.plan_memory_within(transients, alignment, LIMITS)
    }

    pub(super) fn plan_memory_within(
        &self,
        transients: &[Transient],
        alignment: usize,
        limits: MemoryPlanLimits,
    ) -> MemoryPlan {
        let ranks = self.ranks();
        let mut used = Vec::with_capacity(transients.len());
        let mut lifetimes = Vec::with_capacity(transients.len());
        for (index, transient) in transients.iter().enumerate() {
            let uses: Vec<u32> = transient.uses.iter().map(|&node| ranks[node as usize]).collect();
            let len = transient.bytes.checked_next_multiple_of(alignment).unwrap_or(usize::MAX - alignment);
            if let (Some(&first), Some(&last)) = (uses.iter().min(), uses.iter().max()) {
                used.push(index);
                lifetimes.push(Lifetime { transient, uses, first, last, len });
            }
        }
        let order = UseOrder::new(self, &lifetimes, limits);
        let places = match lifetimes.len() <= limits.largest_first {
            true => largest_first::places(&lifetimes, &order),
            false => sweep::places(&lifetimes, &order, limits.free_blocks),
        };
        let mut plan = MemoryPlan { offsets: vec![0; transients.len()], sizes: Vec::new() };
        for ((index, lifetime), start) in used.into_iter().zip(&lifetimes).zip(places) {
            plan.put(index, lifetime, start);
        }
        plan
    }

    /// The rank of each planned node: its position in the plan's order.
    fn ranks(&self) -> Vec<u32> {
        let numbers = self.nodes.items().iter().max().map_or(0, |&last| last as usize + 1);
        let mut ranks = vec![0; numbers];
        for (rank, &node) in (0..).zip(self.nodes.items()) {
            ranks[node as usize] = rank;
        }
        ranks
    }
}

impl MemoryPlan {
    fn put(&mut self, index: usize, lifetime: &Lifetime<'_>, start: usize) {
        self.offsets[index] = start;
        let device = lifetime.transient.device;
        let at = self.sizes.iter().position(|size| size.device == device).unwrap_or_else(|| {
            self.sizes.push(ArenaSize { device, bytes: 0, unshared: 0 });
            self.sizes.len() - 1
        });
        let size = &mut self.sizes[at];
        size.bytes = size.bytes.max(start.saturating_add(lifetime.len));
        size.unshared = size.unshared.saturating_add(lifetime.len);
    }
}

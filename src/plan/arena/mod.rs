//! Where buffers lie that live within a run only: those that are never needed at a time share memory.
//!
//! Two of them may share bytes when the plan runs every use of the one before every use of the other, in
//! whichever of the orders that it allows: [`order`] knows. Few buffers are placed [by their size](by_size),
//! many in one [sweep](sweep) over the plan, which takes time in proportion to their number but may need more
//! memory.

mod by_size;
mod order;
mod sweep;

use super::Plan;
use crate::types::DeviceId;
use order::Order;

/// A buffer whose contents matter from its first use to its last, within one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transient {
    /// Where it lives.
    pub device: DeviceId,
    /// Its size.
    pub bytes: usize,
    /// The planned nodes that use it.
    pub uses: Vec<u32>,
}

/// Where transient buffers lie: an offset for each, in one piece of memory per device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arenas {
    offsets: Vec<usize>,
    sizes: Vec<ArenaSize>,
}

/// What a device's transient buffers take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaSize {
    /// The device.
    pub device: DeviceId,
    /// Bytes that they take together.
    pub bytes: usize,
    /// Bytes that they would take if each had its own.
    pub unshared: usize,
}

impl Arenas {
    /// The offset of each buffer, in their order.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// What each device's buffers take; only devices that have some.
    pub fn sizes(&self) -> &[ArenaSize] {
        &self.sizes
    }
}

/// What bounds the time that it takes. Beyond these limits buffers share less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Chains, see [`order`].
    pub(super) chains: usize,
    /// Numbers in all clocks together. A few chains there may be in any case.
    pub(super) clocks: usize,
    /// Buffers that are placed by their size, which compares each with each.
    pub(super) by_size: usize,
    /// Free places of one device in a sweep.
    pub(super) places: usize,
}

const LIMITS: Limits = Limits { chains: 1024, clocks: 1 << 24, by_size: 4096, places: 512 };

/// A buffer that is used.
struct Life<'a> {
    transient: &'a Transient,
    /// The ranks of its uses in the plan's order, and of the first and last of them.
    uses: Vec<u32>,
    first: u32,
    last: u32,
    /// Its bytes, rounded up.
    len: usize,
}

impl Plan {
    /// Finds places for transient buffers. Offsets and sizes are multiples of `alignment`.
    ///
    /// A buffer without uses takes no place. With more than 4096 buffers, or very many nodes side by side, it
    /// may take more memory than it could.
    ///
    /// # Panics
    /// If a use is not a planned node's number, or `alignment` is 0.
    pub fn arenas(&self, transients: &[Transient], alignment: usize) -> Arenas {
        self.arenas_within(transients, alignment, LIMITS)
    }

    pub(super) fn arenas_within(&self, transients: &[Transient], alignment: usize, limits: Limits) -> Arenas {
        let ranks = self.ranks();
        let mut used = Vec::with_capacity(transients.len());
        let mut lives = Vec::with_capacity(transients.len());
        for (index, transient) in transients.iter().enumerate() {
            let uses: Vec<u32> = transient.uses.iter().map(|&node| ranks[node as usize]).collect();
            let len = transient.bytes.checked_next_multiple_of(alignment).unwrap_or(usize::MAX - alignment);
            if let (Some(&first), Some(&last)) = (uses.iter().min(), uses.iter().max()) {
                used.push(index);
                lives.push(Life { transient, uses, first, last, len });
            }
        }
        let order = Order::new(self, &lives, limits);
        let places = match lives.len() <= limits.by_size {
            true => by_size::places(&lives, &order),
            false => sweep::places(&lives, &order, limits.places),
        };
        let mut arenas = Arenas { offsets: vec![0; transients.len()], sizes: Vec::new() };
        for ((index, life), start) in used.into_iter().zip(&lives).zip(places) {
            arenas.put(index, life, start);
        }
        arenas
    }

    /// By planned node: where it stands in the plan's order.
    fn ranks(&self) -> Vec<u32> {
        let numbers = self.nodes.items().iter().max().map_or(0, |&last| last as usize + 1);
        let mut ranks = vec![0; numbers];
        for (rank, &node) in (0..).zip(self.nodes.items()) {
            ranks[node as usize] = rank;
        }
        ranks
    }
}

impl Arenas {
    fn put(&mut self, index: usize, life: &Life<'_>, start: usize) {
        self.offsets[index] = start;
        let device = life.transient.device;
        let at = self.sizes.iter().position(|size| size.device == device).unwrap_or_else(|| {
            self.sizes.push(ArenaSize { device, bytes: 0, unshared: 0 });
            self.sizes.len() - 1
        });
        let size = &mut self.sizes[at];
        size.bytes = size.bytes.max(start.saturating_add(life.len));
        size.unshared = size.unshared.saturating_add(life.len);
    }
}

//! A hash for the plan's own numbers, and a map from pairs of them to new numbers.
//!
//! The keys are dense ids that the plan assigns, so the hash is chosen for speed, not against attackers.

/// Spreads a number over 64 bits, best in the upper ones (Fibonacci hashing with a fold).
pub(super) fn mix(key: u64) -> u64 {
    let product = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// The slot for a hash in a table of `slots`, a power of two.
pub(super) fn slot_of(hash: u64, slots: usize) -> usize {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - slots.trailing_zeros())) as usize
}

/// Numbers pairs in the order in which they first occur. Open addressing, linear probing, at most half full.
pub(super) struct PairMap {
    /// `[first, second, number]`, free where the number is `FREE`.
    slots: Vec<[u32; 3]>,
    used: usize,
}

const FREE: u32 = u32::MAX;

impl PairMap {
    pub(super) fn new() -> Self {
        Self { slots: vec![[0, 0, FREE]; 1 << 6], used: 0 }
    }

    /// The number of distinct pairs.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Returns the number of the pair; a new pair gets the next one.
    pub(super) fn get_or_number(&mut self, first: u32, second: u32) -> u32 {
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let slot = self.find(first, second);
        if self.slots[slot][2] == FREE {
            self.slots[slot] = [first, second, self.used as u32];
            self.used += 1;
        }
        self.slots[slot][2]
    }

    /// The slot of the pair, or the free one where it belongs.
    fn find(&self, first: u32, second: u32) -> usize {
        let mut slot = slot_of(mix(u64::from(first) | u64::from(second) << 32), self.slots.len());
        loop {
            match self.slots[slot] {
                [.., FREE] => return slot,
                [a, b, _] if (a, b) == (first, second) => return slot,
                _ => slot = (slot + 1) & (self.slots.len() - 1),
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![[0, 0, FREE]; self.slots.len() * 2];
        for entry in std::mem::replace(&mut self.slots, larger) {
            if entry[2] != FREE {
                let slot = self.find(entry[0], entry[1]);
                self.slots[slot] = entry;
            }
        }
    }
}

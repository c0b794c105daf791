//! Where buffers lie that live within a run only: those that are never needed at a time share memory.
//!
//! Two of them may share bytes when the plan runs every use of the one before every use of the other. What comes before
//! what is found by walking the plan once for each 64 uses, one bit a use; of those in an in-order partition only the
//! outermost count. Places are then given best-fit, the largest buffer first.

use Outermost::{First, Last};

use super::Plan;
use crate::types::DeviceId;

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

/// Where transient buffers lie: an offset for each, in one piece of memory a device.
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

/// More buffers than this do not share: the time it takes to find who may grows with their square.
const MOST_SHARING: usize = 4096;

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

impl Plan {
    /// Finds places for transient buffers. Offsets and sizes are multiples of `alignment`.
    ///
    /// A buffer without uses takes no place. Of more than 4096 buffers the largest share memory, the others do not.
    ///
    /// # Panics
    /// If a use is not a planned node's number, or `alignment` is 0.
    pub fn arenas(&self, transients: &[Transient], alignment: usize) -> Arenas {
        let len = |index: usize| {
            transients[index].bytes.checked_next_multiple_of(alignment).unwrap_or(usize::MAX - alignment)
        };
        let mut largest_first: Vec<usize> =
            (0..transients.len()).filter(|&index| !transients[index].uses.is_empty()).collect();
        largest_first.sort_by_key(|&index| std::cmp::Reverse(transients[index].bytes));
        let (sharing, rest) = largest_first.split_at(largest_first.len().min(MOST_SHARING));

        let uses: Vec<&[u32]> = sharing.iter().map(|&index| &*transients[index].uses).collect();
        let order = Order::new(self, &uses);
        let mut arenas = Arenas { offsets: vec![0; transients.len()], sizes: Vec::new() };
        // By their starts.
        let mut placed: Vec<Placed> = Vec::with_capacity(sharing.len());
        for (rank, &index) in sharing.iter().enumerate() {
            let (device, len) = (transients[index].device, len(index));
            let in_the_way =
                placed.iter().filter(|other| other.device == device && !order.is_apart(other.rank, rank));
            let start = best_fit(in_the_way, len);
            arenas.put(index, device, start, len);
            let at = placed.partition_point(|other| other.start < start);
            placed.insert(at, Placed { rank, device, start, end: start.saturating_add(len) });
        }
        for &index in rest {
            let device = transients[index].device;
            let start = arenas.sizes.iter().find(|size| size.device == device).map_or(0, |size| size.bytes);
            arenas.put(index, device, start, len(index));
        }
        arenas
    }
}

impl Arenas {
    fn put(&mut self, index: usize, device: DeviceId, start: usize, len: usize) {
        self.offsets[index] = start;
        let at = self.sizes.iter().position(|size| size.device == device).unwrap_or_else(|| {
            self.sizes.push(ArenaSize { device, bytes: 0, unshared: 0 });
            self.sizes.len() - 1
        });
        let size = &mut self.sizes[at];
        size.bytes = size.bytes.max(start.saturating_add(len));
        size.unshared = size.unshared.saturating_add(len);
    }
}

/// A buffer that has its place.
struct Placed {
    rank: usize,
    device: DeviceId,
    start: usize,
    end: usize,
}

/// The start of the smallest gap between these, sorted by their starts, or of what is behind them all.
fn best_fit<'a>(in_the_way: impl Iterator<Item = &'a Placed>, len: usize) -> usize {
    let (mut free, mut best) = (0, None);
    for other in in_the_way {
        let gap = other.start.saturating_sub(free);
        if gap >= len && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, free));
        }
        free = free.max(other.end);
    }
    best.map_or(free, |(_, start)| start)
}

/// Which uses the plan has all run before any use of each buffer.
struct Order {
    /// The first bit of each buffer's last uses, and one past the last.
    bits: Vec<usize>,
    /// By buffer, a bit for each last use of any buffer.
    before: Vec<Vec<u64>>,
}

impl Order {
    fn new(plan: &Plan, uses: &[&[u32]]) -> Self {
        let places = Places::new(plan);
        let first: Vec<Vec<u32>> = uses.iter().map(|uses| places.outermost(plan, uses, First)).collect();
        let mut bits = vec![0];
        let mut last: Vec<u32> = Vec::new();
        for uses in uses {
            last.extend(places.outermost(plan, uses, Last));
            bits.push(last.len());
        }
        let words = last.len().div_ceil(64);
        let mut order = Self { bits, before: vec![vec![u64::MAX; words]; uses.len()] };
        let mut walk = Walk::new(plan);
        for (word, block) in last.chunks(64).enumerate() {
            walk.go(plan, block);
            for (before, first) in order.before.iter_mut().zip(&first) {
                for &node in first {
                    before[word] &= walk.before[node as usize];
                }
            }
        }
        order
    }

    /// Whether all uses of the one come before all of the other.
    fn is_apart(&self, a: usize, b: usize) -> bool {
        self.is_before(a, b) || self.is_before(b, a)
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        (self.bits[a]..self.bits[a + 1]).all(|bit| self.before[b][bit / 64] >> (bit % 64) & 1 == 1)
    }
}

/// Where each planned node stands: its partition, and its position there.
struct Places(Vec<(u32, u32)>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outermost {
    First,
    Last,
}

impl Places {
    fn new(plan: &Plan) -> Self {
        let mut places = vec![(0, 0); numbers(plan)];
        for partition in 0..plan.partitions.len() {
            for (position, &node) in plan.nodes(partition).iter().enumerate() {
                places[node as usize] = (partition as u32, position as u32);
            }
        }
        Self(places)
    }

    /// The uses that no other one comes before, or after, in the same in-order partition.
    fn outermost(&self, plan: &Plan, uses: &[u32], which: Outermost) -> Vec<u32> {
        let mut uses = uses.to_vec();
        uses.sort_unstable_by_key(|&node| self.0[node as usize]);
        if which == Last {
            uses.reverse();
        }
        uses.dedup_by_key(|node| {
            let (partition, position) = self.0[*node as usize];
            // Elsewhere, positions are no order.
            (partition, if plan.partitions[partition as usize].in_order { 0 } else { position })
        });
        uses
    }
}

fn numbers(plan: &Plan) -> usize {
    plan.nodes.items().iter().max().map_or(0, |&last| last as usize + 1)
}

/// A walk over the plan with a bit for each of at most 64 uses.
struct Walk {
    /// By planned node: its uses, and those that have run before it.
    own: Vec<u64>,
    before: Vec<u64>,
    /// By partition: those that have run when it is over.
    over: Vec<u64>,
}

impl Walk {
    fn new(plan: &Plan) -> Self {
        let numbers = numbers(plan);
        Self { own: vec![0; numbers], before: vec![0; numbers], over: vec![0; plan.partitions.len()] }
    }

    fn go(&mut self, plan: &Plan, uses: &[u32]) {
        for (bit, &node) in uses.iter().enumerate() {
            self.own[node as usize] |= 1 << bit;
        }
        for (index, partition) in plan.partitions.iter().enumerate() {
            let earlier = plan.predecessors(index).iter().map(|&earlier| self.over[earlier as usize]);
            let entry = earlier.fold(0, |all, over| all | over);
            let nodes = plan.nodes(index);
            let mut over = entry;
            for (position, &node) in nodes.iter().enumerate() {
                let mut before = entry;
                let waits = plan.waits(index, position).iter().map(|&at| nodes[at as usize]);
                let last = (partition.in_order && position > 0).then(|| nodes[position - 1]);
                for earlier in waits.chain(last) {
                    before |= self.before[earlier as usize] | self.own[earlier as usize];
                }
                self.before[node as usize] = before;
                over |= self.own[node as usize];
            }
            self.over[index] = over;
        }
        for &node in uses {
            self.own[node as usize] = 0;
        }
    }
}

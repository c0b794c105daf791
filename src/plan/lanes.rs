//! Pass 8: which of its device's queues a partition is enqueued on.
//!
//! A partition continues the lane of a partition it waits for on the same device, straight or
//! behind a host task, unless another one has: then nothing is lost by enqueuing it behind that.
//! Otherwise it opens a lane of its own, so that independent partitions can overlap. When all lanes
//! are open, it shares the one with the fewest partitions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::check::HOST;
use super::lists::Lists;

const NONE: u32 = u32::MAX;

/// The lane of every partition, given its dependencies and places; 0 for host tasks.
pub(super) fn lanes(preds: &Lists, places: &[u32], devices: usize, max_lanes: u16) -> Vec<u16> {
    let mut loads: Vec<Loads> = (0..devices).map(|_| Loads::new(max_lanes.max(1))).collect();
    let mut lanes = vec![0; places.len()];
    // The partition whose lane can be continued here: itself, or that of a host task's predecessor.
    let mut ends = vec![NONE; places.len()];
    let mut is_continued = vec![false; places.len()];
    for (partition, preds) in preds.iter().enumerate() {
        let place = places[partition];
        let open = preds.iter().map(|&pred| ends[pred as usize]).rev();
        let mut open = open.filter(|&end| end != NONE && !is_continued[end as usize]);
        if place == HOST {
            ends[partition] = open.next().unwrap_or(NONE);
            continue;
        }
        let loads = &mut loads[place as usize - 1];
        lanes[partition] = match open.find(|&end| places[end as usize] == place) {
            Some(end) => {
                is_continued[end as usize] = true;
                lanes[end as usize]
            }
            None => loads.choose(),
        };
        loads.used[lanes[partition] as usize] += 1;
        ends[partition] = partition as u32;
    }
    lanes
}

/// The lanes of one device.
struct Loads {
    max: u16,
    /// Partitions by lane.
    used: Vec<u32>,
    /// Lanes by their number of partitions when they were last looked at.
    queue: BinaryHeap<Reverse<(u32, u16)>>,
}

impl Loads {
    fn new(max: u16) -> Self {
        Self { max, used: Vec::new(), queue: BinaryHeap::new() }
    }

    /// A new lane, or the least used.
    fn choose(&mut self) -> u16 {
        if self.used.len() < usize::from(self.max) {
            let lane = self.used.len() as u16;
            self.used.push(0);
            self.queue.push(Reverse((0, lane)));
            return lane;
        }
        // Numbers in the queue are too small at most: the first that is right is the smallest.
        while let Some(mut top) = self.queue.peek_mut() {
            let Reverse((known, lane)) = *top;
            let used = self.used[usize::from(lane)];
            if known == used {
                return lane;
            }
            *top = Reverse((used, lane));
        }
        0
    }
}

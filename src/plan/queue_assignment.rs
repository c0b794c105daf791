//! Pass 8: assigns each partition to a queue of its device.
//!
//! A partition goes onto the queue of a predecessor on the same device, or of a device partition
//! before a host task that it waits for, unless another partition has continued that queue already.
//! It would wait for that predecessor anyway. Otherwise it opens a new queue, so that independent
//! partitions can overlap. When all queues are in use, it shares the one with the fewest partitions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::csr::Csr;
use super::placement::{HOST, device_place};

const NONE: u32 = u32::MAX;

/// Returns the queue index of every partition, given the dependencies and places; 0 for host tasks.
pub(super) fn assign_queues(preds: &Csr, places: &[u32], devices: usize, max_queues: u16) -> Vec<u16> {
    let mut loads: Vec<QueueLoads> = (0..devices).map(|_| QueueLoads::new(max_queues.max(1))).collect();
    let mut queues = vec![0; places.len()];
    // The partition whose queue a successor can continue: itself or, for a host task, that of a predecessor.
    let mut ends = vec![NONE; places.len()];
    let mut is_continued = vec![false; places.len()];
    for (partition, preds) in preds.iter().enumerate() {
        let place = device_place(places[partition]);
        let open = preds.iter().map(|&pred| ends[pred as usize]).rev();
        let mut open = open.filter(|&end| end != NONE && !is_continued[end as usize]);
        if place == HOST {
            ends[partition] = open.next().unwrap_or(NONE);
            continue;
        }
        let loads = &mut loads[place as usize - 1];
        queues[partition] = match open.find(|&end| device_place(places[end as usize]) == place) {
            Some(end) => {
                is_continued[end as usize] = true;
                queues[end as usize]
            }
            None => loads.choose(),
        };
        loads.used[queues[partition] as usize] += 1;
        ends[partition] = partition as u32;
    }
    queues
}

/// How many partitions are on each queue of one device.
struct QueueLoads {
    max: u16,
    /// The number of partitions on each queue.
    used: Vec<u32>,
    /// The queues, by the number of partitions each had when its entry was last updated.
    queue: BinaryHeap<Reverse<(u32, u16)>>,
}

impl QueueLoads {
    fn new(max: u16) -> Self {
        Self { max, used: Vec::new(), queue: BinaryHeap::new() }
    }

    /// Returns a new queue or, if there are `max` already, the least used one.
    fn choose(&mut self) -> u16 {
        if self.used.len() < usize::from(self.max) {
            let queue = self.used.len() as u16;
            self.used.push(0);
            self.queue.push(Reverse((0, queue)));
            return queue;
        }
        // Entries may be outdated, but only too small: the first one that is up to date is the smallest.
        while let Some(mut top) = self.queue.peek_mut() {
            let Reverse((known, queue)) = *top;
            let used = self.used[usize::from(queue)];
            if known == used {
                return queue;
            }
            *top = Reverse((used, queue));
        }
        0
    }
}

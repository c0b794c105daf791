//! Pass 8: assigns each partition to a queue of its device.
//!
//! A partition goes onto the queue of a predecessor on the same device or, if there is none, of an
//! earlier partition that a predecessor waits for, also through host tasks and other devices, unless another
//! partition has continued that queue already. It would wait for that partition anyway. Otherwise it opens
//! a new queue, so that independent partitions can overlap. When all queues are in use, it shares the one
//! with the fewest partitions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::csr::Csr;
use super::placement::{HOST, device_place};

const NONE: u32 = u32::MAX;

/// Returns the queue index of every partition, given the dependencies and places; 0 for host tasks.
pub(super) fn assign_queues(preds: &Csr, places: &[u32], devices: usize, max_queues: u16) -> Vec<u16> {
    let mut loads: Vec<QueueLoads> = (0..devices).map(|_| QueueLoads::new(max_queues.max(1))).collect();
    let mut queues = vec![0; places.len()];
    // For each partition and device, a partition there whose queue a successor can continue: itself, or one
    // that it waits for.
    let mut ends = vec![NONE; places.len() * devices];
    let mut is_continued = vec![false; places.len()];
    for (partition, preds) in preds.iter().enumerate() {
        let place = device_place(places[partition]);
        let (before, own) = ends.split_at_mut(partition * devices);
        let is_open = |end: &u32| *end != NONE && !is_continued[*end as usize];
        for (device, end) in own[..devices].iter_mut().enumerate() {
            let inherited = |&pred: &u32| Some(before[pred as usize * devices + device]).filter(is_open);
            *end = preds.iter().rev().find_map(inherited).unwrap_or(NONE);
        }
        if place == HOST {
            continue;
        }
        let device = place as usize - 1;
        let is_direct = |pred: &u32| device_place(places[*pred as usize]) == place && is_open(pred);
        let continued = preds.iter().copied().rev().find(is_direct).unwrap_or(own[device]);
        let loads = &mut loads[device];
        queues[partition] = match continued {
            NONE => loads.choose(),
            end => {
                is_continued[end as usize] = true;
                queues[end as usize]
            }
        };
        loads.used[queues[partition] as usize] += 1;
        own[device] = partition as u32;
    }
    queues
}

/// Number of partitions on each queue of one device.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The queues of partitions at these places, each of which waits for the one before it.
    fn queues_of_chain(places: &[u32]) -> Vec<u16> {
        let pairs = (1..places.len() as u32).map(|index| (index, index - 1));
        assign_queues(&Csr::gather(places.len(), pairs), places, 2, 8)
    }

    #[test]
    fn a_chain_needs_one_queue_on_each_device() {
        for places in [[1, 2, 1, 2, 1], [1, HOST, 1, HOST, 1], [1, HOST, 2, HOST, 1]] {
            assert_eq!(queues_of_chain(&places), [0; 5]);
        }
    }
}

//! Transitive reduction and queue assignment of dense layered graphs of partitions, with long lists of
//! dependencies, and more hubs and host tasks than there are bits.

use fixedbitset::FixedBitSet;
use proptest::prelude::*;

use super::*;
use crate::plan::csr::Csr;
use crate::plan::order::{Dag, depth_first};
use crate::plan::placement::HOST;
use crate::plan::queue_assignment::assign_queues;
use crate::plan::transitive_reduction::{HUB_DEPENDENTS, HUBS, reduce_within};

const DEVICES: u32 = 2;

/// A graph of partitions, and their places.
#[derive(Clone, Debug)]
struct Layered {
    dag: Dag,
    places: Vec<u32>,
}

/// Layers, each partition of which depends on some of the layer before and on a few of any earlier one.
fn layered() -> impl Strategy<Value = Layered> {
    (1usize..12, 1usize..26, 1u32..40, 0usize..6, 0u32..101, any::<u64>()).prop_map(
        |(layers, width, density, skips, hosts, seed)| {
            let mut random = Random(seed);
            // Few layers are full ones, most a single partition or two: those are the hubs.
            let widths: Vec<usize> = (0..3 * layers)
                .map(|layer| if layer % 3 == 0 { width } else { 1 + random.below(2) })
                .collect();
            let count = widths.iter().sum();
            let mut preds = Csr::with_capacity(count, count);
            let (mut before, mut start) = (0, 0);
            for width in widths {
                for _ in 0..width {
                    let mut all: Vec<usize> =
                        (before..start).filter(|_| random.below(40) < density as usize).collect();
                    all.extend((0..skips).filter(|_| start > 0).map(|_| random.below(start.max(1))));
                    all.sort_unstable();
                    all.dedup();
                    // In no order, as they come out of a graph.
                    for at in (1..all.len()).rev() {
                        all.swap(at, random.below(at + 1));
                    }
                    preds.add(all.into_iter().map(|pred| pred as u32));
                }
                (before, start) = (start, start + width);
            }
            let place = |_| match random.below(100) < hosts as usize {
                true => HOST,
                false => 1 + random.below(DEVICES as usize) as u32,
            };
            let places = (0..count).map(place).collect();
            Layered { dag: depth_first(&preds).unwrap(), places }
        },
    )
}

/// A linear congruential generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// For each partition, all partitions before it.
fn closure(preds: &Csr) -> Vec<FixedBitSet> {
    let mut before: Vec<FixedBitSet> = Vec::with_capacity(preds.len());
    for list in preds.iter() {
        let mut all = FixedBitSet::with_capacity(preds.len());
        for &pred in list {
            all.union_with(&before[pred as usize]);
            all.insert(pred as usize);
        }
        before.push(all);
    }
    before
}

proptest! {
    #![proptest_config(random_cases(400))]

    #[test]
    fn reduced_dependencies_order_the_same_partitions(
        Layered { dag, places } in layered(),
        budget in prop_oneof![2 => 0usize..300, 1 => Just(usize::MAX)],
    ) {
        let before = closure(&dag.preds);
        let reduced = reduce_within(&dag, &places, budget);
        prop_assert_eq!(&closure(&reduced), &before, "nothing that is needed is dropped");
        for (kept, all) in reduced.iter().zip(dag.preds.iter()) {
            prop_assert!(kept.windows(2).all(|pair| pair[0] < pair[1]), "ascending");
            prop_assert!(kept.iter().all(|pred| all.contains(pred)), "nothing is invented");
            if budget == usize::MAX {
                let follows = |&pred: &u32| kept.iter().any(|&other| before[other as usize][pred as usize]);
                prop_assert!(!kept.iter().any(follows), "nothing that follows from others is kept");
            }
        }
    }

    #[test]
    fn ranges_and_hubs_need_no_search(Layered { dag, places } in layered()) {
        let before = closure(&dag.preds);
        let mut dependents = vec![0u32; places.len()];
        dag.preds.items().iter().for_each(|&pred| dependents[pred as usize] += 1);
        let is_busy = |pred: u32| dependents[pred as usize] >= HUB_DEPENDENTS;
        let all_are_hubs = (0..places.len() as u32).filter(|&pred| is_busy(pred)).count() <= HUBS;
        for (kept, all) in reduce_within(&dag, &places, 0).iter().zip(dag.preds.iter()) {
            for &pred in kept {
                let range = |other: u32| dag.ancestors_from[other as usize]..other;
                let in_range = kept.iter().any(|&other| range(other).contains(&pred));
                prop_assert!(!in_range);
                let follows = all.iter().any(|&other| before[other as usize][pred as usize]);
                prop_assert!(!(all_are_hubs && is_busy(pred) && follows));
            }
        }
    }

    #[test]
    fn queues_follow_the_dependencies(Layered { dag, places } in layered()) {
        let preds = reduce_within(&dag, &places, usize::MAX);
        let queues = assign_queues(&preds, &places, DEVICES as usize, u16::MAX);
        let before = closure(&preds);
        let mut is_continued = vec![false; places.len()];
        let mut opened = [0u16; DEVICES as usize];
        let mut last_on_queue = std::collections::HashMap::new();
        for (partition, list) in preds.iter().enumerate() {
            let place = places[partition];
            let queue = queues[partition];
            if place == HOST {
                prop_assert_eq!(queue, 0);
            } else if let Some(last) = last_on_queue.insert((place, queue), partition) {
                prop_assert!(before[partition][last], "partitions of one queue wait for each other anyway");
                is_continued[last] = true;
            } else {
                let opened = &mut opened[place as usize - 1];
                prop_assert_eq!(queue, *opened, "queues are numbered as they are opened");
                *opened += 1;
                let is_free = |pred: usize| places[pred] == place && !is_continued[pred];
                for &pred in list {
                    prop_assert!(!is_free(pred as usize), "no queue is opened in vain");
                    // Behind one with a single predecessor there is no choice.
                    if let [only] = preds.get(pred as usize) {
                        prop_assert!(!is_free(*only as usize), "no queue is opened behind others in vain");
                    }
                }
            }
        }
    }

    #[test]
    fn independent_partitions_go_to_the_emptiest_queue(
        Layered { dag, places } in layered(),
        most in 0u16..5,
    ) {
        let queues = assign_queues(&dag.preds, &places, DEVICES as usize, most);
        let most = usize::from(most.max(1));
        let before = closure(&dag.preds);
        let mut loads = vec![Vec::<u32>::new(); DEVICES as usize];
        for (partition, &place) in places.iter().enumerate() {
            if place == HOST {
                continue;
            }
            let loads = &mut loads[place as usize - 1];
            let queue = usize::from(queues[partition]);
            prop_assert!(queue < most);
            let is_independent = !before[partition].ones().any(|earlier| places[earlier] == place);
            if is_independent && loads.len() < most {
                prop_assert_eq!(queue, loads.len(), "a queue of its own while there are any");
            } else if is_independent {
                prop_assert_eq!(Some(&loads[queue]), loads.iter().min());
            }
            if queue == loads.len() {
                loads.push(0);
            }
            loads[queue] += 1;
        }
    }
}

//! What holds for every plan, on random graphs against the model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::cases::{Case, cases, device_cases};
use super::model::Model;
use super::*;
use crate::plan::elide_empty::NARROW;
use crate::plan::{Partition, PartitionKind};

/// A plan in the model's terms.
struct Read {
    plan: Plan,
    model: Model,
    /// By partition, in append order.
    nodes: Vec<Vec<usize>>,
    /// By partition: all partitions it waits for, through others too.
    before: Vec<BTreeSet<usize>>,
}

fn read(case: &Case, options: &PlanOptions) -> Read {
    let plan = case.plan(options);
    let model = Model::of_plan(&case.recipe, &plan);
    let count = plan.partitions().len();
    let nodes = (0..count)
        .map(|partition| plan.nodes(partition).iter().map(|&node| model.node(&plan, node)).collect())
        .collect();
    let mut before: Vec<BTreeSet<usize>> = Vec::new();
    for partition in 0..count {
        let mut all = BTreeSet::new();
        for &pred in plan.predecessors(partition) {
            assert!((pred as usize) < partition, "partitions are in topological order");
            all.insert(pred as usize);
            all.extend(before[pred as usize].clone());
        }
        before.push(all);
    }
    Read { plan, model, nodes, before }
}

pub(super) fn any_options() -> impl Strategy<Value = PlanOptions> {
    let policy = prop_oneof![
        Just(PartitionPolicy::Signature),
        Just(PartitionPolicy::Fewest),
        Just(PartitionPolicy::Eager)
    ];
    let order = prop_oneof![Just(ExecutionOrder::DepthFirst), Just(ExecutionOrder::BreadthFirst)];
    (policy, order, any::<bool>(), any::<bool>(), 0u16..4).prop_map(
        |(partition, order, profiling, in_order, max_queues)| PlanOptions {
            partition,
            order,
            profiling,
            in_order,
            max_queues,
        },
    )
}

proptest! {
    #![proptest_config(random_cases(400))]

    #[test]
    fn plans_keep_every_command_and_every_edge(case in cases(3), options in any_options()) {
        let read = read(&case, &options);
        let model = &read.model;
        let mut place = BTreeMap::new();
        for (partition, nodes) in read.nodes.iter().enumerate() {
            for (position, &node) in nodes.iter().enumerate() {
                prop_assert!(place.insert(node, (partition, position)).is_none());
            }
        }
        prop_assert!(model.planned().eq(place.keys().copied()));

        // Within a partition: which positions are done before one starts.
        let mut done: Vec<Vec<BTreeSet<usize>>> = Vec::new();
        for (partition, nodes) in read.nodes.iter().enumerate() {
            let mut done_before: Vec<BTreeSet<usize>> = Vec::new();
            for position in 0..nodes.len() {
                let mut set = BTreeSet::new();
                if read.plan.partitions()[partition].in_order {
                    set.extend(0..position);
                }
                for &wait in read.plan.waits(partition, position) {
                    prop_assert!((wait as usize) < position);
                    set.insert(wait as usize);
                    set.extend(done_before[wait as usize].clone());
                }
                done_before.push(set);
            }
            done.push(done_before);
        }
        for node in model.planned() {
            for &ancestor in model.ancestors[node].iter().filter(|&&node| model.device[node].is_some()) {
                let ((from, early), (to, late)) = (place[&ancestor], place[&node]);
                if from == to {
                    prop_assert!(done[to][late].contains(&early));
                } else {
                    prop_assert!(read.before[to].contains(&from));
                }
            }
        }
    }

    #[test]
    fn partitions_are_of_one_device_or_one_task(case in cases(3), options in any_options()) {
        let read = read(&case, &options);
        let model = &read.model;
        for (index, (partition, nodes)) in read.plan.partitions().iter().zip(&read.nodes).enumerate() {
            prop_assert!(partition.queue < options.max_queues.max(1));
            match partition.kind {
                PartitionKind::HostTask => {
                    prop_assert_eq!(nodes.len(), 1);
                    prop_assert_eq!(model.device[nodes[0]], Some(None));
                    prop_assert!(!partition.in_order);
                }
                PartitionKind::StreamTask(device) => {
                    prop_assert_eq!(nodes.len(), 1);
                    prop_assert!(model.stream_tasks.contains(&nodes[0]));
                    prop_assert_eq!(model.device[nodes[0]], Some(Some(device.as_raw())));
                    prop_assert!(!partition.in_order);
                }
                PartitionKind::Device(device) => {
                    prop_assert!(nodes.iter().all(|node| !model.stream_tasks.contains(node)));
                    prop_assert!(nodes.iter().all(|&node| model.device[node] == Some(Some(device.as_raw()))));
                    prop_assert!(!(partition.in_order && options.profiling));
                    prop_assert!(partition.in_order || options.profiling || !options.in_order);
                }
            }
            if partition.in_order {
                prop_assert!((0..nodes.len()).all(|position| read.plan.waits(index, position).is_empty()));
            }
        }
    }

    #[test]
    fn dependencies_are_needed_and_not_implied(case in cases(3), options in any_options()) {
        let read = read(&case, &options);
        let model = &read.model;
        for partition in 0..read.nodes.len() {
            let preds = read.plan.predecessors(partition);
            for &pred in preds {
                let early = &read.nodes[pred as usize];
                let follows = |&node: &usize| early.iter().any(|early| model.preds(node).contains(early));
                let is_edge = read.nodes[partition].iter().any(follows);
                prop_assert!(is_edge);
                let is_before = |&other: &u32| read.before[other as usize].contains(&(pred as usize));
                let implied = preds.iter().any(is_before);
                prop_assert!(!implied);
                prop_assert!(read.plan.successors(pred as usize).contains(&(partition as u32)));
            }
        }
        let total = |list: fn(&Plan, usize) -> &[u32]| {
            (0..read.nodes.len()).map(|at| list(&read.plan, at).len()).sum::<usize>()
        };
        prop_assert_eq!(total(Plan::predecessors), total(Plan::successors));
    }

    #[test]
    fn nodes_wait_only_for_tasks_before_them(case in cases(3), eager in any::<bool>()) {
        let read = read(&case, if eager { &EAGER } else { &SIGNATURE });
        let model = &read.model;
        for (partition, nodes) in read.nodes.iter().enumerate() {
            for &before in &read.before[partition] {
                if !matches!(read.plan.partitions()[before].kind, PartitionKind::Device(_)) {
                    let task = read.nodes[before][0];
                    prop_assert!(nodes.iter().all(|&node| model.ancestors[node].contains(&task)));
                }
            }
        }
    }

    #[test]
    fn eager_host_tasks_wait_only_for_ancestors(case in cases(3)) {
        let read = read(&case, &EAGER);
        let model = &read.model;
        for (partition, nodes) in read.nodes.iter().enumerate() {
            if read.plan.partitions()[partition].kind == PartitionKind::HostTask {
                for &before in &read.before[partition] {
                    let ancestors = &model.ancestors[nodes[0]];
                    prop_assert!(read.nodes[before].iter().all(|node| ancestors.contains(node)));
                }
            }
        }
    }

    #[test]
    fn partitions_are_classes_of_signature_and_device(case in cases(3)) {
        let read = read(&case, &SIGNATURE);
        let model = &read.model;
        let mut signatures: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for node in model.sorted() {
            let mut signature = BTreeSet::new();
            for pred in model.preds(node) {
                signature.extend(signatures[&pred].clone());
                if model.is_cut(pred, node) {
                    signature.insert(pred);
                }
            }
            signatures.insert(node, signature);
        }
        let mut classes: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
        for node in model.planned() {
            let device = model.device[node].unwrap();
            let key = (device, model.is_alone(node).then_some(node), &signatures[&node]);
            classes.entry(key).or_default().insert(node);
        }
        let sets = read.nodes.iter().map(|nodes| nodes.iter().copied().collect());
        let found: BTreeSet<BTreeSet<usize>> = sets.collect();
        prop_assert_eq!(found, classes.into_values().collect::<BTreeSet<_>>());
    }

    #[test]
    fn fewest_makes_one_partition_per_level_and_device(case in cases(3)) {
        let plan = case.plan(&FEWEST);
        let model = Model::of_plan(&case.recipe, &plan);
        let mut levels: BTreeMap<usize, usize> = BTreeMap::new();
        for node in model.sorted() {
            let cuts = |pred| levels[&pred] + usize::from(model.is_cut(pred, node));
            let level = model.preds(node).into_iter().map(cuts).max().unwrap_or(0);
            levels.insert(node, level);
        }
        let device_nodes = model.planned().filter(|&node| !model.is_alone(node));
        let expected: BTreeSet<_> = device_nodes.map(|node| (model.device[node], levels[&node])).collect();
        let on_device = |partition: &&Partition| matches!(partition.kind, PartitionKind::Device(_));
        let found = plan.partitions().iter().filter(on_device).count();
        prop_assert_eq!(found, expected.len());
    }

    #[test]
    fn a_graph_for_one_device_is_one_partition(case in device_cases(), options in any_options()) {
        let read = read(&case, &options);
        prop_assert_eq!(read.nodes.len(), usize::from(read.model.planned().count() > 0));
    }

    #[test]
    fn joins_stay_if_both_sides_are_wide(case in cases(3), options in any_options()) {
        let read = read(&case, &options);
        let model = &read.model;
        for (&join, &own) in &model.joins {
            let preds = model.preds(join);
            let can_hold = |device: &u32| case.joins >> device & 1 == 1;
            let devices = preds.iter().filter_map(|&pred| model.device[pred].unwrap());
            let beside: BTreeSet<u32> = devices.filter(can_hold).collect();
            let is_wide = preds.len() > NARROW && model.paths_out(join) > NARROW;
            match model.device[join] {
                Some(device) if beside.is_empty() => {
                    prop_assert!(is_wide && can_hold(&own) && device == Some(own));
                }
                Some(device) => prop_assert!(is_wide && beside.contains(&device.unwrap())),
                None => prop_assert!(!is_wide || beside.is_empty() && !can_hold(&own)),
            }
        }
    }

    #[test]
    fn equal_graphs_have_equal_plans(case in cases(3), options in any_options()) {
        let first = case.plan(&options);
        prop_assert_eq!(&first, &case.plan(&options));
        prop_assert_eq!(first.instructions().count(), first.to_string().lines().count());
    }
}

/// The strategy has to bring up what it is there for.
#[test]
#[cfg_attr(miri, ignore = "plans 200 graphs, many minutes under Miri, and tests only the strategy")]
fn many_random_graphs_have_wide_joins() {
    const CASES: usize = 200;
    let mut runner = TestRunner::deterministic();
    let strategy = cases(3);
    let with_joins = (0..CASES).filter(|_| {
        let case = strategy.new_tree(&mut runner).unwrap().current();
        let model = Model::of_plan(&case.recipe, &case.plan(&SIGNATURE));
        model.joins.keys().any(|&join| model.device[join].is_some())
    });
    let count = with_joins.count();
    assert!(count > CASES / 4, "{count} of {CASES}");
}

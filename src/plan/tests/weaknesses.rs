//! What the reference algorithm gets wrong, W1 to W8 of the partitioning notes, and what happens here.

use super::*;

//     +--> [HT]
// A --+
//     +--> C
#[test]
fn w1_a_node_beside_a_host_task_follows_their_predecessor() {
    assert_plan(
        "A HT! C",
        "A>HT A>C",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0, in order
          append A
          append C
        finalize 0
        host task 1 runs HT after 0
        ",
    );
}

// [HT] --> Y --> X <-- K0
#[test]
fn w2_a_dependency_of_an_inner_node_is_one_of_the_partition() {
    assert_plan(
        "K0 HT! Y X",
        "HT>Y>X K0>X",
        &SIGNATURE,
        "
        host task 0 runs HT
        begin 1 on device#0, queue 0, in order
          append K0
        finalize 1
        begin 2 on device#0, queue 0, in order after 0, 1
          append Y
          append X
        finalize 2
        ",
    );
}

//     +--> L1 --+     +--> L2 --+
// T0 -+         +- T1 +         +- T2 ...      40 times: 2^40 paths
//     +--> R1 --+     +--> R2 --+
#[test]
fn w3_forty_diamonds_are_a_small_graph() {
    for host_tasks in [false, true] {
        let mut graph = Graph::new();
        let kinds = [CommandKind::Kernel, CommandKind::HostTask];
        let mut add =
            |host| graph.add(kinds[usize::from(host)], DeviceId::from_raw(0), Content::Command(()), &[]);
        let nodes: Vec<_> = (0..=120).map(|node| add(host_tasks && node % 3 == 1)).collect();
        for top in (0..120).step_by(3) {
            for (from, to) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
                graph.make_edge(nodes[top + from], nodes[top + to]).unwrap();
            }
        }
        for options in [SIGNATURE, FEWEST, EAGER] {
            let plan = plan(&graph, &options);
            let partitions = match (host_tasks, options.partition) {
                (false, _) => 1,
                (true, PartitionPolicy::Eager) => 40 + 41 + 40,
                (true, _) => 40 + 41,
            };
            // The side without a host task is before it for all host tasks that come after, and
            // only for those.
            assert_eq!(plan.partitions().len(), partitions);
            assert_eq!(plan.node_count(), 121);
        }
    }
}

// K --> [HT] --> K --> [HT] --> ...
#[test]
fn w4_w5_a_long_chain_of_host_tasks_is_planned_in_one_go() {
    const PAIRS: usize = if cfg!(miri) { 100 } else { 100_000 };
    let mut graph = Graph::new();
    let mut last = None;
    for index in 0..2 * PAIRS {
        let kind = if index % 2 == 0 { CommandKind::Kernel } else { CommandKind::HostTask };
        let node = graph.add(kind, DeviceId::from_raw(0), Content::Command(()), &[]);
        if let Some(last) = last.replace(node) {
            graph.make_edge(last, node).unwrap();
        }
    }
    let plan = plan(&graph, &SIGNATURE);
    assert_eq!(plan.partitions().len(), 2 * PAIRS);
    assert!((1..2 * PAIRS).all(|partition| plan.predecessors(partition) == [partition as u32 - 1]));
    assert!(plan.partitions().iter().all(|partition| partition.queue == 0));
}

// A --> [HT1] --> B
// C --> [HT2] --> D
#[test]
fn w6_four_partitions_where_the_fewest_are_wanted() {
    assert_plan(
        "A C HT1! HT2! B D",
        "A>HT1>B C>HT2>D",
        &FEWEST,
        "
        begin 0 on device#0, queue 0
          append A
          append C
        finalize 0
        host task 1 runs HT1 after 0
        host task 2 runs HT2 after 0
        begin 3 on device#0, queue 0 after 1, 2
          append B
          append D
        finalize 3
        ",
    );
}

// A --> [HT]
// B
#[test]
fn w7_eager_host_tasks_wait_for_ancestors_only() {
    assert_plan(
        "A B HT!",
        "A>HT",
        &EAGER,
        "
        begin 0 on device#0, queue 0, in order
          append B
        finalize 0
        begin 1 on device#0, queue 1, in order
          append A
        finalize 1
        host task 2 runs HT after 1
        ",
    );
}

// A ==> [HT] ==> B, every edge twice, and A --> B
#[test]
fn w8_dependencies_are_there_once_and_reduced() {
    assert_plan(
        "A1 A2 HT! B1 B2",
        "A1>HT>B1 A2>HT>B2 A1>B1 A2>B2 A1>HT",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0
          append A1
          append A2
        finalize 0
        host task 1 runs HT after 0
        begin 2 on device#0, queue 0 after 1
          append B1
          append B2
        finalize 2
        ",
    );
}

//! The examples of the seed documents, and what the options change. Drawings: time runs to the
//! right, `[..]` are host tasks.

use super::*;

// A --> B --> [HT] --> C --> D
#[test]
fn a_host_task_separates_predecessors_from_successors() {
    assert_plan(
        "A B HT! C D",
        "A>B>HT>C>D",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0, in order
          append A
          append B
        finalize 0
        host task 1 runs HT after 0
        begin 2 on device#0, queue 0, in order after 1
          append C
          append D
        finalize 2
        ",
    );
}

// A --> B ---------> D --> E
//  \              /
//   +--> [HT1] --+
#[test]
fn a_node_beside_a_host_task_joins_its_predecessors() {
    assert_plan(
        "A B HT1! D E",
        "A>B>D>E A>HT1>D",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0, in order
          append A
          append B
        finalize 0
        host task 1 runs HT1 after 0
        begin 2 on device#0, queue 0, in order after 1
          append D
          append E
        finalize 2
        ",
    );
}

// A --> [HT1] --> B
// C --> [HT2] --> D
#[test]
fn roots_do_not_wait_for_host_tasks_of_other_roots() {
    assert_plan(
        "A C HT1! HT2! B D",
        "A>HT1>B C>HT2>D",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0
          append A
          append C
        finalize 0
        host task 1 runs HT1 after 0
        begin 2 on device#0, queue 0, in order after 1
          append B
        finalize 2
        host task 3 runs HT2 after 0
        begin 4 on device#0, queue 1, in order after 3
          append D
        finalize 4
        ",
    );
}

// A --> [HT1] --> B --> [HT2] --> C        and then, by a back edge,        E --> [HT1]
// D --> E
#[test]
fn a_back_edge_to_a_host_task_adds_no_partition() {
    let expected = "
        begin 0 on device#0, queue 0
          append A
          append D
          append E waits for D
        finalize 0
        host task 1 runs HT1 after 0
        begin 2 on device#0, queue 0, in order after 1
          append B
        finalize 2
        host task 3 runs HT2 after 2
        begin 4 on device#0, queue 0, in order after 3
          append C
        finalize 4
        ";
    assert_plan("A HT1! B HT2! C D E", "A>HT1>B>HT2>C D>E", &SIGNATURE, expected);
    assert_plan("A HT1! B HT2! C D E", "A>HT1>B>HT2>C D>E E>HT1", &SIGNATURE, expected);
}

// A --> [HT1] --> B1
//         ^
//         +------------------+  a back edge that puts the later host task before the earlier one
//                            |
// X --> [HT2] --> B2 --------+
#[test]
fn reversed_host_tasks_do_not_merge_partitions() {
    assert_plan(
        "A HT1! B1 X HT2! B2",
        "A>HT1>B1 X>HT2>B2>HT1",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0
          append A
          append X
        finalize 0
        host task 1 runs HT2 after 0
        begin 2 on device#0, queue 0, in order after 1
          append B2
        finalize 2
        host task 3 runs HT1 after 2
        begin 4 on device#0, queue 0, in order after 3
          append B1
        finalize 4
        ",
    );
}

// A@0 --> B@1 --> C@0
#[test]
fn a_change_of_device_separates_partitions() {
    assert_plan(
        "A B@1 C",
        "A>B>C",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0, in order
          append A
        finalize 0
        begin 1 on device#1, queue 0, in order after 0
          append B
        finalize 1
        begin 2 on device#0, queue 0, in order after 1
          append C
        finalize 2
        ",
    );
}

//     +--> B --> D --+
// A --+              +--> F
//     +--> C --> E --+
#[test]
fn both_execution_orders_append_as_documented() {
    let (nodes, paths) = ("A B C D E F", "A>B>D>F A>C>E>F");
    assert_plan(
        nodes,
        paths,
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0
          append A
          append B waits for A
          append D waits for B
          append C waits for A
          append E waits for C
          append F waits for D, E
        finalize 0
        ",
    );
    assert_plan(
        nodes,
        paths,
        &PlanOptions { order: ExecutionOrder::BreadthFirst, ..SIGNATURE },
        "
        begin 0 on device#0, queue 0
          append A
          append B waits for A
          append C waits for A
          append D waits for B
          append E waits for C
          append F waits for D, E
        finalize 0
        ",
    );
}

// A --> B --> C, A --> C
#[test]
fn only_single_paths_and_requests_are_in_order() {
    let (path, timed) = (SIGNATURE, PlanOptions { profiling: true, in_order: true, ..SIGNATURE });
    assert_plan(
        "A B C",
        "A>B>C A>C",
        &path,
        "
        begin 0 on device#0, queue 0, in order
          append A
          append B
          append C
        finalize 0
        ",
    );
    // A is implied by B.
    assert_plan(
        "A B C",
        "A>B>C A>C",
        &timed,
        "
        begin 0 on device#0, queue 0
          append A
          append B waits for A
          append C waits for B
        finalize 0
        ",
    );
    assert_plan(
        "A B C",
        "A>C B>C",
        &PlanOptions { in_order: true, ..SIGNATURE },
        "
        begin 0 on device#0, queue 0, in order
          append A
          append B
          append C
        finalize 0
        ",
    );
}

// A --\          /--> C
//      (E1)-->(E2)
// B --/          \--> D
#[test]
fn empty_nodes_cost_nothing() {
    assert_plan(
        "A B E1? E2? C D",
        "A>E1>E2>C B>E1 E2>D",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0
          append A
          append B
          append C waits for A, B
          append D waits for A, B
        finalize 0
        ",
    );
    assert_plan("E1? E2?", "E1>E2", &SIGNATURE, "");
    assert_plan("", "", &SIGNATURE, "");
}

//        +-------- S --------+
// A ---> | X --> [HT]   Y    | ---> B        S stands in the graph twice, the second inside a graph
// of its own +-------------------+
#[test]
fn sub_graphs_are_inlined_in_place() {
    let (child, _) = graph("X HT! Y", "X>HT");
    let child = std::sync::Arc::new(child);
    let mut middle = Graph::new();
    let device = DeviceId::from_raw(0);
    middle.add(CommandKind::SubGraph, device, Content::SubGraph(child.clone()), &[]);
    let (mut root, _) = graph("A B", "");
    let first = root.add(CommandKind::SubGraph, device, Content::SubGraph(child), &[]);
    let second = root.add(CommandKind::SubGraph, device, Content::SubGraph(std::sync::Arc::new(middle)), &[]);
    let (a, b) = (root.id_at(0).unwrap(), root.id_at(1).unwrap());
    root.make_edge(a, first).unwrap();
    root.make_edge(first, second).unwrap();
    root.make_edge(second, b).unwrap();

    let plan = plan(&root, &SIGNATURE);
    let name = |node| {
        let origin = plan.origin(node);
        format!("{}/{}", origin.instance, origin.node)
    };
    assert_eq!(
        plan.display(name).to_string(),
        "\
begin 0 on device#0, queue 0
  append 0/0
  append 1/0 waits for 0/0
  append 1/2 waits for 0/0
finalize 0
host task 1 runs 1/1 after 0
begin 2 on device#0, queue 0 after 1
  append 3/0
  append 3/2
finalize 2
host task 3 runs 3/1 after 2
begin 4 on device#0, queue 0, in order after 3
  append 0/1
finalize 4
"
    );
    let parents: Vec<_> = plan.instances().iter().map(|instance| (instance.parent, instance.node)).collect();
    assert_eq!(parents, [(None, 0), (Some(0), 2), (Some(0), 3), (Some(2), 0)]);
    assert_eq!(plan.node_count(), 8);
}

// A --> [HT] --> B
#[test]
fn dot_draws_partitions_as_clusters() {
    let (graph, names) = graph("A HT! B", "A>HT>B");
    let dot = plan(&graph, &SIGNATURE).dot(|node| format!("\"{}\"", names[node as usize])).to_string();
    assert_eq!(
        dot,
        r#"digraph plan {
  compound=true;
  fontname="sans-serif";
  node [shape=box, style=filled, fillcolor=white, fontname="sans-serif"];
  subgraph cluster_0 {
    label="0: device#0, queue 0, in order";
    style="rounded,filled";
    fillcolor="/set312/1";
    n0 [label="\"A\""];
  }
  subgraph cluster_1 {
    label="1: host task";
    style="rounded,dashed";
    node [shape=ellipse];
    n1 [label="\"HT\""];
  }
  subgraph cluster_2 {
    label="2: device#0, queue 0, in order";
    style="rounded,filled";
    fillcolor="/set312/1";
    n2 [label="\"B\""];
  }
  edge [style=bold, minlen=2];
  n0 -> n1 [ltail=cluster_0, lhead=cluster_1];
  n1 -> n2 [ltail=cluster_1, lhead=cluster_2];
}
"#
    );
}

// A --> C@1
// B
#[test]
fn partitions_are_waited_for_as_a_whole() {
    // C comes after B, too, which is not its ancestor.
    assert_plan(
        "A B C@1",
        "A>C",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0
          append A
          append B
        finalize 0
        begin 1 on device#1, queue 0, in order after 0
          append C
        finalize 1
        ",
    );
}

// A --> (T) --> B --> C
#[test]
fn a_stream_task_is_a_partition_of_its_own_on_the_queue_of_its_neighbours() {
    assert_plan(
        "A T~ B C",
        "A>T>B>C",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0, in order
          append A
        finalize 0
        stream task 1 on device#0, queue 0, calls T live after 0
        begin 2 on device#0, queue 0, in order after 1
          append B
          append C
        finalize 2
        ",
    );
}

// A --> (T1) --> (T2) --> B
//  \                    /
//   +-------> C -------+
#[test]
fn what_is_beside_a_stream_task_does_not_wait_for_it() {
    assert_plan(
        "A T1~ T2~ C B",
        "A>T1>T2>B A>C>B",
        &SIGNATURE,
        "
        begin 0 on device#0, queue 0, in order
          append A
          append C
        finalize 0
        stream task 1 on device#0, queue 0, calls T1 live after 0
        stream task 2 on device#0, queue 0, calls T2 live after 1
        begin 3 on device#0, queue 0, in order after 2
          append B
        finalize 3
        ",
    );
}

// A@0 --> (T@1) --> B@1
// C@1 -------------> D@1
#[test]
fn a_stream_task_takes_results_of_another_device() {
    assert_plan(
        "A C@1 T~@1 B@1 D@1",
        "A>T>B C>D",
        &SIGNATURE,
        "
        begin 0 on device#1, queue 0, in order
          append C
          append D
        finalize 0
        begin 1 on device#0, queue 0, in order
          append A
        finalize 1
        stream task 2 on device#1, queue 1, calls T live after 1
        begin 3 on device#1, queue 1, in order after 2
          append B
        finalize 3
        ",
    );
}

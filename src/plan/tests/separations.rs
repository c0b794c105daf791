//! Why partitions are ones of their own.

use super::super::Separation;
use super::*;

/// The reason of each partition, which the plan's own tests show as a list of instructions.
#[track_caller]
fn assert_separations(nodes: &str, paths: &str, options: &PlanOptions, expected: &[Separation]) {
    let (graph, names) = graph(nodes, paths);
    let plan = plan(&graph, options);
    let found: Vec<_> = (0..plan.partitions().len()).map(|partition| plan.separation(partition)).collect();
    assert_eq!(found, expected, "\n{}", plan.display(|node| names[node as usize].clone()));
}

fn waits_for(partition: u32, other: u32) -> Separation {
    Separation::WaitsFor { partitions: vec![partition], other }
}

// A --> [H] --> B
#[test]
fn a_host_task_between() {
    assert_separations(
        "A H! B",
        "A>H>B",
        &SIGNATURE,
        &[Separation::FirstOnDevice, Separation::Host, waits_for(1, 0)],
    );
}

// A --> (T) --> B
#[test]
fn a_stream_task_between() {
    assert_separations(
        "A T~ B",
        "A>T>B",
        &SIGNATURE,
        &[Separation::FirstOnDevice, Separation::StreamTask, waits_for(1, 0)],
    );
}

// A --> [H] --> B
//  \--> C@1 --> D
#[test]
fn each_partition_names_what_its_neighbour_does_not_wait_for() {
    use Separation::{FirstOnDevice, Host};
    // Partitions: A, H, B, C, D.
    let expected = [FirstOnDevice, Host, waits_for(1, 0), FirstOnDevice, waits_for(3, 2)];
    assert_separations("A H! B C@1 D", "A>H>B A>C>D", &SIGNATURE, &expected);
}

// A --> [H] --> B --> [K]      B comes first in the plan, and C, which waits for nothing, does not.
// C --> [K]
#[test]
fn a_partition_that_waits_for_less_than_an_earlier_one() {
    let (graph, _) = graph("H! B C K!", "H>B>K C>K");
    let plan = plan(&graph, &SIGNATURE);
    let device = |&index: &usize| plan.separation(index) != Separation::Host;
    let found: Vec<_> =
        (0..plan.partitions().len()).filter(device).map(|index| plan.separation(index)).collect();
    assert_eq!(
        found,
        [Separation::FirstOnDevice, Separation::StartsBefore { partitions: vec![0], other: 1 }]
    );
}

// X@1 --> A       both results come from one partition of device 1
// Y@1 --> B
#[test]
fn different_results_of_one_partition() {
    let expected = [
        Separation::FirstOnDevice,
        Separation::FirstOnDevice,
        Separation::OtherResults { partitions: vec![0], other: 1 },
    ];
    assert_separations("X@1 Y@1 A B", "X>A Y>B", &SIGNATURE, &expected);
}

// A --> [H]       B is not before the host task
// B
#[test]
fn eager_partitions_differ_by_the_host_tasks_after_them() {
    let (graph, _) = graph("A B H!", "A>H");
    let plan = plan(&graph, &EAGER);
    let found: BTreeSet<_> =
        (0..plan.partitions().len()).map(|partition| format!("{:?}", plan.separation(partition))).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().any(|reason| reason.starts_with("HostTasksAfter")), "{found:?}");
}

/// Whatever the graph, two neighbours differ in something that the reason names.
#[test]
fn every_partition_of_a_random_graph_has_a_reason() {
    let mut state = 1u64;
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for _ in 0..300 {
        let kinds = ["", "", "@1", "!"];
        let names: Vec<String> = (0..12).map(|index| format!("n{index}")).collect();
        let words: Vec<String> =
            names.iter().map(|name| format!("{name}{}", kinds[next(4) as usize])).collect();
        let mut paths = Vec::new();
        for to in 1..names.len() {
            for _ in 0..next(3) {
                paths.push(format!("{}>{}", names[next(to as u64) as usize], names[to]));
            }
        }
        let (graph, _) = graph(&words.join(" "), &paths.join(" "));
        for options in [SIGNATURE, FEWEST, EAGER] {
            let plan = plan(&graph, &options);
            for partition in 0..plan.partitions().len() {
                match plan.separation(partition) {
                    Separation::Host | Separation::StreamTask | Separation::FirstOnDevice => {}
                    Separation::WaitsFor { partitions, other }
                    | Separation::StartsBefore { partitions, other }
                    | Separation::OtherResults { partitions, other }
                    | Separation::HostTasksAfter { host_tasks: partitions, other } => {
                        assert!(
                            !partitions.is_empty() && (other as usize) < partition,
                            "{words:?} {paths:?}"
                        );
                        assert_eq!(plan.partitions()[other as usize].kind, plan.partitions()[partition].kind);
                    }
                }
            }
        }
    }
}

//! Sub-graphs: nested, with several parents, on their own.

use wakegraph::{Buffer, Graph, Range, read};

use crate::kernels::{add, mix};
use crate::suite::{Need, Setup, tests};

tests!("graph/sub_graphs":
    &[Need::Results] => [in_place_of_their_nodes, nested_with_several_parents, explicit_edges_hold_for_all_nodes,
        the_child_stays_as_it_was, with_host_tasks],
    &[] => [empty_children]);

fn child(setup: &Setup, x: &Buffer<u32>, numbers: std::ops::Range<u32>) -> Graph {
    let mut graph = Graph::new(setup.device());
    for n in numbers {
        graph.launch(mix(n, x), Range::linear(x.len()));
    }
    graph
}

fn model(start: u32, numbers: &[u32]) -> u32 {
    numbers.iter().fold(start, |x, n| x.wrapping_mul(31).wrapping_add(*n))
}

// mix 1 -> [mix 5 -> mix 6] -> mix 2
fn in_place_of_their_nodes(setup: &Setup) {
    let x = setup.device().buffer_from(&[1u32; 4]).unwrap();
    let child = child(setup, &x, 5..7);
    let mut graph = Graph::new(setup.device());
    graph.launch(mix(1, &x), Range::linear(4));
    graph.sub_graph(&child).name("child");
    graph.launch(mix(2, &x), Range::linear(4));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut expected = 1;
        for _ in 0..3 {
            exec.submit().await.unwrap();
            expected = model(expected, &[1, 5, 6, 2]);
            assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
        }
    });
}

fn nested_with_several_parents(setup: &Setup) {
    let x = setup.device().buffer_from(&[1u32]).unwrap();
    let inner = child(setup, &x, 1..3);
    let mut middle = Graph::new(setup.device());
    middle.sub_graph(&inner);
    middle.launch(mix(3, &x), Range::linear(1));
    middle.sub_graph(&inner);
    let mut one = Graph::new(setup.device());
    one.sub_graph(&middle);
    one.sub_graph(&inner);
    let mut two = Graph::new(setup.device());
    two.launch(mix(9, &x), Range::linear(1));
    two.sub_graph(&middle);
    two.sub_graph(&middle);
    let (one, two) = (one.finalize().unwrap(), two.finalize().unwrap());
    let inner = inner.finalize().unwrap();
    setup.block_on(async {
        let mut expected = 1;
        for _ in 0..2 {
            one.submit().await.unwrap();
            expected = model(expected, &[1, 2, 3, 1, 2, 1, 2]);
            two.submit().await.unwrap();
            expected = model(expected, &[9, 1, 2, 3, 1, 2, 1, 2, 3, 1, 2]);
            inner.submit().await.unwrap();
            expected = model(expected, &[1, 2]);
            assert_eq!(x.to_vec().await.unwrap(), [expected]);
        }
    });
}

// [fill a, fill b] -> [add a, add b]: the children share no memory with each other, only the edge
// orders them.
fn explicit_edges_hold_for_all_nodes(setup: &Setup) {
    let device = setup.device();
    let (a, b, c) =
        (device.buffer::<u32>(2).unwrap(), device.buffer::<u32>(2).unwrap(), device.buffer(2).unwrap());
    let mut first = Graph::new(device);
    first.fill(&a, 1);
    first.fill(&b, 2);
    let mut second = Graph::new(device);
    second.fill(&c, 3);
    let mut graph = Graph::new(device);
    let before = graph.sub_graph(&first).id();
    let after = graph.sub_graph(&second).after([before]).id();
    let last = graph.launch(add(1, &c), Range::linear(2)).id();
    assert_eq!(graph.predecessors(after).unwrap(), [before]);
    assert_eq!(graph.predecessors(last).unwrap(), [after]);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(c.to_vec().await.unwrap(), [4; 2]);
            assert_eq!((a.to_vec().await.unwrap(), b.to_vec().await.unwrap()), (vec![1; 2], vec![2; 2]));
        }
    });
}

fn the_child_stays_as_it_was(setup: &Setup) {
    let x = setup.device().buffer_from(&[1u32]).unwrap();
    let mut child = child(setup, &x, 1..2);
    let mut graph = Graph::new(setup.device());
    graph.sub_graph(&child);
    // Added later: not in the copy.
    child.launch(mix(2, &x), Range::linear(1));
    let (parent, child) = (graph.finalize().unwrap(), child.finalize().unwrap());
    setup.block_on(async {
        parent.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [model(1, &[1])]);
        child.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [model(1, &[1, 1, 2])]);
    });
}

fn with_host_tasks(setup: &Setup) {
    let device = setup.device();
    let (x, host) = (device.buffer_from(&[1u32]).unwrap(), device.host_buffer::<u32>(1).unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = std::sync::Arc::new(std::sync::Mutex::new(sender));
    let mut child = Graph::new(device);
    child.copy(&x, &host);
    child.host_task((read(&host),), async move |(host,)| sender.lock().unwrap().send(host[0]).unwrap());
    let mut graph = Graph::new(device);
    graph.sub_graph(&child);
    graph.launch(add(1, &x), Range::linear(1));
    graph.sub_graph(&child);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2, 2, 3]);
}

fn empty_children(setup: &Setup) {
    let mut graph = Graph::new(setup.device());
    let empty = Graph::new(setup.device());
    let first = graph.sub_graph(&empty).id();
    graph.sub_graph(&empty).after([first]);
    let exec = graph.finalize().unwrap();
    setup.block_on(async { exec.submit().await }).unwrap();
}

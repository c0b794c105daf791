//! Conditionals and loops as nodes: their edges, what drawings show, and what is refused.

use wakegraph::graph::CommandKind;
use wakegraph::{ErrorKind, Graph, NodeId, Range};

use super::control::{adds, counts_down, words};
use crate::kernels::add;
use crate::suite::{Need, Setup, tests};

tests!("graph/control_nodes":
    &[Need::TwoDevices] => [refused_on_another_device],
    &[] => [accesses_are_those_of_the_bodies, drawings_show_the_bodies, refused]);

fn accesses_are_those_of_the_bodies(setup: &Setup) {
    let device = setup.device();
    let (flag, x, y, z) = (words(device, [0]), words(device, [0]), words(device, [0]), words(device, [0]));
    let mut graph = Graph::new(device);
    let nodes = [&flag, &x, &y, &z].map(|buffer| graph.fill(buffer, 1).id());
    let either = graph.if_nonzero_else(&flag, &adds(device, 1, &x), &adds(device, 1, &y)).id();
    assert_eq!(graph.predecessors(either).unwrap(), nodes[..3]);
    assert_eq!(graph.kind(either).unwrap(), CommandKind::If);
    let looping = graph.while_nonzero(&flag, &counts_down(device, &flag, &z)).id();
    // It writes the flag that the conditional reads.
    assert!(graph.predecessors(looping).unwrap().contains(&either));
    assert_eq!(graph.kind(looping).unwrap(), CommandKind::While);
    let last = graph.launch(add(1, &x), Range::linear(1)).id();
    assert_eq!(graph.predecessors(last).unwrap(), [either]);
    let switch = graph.switch(&flag, [&adds(device, 1, &x), &adds(device, 1, &z)]).id();
    assert_eq!(graph.predecessors(switch).unwrap(), [looping, last]);
    assert_eq!(graph.kind(switch).unwrap(), CommandKind::Switch);
}

fn drawings_show_the_bodies(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (words(device, [0]), words(device, [0]));
    let mut inner = Graph::new(device);
    inner.while_nonzero(&flag, &counts_down(device, &flag, &x)).name("inner");
    inner.switch(&flag, [&Graph::new(device), &adds(device, 1, &x)]).name("one of two");
    let mut graph = Graph::new(device);
    graph.if_nonzero_else(&flag, &inner, &Graph::new(device)).name("outer");
    let text = graph.dot(true);
    for words in [
        "conditional 'outer' (#0)",
        "!= 0",
        "then: loop 'inner' (#0)",
        "kernel 'add' (#1)",
        "else: nothing",
        "switch 'one of two' (#1)",
        "0: nothing; 1: kernel 'add' (#0)",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(graph.dot(false).contains("shape=hexagon"));
    let plan = graph.finalize().unwrap().plan_text();
    assert!(plan.contains("conditional 'outer' (#0)"), "{plan}");
}

#[track_caller]
fn refusal(graph: &Graph, kind: ErrorKind, words: &str) {
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words) && error.to_string().contains("control_nodes.rs"), "{error}");
}

fn refused(setup: &Setup) {
    let device = setup.device();
    let (flags, x) = (words(device, [0; 2]), words(device, [0]));
    let flag = flags.slice(..1).unwrap();
    let body = adds(device, 1, &x);
    let refused = |build: &dyn Fn(&mut Graph) -> NodeId, kind, words: &str| {
        let mut graph = Graph::new(device);
        build(&mut graph);
        refusal(&graph, kind, words);
    };
    refused(&|graph| graph.if_nonzero(&flags, &body).id(), ErrorKind::InvalidSize, "2 elements");
    refused(&|graph| graph.while_nonzero(&flags, &body).id(), ErrorKind::InvalidSize, "2 elements");
    refused(&|graph| graph.switch(&flags, [&body]).id(), ErrorKind::InvalidSize, "2 elements");
    let mut broken = Graph::new(device);
    broken.launch(add(1, &x), Range::linear(2));
    refused(&|graph| graph.while_nonzero(&flag, &broken).id(), ErrorKind::InvalidSize, "bound on its range");
    // As deep as they may lie, and deeper.
    let mut deep = adds(device, 1, &x);
    for _ in 0..63 {
        let mut outer = Graph::new(device);
        outer.if_nonzero(&flag, &deep);
        deep = outer;
    }
    assert!(deep.errors().is_empty());
    refused(&|graph| graph.if_nonzero(&flag, &deep).id(), ErrorKind::InvalidSize, "63 deep");
}

fn refused_on_another_device(setup: &Setup) {
    let [one, two] = [0, 1].map(|index| &setup.devices[index]);
    let (flag, x) = (words(one, [0]), words(one, [0]));
    let mut graph = Graph::new(one);
    graph.if_nonzero(&flag, &adds(one, 1, &x)).on(two);
    refusal(&graph, ErrorKind::InvalidArgument, "a device of their own");
}

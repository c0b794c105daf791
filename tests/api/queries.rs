//! What can be asked of graphs and nodes, and how graphs and plans are drawn.
use wakegraph::graph::CommandKind;
use wakegraph::memory::{Access, AccessMode};
use wakegraph::{Device, ErrorKind, Graph, Local, NodeId, Range, Result, kernel, read};

kernel! {
    fn scale(by: f32, from: &[f32], to: &mut [f32]) { item: |i, by, from, to| to[i] = by * from[i] }
    fn count(start: i64, _tile: Local<u8>, _pair: [u8; 2], to: &mut [u32]) {
        host: |_, start, _tile, _pair, to| to[0] = start as u32,
    }
}

#[test]
fn nodes_tell_their_device_accesses_and_place() {
    let [one, other] = ["host:960", "host:961"].map(|selector| Device::open(selector).unwrap());
    let (x, y) = (one.buffer::<f32>(8).unwrap(), other.host_buffer::<f32>(8).unwrap());
    let mut graph = Graph::new(&one);
    let call = scale(2.0, x.slice(..4).unwrap(), x.slice(4..).unwrap());
    let line = line!() + 1;
    let first = graph.launch(call, Range::linear(4)).id();
    let second = graph.empty().on(&other).id();
    let task = graph.host_task((read(&y.slice(1..2).unwrap()),), async |_| {}).id();

    assert_eq!(graph.device_of(first).unwrap(), &one);
    assert_eq!(graph.device_of(second).unwrap(), &other);
    let access = |resource, start, end, mode| Access { resource, start, end, mode };
    let (device, host) = (x.resource(), y.resource());
    assert_eq!(x.slice(4..).unwrap().resource(), device);
    let expected = [access(device, 0, 16, AccessMode::Read), access(device, 16, 32, AccessMode::ReadWrite)];
    assert_eq!(graph.accesses(first).unwrap(), expected);
    assert_eq!(graph.accesses(second).unwrap(), []);
    assert_eq!(graph.accesses(task).unwrap(), [access(host, 4, 8, AccessMode::Read)]);
    let place = graph.location(first).unwrap();
    assert!(place.file().ends_with("queries.rs"), "{place}");
    assert_eq!(place.line(), line);
}

#[test]
fn graphs_have_ids_that_their_nodes_share() {
    let device = Device::open("host").unwrap();
    let mut graph = Graph::new(&device);
    let node = graph.empty().id();
    let mut other = Graph::new(&device);
    other.empty();
    assert_ne!(other.id(), graph.id());
    assert_eq!(node.graph_id(), graph.id());
    assert_eq!(other.nodes().next().unwrap().graph_id(), other.id());

    fn refused<T>(result: Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::InvalidArgument)
    }
    assert!(refused(other.device_of(node)));
    assert!(refused(other.accesses(node)));
    assert!(refused(other.location(node)));
}

// fill a -> scale a to b -> copy b to c, and an explicit edge from the fill to the copy
#[test]
fn edges_are_those_of_accesses_and_those_asked_for() {
    let device = Device::open("host").unwrap();
    let [a, b, c] = [(); 3].map(|()| device.buffer::<f32>(4).unwrap());
    let mut graph = Graph::new(&device);
    let fill = graph.fill(&a, 1.0).id();
    let scaled = graph.launch(scale(2.0, &a, &b), Range::linear(4)).id();
    let copy = graph.copy(&b, &c).after([fill]).id();
    let edges: Vec<(NodeId, NodeId)> = graph.edges().collect();
    assert_eq!(edges, [(fill, scaled), (scaled, copy), (fill, copy)]);
    assert_eq!(graph.predecessors(copy).unwrap(), [scaled, fill]);
    assert_eq!(graph.kind(copy).unwrap(), CommandKind::BufferCopy);
}

#[test]
fn a_verbose_drawing_shows_the_values_of_arguments() {
    let device = Device::open("host:962").unwrap();
    let (from, to) = (device.buffer::<f32>(4).unwrap(), device.buffer::<f32>(4).unwrap());
    let counts = device.buffer::<u32>(2).unwrap();
    let mut graph = Graph::new(&device);
    graph.launch(scale(-2.5, &from, &to), Range::linear(4));
    graph.launch(count(1 << 40, Local::new(3), [7, 255], &counts), Range::linear(2).local([2]));
    let drawing = graph.dot(true);
    for expected in [
        "scale over range [4]\\lby: f32 = -2.5\\lfrom: [f32] = memory of 16 bytes\\lto: [f32] = memory of 16 bytes\\l",
        "count over range [2] in groups of [2]\\lstart: i64 = 1099511627776\\l_tile = local memory of 3 bytes\\l\
         _pair: [u8; 2] = 07 ff\\lto: [u32] = memory of 8 bytes\\l",
        "reads m0[0..16]\\lreads and writes m1[0..16]\\l",
        "queries.rs:",
    ] {
        assert!(drawing.contains(expected), "{expected} is not in\n{drawing}");
    }
    assert!(!graph.dot(false).contains("-2.5"));
}

// fill -> copy -> [host task] -> scale
#[test]
fn the_plan_is_drawn_with_the_names_of_nodes_and_devices() {
    let device = Device::open("host:963").unwrap();
    let (x, y) = (device.host_buffer::<f32>(4).unwrap(), device.buffer::<f32>(4).unwrap());
    let mut graph = Graph::new(&device);
    graph.fill(&y, 1.0).name("clear \"y\"");
    graph.copy(&y, &x);
    graph.host_task((read(&x),), async |_| {}).name("post");
    graph.launch(scale(2.0, &y, &x), Range::linear(4));
    let exec = graph.finalize().unwrap();
    assert_eq!(
        exec.plan_dot(),
        r#"digraph plan {
  compound=true;
  fontname="sans-serif";
  node [shape=box, style=filled, fillcolor=white, fontname="sans-serif"];
  subgraph cluster_0 {
    label="0: host:963, queue 0, in order";
    style="rounded,filled";
    fillcolor="/set312/1";
    n0 [label="buffer fill 'clear \"y\"' (#0)"];
    n1 [label="buffer read #1"];
    n0 -> n1;
  }
  subgraph cluster_1 {
    label="1: host task";
    style="rounded,dashed";
    node [shape=ellipse];
    n2 [label="host task 'post' (#2)"];
  }
  subgraph cluster_2 {
    label="2: host:963, queue 0, in order";
    style="rounded,filled";
    fillcolor="/set312/1";
    n3 [label="kernel 'scale' (#3)"];
  }
  edge [style=bold, minlen=2];
  n1 -> n2 [ltail=cluster_0, lhead=cluster_1];
  n2 -> n3 [ltail=cluster_1, lhead=cluster_2];
}
"#
    );
}

use std::borrow::Cow;
use std::sync::Arc;

use wakegraph_hal::{CommandKind, DeviceId, ResourceId};

use super::{DEVICE, read, write};
use crate::graph::{Content, Graph, Payload};

struct Operands(&'static str);

impl Payload for Operands {
    fn describe(&self) -> Cow<'_, str> {
        self.0.into()
    }
}

//   fill --> (scale --> shift) --> post
//                            '---> join      on another device: scale
#[test]
fn a_drawing_shows_kinds_devices_and_nesting() {
    let command = || Content::Command(Operands(""));
    let mut inner = Graph::new();
    let scale = inner.add(CommandKind::Kernel, DeviceId::from_raw(1), command(), &[]);
    let shift = inner.add(CommandKind::Kernel, DEVICE, command(), &[]);
    inner.set_name(scale, "scale").unwrap();
    inner.make_edge(scale, shift).unwrap();

    let mut graph = Graph::new();
    let fill = graph.add(CommandKind::BufferFill, DEVICE, command(), &[]);
    let body = graph.add(CommandKind::SubGraph, DEVICE, Content::SubGraph(Arc::new(inner)), &[]);
    let post = graph.add(CommandKind::HostTask, DEVICE, command(), &[]);
    let join = graph.add(CommandKind::Empty, DEVICE, Content::Empty, &[]);
    graph.set_name(body, "body").unwrap();
    for (from, to) in [(fill, body), (body, post), (body, join)] {
        graph.make_edge(from, to).unwrap();
    }

    assert_eq!(
        graph.dot().to_string(),
        r##"digraph wakegraph {
    compound=true;
    node [style=filled, fontname="sans-serif"];
    n0 [label="buffer fill #0", shape=parallelogram, fillcolor="/set312/1", tooltip="device#0"];
    subgraph cluster_1 {
        label="sub-graph 'body' (#1)";
        n4 [label="kernel 'scale' (#0)", shape=box, fillcolor="/set312/2", tooltip="device#1"];
        n5 [label="kernel #1", shape=box, fillcolor="/set312/1", tooltip="device#0"];
        n4 -> n5;
    }
    n2 [label="host task #2", shape=ellipse, fillcolor=white, tooltip="device#0"];
    n3 [label="empty node #3", shape=diamond, fillcolor=white, tooltip="device#0"];
    n0 -> n4 [lhead=cluster_1];
    n5 -> n2 [ltail=cluster_1];
    n5 -> n3 [ltail=cluster_1];
}
"##
    );
}

#[test]
fn a_verbose_drawing_adds_operands_accesses_and_places() {
    let (first, second) = (ResourceId::unique(), ResourceId::unique());
    let mut graph = Graph::new();
    let accesses = [read(first, 0, 64), write(second, 16, 32)];
    let line = line!() + 1;
    let node = graph.add(CommandKind::Kernel, DEVICE, Content::Command(Operands("a = 2\nb = m")), &accesses);
    graph.set_name(node, "say \"hi\" \\ & bye").unwrap();

    let place = graph.location_at(0).to_string().replace('\\', "\\\\");
    assert!(place.contains(&format!("drawing.rs:{line}:")), "{place}");
    let label = [
        r#"kernel 'say \"hi\" \\ &amp; bye' (#0)"#,
        "a = 2",
        "b = m",
        "on device#0",
        "reads m0[0..64]",
        "writes m1[16..32]",
        &place,
        "",
    ];
    assert_eq!(
        graph.dot().verbose().to_string().lines().nth(3).unwrap(),
        format!(
            r#"    n0 [label="{}", shape=box, fillcolor="/set312/1", tooltip="device#0"];"#,
            label.join(r"\l")
        )
    );
}

#[test]
fn edges_connect_clusters_and_empty_sub_graphs() {
    let sub_graph = |inner: Graph<()>| Content::SubGraph(Arc::new(inner));
    let mut leaf = Graph::new();
    super::kernel(&mut leaf, &[]);
    let mut nested = Graph::new();
    nested.add(CommandKind::SubGraph, DEVICE, sub_graph(leaf), &[]);

    let mut graph = Graph::new();
    let shared = Arc::new(nested);
    let ids =
        [0; 2].map(|_| graph.add(CommandKind::SubGraph, DEVICE, Content::SubGraph(Arc::clone(&shared)), &[]));
    let nothing = graph.add(CommandKind::SubGraph, DEVICE, sub_graph(Graph::new()), &[]);
    graph.make_edge(ids[0], ids[1]).unwrap();
    graph.make_edge(ids[1], nothing).unwrap();

    let drawing = graph.dot().to_string();
    assert!(drawing.contains("    n4 -> n6 [ltail=cluster_0, lhead=cluster_1];"), "{drawing}");
    assert!(drawing.contains("    n6 -> n2 [ltail=cluster_1];"), "{drawing}");
    assert!(drawing.contains("n2 [label=\"sub-graph #2\", shape=folder"), "{drawing}");
}

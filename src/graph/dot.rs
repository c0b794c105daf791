//! Drawings of a graph in the DOT language of Graphviz.
//!
//! The shape of a node shows its kind, and the fill colour its device. A sub-graph is a cluster. DOT has
//! no edges to clusters, so such an edge leads to one of the cluster's nodes and is clipped at its
//! border (`lhead`, `ltail`).

use std::collections::HashMap;
use std::fmt::{self, Write};

use wakegraph_hal::{Access, AccessMode, DeviceId, KindPlace, KindRow, ResourceId};

use super::Payload;
use super::modifiable::{Content, Graph};
use super::query::NodeRef;

/// A drawing of a graph. Its text is input for `dot -Tsvg`.
///
/// A sub-graph that several nodes share is drawn once for each node.
#[derive(Debug)]
pub(crate) struct Dot<'a, P> {
    graph: &'a Graph<P>,
    verbose: bool,
}

impl<P> Graph<P> {
    /// A drawing of the graph in the DOT language of Graphviz.
    pub(crate) fn dot(&self) -> Dot<'_, P> {
        Dot { graph: self, verbose: false }
    }
}

impl<P> Dot<'_, P> {
    /// Adds operands, devices, accesses and places in the source to the nodes. Memory is numbered
    /// `m0`, `m1`, ... as it appears in the drawing.
    #[must_use]
    pub(crate) fn verbose(mut self) -> Self {
        self.verbose = true;
        self
    }
}

impl<P> Clone for Dot<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Dot<'_, P> {}

impl<P: Payload> fmt::Display for Dot<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut legend = Legend::default();
        let mut numbered = self.graph.len();
        let mut levels = vec![NestingLevel::new(self.graph, 0, 1)];

        writeln!(f, "digraph wakegraph {{")?;
        writeln!(f, "    compound=true;")?;
        writeln!(f, "    node [style=filled, fontname=\"sans-serif\"];")?;
        while let Some(level) = levels.last_mut() {
            let indent = Indent(level.depth);
            let Some((number, node)) = level.next_node() else {
                level.draw_edges(f)?;
                let ports = level.ports();
                levels.pop();
                if let Some(outer) = levels.last_mut() {
                    writeln!(f, "{}}}", Indent(outer.depth))?;
                    outer.clusters.insert(outer.next - 1, ports);
                }
                continue;
            };
            if let Some(inner) = cluster(node) {
                writeln!(f, "{indent}subgraph cluster_{number} {{")?;
                writeln!(f, "{indent}    label=\"{}\";", DotText(&node.label(), "\\n"))?;
                let depth = level.depth + 1;
                levels.push(NestingLevel::new(inner, numbered, depth));
                numbered += inner.len();
            } else {
                write!(f, "{indent}n{number} ")?;
                self.draw_node(f, node, &mut legend)?;
            }
        }
        writeln!(f, "}}")
    }
}

impl<P: Payload> Dot<'_, P> {
    fn draw_node(
        &self,
        f: &mut fmt::Formatter<'_>,
        node: NodeRef<'_, P>,
        legend: &mut Legend,
    ) -> fmt::Result {
        let device = node.device();
        if !self.verbose {
            write!(f, "[label=\"{}\", ", DotText(&node.label(), "\\n"))?;
        } else {
            // A line that ends in \l is set flush left.
            write!(f, "[label=\"{}\\l", DotText(&node.label(), "\\l"))?;
            if let Content::Command(command) = node.content() {
                let operands = command.describe();
                if !operands.is_empty() {
                    write!(f, "{}\\l", DotText(&operands, "\\l"))?;
                }
            }
            write!(f, "on {device}\\l")?;
            for access in node.accesses() {
                write!(f, "{}\\l", AccessLine(access, legend.number(access.resource)))?;
            }
            write!(f, "{}\\l\", ", DotText(&node.location().to_string(), "\\l"))?;
        }
        let KindRow { shape, place, .. } = node.kind().row();
        write!(f, "shape={shape}, ")?;
        match place {
            KindPlace::Host | KindPlace::Elided => write!(f, "fillcolor=white")?,
            _ => write!(f, "fillcolor=\"/set312/{}\"", device_colour(&mut legend.devices, device))?,
        }
        writeln!(f, ", tooltip=\"{device}\"];")
    }
}

/// The sub-graph to draw as a cluster. An empty sub-graph is drawn as a node, because Graphviz drops
/// empty clusters.
fn cluster<'a, P>(node: NodeRef<'a, P>) -> Option<&'a Graph<P>> {
    match node.content() {
        Content::SubGraph(inner) if !inner.is_empty() => Some(inner),
        _ => None,
    }
}

/// A graph, or a sub-graph, that is being drawn. Levels form an explicit stack, so nesting can be
/// arbitrarily deep.
struct NestingLevel<'a, P> {
    graph: &'a Graph<P>,
    /// The number of its first node in the drawing; the others follow.
    base: usize,
    depth: usize,
    /// The index of the next node to draw.
    next: usize,
    /// The nodes that are drawn as clusters, by index.
    clusters: HashMap<usize, Ports>,
}

/// The numbers of the nodes at which edges enter and leave a cluster.
#[derive(Clone, Copy)]
struct Ports {
    entry: usize,
    exit: usize,
}

impl<'a, P> NestingLevel<'a, P> {
    fn new(graph: &'a Graph<P>, base: usize, depth: usize) -> Self {
        Self { graph, base, depth, next: 0, clusters: HashMap::new() }
    }

    fn next_node(&mut self) -> Option<(usize, NodeRef<'a, P>)> {
        let id = self.graph.id_at(self.next)?;
        self.next += 1;
        Some((self.base + id.index(), self.graph.node(id).ok()?))
    }

    fn draw_edges(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (from, to) in self.graph.edges() {
            let (from, to) = (from as usize, to as usize);
            let (tail, head) = (self.ports_of(from).exit, self.ports_of(to).entry);
            write!(f, "{}n{tail} -> n{head}", Indent(self.depth))?;
            let (from_cluster, to_cluster) =
                (self.clusters.contains_key(&from), self.clusters.contains_key(&to));
            let (from, to) = (self.base + from, self.base + to);
            match (from_cluster, to_cluster) {
                (false, false) => {}
                (true, false) => write!(f, " [ltail=cluster_{from}]")?,
                (false, true) => write!(f, " [lhead=cluster_{to}]")?,
                (true, true) => write!(f, " [ltail=cluster_{from}, lhead=cluster_{to}]")?,
            }
            writeln!(f, ";")?;
        }
        Ok(())
    }

    /// The ports of the node at this index.
    fn ports_of(&self, index: usize) -> Ports {
        let number = self.base + index;
        self.clusters.get(&index).copied().unwrap_or(Ports { entry: number, exit: number })
    }

    /// The ports of the whole level: its first root and its last leaf, so that edges pull the cluster
    /// between its neighbours.
    fn ports(&self) -> Ports {
        // A graph without cycle check may have a cycle, and then no root or no leaf.
        let root = self.graph.roots().next().map_or(0, |id| id.index());
        let leaf = self.graph.leaves().next_back().map_or(0, |id| id.index());
        Ports { entry: self.ports_of(root).entry, exit: self.ports_of(leaf).exit }
    }
}

/// Numbers of resources and colours of devices, assigned in the order of first appearance, so that equal
/// graphs have equal drawings.
#[derive(Default)]
struct Legend {
    resources: HashMap<ResourceId, usize>,
    devices: Vec<DeviceId>,
}

impl Legend {
    fn number(&mut self, resource: ResourceId) -> usize {
        let next = self.resources.len();
        *self.resources.entry(resource).or_insert(next)
    }
}

/// The device's colour in the 12-colour Brewer scheme `set312`, from 1. `known` lists the devices in the
/// order in which the drawing first shows them.
pub(crate) fn device_colour(known: &mut Vec<DeviceId>, device: DeviceId) -> usize {
    let number = known.iter().position(|&other| other == device).unwrap_or_else(|| {
        known.push(device);
        known.len() - 1
    });
    number % 12 + 1
}

struct AccessLine<'a>(&'a Access, usize);

impl fmt::Display for AccessLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(access, number) = self;
        let verb = match access.mode {
            AccessMode::Read => "reads",
            AccessMode::Write => "writes",
            AccessMode::ReadWrite => "reads and writes",
        };
        write!(f, "{verb} m{number}[{}..{}]", access.start, access.end)
    }
}

/// Text inside a quoted label, and the escape sequence that ends its lines.
pub(crate) struct DotText<'a>(pub(crate) &'a str, pub(crate) &'static str);

impl fmt::Display for DotText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text, line_end) = *self;
        for c in text.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                // Labels know the entities of HTML.
                '&' => f.write_str("&amp;")?,
                '\n' => f.write_str(line_end)?,
                '\t' => f.write_char(' ')?,
                c if c.is_control() => f.write_char(char::REPLACEMENT_CHARACTER)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Four spaces per level, up to a depth of 16.
#[derive(Clone, Copy)]
struct Indent(usize);

impl fmt::Display for Indent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:width$}", "", width = 4 * self.0.min(16))
    }
}

//! Presents plans to people: the instruction list as text, and the partitions as clusters in DOT.

use std::fmt;

use wakegraph_hal::DeviceId;

use super::{Instruction, PartitionKind, Plan};
use crate::graph::{DotText, device_colour};

/// A plan as text with names for its nodes. See [`Plan::display`].
pub(crate) struct Listing<'a, F> {
    plan: &'a Plan,
    label: F,
    device: DeviceName<'a>,
    lowering: Lowering<'a>,
    bodies: BodiesText<'a>,
}

/// A plan as a DOT drawing. See [`Plan::dot`].
pub(crate) struct PlanDot<'a, F> {
    plan: &'a Plan,
    label: F,
    device: DeviceName<'a>,
}

type DeviceName<'a> = Box<dyn Fn(DeviceId) -> String + 'a>;
type Lowering<'a> = Box<dyn Fn(u32) -> Option<&'static str> + 'a>;
type BodiesText<'a> = Box<dyn Fn(u32) -> Option<String> + 'a>;

impl Plan {
    /// The instruction list as text. `label` names each planned node.
    ///
    /// ```text
    /// begin 0 on device#0, queue 0
    ///   append A
    ///   append B waits for A
    /// finalize 0
    /// host task 1 runs C after 0
    /// ```
    pub(crate) fn display<L: fmt::Display, F: Fn(u32) -> L>(&self, label: F) -> Listing<'_, F> {
        let device = Box::new(|device: DeviceId| device.to_string());
        Listing { plan: self, label, device, lowering: Box::new(|_| None), bodies: Box::new(|_| None) }
    }

    /// The plan as a graph in the DOT language. Partitions are clusters, thin edges are sync-points, and
    /// thick edges are dependencies between partitions.
    pub(crate) fn dot<L: fmt::Display, F: Fn(u32) -> L>(&self, label: F) -> PlanDot<'_, F> {
        PlanDot { plan: self, label, device: Box::new(|device| device.to_string()) }
    }
}

impl<'a, F> Listing<'a, F> {
    /// Uses `device` to name the devices.
    #[must_use]
    pub(crate) fn devices(self, device: impl Fn(DeviceId) -> String + 'a) -> Self {
        Self { device: Box::new(device), ..self }
    }

    /// Adds how the device runs each partition, as in `finalize 0: replayed enqueues`.
    #[must_use]
    pub(crate) fn lowerings(self, lowering: impl Fn(u32) -> Option<&'static str> + 'a) -> Self {
        Self { lowering: Box::new(lowering), ..self }
    }

    /// Adds text behind partitions of the host: the plans inside a conditional or loop that it drives.
    #[must_use]
    pub(crate) fn bodies(self, bodies: impl Fn(u32) -> Option<String> + 'a) -> Self {
        Self { bodies: Box::new(bodies), ..self }
    }
}

impl<'a, F> PlanDot<'a, F> {
    /// Uses `device` to name the devices.
    #[must_use]
    pub(crate) fn devices(self, device: impl Fn(DeviceId) -> String + 'a) -> Self {
        Self { device: Box::new(device), ..self }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(|node| node).fmt(f)
    }
}

impl<L: fmt::Display, F: Fn(u32) -> L> fmt::Display for Listing<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open: &[u32] = &[];
        for instruction in self.plan.instructions() {
            match instruction {
                Instruction::Begin { partition, device, queue, in_order, after } => {
                    open = self.plan.nodes(partition as usize);
                    write!(f, "begin {partition} on {}, queue {queue}", (self.device)(device))?;
                    f.write_str(if in_order { ", in order" } else { "" })?;
                    list(f, " after ", after)?;
                }
                Instruction::Append { node, waits } => {
                    write!(f, "  append {}", (self.label)(node))?;
                    list(f, " waits for ", waits.iter().map(|&at| (self.label)(open[at as usize])))?;
                }
                Instruction::Finalize { partition } => {
                    write!(f, "finalize {partition}")?;
                    if let Some(lowering) = (self.lowering)(partition) {
                        write!(f, ": {lowering}")?;
                    }
                }
                Instruction::StreamTask { partition, device, queue, node, after } => {
                    let device = (self.device)(device);
                    let label = (self.label)(node);
                    write!(f, "stream task {partition} on {device}, queue {queue}, calls {label} live")?;
                    list(f, " after ", after)?;
                }
                Instruction::HostTask { partition, node, after } => {
                    write!(f, "host task {partition} runs {}", (self.label)(node))?;
                    list(f, " after ", after)?;
                    if let Some(bodies) = (self.bodies)(partition) {
                        write!(f, "\n{}", bodies.trim_end())?;
                    }
                }
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

/// Writes `start` and the items, separated by commas. Writes nothing without items.
fn list(
    f: &mut fmt::Formatter<'_>,
    start: &str,
    items: impl IntoIterator<Item = impl fmt::Display>,
) -> fmt::Result {
    let mut separator = start;
    for item in items {
        write!(f, "{separator}{item}")?;
        separator = ", ";
    }
    Ok(())
}

impl<L: fmt::Display, F: Fn(u32) -> L> fmt::Display for PlanDot<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        let mut devices = Vec::new();
        f.write_str("digraph plan {\n  compound=true;\n  fontname=\"sans-serif\";\n")?;
        f.write_str("  node [shape=box, style=filled, fillcolor=white, fontname=\"sans-serif\"];\n")?;
        for (index, partition) in plan.partitions().iter().enumerate() {
            write!(f, "  subgraph cluster_{index} {{\n    ")?;
            match partition.kind {
                PartitionKind::HostTask => {
                    writeln!(f, "label=\"{index}: host task\";\n    style=\"rounded,dashed\";")?;
                    f.write_str("    node [shape=ellipse];\n")?;
                }
                PartitionKind::Device(device) | PartitionKind::StreamTask(device) => {
                    let name = (self.device)(device);
                    write!(f, "label=\"{index}: {}, queue {}", DotText(&name, "\\n"), partition.queue)?;
                    let is_live = matches!(partition.kind, PartitionKind::StreamTask(_));
                    f.write_str(if is_live { ", live" } else { "" })?;
                    f.write_str(if partition.in_order { ", in order" } else { "" })?;
                    let style = if is_live { "rounded,dashed,filled" } else { "rounded,filled" };
                    let colour = device_colour(&mut devices, device);
                    writeln!(f, "\";\n    style=\"{style}\";\n    fillcolor=\"/set312/{colour}\";")?;
                }
            }
            let nodes = plan.nodes(index);
            for &node in nodes {
                let label = (self.label)(node).to_string();
                writeln!(f, "    n{node} [label=\"{}\"];", DotText(&label, "\\n"))?;
            }
            for (position, &node) in nodes.iter().enumerate() {
                let in_order = (partition.in_order && position > 0).then(|| nodes[position - 1]);
                let waits = plan.waits(index, position).iter().map(|&at| nodes[at as usize]);
                for from in waits.chain(in_order) {
                    writeln!(f, "    n{from} -> n{node};")?;
                }
            }
            f.write_str("  }\n")?;
        }
        // The length leaves room for the arrow between the frames.
        f.write_str("  edge [style=bold, minlen=2];\n")?;
        for index in 0..plan.partitions().len() {
            for &pred in plan.predecessors(index) {
                // An edge between clusters is one between any two of their nodes, clipped at the
                // clusters' frames.
                if let (Some(from), Some(to)) = (plan.nodes(pred as usize).last(), plan.nodes(index).first())
                {
                    writeln!(f, "  n{from} -> n{to} [ltail=cluster_{pred}, lhead=cluster_{index}];")?;
                }
            }
        }
        f.write_str("}\n")
    }
}

impl<F> fmt::Debug for Listing<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for PlanDot<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanDot").finish_non_exhaustive()
    }
}

//! The parts of an executable by name, without the memory: enough to say where in it something happened.
//!
//! A profiled submission refers to the labels, not to the executable, so that one that is kept or
//! forgotten keeps no buffer and no closure alive.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use wakegraph_hal::{CommandKind, DeviceId, Error};

use crate::graph::{self, Graph};
use crate::plan::{PartitionKind, Plan};
use crate::runtime::resource::device::Device;

/// The plan and the names of what is in it.
pub(crate) struct Labels {
    /// The name of the executable, if it has one.
    pub(crate) executable: Option<Arc<str>>,
    pub(crate) plan: Plan,
    /// By each node's number in the plan.
    pub(crate) nodes: Box<[NodeLabel]>,
    /// Each partition's device, `None` for a host task.
    pub(crate) devices: Box<[Option<Device>]>,
}

/// The name of a planned node.
pub(crate) struct NodeLabel {
    /// Made when it is first asked for, which is never for most nodes.
    label: OnceLock<Box<str>>,
    name: Option<Arc<str>>,
    /// The number of the node in its graph.
    index: u32,
    pub(crate) kind: CommandKind,
    /// Place where the user added it.
    pub(crate) location: Option<&'static Location<'static>>,
}

impl NodeLabel {
    /// The label of a node of a graph.
    pub(crate) fn new<P>(graph: &Graph<P>, index: usize) -> Self {
        Self {
            label: OnceLock::new(),
            name: graph.name_at(index).cloned(),
            index: index as u32,
            kind: graph.kinds()[index],
            location: Some(graph.location_at(index)),
        }
    }

    /// The label of a command that is not of a graph.
    pub(crate) fn of_command(kind: CommandKind) -> Self {
        let label = OnceLock::from(Box::from(kind.name()));
        Self { label, name: None, index: 0, kind, location: None }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.label.get_or_init(|| graph::label(self.kind, self.name.as_deref(), self.index).into())
    }
}

impl Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labels")
            .field("executable", &self.executable)
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

impl Labels {
    pub(crate) fn label(&self, node: u32) -> &str {
        self.nodes[node as usize].as_str()
    }

    /// The plan as a list of instructions; `lowering` tells what each partition's device made of
    /// its commands, `bodies` the plans inside a conditional or loop that the host drives.
    pub(crate) fn text(
        &self,
        lowering: impl Fn(usize) -> Option<&'static str>,
        bodies: impl Fn(usize) -> Option<String>,
    ) -> String {
        let label = |node| {
            // The list says by itself what is a host task or a stream task.
            let label = self.label(node).trim_start_matches("host task ").trim_start_matches("stream task ");
            match self.nodes[node as usize].kind.row().is_captured {
                true => Cow::Owned(format!("{label}, captured")),
                false => Cow::Borrowed(label),
            }
        };
        let listing = self.plan.display(label).devices(|device| self.device_name(device));
        let listing = listing.lowerings(|partition| lowering(partition as usize));
        listing.bodies(|partition| bodies(partition as usize)).to_string()
    }

    /// The plan in Graphviz' language.
    pub(crate) fn dot(&self) -> String {
        self.plan.dot(|node| self.label(node)).devices(|device| self.device_name(device)).to_string()
    }

    /// The names of a partition's nodes.
    pub(crate) fn names(&self, partition: usize) -> impl ExactSizeIterator<Item = &str> {
        self.plan.nodes(partition).iter().map(|&node| self.label(node))
    }

    /// Whether a partition is a stream task.
    pub(crate) fn is_stream_task(&self, partition: usize) -> bool {
        matches!(self.plan.partitions()[partition].kind, PartitionKind::StreamTask(_))
    }

    /// The names of a partition's native commands.
    pub(crate) fn captured(&self, partition: usize) -> impl Iterator<Item = &str> {
        let nodes = self.plan.nodes(partition).iter().map(|&node| &self.nodes[node as usize]);
        nodes.filter(|node| node.kind.row().is_captured).map(NodeLabel::as_str)
    }

    /// A partition's name in traces and the console.
    pub(crate) fn partition_name(&self, partition: usize) -> String {
        let name = match (&self.devices[partition], self.plan.nodes(partition)) {
            (Some(device), _) => format!("wakegraph partition {partition} on {}", device.selector()),
            (None, [node, ..]) => format!("wakegraph {}", self.label(*node)),
            (None, []) => format!("wakegraph partition {partition}"),
        };
        match &self.executable {
            Some(executable) => format!("{name} of '{executable}'"),
            None => name,
        }
    }

    /// Place where the user added the only node of a partition.
    pub(crate) fn location_of(&self, partition: usize) -> Option<&'static Location<'static>> {
        match *self.plan.nodes(partition) {
            [node] => self.nodes[node as usize].location,
            _ => None,
        }
    }

    /// Adds to an error where it happened: partition, device, and the node as far as it is known.
    pub(crate) fn locate(&self, partition: usize, error: Error) -> Error {
        let nodes = self.plan.nodes(partition);
        let node = match error.command() {
            Some(command) => nodes.get(command as usize),
            None if nodes.len() == 1 => nodes.first(),
            None => None,
        };
        let error = match node {
            Some(&node) => {
                let node = &self.nodes[node as usize];
                let error = error.in_node(node.as_str());
                match node.location {
                    Some(location) => error.at(location),
                    None => error,
                }
            }
            None => error,
        };
        self.place(partition, error)
    }

    /// As [`locate`](Self::locate), for an error in one of the nodes of `suspects`; it is not known which.
    /// The error was reported for `partition`.
    pub(crate) fn locate_among(&self, suspects: &[u32], partition: usize, error: Error) -> Error {
        let only = match *suspects {
            [] => Some(partition),
            [only] => Some(only as usize),
            _ => None,
        };
        let nodes = suspects.iter().flat_map(|&suspect| self.plan.nodes(suspect as usize));
        let mut nodes: Vec<u32> = nodes.copied().collect();
        nodes.sort_unstable();
        match only {
            Some(only) if error.command().is_some() || nodes.len() <= 1 => self.locate(only, error),
            Some(only) => {
                let names = self.some_names(&nodes);
                self.place(only, error.with_note(&format!("in one of the nodes {names} of partition {only}")))
            }
            None => {
                let error = error.with_note(&format!("in one of the nodes {}", self.some_names(&nodes)));
                let error = self.name(error);
                // Which partition is as little known.
                match &self.devices[partition] {
                    Some(device) => error.on_device(device.selector()),
                    None => error,
                }
            }
        }
    }

    /// Adds to an error the name of the executable.
    pub(crate) fn name(&self, error: Error) -> Error {
        match &self.executable {
            Some(name) => error.in_executable(name),
            None => error,
        }
    }

    /// Adds to an error partition, executable and device.
    pub(crate) fn place(&self, partition: usize, error: Error) -> Error {
        let error = self.name(error.in_partition(partition as u32));
        match &self.devices[partition] {
            Some(device) => error.on_device(device.selector()),
            None => error,
        }
    }

    /// A list of nodes, as long as one can read.
    fn some_names(&self, nodes: &[u32]) -> String {
        const NAMED: usize = 5;
        let (named, others) = nodes.split_at(nodes.len().min(NAMED));
        let mut names: Vec<Cow<'_, str>> = named.iter().map(|&node| self.label(node).into()).collect();
        match others.len() {
            0 => {}
            1 => names.push("1 other".into()),
            count => names.push(format!("{count} others").into()),
        }
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    fn device_name(&self, id: DeviceId) -> String {
        let mut devices = self.devices.iter().flatten();
        devices
            .find(|device| device.id() == id)
            .map_or_else(|| id.to_string(), |device| device.selector().to_owned())
    }
}

/// The names of a partition's nodes, or of the first of them, as every report shows them.
pub(crate) fn list_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let mut list = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        list += &format!(" and {more} more");
    }
    list
}

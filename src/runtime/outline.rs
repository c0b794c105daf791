//! What an executable is, without what it uses: enough to say where in it something happened.
//!
//! A profiled submission refers to the outline, not to the executable, so that one that is kept or forgotten keeps no
//! buffer and no closure alive.

use super::device::Device;
use crate::plan::Plan;
use crate::types::{CommandKind, DeviceId, Error};

/// The plan and the names of what is in it.
pub(crate) struct Outline {
    pub(crate) plan: Plan,
    /// Each planned node's label and kind, by its number in the plan.
    pub(crate) nodes: Box<[(Box<str>, CommandKind)]>,
    /// Each partition's device, `None` for a host task.
    pub(crate) devices: Box<[Option<Device>]>,
}

impl Outline {
    pub(crate) fn label(&self, node: u32) -> &str {
        &self.nodes[node as usize].0
    }

    /// The plan as a list of instructions; `lowering` tells what each partition's device made of its commands.
    pub(crate) fn text(&self, lowering: impl Fn(usize) -> Option<&'static str>) -> String {
        // The list says by itself what is a host task.
        let label = |node| self.label(node).trim_start_matches("host task ");
        let listing = self.plan.display(label).devices(|device| self.device_name(device));
        listing.lowerings(|partition| lowering(partition as usize)).to_string()
    }

    /// The plan in Graphviz' language.
    pub(crate) fn dot(&self) -> String {
        self.plan.dot(|node| self.label(node)).devices(|device| self.device_name(device)).to_string()
    }

    /// A partition's name in traces and the console.
    pub(crate) fn partition_name(&self, partition: usize) -> String {
        match (&self.devices[partition], self.plan.nodes(partition)) {
            (Some(device), _) => format!("wakegraph partition {partition} on {}", device.selector()),
            (None, [node, ..]) => format!("wakegraph {}", self.label(*node)),
            (None, []) => format!("wakegraph partition {partition}"),
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
            Some(&node) => error.in_node(self.label(node)),
            None => error,
        };
        let error = error.in_partition(partition as u32);
        match &self.devices[partition] {
            Some(device) => error.on_device(device.selector()),
            None => error,
        }
    }

    fn device_name(&self, id: DeviceId) -> String {
        let mut devices = self.devices.iter().flatten();
        devices
            .find(|device| device.id() == id)
            .map_or_else(|| id.to_string(), |device| device.selector().to_owned())
    }
}

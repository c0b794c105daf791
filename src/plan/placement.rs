//! Pass 2: finds where every node runs, and refuses commands that their device cannot run.
//!
//! A [place](Placement) is a small number that later passes compare instead of device ids.

use wakegraph_hal::{CommandKind, CommandKinds, DeviceId, Error, ErrorKind, KindPlace, Result};

use super::inline::FlatGraph;
use crate::graph::{Content, Payload};

/// The place of every host task, and of conditionals and loops that the host runs. Devices are places
/// 1, 2, ...
pub(super) const HOST: u32 = 0;
/// Set on the place of an empty node; the rest is the device it was given.
pub(super) const EMPTY: u32 = 1 << 31;
/// Set on the place of a stream task; the rest is its device.
const STREAM_TASK: u32 = 1 << 30;

/// Whether a node of this place is a partition of its own: a host task or a stream task.
pub(super) fn is_alone(place: u32) -> bool {
    place == HOST || is_stream_task(place)
}

/// Whether it is that of a stream task.
pub(super) fn is_stream_task(place: u32) -> bool {
    place & STREAM_TASK != 0
}

/// The place of other nodes of the same device; the host's for the host's.
pub(super) fn device_place(place: u32) -> u32 {
    place & !STREAM_TASK
}

/// The place of every node, and the devices behind the places.
pub(super) struct Placement {
    /// The place of every node.
    pub(super) of: Vec<u32>,
    pub(super) devices: Devices,
}

/// The devices behind the places.
pub(super) struct Devices {
    /// The device of place `i + 1`, and the commands that it supports.
    known: Vec<(DeviceId, CommandKinds)>,
}

impl Devices {
    /// The number of devices.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The device behind a place; `None` for the host.
    pub(super) fn device(&self, place: u32) -> Option<DeviceId> {
        device_place(place).checked_sub(1).map(|index| self.known[index as usize].0)
    }

    /// Whether the device of a place supports empty commands.
    pub(super) fn can_join(&self, place: u32) -> bool {
        let known = place.checked_sub(1).map(|index| self.known[index as usize]);
        known.is_some_and(|(_, commands)| commands.contains(CommandKinds::EMPTY))
    }

    /// The place of a device, and the commands that it supports.
    fn get(
        &mut self,
        device: DeviceId,
        supported: &impl Fn(DeviceId) -> CommandKinds,
    ) -> (u32, CommandKinds) {
        let index = self.known.iter().position(|&(known, _)| known == device).unwrap_or_else(|| {
            self.known.push((device, supported(device)));
            self.known.len() - 1
        });
        (index as u32 + 1, self.known[index].1)
    }
}

/// Finds the place of every node. Calls `supported` once per device.
///
/// # Errors
/// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for the first command that its device cannot run.
pub(super) fn place_nodes<P: Payload>(
    flat: &FlatGraph<'_, P>,
    supported: &impl Fn(DeviceId) -> CommandKinds,
) -> Result<Placement> {
    let mut of = Vec::with_capacity(flat.kinds.len());
    let mut devices = Devices { known: Vec::new() };
    // The place of a node like the one before it, as most are.
    let mut last = None;
    for (node, (&kind, &device)) in flat.kinds.iter().zip(&*flat.devices).enumerate() {
        if let Some((like, place)) = last
            && like == (kind, device)
        {
            of.push(place);
            continue;
        }
        let runs = kind.row().place;
        let is_control = runs == KindPlace::DeviceOrHost;
        if runs == KindPlace::Host || is_control && needs_host(flat, node as u32, device, supported) {
            of.push(HOST);
            continue;
        }
        let (place, set) = devices.get(device, supported);
        let place = match runs {
            KindPlace::Elided => place | EMPTY,
            _ if !set.contains(kind.as_set()) => return Err(unsupported(flat, node as u32, kind, device)),
            KindPlace::Stream => place | STREAM_TASK,
            _ => place,
        };
        if !is_control {
            last = Some(((kind, device), place));
        }
        of.push(place);
    }
    Ok(Placement { of, devices })
}

/// Whether the host runs a conditional or loop.
fn needs_host<P: Payload>(
    flat: &FlatGraph<'_, P>,
    node: u32,
    device: DeviceId,
    supported: &dyn Fn(DeviceId) -> CommandKinds,
) -> bool {
    let origin = flat.origin(node);
    match flat.graphs[origin.instance as usize].content_at(origin.node as usize) {
        Content::Command(command) => command.needs_host(device, supported),
        Content::Empty | Content::SubGraph(_) => false,
    }
}

#[cold]
fn unsupported<P>(flat: &FlatGraph<'_, P>, node: u32, kind: CommandKind, device: DeviceId) -> Error {
    let origin = flat.origin(node);
    let why = match kind.row().place {
        KindPlace::Stream => format!("the device has no stream to lend to a {kind}"),
        _ => format!("the device cannot run a {kind} inside a command-buffer"),
    };
    Error::new(ErrorKind::FeatureNotSupported, why)
        .in_node(flat.label(node))
        .on_device(device.to_string())
        .at(flat.graphs[origin.instance as usize].location_at(origin.node as usize))
        .help("put this node on another device, or use commands that the device supports")
}

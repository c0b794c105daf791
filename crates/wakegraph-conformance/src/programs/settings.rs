//! The kinds of programs.

use wakegraph::Device;
use wakegraph::capabilities::CommandKinds;
use wakegraph::hal::{MemoryDesc, MemoryKind};
use wakegraph::testing::FakeControl;

use super::choices::Choices;
use super::generate::Mixture;
use super::world::World;

/// The kind of programs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Executables at a time.
    pub executables: usize,
    /// Whether graphs have half of the device memory for themselves, as scratch memory.
    pub scratch: bool,
    /// Whether executables are updated.
    pub updates: bool,
    /// Whether host tasks fail, submissions are cancelled or late, and steps are wrong.
    pub faults: bool,
    /// The control of a device that completes nothing by itself, and computes nothing.
    pub control: Option<FakeControl>,
}

impl Settings {
    /// Steps that all devices can carry out, and some of those that are allowed.
    pub(super) fn mixture(&self, choices: &mut Choices<'_>, world: &World) -> Mixture {
        let can = |device: &Device| device.capabilities().commands;
        let commands = world.devices.iter().fold(CommandKinds::all(), |all, device| all & can(device));
        let desc = MemoryDesc::new(64, MemoryKind::Device);
        let has_usm =
            |device: &Device| device.hal().allocate(&desc).is_ok_and(|memory| memory.usm().is_some());
        let on_host = MemoryDesc::new(64, MemoryKind::Host);
        let sees_host = |device: &Device| {
            device.hal().allocate(&on_host).is_ok_and(|memory| device.hal().can_access(&*memory))
        };
        let hints = CommandKinds::USM_PREFETCH | CommandKinds::USM_ADVISE;
        let has_faults = self.faults && choices.chance(2);
        Mixture {
            homes: world.homes,
            is_uniform: false,
            has_tasks: !choices.chance(3),
            has_host_operands: choices.chance(2) && world.devices.iter().all(sees_host),
            // Scratch memory is its graph's alone: no hints about it, and no bodies that use it.
            has_hints: !self.scratch && commands.contains(hints) && world.devices.iter().all(has_usm),
            has_bodies: !self.scratch,
            has_loops: self.control.is_none(),
            has_failures: has_faults,
            has_mistakes: has_faults,
        }
    }
}

//! Where a recording has a command.

use smallvec::SmallVec;

/// The place of a command among the others.
#[derive(Debug)]
pub(super) struct NodePlace {
    /// The commands that it follows.
    pub(super) after: SmallVec<[u32; 2]>,
    /// The number of the part that has its nodes.
    pub(super) part: u32,
    /// Whether another command follows it.
    pub(super) is_followed: bool,
    /// Whether it uses something outside the device.
    pub(super) is_outside: bool,
    /// Whether it may be started before the end of the command before it, for which it then has to
    /// wait.
    pub(super) starts_early: bool,
    /// Whether a command behind it starts early.
    pub(super) leads_early: bool,
}

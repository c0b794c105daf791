//! Identities of devices, allocations, command-buffers and their commands; and accesses to ranges of an
//! allocation, from which implicit dependencies follow.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Identifies one allocation for as long as the process lives; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ResourceId(u64);

impl ResourceId {
    /// A fresh id, different from every other one in this process.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Use that a command makes of a range of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessMode {
    /// Reads only. Two reads never conflict.
    Read,
    /// Writes only; what was there before does not matter.
    Write,
    /// Reads and writes.
    ReadWrite,
}

impl AccessMode {
    /// Whether the command may change the memory.
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether the command depends on what the memory holds.
    pub fn reads(self) -> bool {
        self != Self::Write
    }
}

/// One range of one allocation, in bytes, and how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The allocation.
    pub resource: ResourceId,
    /// First byte touched.
    pub start: usize,
    /// One past the last byte touched; `start == end` touches nothing.
    pub end: usize,
    /// Use of the range.
    pub mode: AccessMode,
}

impl Access {
    /// Whether the two cannot run at the same time: same bytes, and at least one of them writes.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.overlaps(other) && (self.mode.writes() || other.mode.writes())
    }

    /// Whether the two touch a byte in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        // Also false for an empty access inside the other.
        self.resource == other.resource && self.start.max(other.start) < self.end.min(other.end)
    }
}

/// Identifies one opened device for as long as the process lives; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeviceId(u32);

impl DeviceId {
    /// A fresh id, different from every other one in this process. Backends call it when they open a device.
    pub fn unique() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The id with this number, for plans and graphs that are data only (tests, tools, drawings).
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The number behind the id.
    pub const fn as_raw(self) -> u32 {
        self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device#{}", self.0)
    }
}

/// Identity of a command-buffer; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandBufferId(u64);

impl CommandBufferId {
    /// Returns a new id, for a backend that creates a command-buffer.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A command inside a command-buffer, used to order later commands of the same buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SyncPoint {
    /// The command-buffer that the command is in.
    pub buffer: CommandBufferId,
    /// The command's number in the order of the appends, starting at 0.
    pub index: u32,
}

/// A command that can be updated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandHandle {
    /// The command-buffer that the command is in.
    pub buffer: CommandBufferId,
    /// The command's number in the order of the appends, starting at 0.
    pub index: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_accesses_overlap_nothing() {
        let resource = ResourceId::unique();
        let access = |start, end| Access { resource, start, end, mode: AccessMode::Write };
        assert!(access(0, 10).overlaps(&access(9, 12)));
        assert!(!access(0, 10).overlaps(&access(10, 12)));
        assert!(!access(0, 10).overlaps(&access(5, 5)));
        assert!(!access(5, 5).overlaps(&access(5, 5)));
    }
}

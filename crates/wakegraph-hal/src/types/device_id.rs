//! Identity of an opened device.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

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

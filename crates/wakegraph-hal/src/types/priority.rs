//! How urgent something is.

use std::fmt;

/// How urgent something is: a request among those that wait, or work among what else runs on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// Before all others.
    High,
    /// What everything has unless it says otherwise.
    #[default]
    Normal,
    /// When nothing else waits.
    Low,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        })
    }
}

//! Lets one thread of a device at a time make the calls that read the arguments of kernels, on
//! versions before 6.3.
//!
//! These versions copy the arguments of a launch to a place that belongs to the function, and from
//! there to the launch. Launches on a stream lock that place in between. Nodes of graphs do not,
//! neither when they are added or changed nor when their graph is launched: two threads that use one
//! function at the same time exchange their arguments.
//!
//! The closures of native commands and stream tasks are not locked: with these versions, an application
//! does not launch a function in them that other threads use.

use std::ffi::c_int;

use parking_lot::{Mutex, MutexGuard};

/// The first version, as the driver counts, whose nodes lock the place.
const FIRST_TO_LOCK: c_int = 60_300_000;

/// Held for each such call; none on versions that need no lock.
#[derive(Debug)]
pub(super) struct HipArgumentLock(Option<Mutex<()>>);

impl HipArgumentLock {
    pub(super) fn for_version(version: c_int) -> Self {
        Self((version < FIRST_TO_LOCK).then(Mutex::default))
    }

    /// Waits for the other threads' calls.
    pub(super) fn hold(&self) -> Option<MutexGuard<'_, ()>> {
        self.0.as_ref().map(Mutex::lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_versions_are_locked() {
        let is_locked = |version| HipArgumentLock::for_version(version).hold().is_some();
        assert!(is_locked(50_730_151) && is_locked(60_241_134));
        assert!(!is_locked(60_342_131) && !is_locked(60_443_484));
    }
}

//! Which devices may use a device's memory.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::{DeviceId, Error};

/// Whether the devices with these ids may.
#[derive(Default, Debug)]
pub struct PeerAccess(Mutex<HashMap<DeviceId, bool>>);

impl PeerAccess {
    /// Whether `user` may. The first call has `open` make it so, where the hardware can. A failure counts as
    /// no, and the next call tries again.
    pub fn is_open_to<E: Into<Error>>(&self, user: DeviceId, open: impl FnOnce() -> Result<bool, E>) -> bool {
        let mut peers = self.0.lock();
        if let Some(open) = peers.get(&user) {
            return *open;
        }
        match open() {
            Ok(open) => *peers.entry(user).or_insert(open),
            Err(failure) => {
                let error: Error = failure.into();
                tracing::debug!(target: "wakegraph", %error, "no peer access");
                false
            }
        }
    }
}

//! Kernels that devices have made of a raw kernel.

use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal as hal;
use wakegraph_hal::Result;

use crate::runtime::resource::device::{Device, WeakDevice};

/// A kernel's loaded forms, one for each device. They live with the kernel and not with the
/// devices, so that what its closure has captured is freed with it.
#[derive(Debug, Default)]
pub(super) struct Loaded(Mutex<Vec<(WeakDevice, Arc<dyn hal::Kernel>)>>);

impl Loaded {
    pub(super) fn find(&self, device: &Device) -> Option<Arc<dyn hal::Kernel>> {
        let loaded = self.0.lock();
        loaded.iter().find(|(known, _)| known.is(device)).map(|(_, kernel)| kernel.clone())
    }

    /// Loads it and keeps it. Two threads that do so at once both succeed, one of them in vain:
    /// both get the first one.
    pub(super) fn load(
        &self,
        device: &Device,
        load: impl FnOnce() -> Result<Arc<dyn hal::Kernel>>,
    ) -> Result<Arc<dyn hal::Kernel>> {
        let kernel = load()?;
        let mut loaded = self.0.lock();
        loaded.retain(|(known, _)| !known.is_gone());
        if let Some((_, first)) = loaded.iter().find(|(known, _)| known.is(device)) {
            return Ok(first.clone());
        }
        loaded.push((device.downgrade(), kernel.clone()));
        Ok(kernel)
    }
}

//! The null backend: accepts every command, runs none, and completes at once. It is the template
//! for a new backend, so read it first.
//!
//! # Writing a backend from it
//!
//! Copy the folder, list it in `backend/mod.rs`, and fill in each file as its first lines say;
//! `docs/adding-a-backend.md` has all steps. This file loads the vendor's library at run time, and a
//! missing library is `Unavailable`, with the remedy.
//!
//! Vendor symbols and types go into a `sys` module and nowhere else. Do not check operands:
//! [validation](crate::ValidatedDevice) has done so. Then run the conformance tests with the
//! new device. `docs/backends/` lays each object of the contract beside the vendors' calls.
//!
//! `hal::support` has what every driver's backend needs: failure spreading, polling, transfers in
//! pieces, program caches. Imports `types` and `hal` only.

mod command_buffer;
mod device;
mod event;
mod kernel;
mod memory;
mod queue;

use std::sync::Arc;

use device::NullDevice;
#[cfg(any(test, feature = "fake"))]
pub(crate) use queue::call_stream_task;

use crate::{Backend, Device, Result};

/// The backend that runs nothing.
#[derive(Clone, Copy, Debug)]
pub struct NullBackend;

impl Backend for NullBackend {
    fn name(&self) -> &'static str {
        "null"
    }

    /// None, so that a list of devices shows no device that computes nothing. Any index can be
    /// opened.
    fn device_names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(NullDevice::new(format!("null:{index}"))))
    }
}

//! The null backend: accepts everything, does nothing, completes at once. The template for a new
//! backend, and with [manual completion](NullOptions::manual) a fake for tests.
//!
//! # Writing a backend from it
//!
//! Clone the folder, list it in `backend/mod.rs`, and fill in, file by file:
//!
//! | file | what it holds | what to fill in |
//! |---|---|---|
//! | `mod.rs` | the backend: its name, how many devices, opening one | load the vendor's library at run time; a missing one is `Unavailable` with the remedy |
//! | `device.rs` | information, capabilities, clock, creation of everything | ask the driver once, at opening; bind its context per call |
//! | `memory.rs` | allocations | the driver's; `host_ptr` only where the host really sees the memory |
//! | `kernel.rs` | loaded kernels | take the first variant of the sources the device understands, compile it |
//! | `queue.rs` | queues, commands outside command-buffers | streams or lists; defer a drop while the device is busy |
//! | `event.rs` | completion | `status` asks the driver; failure that the driver does not spread is tracked here |
//! | `command_buffer.rs` | append, finalize, enqueue, update | the vendor's graph; enqueues of one buffer never overlap |
//! | `control.rs`, `timing.rs` | manual completion, completion by the clock | nothing: delete them |
//!
//! Vendor symbols and types go into a `sys.rs` and nowhere else. Do not check operands:
//! `hal::checked` has. Then run the conformance tests with the new device.
//!
//! Imports `types` and `hal` only.

mod command_buffer;
mod control;
mod device;
mod event;
mod kernel;
mod memory;
mod queue;
mod timing;

use std::sync::Arc;

use crate::hal::{Backend, Capabilities, Device};
use crate::types::{Error, ErrorKind, Result};
pub use control::NullControl;
use device::NullDevice;
pub use timing::NullTiming;

/// The backend that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NullBackend;

impl Backend for NullBackend {
    fn name(&self) -> &'static str {
        "null"
    }

    /// None, so that nobody who lists devices meets one that computes nothing. Any index can be opened.
    fn device_names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        let options = NullOptions::default().name(format!("null:{index}"));
        Ok(open(options).0)
    }
}

/// How a null device behaves.
#[derive(Clone, Debug)]
pub struct NullOptions {
    manual: bool,
    timing: Option<NullTiming>,
    name: String,
    capabilities: Capabilities,
}

impl NullOptions {
    /// Completes at once, notifies, and can do everything.
    pub fn new() -> Self {
        let (name, capabilities) = ("null (private)".into(), device::capabilities());
        Self { manual: false, timing: None, name, capabilities }
    }

    /// Whether enqueued work stays pending until the [`NullControl`] completes it.
    #[must_use]
    pub fn manual(self, manual: bool) -> Self {
        Self { manual, ..self }
    }

    /// Whether notifications are called; without, completion must be polled, as on a GPU.
    #[must_use]
    pub fn notifies(self, notifies: bool) -> Self {
        self.capabilities(|capabilities| capabilities.notifies = notifies)
    }

    /// Changes what the device says that it can do: a way to test how a graph fares on a device
    /// that can do less.
    ///
    /// ```
    /// use wakegraph::backend::null::{self, NullOptions};
    /// use wakegraph::{CommandKinds, Device, ErrorKind, Graph};
    /// let options = NullOptions::new().capabilities(|can| can.commands -= CommandKinds::BUFFER_FILL);
    /// let device = Device::from_hal(null::open(options).0);
    /// let x = device.buffer::<u32>(4)?;
    /// let mut graph = Graph::new(&device);
    /// graph.fill(&x, 1);
    /// assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::FeatureNotSupported);
    /// # Ok::<(), wakegraph::Error>(())
    /// ```
    #[must_use]
    pub fn capabilities(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }

    /// Enqueued work completes by the clock, without a notification; the [`NullControl`] can
    /// complete it before.
    #[must_use]
    pub fn timing(self, timing: NullTiming) -> Self {
        Self { manual: true, timing: Some(timing), ..self }.notifies(false)
    }

    /// The device's selector and name.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}

impl Default for NullOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Opens a null device, and gives the control over what it completes.
///
/// ```
/// use wakegraph::backend::null::{self, NullOptions};
/// let (device, control) = null::open(NullOptions::new().manual(true));
/// assert_eq!(control.pending(), 0);
/// control.lose_device();
/// assert!(device.status().is_err());
/// ```
pub fn open(options: NullOptions) -> (Arc<dyn Device>, NullControl) {
    let control = NullControl::new(&options);
    (Arc::new(NullDevice::new(options, control.clone())), control)
}

/// The error for an object that another device made.
fn foreign(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the {what} belongs to another device"))
        .help(format!("create the {what} on the device that is to use it"))
}

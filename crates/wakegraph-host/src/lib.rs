//! The host backend: kernels are Rust closures, a device is a pool of threads of its own.
//!
//! Always there, needs no driver, and is the reference that every conformance test passes on. What
//! each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | a `thread_pool` of its own, never tokio's |
//! | memory | zeroed heap memory; both kinds are host-visible |
//! | kernel | the closure of its sources, called once per launch |
//! | command-buffer | an immutable `program` for the `interpreter`, on one worker or, as a graph, on many |
//! | queue | a serial chain: each enqueue starts after the one before (out-of-order: no chain) |
//! | event | a `completion`, made final by the worker that finishes the last command |
//!
//! # How an enqueue travels
//!
//! One critical section links it behind what it must follow (the queue's last enqueue, the
//! command-buffer's last enqueue, pending events) or puts it into the ready queue. A worker takes
//! it, runs it with no lock held, and makes the event final. Then, in one critical section, the
//! worker releases the followers and picks its own next job, and last it calls the notification.
//! Nothing on this way allocates once the tables have grown to their working size.
//!
//! Imports `types` and `hal` only.

mod clock;
mod command_buffer;
mod completion;
mod device;
mod event;
mod interpreter;
mod kernel;
mod memory;
mod program;
mod queue;
mod thread_pool;

use std::num::NonZeroUsize;
use std::sync::Arc;

use device::HostDevice;
use wakegraph_hal::support::open_devices::OpenDevices;
use wakegraph_hal::{Backend, Device, Result};

/// The backend that finds the host.
#[derive(Clone, Copy, Debug)]
pub struct HostBackend;

impl Backend for HostBackend {
    fn name(&self) -> &'static str {
        "host"
    }

    /// One, though any index can be opened: each is a pool of threads of its own.
    fn device_names(&self) -> Result<Vec<String>> {
        Ok(vec![HostOptions::new().name])
    }

    /// Opens the device with this index; while one is alive, opening its index again gives the same
    /// device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: OpenDevices<HostDevice> = OpenDevices::new();
        let start = || HostDevice::start(format!("host:{index}"), HostOptions::new());
        Ok(OPEN.get_or_open(index, |_| true, start)?)
    }
}

/// How to open a host device of one's own.
///
/// ```
/// use wakegraph::backend::host::{self, HostOptions};
/// let device = host::open(HostOptions::new().threads(2).polled(true))?;
/// assert!(!device.capabilities().notifies);
/// # Ok::<(), wakegraph::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostOptions {
    threads: Option<NonZeroUsize>,
    polled: bool,
    peer_access: bool,
    name: String,
}

impl HostOptions {
    /// One thread per core that the machine offers, notifications, and access to other devices.
    pub fn new() -> Self {
        Self {
            threads: None,
            polled: false,
            peer_access: true,
            name: "Rust closures on a thread pool".into(),
        }
    }

    /// How many worker threads; 0 means one per core that the machine offers.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: NonZeroUsize::new(threads), ..self }
    }

    /// Whether notifications are not called, so that completion must be polled, as on a GPU.
    #[must_use]
    pub fn polled(self, polled: bool) -> Self {
        Self { polled, ..self }
    }

    /// Whether the device uses other devices' memory and waits for their events. Without it, graphs
    /// across devices go through the host, as on hardware without peer access.
    #[must_use]
    pub fn peer_access(self, peer_access: bool) -> Self {
        Self { peer_access, ..self }
    }

    /// The device's name, for people.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}

impl Default for HostOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Opens a new device with threads of its own, which [`HostBackend`] does not hand out.
///
/// # Errors
/// [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) when the system starts no more threads.
pub fn open(options: HostOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(HostDevice::start("host (private)".into(), options)?))
}

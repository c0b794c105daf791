//! The host backend: kernels are Rust closures, a device is a pool of threads of its own.
//!
//! Always there, needs no driver, and is the reference that every conformance test passes on. What
//! each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | a `pool` of threads, never tokio's |
//! | memory | zeroed heap memory; both kinds are host-visible |
//! | kernel | the closure of its sources, called once a launch |
//! | command-buffer | an immutable `program`, run in order by one worker or as a dependency-counted graph by many |
//! | queue | a `schedule` line: each enqueue starts after the one before (out-of-order: no line) |
//! | event | a `completion`, made final by the worker that finishes the last command |
//!
//! # How an enqueue travels
//!
//! One critical section links it behind what it must follow (the queue's last enqueue, the
//! command-buffer's last enqueue, pending events) or puts it into the ready queue. A worker takes
//! it, runs it with no lock held, makes the event final, then, in one critical section, frees what
//! followed and picks its own next work, and last calls the notification. Nothing on this way
//! allocates once the tables have grown to their working size.
//!
//! Imports `types` and `hal` only.

mod command_buffer;
mod completion;
mod control;
mod device;
mod doze;
mod event;
mod execute;
mod kernel;
mod memory;
mod pool;
mod program;
mod queue;
mod schedule;
mod worker;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use crate::hal::{Backend, Device};
use crate::types::{Error, ErrorKind, Result};
use device::HostDevice;

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

    /// Opens the device with this index; while one is alive, opening its index again gives the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: LazyLock<Mutex<HashMap<usize, Weak<HostDevice>>>> = LazyLock::new(Mutex::default);
        let mut open = OPEN.lock();
        if let Some(device) = open.get(&index).and_then(Weak::upgrade) {
            return Ok(device);
        }
        open.retain(|_, device| device.strong_count() > 0);
        let device = Arc::new(HostDevice::start(format!("host:{index}"), HostOptions::new())?);
        open.insert(index, Arc::downgrade(&device));
        Ok(device)
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
    /// As many threads as the machine runs at once, notifying, with access to other devices.
    pub fn new() -> Self {
        Self {
            threads: None,
            polled: false,
            peer_access: true,
            name: "Rust closures on a thread pool".into(),
        }
    }

    /// How many worker threads; 0 means as many as the machine runs at once.
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
    /// across devices take the ways that hardware without peer access needs.
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

/// Opens a device that nobody else gets, with threads of its own.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when the system starts no more threads.
pub fn open(options: HostOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(HostDevice::start("host (private)".into(), options)?))
}

/// The error for an object that another device made.
fn foreign(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the {what} belongs to another device"))
        .help(format!("create the {what} on the device that is to use it"))
}

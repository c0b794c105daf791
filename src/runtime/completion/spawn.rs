//! Spawning tasks that tokio-console shows with a name and the place that they come from, and threads for
//! what blocks.

use std::future::Future;
use std::panic::Location;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wakegraph_hal::{Error, ErrorKind, Result};

/// Runs `work`, which may block, on a thread of its own inside the caller's tokio runtime, if there is one.
///
/// Not on tokio's blocking pool: all threads of that may be waiting for what `work` is to give them.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when the system has no thread to give. `work` is dropped then.
pub(crate) fn on_thread<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<oneshot::Receiver<R>> {
    let (sender, receiver) = oneshot::channel();
    let runtime = Handle::try_current().ok();
    let run = move || {
        let _inside = runtime.as_ref().map(Handle::enter);
        // The receiver may be gone, and the result with it.
        let _ = sender.send(work());
    };
    thread::Builder::new().name("wakegraph-work".into()).spawn(run).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "could not start a thread for work that blocks").caused_by(error)
    })?;
    Ok(receiver)
}

/// Spawns a task. `name` is called only if a subscriber listens.
#[track_caller]
pub(crate) fn spawn(
    handle: &Handle,
    name: impl FnOnce() -> String,
    task: impl Future<Output = ()> + Send + 'static,
) {
    spawn_at(handle, name, None, task);
}

/// Spawns a task that belongs to code at `location`, by default the caller.
#[cfg(all(tokio_unstable, feature = "tokio-console"))]
#[track_caller]
pub(crate) fn spawn_at(
    handle: &Handle,
    name: impl FnOnce() -> String,
    location: Option<&'static Location<'static>>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    // tokio's own span takes the place of its caller, so the name says where the node was added.
    let mut name = name();
    if let Some(location) = location {
        name += &format!(" at {}:{}", location.file(), location.line());
    }
    if let Err(error) = tokio::task::Builder::new().name(&name).spawn_on(task, handle) {
        tracing::error!(target: "wakegraph", %error, name, "could not spawn a task");
    }
}

/// Spawns a task that belongs to code at `location`, by default the caller.
#[cfg(not(all(tokio_unstable, feature = "tokio-console")))]
#[track_caller]
pub(crate) fn spawn_at(
    handle: &Handle,
    name: impl FnOnce() -> String,
    location: Option<&'static Location<'static>>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    use tracing::Instrument;

    let span = crate::util::console::task(name, location.unwrap_or(Location::caller()));
    handle.spawn(task.instrument(span));
}

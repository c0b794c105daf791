//! Spawning tasks that tokio-console shows with a name and the place that they come from.

use std::future::Future;
use std::panic::Location;

use tokio::runtime::Handle;

/// Spawns a task. `name` is called only if a subscriber listens.
#[track_caller]
pub(crate) fn spawn(
    handle: &Handle,
    name: impl FnOnce() -> String,
    task: impl Future<Output = ()> + Send + 'static,
) {
    spawn_at(handle, name, None, task);
}

/// The same for a task that belongs to code at `location`, by default the caller.
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

/// The same for a task that belongs to code at `location`, by default the caller.
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

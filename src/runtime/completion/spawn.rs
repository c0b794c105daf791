//! Spawning tasks with names where the build lets tokio-console see them.

use std::future::Future;

use tokio::runtime::Handle;

#[cfg(all(tokio_unstable, feature = "tokio-console"))]
pub(crate) fn spawn(
    handle: &Handle,
    name: impl FnOnce() -> String,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let name = name();
    if let Err(error) = tokio::task::Builder::new().name(&name).spawn_on(task, handle) {
        tracing::error!(target: "wakegraph", %error, name, "could not spawn a task");
    }
}

#[cfg(not(all(tokio_unstable, feature = "tokio-console")))]
pub(crate) fn spawn(
    handle: &Handle,
    name: impl FnOnce() -> String,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let _ = name;
    handle.spawn(task);
}

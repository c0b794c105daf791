//! The signals by which a supervisor, or a user at a terminal, tells the service to stop.

use std::future::Future;
use std::io;

/// Resolves when the process is told to stop. The signals are caught from this call on.
#[cfg(unix)]
pub(crate) fn stop() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Resolves when the process is told to stop.
#[cfg(not(unix))]
pub(crate) fn stop() -> io::Result<impl Future<Output = ()> + Send> {
    Ok(async { _ = tokio::signal::ctrl_c().await })
}

//! Deadlines of submissions: what would start too late does not start.

use std::future::pending;
use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::util::panics::catch;

/// The error of work that did not start in time.
pub(crate) fn exceeded() -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "the deadline passed before this could start")
}

/// Resolves when the deadline has passed. Without one it never does, and costs nothing.
///
/// # Errors
/// Those of [`timer`].
pub(crate) async fn passed(deadline: Option<Instant>) -> Result<()> {
    match deadline {
        Some(at) => timer(at)?.await,
        None => pending().await,
    }
    Ok(())
}

/// A timer of the tokio runtime that runs the caller.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) on a runtime that was built without one. tokio has no way to ask
/// for it but to try, which panics.
pub(crate) fn timer(at: Instant) -> Result<Pin<Box<Sleep>>> {
    catch(|| Box::pin(sleep_until(at))).map_err(|panic| {
        Error::new(ErrorKind::Unavailable, format!("the tokio runtime has no timer: {panic}"))
            .help("build the runtime with `enable_time()` or `enable_all()`")
    })
}

//! Watchdogs: noticing that a submission hangs, and saying where.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::runtime::completion::spawn::spawn;
use crate::runtime::execution::deadline;
use crate::runtime::execution::progress::SubmissionProgress;
use crate::runtime::execution::run::Run;
use crate::types::{Error, ErrorKind, Result};

/// What a submission with a watchdog hears from it.
pub(crate) type Alarm = oneshot::Receiver<Error>;

/// A watchdog whose time runs.
pub(crate) struct Watchdog {
    handle: Handle,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Watchdog {
    /// A watchdog on the caller's tokio runtime, whose handle is `handle`; `None` where the limit is too
    /// far away.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) on a runtime that was built without its timer.
    pub(crate) fn start(handle: Handle, limit: Duration) -> Result<Option<Self>> {
        let Some(end) = Instant::now().checked_add(limit) else { return Ok(None) };
        Ok(Some(Self { handle, limit, timer: deadline::timer(end)? }))
    }

    /// Watches a run.
    pub(crate) fn watch(self, run: Arc<Run>) -> Alarm {
        let (alarm, heard) = oneshot::channel();
        let handle = self.handle.clone();
        spawn(&handle, || "wakegraph watchdog".into(), self.report(run, alarm));
        heard
    }

    async fn report(self, run: Arc<Run>, alarm: oneshot::Sender<Error>) {
        let is_over = matches!(select(pin!(run.done.wait()), self.timer).await, Either::Left(_));
        if is_over || run.is_finished() {
            return;
        }
        let Some(progress) = run.progress() else { return };
        let error = stalled(&progress, self.limit);
        tracing::error!(target: "wakegraph::watchdog", %error, "a submission hangs");
        run.set_stalled(&error);
        // The submission may have been dropped.
        let _ = alarm.send(error);
    }
}

fn stalled(progress: &SubmissionProgress, limit: Duration) -> Error {
    let error = Error::new(ErrorKind::Stalled, format!("not over after {limit:?}: {progress}"));
    let Some(suspect) = progress.suspect() else { return error };
    let error = error.in_partition(suspect.partition);
    let error = match &suspect.device {
        Some(device) => error.on_device(device),
        None => error,
    };
    match &*suspect.nodes {
        [node] => error.in_node(node),
        _ => error,
    }
}

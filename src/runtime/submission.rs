//! The future of a submission.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project::{pin_project, pinned_drop};

use super::event::Event;
use super::latch::WaiterKey;
use super::profile::Profile;
use super::run::Run;
use crate::types::Result;

/// A run of an executable that has been submitted: a future that resolves when all its work is complete.
///
/// The work has started already and does not need to be polled. Dropping the submission detaches it, as dropping
/// `tokio::spawn`'s handle does: the work goes on, the runtime keeps what it needs. Use [`cancel`](Self::cancel) or
/// [`cancel_on_drop`](Self::cancel_on_drop) where it should not.
///
/// # Errors
/// Resolves to the first failure: it names node, partition, device and cause. Partitions that depend on the failed one
/// were not started, the others have finished.
///
/// # Cancel safety
/// Cancel safe. `&mut submission` can be awaited, for instance in `select!`, and awaited again.
#[derive(Debug)]
#[must_use = "the work runs, but nobody learns whether it failed; await it, or drop it to detach"]
pub struct Submission {
    run: Arc<Run>,
    key: WaiterKey,
    spin: Spin,
    /// Whether a spin has to look at events itself.
    polled: bool,
}

/// Whether a poll spins for a short while on work that should be done within it: a task switch would take longer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spin {
    Never,
    /// The next poll, for so long. Nothing but devices has a part in the run.
    Once(Duration),
    /// Every poll that finds the run on devices, if what was enqueued last should take no longer than `limit`. It ends
    /// as soon as the host has something to do.
    BetweenHostTasks {
        limit: Duration,
    },
}

/// How long to spin for something expected to take so long: twice that, so that the usual jitter does not cost a task
/// switch.
pub(crate) fn spin_time(expected: Duration, limit: Duration) -> Duration {
    (2 * expected).min(limit)
}

impl Submission {
    pub(crate) fn new(run: Arc<Run>, spin: Spin, polled: bool) -> Self {
        Self { run, key: WaiterKey::default(), spin, polled }
    }

    /// Whether all work is final, successful or not.
    pub fn is_finished(&self) -> bool {
        self.run.is_done()
    }

    /// Stops the partitions that have not started; work on a device, and host tasks that run, run to their end.
    ///
    /// The submission then resolves to [`Cancelled`](crate::ErrorKind::Cancelled), unless everything had started.
    pub fn cancel(&self) {
        self.run.cancel();
    }

    /// Cancels when dropped before it has resolved: for timeouts and `select!`.
    ///
    /// ```no_run
    /// # async fn example(exec: wakegraph::ExecutableGraph) -> wakegraph::Result<()> {
    /// use std::time::Duration;
    /// match tokio::time::timeout(Duration::from_millis(5), exec.submit().cancel_on_drop()).await {
    ///     Ok(result) => result,
    ///     Err(_elapsed) => Ok(()), // what had not started never will
    /// }
    /// # }
    /// ```
    pub fn cancel_on_drop(self) -> CancelOnDrop {
        CancelOnDrop { submission: self }
    }

    /// A handle to wait for the same work, as often and in as many places as needed.
    pub fn event(&self) -> Event {
        Event::new(self.run.clone())
    }

    /// Times of nodes and partitions, when the work is finished and the executable was finalized with
    /// [`profiling`](crate::FinalizeOptions::profiling); otherwise `None`.
    pub fn profile(&self) -> Option<Profile> {
        self.run.profile()
    }

    /// Spins if that should pay; whether the run is done.
    fn spin(&mut self) -> bool {
        match self.spin {
            Spin::Never => false,
            Spin::Once(time) => {
                self.spin = Spin::Never;
                self.spin_for(time)
            }
            Spin::BetweenHostTasks { limit } => match self.run.expected() {
                Some(expected) if expected <= limit && !self.run.is_on_host() => {
                    self.spin_for(spin_time(expected, limit))
                }
                _ => false,
            },
        }
    }

    fn spin_for(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let found = loop {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if self.run.is_done() {
                    break;
                }
            }
            if self.polled {
                self.run.look();
            }
            if self.run.is_done() || self.run.is_on_host() {
                break true;
            }
            if start.elapsed() > limit {
                break false;
            }
        };
        self.run.record_spin(found);
        self.run.is_done()
    }
}

/// How often a spin looks for the end between two looks at the clock.
const LOOKS: u32 = 16;

impl Future for Submission {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if !this.run.is_done() && !this.spin() && this.run.done.poll(cx, &mut this.key).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(this.run.result())
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        self.run.done.forget(&self.key);
    }
}

/// A [`Submission`] that is cancelled when dropped before it has resolved.
///
/// # Cancel safety
/// Dropping it is how it cancels.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
#[must_use = "dropping it cancels the submission"]
pub struct CancelOnDrop {
    #[pin]
    submission: Submission,
}

impl CancelOnDrop {
    /// The submission.
    pub fn submission(&self) -> &Submission {
        &self.submission
    }
}

impl Future for CancelOnDrop {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.project().submission.poll(cx)
    }
}

#[pinned_drop]
impl PinnedDrop for CancelOnDrop {
    fn drop(self: Pin<&mut Self>) {
        if !self.submission.is_finished() {
            self.submission.cancel();
        }
    }
}

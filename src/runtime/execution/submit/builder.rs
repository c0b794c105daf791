//! A submission in preparation, as its user sees it, and what it waits for before it starts.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::runtime::execution::deadline::AnswerBy;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::host_guard::TaskOutput;
use crate::runtime::execution::in_flight::Watchdog;
use crate::runtime::execution::run::Predecessors;
use crate::runtime::execution::run_data::RunValue;
use crate::runtime::execution::submission::{Event, Submission};
use crate::runtime::execution::submit::start::{WaitFuture, needs_tokio, wait_future};
use crate::runtime::execution::submit::{refused, submit_after};
use crate::runtime::resource::raw_memory::NativeEvent;
use crate::util::deferred_drop::Failure;

/// A submission in preparation: what it waits for, and until when it may start.
///
/// Nothing happens before [`submit`](Self::submit).
///
/// [Deadlines](crate::guide::deadlines) are a page of the guide.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use wakegraph::{Device, Graph};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, y) = (device.buffer::<u32>(4)?, device.buffer::<u32>(4)?);
/// let (mut first, mut second) = (Graph::new(&device), Graph::new(&device));
/// first.fill(&x, 1);
/// second.fill(&y, 2);
/// let (first, second) = (first.finalize()?, second.finalize()?);
///
/// let earlier = first.submit();
/// let soon = Instant::now() + Duration::from_secs(60);
/// second.prepare().after(&earlier).deadline(soon).submit().await?;
/// assert!(earlier.is_finished());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `submit`"]
pub struct SubmitBuilder<'a> {
    executable: &'a Arc<ExecutableInner>,
    waits: Waits,
    watchdog: Option<Duration>,
    answer_by: Option<AnswerBy>,
}

impl std::fmt::Debug for SubmitBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Waits { events, futures, deadline, .. } = &self.waits;
        f.debug_struct("SubmitBuilder")
            .field("events", &events.len())
            .field("futures", &futures.len())
            .field("deadline", deadline)
            .field("watchdog", &self.watchdog)
            .finish()
    }
}

impl<'a> SubmitBuilder<'a> {
    pub(crate) fn new(executable: &'a Arc<ExecutableInner>) -> Self {
        Self { executable, waits: Waits::default(), watchdog: None, answer_by: None }
    }

    /// Starts after `submission` has ended. If it fails, this one fails with the same error and
    /// does not start.
    pub fn after(self, submission: &Submission) -> Self {
        self.after_event(&submission.event())
    }

    /// Starts after `event` has ended. If it fails, this submission fails with the same error
    /// and does not start.
    pub fn after_event(mut self, event: &Event) -> Self {
        self.waits.events.push(event.clone());
        self
    }

    /// Starts after `future` has resolved, be it network, a timer or a channel. If it resolves to
    /// an `Err`, the submission fails with it and does not start. A future that panics fails it
    /// likewise.
    pub fn after_future<F>(mut self, future: F) -> Self
    where
        F: Future + Send + 'static,
        F::Output: TaskOutput,
    {
        self.waits.futures.push(wait_future(future));
        self
    }

    /// Starts after an event of another library has completed. The device waits for it where the submission
    /// begins on the device that has [imported](crate::Device::import_event) it; otherwise a thread of the
    /// runtime's waits. If the event fails, so does the submission.
    ///
    /// ```no_run
    /// # #![allow(unsafe_code)]
    /// # use wakegraph::{Device, ExecutableGraph, Result, Submission};
    /// # use std::ffi::c_void;
    /// # fn example(exec: &ExecutableGraph, device: &Device, written: *mut c_void) -> Result<Submission> {
    /// // SAFETY: the application has the event, which is of the device's context.
    /// let written = unsafe { device.import_event(written)? };
    /// let submission = exec.prepare().after_native(&written).submit();
    /// # Ok(submission)
    /// # }
    /// ```
    pub fn after_native(mut self, event: &NativeEvent) -> Self {
        self.waits.native.push(event.clone());
        self
    }

    /// Starts nothing any more from `at` on, which is a time of [`std::time`] or of [`tokio::time`].
    ///
    /// What would start too late does not start: the submission as a whole where it still waits for
    /// its turn, else the partitions that no device has been given yet, the host tasks that have not
    /// been called, and the next iteration of a loop, or blocks of a kernel, that
    /// [`cancel`](Submission::cancel) can end. What else has started runs to its end. The submission
    /// resolves to [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) if anything did not start and
    /// nothing else failed. The error names the first node or partition that did not.
    ///
    /// A submission that waits for a future or an event stops waiting at the deadline. One that
    /// comes after others on the same memory resolves when these have ended. One that is submitted too late
    /// resolves at once, and so does one that waits for a guard: the task that awaits it may be the one
    /// that holds the guard. To keep the deadline, devices are given what comes after others only when
    /// these have ended, by a task of the runtime, so that it starts later than without a deadline. Wrap the
    /// submission in [`tokio::time::timeout_at`] to stop waiting for it as well.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// use std::time::{Duration, Instant};
    /// # let device = wakegraph::Device::open("host")?;
    /// # let mut graph = wakegraph::Graph::new(&device);
    /// # graph.fill(&device.buffer::<u32>(4)?, 1);
    /// # let exec = graph.finalize()?;
    /// let in_time = Instant::now() + Duration::from_secs(5);
    /// exec.prepare().deadline(in_time).submit().await?;
    ///
    /// let late = exec.prepare().deadline(Instant::now()).submit().await;
    /// assert_eq!(late.unwrap_err().kind(), wakegraph::ErrorKind::DeadlineExceeded);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A submission that comes after others or a guard, or in which a device decides about a loop, fails with
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) outside a tokio runtime, and with
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if it needs the timer of a runtime that was built
    /// without. tokio says so by a panic, which is caught; a process that is built to abort on panics ends
    /// there.
    pub fn deadline(mut self, at: impl Into<Instant>) -> Self {
        self.waits.deadline = Some(at.into());
        self
    }

    /// Starts nothing any more from `at` on, if there is no earlier deadline, and has the submission resolve
    /// then, also where its work goes on. `before` is how long the request has taken so far.
    pub(crate) fn answer_by(mut self, at: Instant, before: Duration) -> Self {
        self.waits.deadline = Some(self.waits.deadline.map_or(at, |own| own.min(at)));
        self.answer_by = Some(AnswerBy { at, before });
        self
    }

    /// Brings a value for the host tasks that [declare](crate::host_task::run_data) its type: a request's
    /// URL, its span, or the channel for its answer.
    ///
    /// The run owns the value until a host task takes it, and drops it when it has ended, however it does: on
    /// another thread, soon. It costs one allocation, and submissions without a value have none.
    ///
    /// The submission fails with [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if no host task takes
    /// the value, or they take one of another type; and without a value if they take one.
    pub fn run_data<T: Send + 'static>(mut self, value: T) -> Self {
        self.waits.run_data = Some(RunValue::new(value));
        self
    }

    /// Has a watchdog watch the submission. If it has not ended `limit` after this call to submit it,
    ///
    /// - the submission resolves to [`Stalled`](crate::ErrorKind::Stalled). The error names the partition
    ///   that hangs, and the node if the partition has only one, and says what waits for what;
    /// - the [health](crate::Device::health) of the device that has the partition is
    ///   [`Stalled`](crate::Health::Stalled) until the work has ended after all;
    /// - `tracing` gets an event with the target `wakegraph::watchdog`.
    ///
    /// The work goes on: nothing can take it back from a device, and its memory is kept. A submission that is
    /// awaited again waits for its end, and so does its [event](Submission::event).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # use std::time::Duration;
    /// # let device = wakegraph::Device::open("host")?;
    /// # let mut graph = wakegraph::Graph::new(&device);
    /// # graph.fill(&device.buffer::<u32>(4)?, 1);
    /// # let exec = graph.finalize()?;
    /// exec.prepare().watchdog(Duration::from_secs(30)).submit().await
    /// # }
    /// ```
    ///
    /// The watchdog is a task of the tokio runtime, which needs its timer. The submission fails with
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) outside a runtime, and with
    /// [`Unavailable`](crate::ErrorKind::Unavailable) without a timer, as with a
    /// [`deadline`](Self::deadline).
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = Some(limit);
        self
    }

    /// Submits. See [`ExecutableGraph::submit`](crate::ExecutableGraph::submit).
    pub fn submit(self) -> Submission {
        let answer_by = self.answer_by;
        let mut submission = self.submit_watched();
        answer_by.into_iter().for_each(|answer_by| submission.set_answer_by(answer_by));
        submission
    }

    fn submit_watched(self) -> Submission {
        let Some(limit) = self.watchdog else { return submit_after(self.executable, self.waits) };
        let handle = Handle::try_current().map_err(|_| needs_tokio("has a watchdog"));
        match handle.and_then(|handle| Watchdog::start(handle, limit)) {
            Ok(watchdog) => {
                let mut submission = submit_after(self.executable, self.waits);
                watchdog.into_iter().for_each(|watchdog| submission.set_alarm(watchdog));
                submission
            }
            Err(error) => refused(self.executable, error),
        }
    }
}

/// The conditions that the caller wants to wait for.
#[derive(Default)]
pub(crate) struct Waits {
    pub(super) events: Vec<Event>,
    pub(super) futures: Vec<WaitFuture>,
    pub(super) native: Vec<NativeEvent>,
    /// Predecessors that only have to end, successful or not.
    pub(crate) order: Predecessors,
    /// Such predecessors that the device's own queue sees to once the run is on it.
    pub(crate) queue_order: Predecessors,
    /// Deadline: the time from which on nothing starts.
    pub(crate) deadline: Option<Instant>,
    /// The value for the host tasks.
    pub(crate) run_data: Option<RunValue>,
}

impl Waits {
    /// Nothing to wait for, and maybe a deadline and a value for the host tasks.
    pub(crate) fn until(deadline: Option<Instant>, run_data: Option<RunValue>) -> Self {
        Self { deadline, run_data, ..Self::default() }
    }

    /// For what comes after events.
    pub(crate) fn after(events: &[Event]) -> Self {
        Self { events: events.to_vec(), ..Self::default() }
    }

    /// For what comes after an event of another library.
    pub(crate) fn after_native(event: &NativeEvent) -> Self {
        Self { native: vec![event.clone()], ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.futures.is_empty() && self.native.is_empty()
    }

    /// Takes out events that have ended. Gives the first failure among them.
    pub(crate) fn take_ended(&mut self) -> Option<Failure> {
        let mut failure = None;
        self.events.retain(|event| {
            let finished = event.run().has_ended();
            if finished && failure.is_none() {
                failure = event.run().result().err().map(Failure::new);
            }
            !finished
        });
        failure
    }
}

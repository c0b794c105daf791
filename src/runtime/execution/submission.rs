//! The futures of submissions, and handles to their ends.

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use wakegraph_hal as hal;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::graph::NodeId;
use crate::runtime::execution::deadline::{AnswerBy, AnswerTimer};
use crate::runtime::execution::in_flight::{Alarm, Watchdog};
use crate::runtime::execution::profile::Profile;
use crate::runtime::execution::progress::SubmissionProgress;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::run_wait::RunWait;
use crate::runtime::execution::submission_queue::SubmissionQueue;
use crate::util::attachment::Attachment;

/// A run of an executable that has been submitted: a future that resolves when all its work has ended.
///
/// The work has started already and does not need to be polled. Dropping the submission detaches
/// it, as dropping `tokio::spawn`'s handle does: the work goes on, the runtime keeps what it needs.
/// Use [`cancel`](Self::cancel) or [`cancel_on_drop`](Self::cancel_on_drop) where it should not.
///
/// [Cancellation](crate::guide::cancellation) is a page of the guide.
///
/// # Errors
/// Resolves to the first failure: it names node, partition, device and cause. Partitions that
/// depend on the failed one were not started, the others have ended.
///
/// # Cancel safety
/// Cancel safe. `&mut submission` can be awaited, for instance in `select!`, and awaited again.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use wakegraph::{Device, Graph};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let x = device.buffer::<u32>(4)?;
/// let mut graph = Graph::new(&device);
/// graph.fill(&x, 1);
/// let exec = graph.finalize()?;
///
/// // After a second, the timeout drops the submission, and what has not started never does.
/// match tokio::time::timeout(Duration::from_secs(1), exec.submit().cancel_on_drop()).await {
///     Ok(result) => result?,
///     Err(_elapsed) => println!("too late"),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "the work runs, but a failure goes unnoticed; await it, or drop it to detach"]
pub struct Submission {
    wait: RunWait,
    alarm: Option<Alarm>,
    answer_by: Option<Box<AnswerTimer>>,
    cancels_on_drop: bool,
}

impl Submission {
    /// The submission of a run, which was left to the reactor's thread if there is a `queue`.
    #[inline]
    pub(crate) fn new(run: Arc<Run>, queue: Option<Arc<SubmissionQueue>>) -> Self {
        Self { wait: RunWait::new(run, queue), alarm: None, answer_by: None, cancels_on_drop: false }
    }

    /// Has the submission hear from a watchdog.
    pub(crate) fn set_alarm(&mut self, watchdog: Watchdog) {
        if !self.wait.run.has_ended() {
            self.alarm = Some(watchdog.watch(self.wait.run.clone()));
        }
    }

    /// Has the submission resolve at that time, also where its work goes on.
    pub(crate) fn set_answer_by(&mut self, answer_by: AnswerBy) {
        self.answer_by = Some(AnswerTimer::new(answer_by));
    }

    /// Ready with an error if the work has not ended in time, which cancels the rest of it. Only once: who
    /// awaits the submission again waits for its end.
    fn poll_answer_by(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(timer) = &mut self.answer_by else { return Poll::Pending };
        if let Err(error) = ready!(timer.poll(cx)) {
            self.answer_by = None;
            return Poll::Ready(Err(error));
        }
        let Some(timer) = self.answer_by.take() else { return Poll::Pending };
        Poll::Ready(match self.progress() {
            Some(progress) => {
                let error = timer.error(&progress);
                self.wait.run.cancel_late(&error);
                Err(error)
            }
            None => self.wait.run.result(),
        })
    }

    /// The watchdog's error, if there is one and it has found the run to hang.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        let Poll::Ready(heard) = Pin::new(self.alarm.as_mut()?).poll(cx) else { return None };
        self.alarm = None;
        // Without a word where its runtime has shut down.
        heard.ok().filter(|_| !self.wait.run.has_ended())
    }

    /// Whether all work has ended, successful or not. Asks the devices, so that a loop of nothing else ends.
    /// What this work was ordered after has ended as well, whichever thread asks, and whenever the
    /// devices' notifications arrive. Work that was refused when it was submitted, as it came too late or
    /// what it depends on had failed, was ordered after nothing.
    pub fn is_finished(&self) -> bool {
        self.wait.run.is_finished()
    }

    /// Stops what has not been handed to a device yet, and host tasks that have not been called.
    /// The future of an async host task that runs is dropped at its next await, and with it the views
    /// of its buffers. A blocking one runs out.
    ///
    /// What a device has been given runs to its end, also where it still waits in a queue. A
    /// [loop](crate::Graph::while_nonzero) stops before its next iteration, and a kernel that a host device
    /// runs in blocks (`each:` and `group:` of [`kernel!`](crate::kernel!)) before its next blocks.
    ///
    /// All of a graph without host tasks, whose devices can wait for each other, is handed over by
    /// [`submit`](crate::ExecutableGraph::submit) itself, unless that has to wait for something on
    /// the host: cancelling changes nothing else then. Among many short runs on a GPU, one that still waits
    /// to be launched never is.
    ///
    /// The submission resolves to [`Cancelled`](crate::ErrorKind::Cancelled) if anything was
    /// stopped and nothing else failed. Where it comes after others on the same memory, it keeps its
    /// place in the order and resolves when these have ended. Where it waits for a guard, it keeps its place
    /// as well, but resolves at once: the task that awaits it may be the one that holds the guard.
    pub fn cancel(&self) {
        self.wait.run.cancel();
    }

    /// Has the submission [cancel](Self::cancel) its work when it is dropped before that has ended: for
    /// timeouts and `select!`.
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
    #[must_use = "dropping the submission cancels the work"]
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancels_on_drop = true;
        self
    }

    /// A handle to wait for the same work, as often and in as many places as needed.
    pub fn event(&self) -> Event {
        Event::new(self.wait.run.clone())
    }

    /// Has what another library enqueues on its own queue from now on wait for this submission, on the
    /// device: no thread waits. The queue is the driver's handle: on CUDA a `CUstream` of any context, where
    /// null is the default stream of the context that the submission ends in; on OpenCL a `cl_command_queue`
    /// of its context.
    ///
    /// What fails or is cancelled counts as ended, as far as the driver tells: await the submission to know.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) where not all of the submission is on devices
    /// yet: it has host tasks, or waits for something on the host; await it instead.
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) on other backends;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) and
    /// [`InvalidWaitList`](ErrorKind::InvalidWaitList) for a queue that cannot wait for the devices. That of
    /// the submission, if it has failed already.
    ///
    /// # Safety
    /// The handle is null or that of a live queue.
    #[expect(unsafe_code, reason = "takes a handle that the caller vouches for")]
    pub unsafe fn join(&self, queue: *mut c_void) -> Result<()> {
        let run = &self.wait.run;
        // Asked before the events: a run that ends meanwhile has no devices any more.
        let (is_on_devices, devices) = (run.is_all_enqueued(), run.devices());
        let Some(events) = run.last_events() else { return run.result() };
        let device = devices.first().filter(|_| is_on_devices);
        let device = device.ok_or_else(|| {
            let why = "not all of the submission is on devices, so no queue can wait for it";
            Error::new(ErrorKind::InvalidOperation, why).help("await the submission instead")
        })?;
        let events: Vec<&dyn hal::Event> = events.iter().map(|event| &**event).collect();
        // SAFETY: passed on to the caller.
        unsafe { device.hal().order_after(queue, &events) }
    }

    /// Tells how far the work is, by partition: what has ended, what runs, and what waits for what. `None`
    /// when all has ended. Asks the devices, and never waits for them.
    pub fn progress(&self) -> Option<SubmissionProgress> {
        if self.wait.run.has_ended() { None } else { self.wait.run.progress() }
    }

    /// Times of nodes and partitions, when the work has ended and the executable was finalized with
    /// [`profiling`](crate::FinalizeOptions::profiling), or one of its devices was
    /// [profiled](crate::Device::profile) when it was submitted; otherwise `None`.
    ///
    /// Asks the devices for them, the first time.
    pub fn profile(&self) -> Option<Profile> {
        if self.is_finished() { self.wait.run.profile() } else { None }
    }
}

impl Future for Submission {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(error) = self.poll_alarm(cx) {
            return Poll::Ready(Err(error));
        }
        match Pin::new(&mut self.wait).poll(cx) {
            // The guard may be that of the very task that asks.
            Poll::Pending if !self.wait.run.has_failed_behind_guard() => self.poll_answer_by(cx),
            _ => Poll::Ready(self.wait.run.result()),
        }
    }
}

impl Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("run", &self.wait.run).finish_non_exhaustive()
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if self.cancels_on_drop && !self.is_finished() {
            self.cancel();
        }
        self.wait.run.stop_polling();
    }
}

/// Completion of one submission or of one command of a [`Queue`](crate::Queue): a handle that can be cloned,
/// sent, awaited many times and put into other submissions' wait lists.
///
/// A command that a queue records becomes a node of a graph, and runs only when the graph does. Its event
/// knows the [node](Self::node). Other recorded commands can depend on it; to await it is an error.
///
/// ```
/// use wakegraph::Device;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, y) = (device.buffer::<u32>(2)?, device.buffer::<u32>(2)?);
/// let (left, right) = (device.queue()?, device.queue()?);
/// let filled = left.fill(&x, 1);
/// let copied = right.after([&filled]).copy(&x, &y);
/// copied.wait().await?; // or `copied.await`, which uses up the handle
/// assert!(filled.is_finished());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Event(EventKind);

#[derive(Clone, Debug)]
enum EventKind {
    Run(Arc<Run>),
    Recorded { node: NodeId, recording: Arc<dyn EventRecording> },
}

/// The recording that a recorded event is of.
pub(crate) trait EventRecording: Debug + Send + Sync {
    /// The recording as what it is.
    fn get(self: Arc<Self>) -> Arc<<QueueRecording as Attachment>::Value>;

    /// A run that has failed, with the reason why a recorded event cannot be waited for.
    fn refusal(&self) -> &Arc<Run>;
}

/// The type of all recordings, which `queue::recording` defines.
pub(crate) enum QueueRecording {}

impl Event {
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self(EventKind::Run(run))
    }

    /// The event of a command that has become this node.
    pub(crate) fn recorded(node: NodeId, recording: Arc<dyn EventRecording>) -> Self {
        Self(EventKind::Recorded { node, recording })
    }

    /// Whether the work has ended, successful or not; see
    /// [`Submission::is_finished`](crate::Submission::is_finished). Of a recorded command: true, because
    /// there is nothing to wait for.
    pub fn is_finished(&self) -> bool {
        self.run().is_finished()
    }

    /// How the work ended, if it has ended.
    pub(crate) fn outcome(&self) -> Option<Result<()>> {
        self.is_finished().then(|| self.run().result())
    }

    /// The node that the command has become, if a queue recorded it.
    pub fn node(&self) -> Option<NodeId> {
        match self.0 {
            EventKind::Run(_) => None,
            EventKind::Recorded { node, .. } => Some(node),
        }
    }

    /// Waits until the work has ended.
    ///
    /// # Errors
    /// The submission's or command's. [`InvalidOperation`](crate::ErrorKind::InvalidOperation) for the event
    /// of a recorded command.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> Result<()> {
        let run = self.run();
        RunWait::new(run.clone(), None).await;
        run.result()
    }

    /// The run. That of a recorded command has failed.
    pub(crate) fn run(&self) -> &Arc<Run> {
        match &self.0 {
            EventKind::Run(run) => run,
            EventKind::Recorded { recording, .. } => recording.refusal(),
        }
    }

    /// The recording that it is of, if it is of one.
    pub(crate) fn recording(&self) -> Option<&Arc<dyn EventRecording>> {
        match &self.0 {
            EventKind::Run(_) => None,
            EventKind::Recorded { recording, .. } => Some(recording),
        }
    }
}

impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::Submission;
    use crate::runtime::execution::run_wait::Spin;
    use crate::runtime::{Device, Graph};

    #[test]
    fn is_finished_polls_devices_that_do_not_notify() {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        for _ in 0..3 {
            let submission = exec.submit();
            assert!(!submission.is_finished());
            let _nobody_else_looks = device.reactor().unwrap().pause();
            control.complete_all();
            assert!(submission.is_finished());
            assert!(submission.event().is_finished());
        }
    }

    #[test]
    fn submissions_spin_for_short_runs_behind_others_as_well() {
        for notifies in [true, false] {
            let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(notifies));
            let device = Device::from_hal(device);
            let mut graph = Graph::new(&device);
            graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
            let exec = graph.finalize().unwrap();
            exec.inner.partitions[0].estimator.record_duration(Duration::from_micros(5));
            let submissions = [(); 3].map(|()| exec.submit());
            let spins = submissions
                .each_ref()
                .map(|submission| submission.event().run().waiting.take_spin().is_some());
            // None of them does without a second core.
            assert!(spins.iter().all(|&spins_too| spins_too == spins[0]), "{spins:?}");
            control.complete_all();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "one poll takes longer than a slice under Miri, so none polls twice")]
    fn submissions_of_one_task_share_a_spin_slice() {
        const COUNT: usize = 32;
        const MOST_POLLS_WITHOUT_SLICE: u64 = 3;
        // A submission polls its device only while it is alone there, so each gets its own.
        let all: Vec<_> = (0..COUNT)
            .map(|_| {
                let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
                let device = Device::from_hal(device);
                let mut graph = Graph::new(&device);
                graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
                let run = graph.finalize().unwrap().submit().event().run().clone();
                (device, control, run)
            })
            .collect();
        let _paused: Vec<_> = all.iter().map(|(device, ..)| device.reactor().unwrap().pause()).collect();
        let mut submissions: Vec<_> =
            all.iter().map(|(_, _, run)| Submission::new(run.clone(), None)).collect();
        let spin = Spin::Until(Instant::now() + Duration::from_secs(3600));
        submissions.iter_mut().for_each(|submission| submission.wait.spin = spin);
        // Polls all submissions one after the other, and returns how many polled their device again
        // and again.
        let mut spinning = || {
            let polled = submissions.iter_mut().zip(&all).map(|(submission, (_, control, _))| {
                let before = control.polls();
                let poll = Pin::new(submission).poll(&mut Context::from_waker(Waker::noop()));
                assert!(poll.is_pending());
                control.polls() - before
            });
            polled.filter(|&polls| polls > MOST_POLLS_WITHOUT_SLICE).count()
        };
        let rounds: Vec<_> = (0..20).map(|_| spinning()).collect();
        // A thread that is preempted begins a new slice, so more than one may spin, but never most of them.
        assert!(rounds.iter().all(|&spinning| spinning < COUNT / 2), "{rounds:?}");
        // A new slice begins when the submission that gave way is polled again, unless the thread is
        // preempted meanwhile.
        assert!((0..1000).any(|_| spinning() > 0));
        all.iter().for_each(|(_, control, _)| _ = control.complete_all());
    }
}

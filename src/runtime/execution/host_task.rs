//! Host tasks: closures of the host that run between device partitions. Their panics go no further, and while
//! a timeline is recorded, their polls are logged.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::{self, Thread};

use parking_lot::Mutex;
use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::completion::clock;
use crate::runtime::execution::run_data::{RunDataType, RunValue};
use crate::util::panics::{catch, catch_and_log};

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A host task with its closure's type erased.
pub(crate) struct HostTask {
    kind: HostTaskKind,
    call: Box<Call>,
    /// Describes what it submits by itself.
    plan_text: Option<Box<PlanText>>,
    /// The types of run data that it takes.
    run_data: Box<[RunDataType]>,
}

/// Whether a running host task can be stopped when its run is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostTaskKind {
    /// The future can be dropped.
    Async,
    /// It runs out.
    Blocking,
    /// It stops by itself.
    Internal,
}

type Call = dyn Fn(&TaskLease) -> BoxFuture<Result<()>> + Send + Sync;
type PlanText = dyn Fn() -> String + Send + Sync;

impl HostTask {
    /// A task that `call` starts, which is called in each run, and takes these types of run data.
    pub(super) fn of_kind(
        kind: HostTaskKind,
        run_data: Box<[RunDataType]>,
        call: impl Fn(&TaskLease) -> BoxFuture<Result<()>> + Send + Sync + 'static,
    ) -> Self {
        Self { kind, call: Box::new(call), plan_text: None, run_data }
    }

    /// A task of the runtime's own, which submits other executables. `plan_text` describes these, and
    /// `run_data` is what they take.
    pub(crate) fn internal<F>(
        run_data: Option<RunDataType>,
        call: impl Fn(&TaskLease) -> F + Send + Sync + 'static,
        plan_text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let run_data = run_data.into_iter().collect();
        let task = Self::of_kind(HostTaskKind::Internal, run_data, move |lease| Box::pin(call(lease)));
        Self { plan_text: Some(Box::new(plan_text)), ..task }
    }

    /// Describes what the task submits by itself, for the text of a plan.
    pub(crate) fn plan_text(&self) -> Option<String> {
        self.plan_text.as_ref().map(|text| text())
    }

    pub(crate) fn kind(&self) -> HostTaskKind {
        self.kind
    }

    /// The types of run data that it takes.
    pub(crate) fn run_data(&self) -> &[RunDataType] {
        &self.run_data
    }

    pub(crate) fn call(&self, lease: &TaskLease) -> BoxFuture<Result<()>> {
        (self.call)(lease)
    }
}

/// The error of what a tokio runtime can no longer run.
pub(crate) fn runtime_shut_down() -> Error {
    Error::new(ErrorKind::Cancelled, "the tokio runtime that drives this submission shut down")
}

/// The run that a host task belongs to.
pub(crate) trait HostTaskOwner: Debug + Send + Sync {
    /// The host task of a partition has ended, and its views are dropped.
    fn end_host_task(&self, partition: usize, result: Result<()>);

    /// The host task of a partition has ended, and views that it was given are kept.
    fn keep_views(&self, partition: usize);

    /// Why nothing of the run starts any more, if it has been cancelled or its deadline has passed.
    fn stopped(&self) -> Option<Error>;

    /// The run's deadline.
    fn deadline(&self) -> Option<Instant>;

    /// Record of when threads run the host task of a partition, while a timeline is recorded.
    fn polls(&self, partition: usize) -> Option<Arc<PollLog>>;

    /// The value that the submission has brought, lent.
    fn run_data(&self) -> Option<RunValue>;

    /// Sets the run that the host task of a partition waits for, to be cancelled with this one.
    fn set_nested(&self, partition: usize, nested: Option<Arc<dyn NestedRun>>);
}

/// A run that a host task has submitted and waits for.
pub(crate) trait NestedRun: Debug + Send + Sync {
    /// Stops what has not started.
    fn cancel(&self);
}

/// Ends a host task's partition when the task has ended and all its views are dropped.
#[derive(Clone, Debug)]
pub struct TaskLease(Arc<TaskLeaseInner>);

#[derive(Debug)]
struct TaskLeaseInner {
    run: Arc<dyn HostTaskOwner>,
    partition: usize,
    result: Mutex<Option<Result<()>>>,
}

impl TaskLease {
    pub(crate) fn new(run: Arc<dyn HostTaskOwner>, partition: usize) -> Self {
        Self(Arc::new(TaskLeaseInner { run, partition, result: Mutex::new(None) }))
    }

    /// The run that the task belongs to.
    pub(crate) fn run(&self) -> &Arc<dyn HostTaskOwner> {
        &self.0.run
    }

    /// Record of when threads run the task, while a timeline is recorded.
    pub(super) fn polls(&self) -> Option<Arc<PollLog>> {
        self.0.run.polls(self.0.partition)
    }

    /// Sets the run that the task waits for, to be cancelled with the task's own.
    pub(crate) fn set_nested(&self, nested: Option<Arc<dyn NestedRun>>) {
        self.0.run.set_nested(self.0.partition, nested);
    }

    pub(crate) fn end(self, result: Result<()>) {
        // An error may hold a view (`tx.send(view).await?`), which would keep its own task from
        // ever completing: then only its words are kept.
        let held = Arc::strong_count(&self.0) > 1;
        let result = if held { result.map_err(with_words_only) } else { result };
        if held {
            self.0.run.keep_views(self.0.partition);
        }
        *self.0.result.lock() = Some(result);
    }
}

/// The error with the words of its source in the place of the source, which is dropped.
fn with_words_only(mut error: Error) -> Error {
    let Some(source) = error.take_source() else { return error };
    let error = match catch(|| source.to_string()) {
        Ok(words) => error.caused_by(words),
        Err(panic) => error.with_note(&format!("whose `Display` panicked: {panic}")),
    };
    match catch(|| drop(source)) {
        Ok(()) => error,
        Err(panic) => error.with_note(&format!("whose `Drop` panicked: {panic}")),
    }
}

impl Drop for TaskLeaseInner {
    fn drop(&mut self) {
        // Without a result the task was dropped half-way: its runtime shuts down.
        let result = self.result.get_mut().take().unwrap_or_else(|| Err(runtime_shut_down()));
        self.run.end_host_task(self.partition, result);
    }
}

/// A future of the user's. Resolves to an error where it panics, or panics when it is dropped,
/// which happens as soon as it is ready.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
pub(crate) struct CatchPanics<F> {
    #[pin]
    future: Option<F>,
}

impl<F> CatchPanics<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Some(future) }
    }
}

impl<F: Future> Future for CatchPanics<F> {
    type Output = Result<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = catch_panic(|| future.poll(cx));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        let dropped = catch_drop(|| this.future.set(None));
        match (polled, dropped) {
            (Ok(polled), Ok(())) => polled.map(Ok),
            (Ok(polled), Err(error)) => {
                catch_and_log("the drop of a future's output", || drop(polled));
                Poll::Ready(Err(error))
            }
            (Err(error), _) => Poll::Ready(Err(error)),
        }
    }
}

#[pinned_drop]
impl<F> PinnedDrop for CatchPanics<F> {
    fn drop(self: Pin<&mut Self>) {
        catch_and_log("the drop of a future", || self.project().future.set(None));
    }
}

/// Runs the user's code.
///
/// # Errors
/// [`HostTaskPanicked`](ErrorKind::HostTaskPanicked), with what the panic said.
pub(crate) fn catch_panic<R>(code: impl FnOnce() -> R) -> Result<R> {
    catch(code).map_err(|panic| Error::new(ErrorKind::HostTaskPanicked, panic))
}

/// Drops values of the user's.
///
/// # Errors
/// [`HostTaskPanicked`](ErrorKind::HostTaskPanicked), which says that it was a `Drop`.
pub(crate) fn catch_drop(drops: impl FnOnce()) -> Result<()> {
    catch(drops).map_err(|panic| {
        Error::new(ErrorKind::HostTaskPanicked, format!("the `Drop` of a value panicked: {panic}"))
    })
}

/// Maximum of polls kept per host task, which bounds the memory of a recording.
const MOST_POLLS: usize = 1000;

/// The polls of one host task.
#[derive(Debug, Default)]
pub(crate) struct PollLog(Mutex<Polls>);

/// The contents of a [`PollLog`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    /// The first ones, in order.
    pub(crate) kept: Vec<PollMoments>,
    /// Number of further ones.
    pub(crate) omitted: u64,
}

/// A while in which a thread ran the host task, in nanoseconds of the runtime's clock.
#[derive(Clone, Debug)]
pub(crate) struct PollMoments {
    pub(crate) thread: Thread,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl PollLog {
    pub(crate) fn polls(&self) -> Polls {
        self.0.lock().clone()
    }

    fn add(&self, start: u64) {
        let (thread, end) = (thread::current(), clock::now());
        let mut polls = self.0.lock();
        if polls.kept.len() < MOST_POLLS {
            polls.kept.push(PollMoments { thread, start, end });
        } else {
            polls.omitted += 1;
        }
    }
}

/// Runs code of a host task, and notes when it did in the log, if there is one.
pub(crate) fn timed<R>(log: Option<&PollLog>, code: impl FnOnce() -> R) -> R {
    let Some(log) = log else { return code() };
    let start = clock::now();
    let result = code();
    log.add(start);
    result
}

/// The future of a host task, each of whose polls is noted in the log, if there is one.
#[pin_project]
pub(crate) struct LoggedPolls<F> {
    #[pin]
    future: F,
    log: Option<Arc<PollLog>>,
}

impl<F> LoggedPolls<F> {
    pub(crate) fn new(future: F, log: Option<Arc<PollLog>>) -> Self {
        Self { future, log }
    }
}

impl<F: Future> Future for LoggedPolls<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        timed(this.log.as_deref(), || this.future.poll(cx))
    }
}

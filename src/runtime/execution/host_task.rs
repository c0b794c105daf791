//! Host tasks: closures of the host that run between device partitions.

use std::fmt::Debug;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use bytemuck::Pod;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::execution::catch_panics::{CatchPanics, catch_drop, catch_panic};
use crate::runtime::execution::host_guard::{HostMut, HostRef, Lease};
use crate::runtime::execution::polls::{PollLog, timed};
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::memory_arg::Operand;
use crate::types::{AccessMode, BoxError, Error, ErrorKind, Result};
use crate::util::panics::catch;

/// Declares that a host task reads `buffer`; the closure gets a [`HostRef`].
pub fn read<T: Pod>(buffer: &HostBuffer<T>) -> ReadAccess<T> {
    ReadAccess { view: buffer.view().clone(), elements: PhantomData }
}

/// Declares that a host task reads and writes `buffer`; the closure gets a [`HostMut`].
pub fn write<T: Pod>(buffer: &HostBuffer<T>) -> WriteAccess<T> {
    WriteAccess { view: buffer.view().clone(), elements: PhantomData }
}

/// A declared read, made by [`read`].
#[derive(Clone, Debug)]
pub struct ReadAccess<T> {
    view: View,
    elements: PhantomData<fn() -> T>,
}

/// A declared write, made by [`write()`].
#[derive(Clone, Debug)]
pub struct WriteAccess<T> {
    view: View,
    elements: PhantomData<fn() -> T>,
}

/// One declared access of a host task: the result of [`read`] or [`write()`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an access of a host task",
    label = "not made by `read` or `write`",
    note = "declare what the task uses as `read(&host_buffer)` or `write(&host_buffer)`; device buffers \
            are copied to a host buffer first"
)]
pub trait HostAccess: Send + Sync + 'static + sealed::Sealed {
    /// What the closure gets for it.
    type View: Send + 'static;

    #[doc(hidden)]
    fn declared(&self) -> (Operand, AccessMode);
    #[doc(hidden)]
    fn view(&self, lease: &TaskLease) -> Self::View;
}

impl<T: Pod + Send + Sync> HostAccess for ReadAccess<T> {
    type View = HostRef<T>;

    fn declared(&self) -> (Operand, AccessMode) {
        (Operand(self.view.clone()), AccessMode::Read)
    }

    fn view(&self, lease: &TaskLease) -> HostRef<T> {
        HostRef::new(&self.view, lease.for_view())
    }
}

impl<T: Pod + Send + Sync> HostAccess for WriteAccess<T> {
    type View = HostMut<T>;

    fn declared(&self) -> (Operand, AccessMode) {
        (Operand(self.view.clone()), AccessMode::ReadWrite)
    }

    fn view(&self, lease: &TaskLease) -> HostMut<T> {
        HostMut::new(&self.view, lease.for_view())
    }
}

/// The declared accesses of a host task: a tuple of up to eight [`read`]s and [`write()`]s, or `()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of accesses of a host task",
    label = "not a tuple of `read(..)` and `write(..)`",
    note = "write `()` for none, `(read(&x),)` with its comma for one, `(read(&x), write(&y))` for more, up \
            to eight"
)]
pub trait HostAccesses: Send + Sync + 'static + sealed::Sealed {
    /// What the closure gets: a tuple of views.
    type Views: Send + 'static;

    #[doc(hidden)]
    fn declared(&self) -> Vec<(Operand, AccessMode)>;
    #[doc(hidden)]
    fn views(&self, lease: &TaskLease) -> Self::Views;
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for super::ReadAccess<T> {}
    impl<T> Sealed for super::WriteAccess<T> {}
}

macro_rules! accesses {
    ($($name:ident)*) => {
        impl<$($name: HostAccess),*> sealed::Sealed for ($($name,)*) {}

        #[allow(non_snake_case, unused_variables, clippy::unused_unit)]
        impl<$($name: HostAccess),*> HostAccesses for ($($name,)*) {
            type Views = ($($name::View,)*);

            fn declared(&self) -> Vec<(Operand, AccessMode)> {
                let ($($name,)*) = self;
                vec![$($name.declared()),*]
            }

            fn views(&self, lease: &TaskLease) -> Self::Views {
                let ($($name,)*) = self;
                ($($name.view(lease),)*)
            }
        }
    };
}

accesses!();
accesses!(A);
accesses!(A B);
accesses!(A B C);
accesses!(A B C D);
accesses!(A B C D E);
accesses!(A B C D E F);
accesses!(A B C D E F G);
accesses!(A B C D E F G H);

/// What a host task may return: `()`, or a `Result` whose error becomes the submission's.
#[diagnostic::on_unimplemented(
    message = "a host task cannot return `{Self}`",
    label = "neither `()` nor a `Result`",
    note = "return `()` or a `Result<T, E>` whose error is `std::error::Error + Send + Sync`"
)]
pub trait TaskOutput {
    /// The result, with the error boxed.
    ///
    /// # Errors
    /// The task's own.
    fn into_result(self) -> Result<(), BoxError>;
}

impl TaskOutput for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<T, E: Into<BoxError>> TaskOutput for Result<T, E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map(drop).map_err(Into::into)
    }
}

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A host task with its closure's type erased.
pub(crate) struct HostTask {
    kind: HostTaskKind,
    call: Box<Call>,
    /// Describes what it submits by itself.
    plan_text: Option<Box<PlanText>>,
}

/// What can be done about a host task that runs when its run is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostTaskKind {
    /// Its future can be dropped.
    Async,
    /// It runs out.
    Blocking,
    /// It stops by itself.
    Internal,
}

type Call = dyn Fn(&TaskLease) -> BoxFuture<Result<()>> + Send + Sync;
type PlanText = dyn Fn() -> String + Send + Sync;

impl HostTask {
    /// A task whose closure returns a future. It is cloned for every run, so that each future owns
    /// what it captures.
    pub(crate) fn new<A, F, R>(accesses: A, closure: F) -> Self
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + Clone + Send + Sync + 'static,
        R: Future + Send + 'static,
        R::Output: TaskOutput,
    {
        let closure = Arc::new(closure);
        Self {
            kind: HostTaskKind::Async,
            call: Box::new(move |lease| {
                let views = accesses.views(lease);
                let closure = closure.clone();
                Box::pin(async move {
                    let future = catch_panic(|| F::clone(&closure)(views));
                    // The last reference, where an update has replaced the closure.
                    let dropped = catch_drop(|| drop(closure));
                    let output = CatchPanics::new(future?).await?;
                    outcome(catch_panic(|| output.into_result())).and(dropped)
                })
            }),
            plan_text: None,
        }
    }

    /// A task whose closure blocks or computes: it runs on tokio's blocking pool.
    pub(crate) fn blocking<A, F, R>(accesses: A, closure: F) -> Self
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + Clone + Send + Sync + 'static,
        R: TaskOutput,
    {
        let closure = Arc::new(closure);
        Self {
            kind: HostTaskKind::Blocking,
            call: Box::new(move |lease| {
                let views = accesses.views(lease);
                let closure = closure.clone();
                let (run, polls) = (lease.run().clone(), lease.polls());
                let work = move || {
                    // It may have waited for a thread.
                    let output = match run.stopped() {
                        None => outcome(catch_panic(|| F::clone(&closure)(views).into_result())),
                        Some(error) => catch_drop(|| drop(views)).and(Err(error)),
                    };
                    output.and(catch_drop(|| drop(closure)))
                };
                let work = move || timed(polls.as_deref(), work);
                Box::pin(async move {
                    match tokio::task::spawn_blocking(work).await {
                        Ok(result) => result,
                        Err(_) => Err(runtime_shut_down()),
                    }
                })
            }),
            plan_text: None,
        }
    }

    /// A task of the runtime's own, which submits other executables. `plan_text` describes these.
    pub(crate) fn internal<F>(
        call: impl Fn(&TaskLease) -> F + Send + Sync + 'static,
        plan_text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self {
            kind: HostTaskKind::Internal,
            call: Box::new(move |lease| Box::pin(call(lease))),
            plan_text: Some(Box::new(plan_text)),
        }
    }

    /// Describes what the task submits by itself, for the text of a plan.
    pub(crate) fn plan_text(&self) -> Option<String> {
        self.plan_text.as_ref().map(|text| text())
    }

    pub(crate) fn kind(&self) -> HostTaskKind {
        self.kind
    }

    pub(crate) fn call(&self, lease: &TaskLease) -> BoxFuture<Result<()>> {
        (self.call)(lease)
    }
}

fn outcome(task: Result<Result<(), BoxError>>) -> Result<()> {
    task?.map_err(|error| {
        Error::new(ErrorKind::HostTaskFailed, "the closure returned an error").caused_by(error)
    })
}

/// The error of what a tokio runtime can no longer run.
pub(crate) fn runtime_shut_down() -> Error {
    Error::new(ErrorKind::Cancelled, "the tokio runtime that drives this submission shut down")
}

/// The run that a host task belongs to.
pub(crate) trait HostTaskOwner: Debug + Send + Sync {
    /// The host task of a partition has finished, and its views are dropped.
    fn finish_host_task(&self, partition: usize, result: Result<()>);

    /// The host task of a partition has finished, and views that it was given are kept.
    fn keep_views(&self, partition: usize);

    /// Why nothing of the run starts any more, if it has been cancelled or its deadline has passed.
    fn stopped(&self) -> Option<Error>;

    /// The run's deadline.
    fn deadline(&self) -> Option<Instant>;

    /// Where it is noted when threads run the host task of a partition, while a timeline is recorded.
    fn polls(&self, partition: usize) -> Option<Arc<PollLog>>;

    /// Sets the run that the host task of a partition waits for, to be cancelled with this one.
    fn set_nested(&self, partition: usize, nested: Option<Arc<dyn NestedRun>>);
}

/// A run that a host task has submitted and waits for.
pub(crate) trait NestedRun: Debug + Send + Sync {
    /// Stops what has not started.
    fn cancel(&self);
}

/// Ends a host task's partition when the task has finished and all its views are dropped.
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

    /// Where it is noted when threads run the task, while a timeline is recorded.
    fn polls(&self) -> Option<Arc<PollLog>> {
        self.0.run.polls(self.0.partition)
    }

    /// Sets the run that the task waits for, to be cancelled with the task's own.
    pub(crate) fn set_nested(&self, nested: Option<Arc<dyn NestedRun>>) {
        self.0.run.set_nested(self.0.partition, nested);
    }

    pub(crate) fn for_view(&self) -> Lease {
        Lease::HostTask { _lease: self.0.clone() }
    }

    pub(crate) fn finish(self, result: Result<()>) {
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
        self.run.finish_host_task(self.partition, result);
    }
}

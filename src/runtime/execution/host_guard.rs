//! Guards: the host's access to the elements of a [`HostBuffer`](crate::HostBuffer), outside graphs or in a
//! host task, which declares what it accesses.

use std::fmt::{self, Debug};
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal::{AccessMode, BoxError, Error, ErrorKind, Result};

use crate::runtime::execution::host_task::{
    CatchPanics, HostTask, HostTaskKind, TaskLease, catch_drop, catch_panic, runtime_shut_down, timed,
};
use crate::runtime::execution::run::FenceGuard;
use crate::runtime::execution::run_data::{RunData, RunDataType};
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::memory_arg::Operand;

/// A guard's right to the memory; given back by dropping it.
pub(crate) enum Lease {
    /// A place in the order between submissions.
    Fence { _guard: FenceGuard },
    /// A running host task, which ends only when its views are dropped.
    HostTask { _lease: TaskLease },
}

/// Shared access to a [`HostBuffer`](crate::HostBuffer)'s elements: dereferences to `[T]`.
///
/// Inside a host task it is a view of a declared access. It may be moved anywhere, also into
/// another task: the host task ends when its future has ended and its views are dropped.
pub struct HostRef<T> {
    elements: *const T,
    len: usize,
    _lease: Lease,
    _allocation: Arc<Allocation>,
}

/// Exclusive access to a [`HostBuffer`](crate::HostBuffer)'s elements: dereferences to `[T]`. See
/// [`HostRef`].
pub struct HostMut<T>(HostRef<T>);

impl<T: Pod> HostRef<T> {
    /// The caller's lease covers the view: shared for a `HostRef`, exclusive when it is put into a `HostMut`.
    pub(crate) fn new(view: &View, lease: Lease) -> Self {
        let base =
            view.allocation.memory().host_ptr().map_or(std::ptr::null(), |base| base.as_ptr().cast_const());
        Self {
            elements: base.wrapping_add(view.offset).cast(),
            // Host memory always has an address; without one there is nothing to see.
            len: if base.is_null() { 0 } else { view.len / size_of::<T>() },
            _lease: lease,
            _allocation: view.allocation.clone(),
        }
    }
}

impl<T: Pod> HostRef<T> {
    pub(super) fn into_bytes_guard(self) -> HostRef<u8> {
        let Self { elements, len, _lease, _allocation } = self;
        HostRef { elements: elements.cast(), len: len * size_of::<T>(), _lease, _allocation }
    }
}

impl<T: Pod> HostMut<T> {
    pub(super) fn into_bytes_guard(self) -> HostMut<u8> {
        HostMut(self.0.into_bytes_guard())
    }

    /// The caller's lease covers the view exclusively.
    pub(crate) fn new(view: &View, lease: Lease) -> Self {
        Self(HostRef::new(view, lease))
    }
}

#[expect(unsafe_code, reason = "guards turn leased host memory into slices")]
mod slices {
    use super::{Deref, DerefMut, HostMut, HostRef};

    // SAFETY: a guard is a `&[T]` or `&mut [T]` with an owned lease; leases may end on any thread.
    unsafe impl<T: Send + Sync> Send for HostRef<T> {}
    // SAFETY: as above; sharing a guard shares `&[T]`.
    unsafe impl<T: Send + Sync> Sync for HostRef<T> {}

    impl<T> Deref for HostRef<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            if self.len == 0 {
                return &[];
            }
            // SAFETY: the view lies inside the allocation, which the guard keeps alive; allocations
            // are aligned to 64 bytes, or for `T` if they are registered memory, and views are made of
            // whole elements; the lease keeps writers away; `T: Pod` when it was made.
            unsafe { std::slice::from_raw_parts(self.elements, self.len) }
        }
    }

    impl<T> Deref for HostMut<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }

    impl<T> DerefMut for HostMut<T> {
        fn deref_mut(&mut self) -> &mut [T] {
            if self.0.len == 0 {
                return &mut [];
            }
            // SAFETY: as in `HostRef::deref`, and the lease is exclusive; the pointer stems from a
            // mutable one.
            unsafe { std::slice::from_raw_parts_mut(self.0.elements.cast_mut(), self.0.len) }
        }
    }
}

/// With bytes as elements, what `bytes::Bytes::from_owner` takes: a response's body without a copy.
impl<T> AsRef<[T]> for HostRef<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

/// As for [`HostRef`].
impl<T> AsRef<[T]> for HostMut<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for HostMut<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Debug> Debug for HostRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Debug> Debug for HostMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

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

/// One declared access of a host task: the result of [`read`], [`write()`] or [`run_data`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an access of a host task",
    label = "not made by `read`, `write` or `run_data`",
    note = "declare what the task uses as `read(&host_buffer)` or `write(&host_buffer)`; device buffers \
            are copied to a host buffer first"
)]
pub trait HostAccess: Send + Sync + 'static + sealed::Sealed {
    /// The closure's argument for it.
    type View: Send + 'static;

    #[doc(hidden)]
    fn declared(&self) -> Option<(Operand, AccessMode)>;
    #[doc(hidden)]
    fn run_data(&self) -> Option<RunDataType> {
        None
    }
    #[doc(hidden)]
    fn view(&self, lease: &TaskLease) -> Self::View;
}

impl<T: Pod + Send + Sync> HostAccess for ReadAccess<T> {
    type View = HostRef<T>;

    fn declared(&self) -> Option<(Operand, AccessMode)> {
        Some((Operand(self.view.clone()), AccessMode::Read))
    }

    fn view(&self, lease: &TaskLease) -> HostRef<T> {
        HostRef::new(&self.view, Lease::HostTask { _lease: lease.clone() })
    }
}

impl<T: Pod + Send + Sync> HostAccess for WriteAccess<T> {
    type View = HostMut<T>;

    fn declared(&self) -> Option<(Operand, AccessMode)> {
        Some((Operand(self.view.clone()), AccessMode::ReadWrite))
    }

    fn view(&self, lease: &TaskLease) -> HostMut<T> {
        HostMut::new(&self.view, Lease::HostTask { _lease: lease.clone() })
    }
}

/// Declares that a host task uses the value that its submission [brings](crate::SubmitBuilder::run_data); the
/// closure gets a [`RunData`].
///
/// All host tasks of a graph declare the same type, which `finalize` checks, and each submission brings a
/// value of it.
///
/// ```
/// use tokio::sync::oneshot;
/// use wakegraph::host_task::run_data;
/// use wakegraph::{Device, Graph, read};
///
/// struct Request {
///     factor: u32,
///     answer: oneshot::Sender<Vec<u32>>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, out) = (device.buffer_from(&[1u32, 2])?, device.host_buffer::<u32>(2)?);
/// let mut graph = Graph::new(&device);
/// graph.copy(&x, &out);
/// graph.host_task((read(&out), run_data::<Request>()), async |(out, request)| {
///     if let Some(Request { factor, answer }) = request.take() {
///         let _ = answer.send(out.iter().map(|x| x * factor).collect());
///     }
/// });
/// let exec = graph.finalize()?;
///
/// let (answer, answered) = oneshot::channel();
/// exec.prepare().run_data(Request { factor: 10, answer }).submit().await?;
/// assert_eq!(answered.await.expect("the host task answers"), [10, 20]);
/// # Ok(())
/// # }
/// ```
pub fn run_data<T: Send + 'static>() -> RunDataAccess<T> {
    RunDataAccess(PhantomData)
}

/// A declared use of a run's data, made by [`run_data`].
pub struct RunDataAccess<T>(PhantomData<fn() -> T>);

impl<T> Clone for RunDataAccess<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T> Debug for RunDataAccess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunDataAccess").field(&std::any::type_name::<T>()).finish()
    }
}

impl<T: Send + 'static> HostAccess for RunDataAccess<T> {
    type View = RunData<T>;

    fn declared(&self) -> Option<(Operand, AccessMode)> {
        None
    }

    fn run_data(&self) -> Option<RunDataType> {
        Some(RunDataType::of::<T>())
    }

    fn view(&self, lease: &TaskLease) -> RunData<T> {
        lease.run().run_data().map_or_else(RunData::none, |value| value.view())
    }
}

/// The declared accesses of a host task: a tuple of up to eight [`read`]s, [`write()`]s and [`run_data`]s, or
/// `()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of accesses of a host task",
    label = "not a tuple of `read(..)`, `write(..)` and `run_data()`",
    note = "write `()` for none, `(read(&x),)` with its comma for one, `(read(&x), write(&y))` for more, up \
            to eight"
)]
pub trait HostAccesses: Send + Sync + 'static + sealed::Sealed {
    /// The argument of the closure: a tuple of views.
    type Views: Send + 'static;

    #[doc(hidden)]
    fn declared(&self) -> Vec<(Operand, AccessMode)>;
    #[doc(hidden)]
    fn run_data(&self) -> Box<[RunDataType]>;
    #[doc(hidden)]
    fn views(&self, lease: &TaskLease) -> Self::Views;
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for super::ReadAccess<T> {}
    impl<T> Sealed for super::WriteAccess<T> {}
    impl<T> Sealed for super::RunDataAccess<T> {}
}

fn present<T, const N: usize>(all: [Option<T>; N]) -> impl Iterator<Item = T> {
    all.into_iter().flatten()
}

macro_rules! accesses {
    ($($name:ident)*) => {
        impl<$($name: HostAccess),*> sealed::Sealed for ($($name,)*) {}

        #[allow(non_snake_case, unused_variables, clippy::unused_unit)]
        impl<$($name: HostAccess),*> HostAccesses for ($($name,)*) {
            type Views = ($($name::View,)*);

            fn declared(&self) -> Vec<(Operand, AccessMode)> {
                let ($($name,)*) = self;
                Vec::from_iter(present([$($name.declared()),*]))
            }

            fn run_data(&self) -> Box<[RunDataType]> {
                let ($($name,)*) = self;
                Box::from_iter(present([$($name.run_data()),*]))
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

/// Closure of a host task. It is cloned for every run, which may be on any thread.
#[diagnostic::on_unimplemented(
    message = "this closure cannot be a host task, which runs in every submission and on any thread",
    label = "it captures something that is not `Clone + Send + Sync + 'static`",
    note = "`async move` and an `Arc` around such a value make it so: `Arc<T>` to share it, \
            `Arc<Mutex<Option<T>>>` to take it out in one of the runs"
)]
pub trait TaskClosure: Clone + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<F: Clone + Send + Sync + 'static> TaskClosure for F {}

/// The result of a host task: `()`, or a `Result` whose error becomes the submission's.
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

impl HostTask {
    /// A task whose closure returns a future. It is cloned for every run, so that each future owns
    /// what it captures.
    pub(crate) fn new<A, F, R>(accesses: A, closure: F) -> Self
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + TaskClosure,
        R: Future + Send + 'static,
        R::Output: TaskOutput,
    {
        let closure = Arc::new(closure);
        Self::of_kind(HostTaskKind::Async, accesses.run_data(), move |lease| {
            let views = accesses.views(lease);
            let closure = closure.clone();
            Box::pin(async move {
                let future = catch_panic(|| F::clone(&closure)(views));
                // The last reference, where an update has replaced the closure.
                let dropped = catch_drop(|| drop(closure));
                let output = CatchPanics::new(future?).await?;
                outcome(catch_panic(|| output.into_result())).and(dropped)
            })
        })
    }

    /// A task whose closure blocks or computes: it runs on tokio's blocking pool.
    pub(crate) fn blocking<A, F, R>(accesses: A, closure: F) -> Self
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + TaskClosure,
        R: TaskOutput,
    {
        let closure = Arc::new(closure);
        Self::of_kind(HostTaskKind::Blocking, accesses.run_data(), move |lease| {
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
        })
    }
}

fn outcome(task: Result<Result<(), BoxError>>) -> Result<()> {
    task?.map_err(|error| {
        Error::new(ErrorKind::HostTaskFailed, "the closure returned an error").caused_by(error)
    })
}

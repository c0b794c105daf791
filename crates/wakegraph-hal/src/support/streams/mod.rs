//! The common part of drivers with streams and events, as CUDA's and HIP's: everything but the calls.
//!
//! A backend implements the traits for its context and its device. Each file uses only files before it in
//! this list.
//!
//! | file | what it has |
//! |---|---|
//! | this one | a device's context, made current for calls; calls of a driver that did not succeed; the modes that keep this thread's calls and other threads' captures apart |
//! | `stream` | streams and events of the driver, streams lent to closures, times on the host's clock |
//! | `memory_stream` | the stream on which memory is allocated and cleared, and the order of the others behind it |
//! | `pool` | the streams of a device, which queues borrow |
//! | `signal` | one enqueue, and the contract's event; the backend's device as queues and events need it |
//! | `memory` | memory |
//! | `device` | the contract's device and queues: launches, commands, batches, stream tasks; events and streams of other libraries |

mod device;
mod memory;
mod memory_stream;
mod pool;
mod signal;
mod stream;

use std::cell::Cell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

pub use device::{GpuBackend, GpuDevice, LaunchDevice, StreamQueue, prepare_launch};
pub use memory::{
    MemoryDevice, PinnedMemories, PinnedMemory, StreamAllocation, StreamMemory, retry_with_room,
};
pub use memory_stream::MemoryStream;
pub use pool::{BorrowedStream, MOST_STREAMS, StreamTurn};
pub use signal::{CountedEnd, DeviceParts, Kept, Started, StoppableLoops, StreamDevice, stream_capabilities};
pub use stream::{
    CaptureContext, DeviceClock, DriverStream, ImportStreams, RawEvent, StreamContext, capture,
};

use crate::support::errors::DeviceHealth;
use crate::support::library::{ObjectKind, Owned};
use crate::{Error, Result};

/// The context of a device. Every object of the device keeps it alive.
pub trait DriverContext: Debug + Send + Sync + Sized + 'static {
    /// The driver's functions.
    type Driver: CaptureModes + Debug + Sync;
    /// While this lives, the context is current on this thread, and the thread is [`CaptureRelaxed`].
    type Entered<'a>: Debug
    where
        Self: 'a;

    /// The driver's functions.
    fn driver(&self) -> &'static Self::Driver;

    /// The device's health.
    fn health(&self) -> &DeviceHealth;

    /// Makes the context current on this thread, as [`bind`](Self::bind) does unless it is bound.
    fn enter(&self) -> Result<Self::Entered<'_>, ContextFailure<Self>>;

    /// Makes the context current on this thread, as long as what is returned lives.
    fn bind(&self) -> Result<BoundContext<'_, Self>, ContextFailure<Self>> {
        BoundContext::bind(self)
    }

    /// Makes the context current in the place of the one that is current now.
    fn make_current(&self) -> Result<(), ContextFailure<Self>>;

    /// Prepares the thread for calls that need no context.
    fn relaxed(&self) -> Result<CaptureRelaxed<'_, Self::Driver>, ContextFailure<Self>> {
        CaptureRelaxed::enter(self.driver())
    }

    /// Names the device in an error, and remembers the first one that says that it is lost.
    fn error(&self, error: impl Into<Error>) -> Error {
        self.health().error(error)
    }

    /// Binds the context and calls `work`. An error names the device, as [`error`](Self::error)
    /// does.
    fn run<T, E: Into<Error>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T> {
        let _bound = self.bind().map_err(|failure| self.error(failure))?;
        work().map_err(|error| self.error(error))
    }

    /// Destroys an object in its `drop`, with the context bound.
    fn destroy(&self, destroy: impl FnOnce() -> Result<(), ContextFailure<Self>>) {
        self.report(self.bind().and_then(|_bound| destroy()));
    }

    /// Reports a failure in a `drop`, which has no caller to return it to. On a lost device all
    /// calls fail.
    fn report(&self, outcome: Result<(), ContextFailure<Self>>) {
        if let Err(failure) = outcome
            && self.health().lost().is_none()
            && !failure.is_unloaded()
        {
            let error = self.error(failure);
            tracing::warn!(target: "wakegraph", %error, "a driver object could not be destroyed");
        }
    }
}

thread_local! {
    /// The address of the context that a [`BoundContext`] of this thread keeps current; 0 for none.
    static BOUND: Cell<usize> = const { Cell::new(0) };
}

/// While this lives, the context is current on this thread, and the thread is [`CaptureRelaxed`].
///
/// Binding the context again inside costs no call of the driver.
#[must_use = "the context is current only as long as this lives"]
#[derive(Debug)]
pub struct BoundContext<'a, C: DriverContext + 'a> {
    /// The value of [`BOUND`] before, unless the context was bound.
    before: Option<usize>,
    _entered: Option<C::Entered<'a>>,
    /// The context is current on this thread, so this value stays on it.
    thread: PhantomData<*const ()>,
}

impl<'a, C: DriverContext> BoundContext<'a, C> {
    fn bind(context: &'a C) -> Result<Self, ContextFailure<C>> {
        let address = ptr::from_ref(context).addr();
        if BOUND.get() == address {
            return Ok(Self { before: None, _entered: None, thread: PhantomData });
        }
        let entered = context.enter()?;
        Ok(Self { before: Some(BOUND.replace(address)), _entered: Some(entered), thread: PhantomData })
    }
}

impl<C: DriverContext> Drop for BoundContext<'_, C> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            BOUND.set(before);
        }
    }
}

/// Calls a closure of the user's. It may make another context current, so what it binds of ours is bound
/// anew.
pub fn call_user<T>(closure: impl FnOnce() -> T) -> T {
    /// Sets [`BOUND`] when it is dropped.
    struct Before(usize);

    impl Drop for Before {
        fn drop(&mut self) {
            BOUND.set(self.0);
        }
    }

    let _before = Before(BOUND.replace(0));
    closure()
}

/// A call for the objects of a context that did not succeed.
pub type ContextFailure<C> = CallFailure<Codes<C>>;

type Codes<C> = <<C as DriverContext>::Driver as CaptureModes>::Codes;

/// Objects of a context.
impl<K: ObjectKind<Handle = *mut K, Owner = Arc<C>>, C: DriverContext> Owned<K> {
    /// The object that `make` creates and writes to a place, with the context bound.
    pub fn create_by(
        context: &Arc<C>,
        make: impl FnOnce(&C::Driver, *mut *mut K) -> Result<(), ContextFailure<C>>,
    ) -> Result<Self, ContextFailure<C>> {
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        make(context.driver(), &raw mut raw)?;
        Ok(Self::of_context(context, raw))
    }

    /// Takes over an object that the driver has made, if it has.
    pub fn adopt(context: &Arc<C>, raw: *mut K) -> Option<Self> {
        (!raw.is_null()).then(|| Self::of_context(context, raw))
    }

    #[expect(unsafe_code, reason = "takes over an object")]
    fn of_context(context: &Arc<C>, raw: *mut K) -> Self {
        // SAFETY: the caller says that the driver has just made the object for it.
        unsafe { Self::new(Arc::clone(context), raw) }
    }

    /// The context that the object belongs to.
    pub fn context(&self) -> &Arc<C> {
        self.owner()
    }

    /// The driver's functions.
    pub fn driver(&self) -> &'static C::Driver {
        self.owner().driver()
    }
}

/// The codes that the functions of a library return.
pub trait DriverCodes: Copy + Eq + Debug + Send + Sync + 'static {
    /// The code of a call that has succeeded.
    const SUCCESS: u32;
    /// A query has found that the work is not done.
    const NOT_READY: u32;
    /// The driver has been unloaded, which is before the last of a process's threads end.
    const UNLOADED: u32;

    /// The error that a failure stands for.
    fn error(failure: CallFailure<Self>) -> Error;
}

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallFailure<L> {
    /// The function.
    pub call: &'static str,
    /// The code that it returned.
    pub code: u32,
    library: PhantomData<L>,
}

impl<L: DriverCodes> CallFailure<L> {
    /// The failure of a call.
    pub fn new(call: &'static str, code: u32) -> Self {
        Self { call, code, library: PhantomData }
    }

    /// The outcome of a call that returned this code.
    pub fn check(call: &'static str, code: u32) -> Result<(), Self> {
        if code == L::SUCCESS { Ok(()) } else { Err(Self::new(call, code)) }
    }

    /// Whether the driver has been unloaded, as the process exits.
    pub fn is_unloaded(self) -> bool {
        self.code == L::UNLOADED
    }

    /// Whether a query that returned this code has found that the work is done.
    pub fn check_ready(call: &'static str, code: u32) -> Result<bool, Self> {
        match code {
            code if code == L::SUCCESS => Ok(true),
            code if code == L::NOT_READY => Ok(false),
            code => Err(Self::new(call, code)),
        }
    }
}

impl<L: DriverCodes> From<CallFailure<L>> for Error {
    fn from(failure: CallFailure<L>) -> Self {
        L::error(failure)
    }
}

/// A driver whose threads have a capture mode: how the calls of a thread and the captures of other threads
/// affect each other.
pub trait CaptureModes {
    /// The driver's codes.
    type Codes: DriverCodes;
    /// Mode in which they do not affect each other.
    const RELAXED: u32;

    /// Sets this thread's mode, and writes the mode until now to its place.
    fn exchange_mode(&self, mode: &mut u32) -> Result<(), CallFailure<Self::Codes>>;
}

/// While this lives, calls of this thread and stream captures of other threads do not disturb each
/// other.
///
/// While any thread captures a stream in the default mode, as PyTorch does, the driver otherwise
/// refuses queries, allocations and instantiations on all threads, even for streams that have
/// nothing to do with the capture, and invalidates that capture.
#[must_use = "the thread's mode is relaxed only as long as this lives"]
#[derive(Debug)]
pub struct CaptureRelaxed<'a, D: CaptureModes> {
    driver: &'a D,
    /// The mode to restore.
    before: u32,
    /// The mode belongs to the thread, so this value stays on it.
    thread: PhantomData<*const ()>,
}

impl<'a, D: CaptureModes> CaptureRelaxed<'a, D> {
    /// Changes the thread's mode until the value is dropped.
    pub fn enter(driver: &'a D) -> Result<Self, CallFailure<D::Codes>> {
        let mut before = D::RELAXED;
        driver.exchange_mode(&mut before)?;
        Ok(Self { driver, before, thread: PhantomData })
    }
}

impl<D: CaptureModes> Drop for CaptureRelaxed<'_, D> {
    fn drop(&mut self) {
        if self.before != D::RELAXED
            && let Err(failure) = self.driver.exchange_mode(&mut self.before)
        {
            let error = Error::from(failure);
            tracing::warn!(target: "wakegraph", %error, "a thread's capture mode could not be restored");
        }
    }
}

//! A device's context: made current for each call, and remembered as lost once a fault has ended it.

use std::fmt::Debug;
use std::ptr;
use std::sync::Arc;

use super::call_failure::CallFailure;
use super::capture_mode::{CaptureModes, CaptureRelaxed};
use crate::support::health::DeviceHealth;
use crate::support::object::{ObjectKind, Owned};
use crate::{Error, Result};

/// The context of a device. Every object of the device keeps it alive.
pub trait DriverContext: Debug + Send + Sync + Sized + 'static {
    /// The driver's functions.
    type Driver: CaptureModes + Debug + Sync;
    /// While this lives, the context is current on this thread, and the thread is [`CaptureRelaxed`].
    type Bound<'a>
    where
        Self: 'a;

    /// The driver's functions.
    fn driver(&self) -> &'static Self::Driver;

    /// The device's health.
    fn health(&self) -> &DeviceHealth;

    /// Makes the context current on this thread.
    fn bind(&self) -> Result<Self::Bound<'_>, ContextFailure<Self>>;

    /// Makes the context current in the place of the one that is current now.
    fn make_current(&self) -> Result<(), ContextFailure<Self>>;

    /// For calls that need no context.
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

//! Access to host buffers outside graphs, in the order of the submissions.

use std::future::{Future, pending};
use std::panic::Location;

use bytemuck::Pod;

use crate::runtime::completion::turn::take_turn;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::host_guard::{HostMut, HostRef, Lease};
use crate::runtime::execution::run::FenceHolder;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::types::{AccessMode, Result};

impl<T: Pod> HostBuffer<T> {
    /// Reads: waits until no submission and no other guard writes the elements, then holds later
    /// writers off until the guard is dropped.
    ///
    /// Do not await a submission that writes the buffer while holding the guard: it waits for the guard.
    /// Its [progress](crate::Submission::progress) says so, and a [deadline](crate::SubmitBuilder::deadline)
    /// ends the wait.
    ///
    /// Where the driver of a lost device does not say whether its work is over, such work may still use the
    /// elements. Then this never resolves, and an error in the log says so; [`try_read`](Self::try_read) and
    /// [`try_write`](Self::try_write) fail.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = HostRef<T>> {
        let location = Location::caller();
        async move { HostRef::new(self.view(), self.acquire(AccessMode::Read, location).await) }
    }

    /// Writes: waits until no submission and no other guard uses the elements, then holds later
    /// users off until the guard is dropped.
    ///
    /// Do not await a submission that uses the buffer while holding the guard: it waits for the guard.
    /// Its [progress](crate::Submission::progress) says so, and a [deadline](crate::SubmitBuilder::deadline)
    /// ends the wait.
    ///
    /// Where the driver of a lost device does not say whether its work is over, such work may still use the
    /// elements. Then this never resolves, and an error in the log says so; [`try_read`](Self::try_read) and
    /// [`try_write`](Self::try_write) fail.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = HostMut<T>> {
        let location = Location::caller();
        async move { HostMut::new(self.view(), self.acquire(AccessMode::ReadWrite, location).await) }
    }

    /// Reads without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while a submission or a guard may write
    /// the elements; [`DeviceLost`](crate::ErrorKind::DeviceLost) if a lost device may still do so.
    #[track_caller]
    pub fn try_read(&self) -> Result<HostRef<T>> {
        Ok(HostRef::new(self.view(), self.try_acquire(AccessMode::Read)?))
    }

    /// Writes without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while a submission or a guard may use the
    /// elements; [`DeviceLost`](crate::ErrorKind::DeviceLost) if a lost device may still do so.
    #[track_caller]
    pub fn try_write(&self) -> Result<HostMut<T>> {
        Ok(HostMut::new(self.view(), self.try_acquire(AccessMode::ReadWrite)?))
    }

    fn holder(&self, location: &'static Location<'static>) -> FenceHolder {
        FenceHolder::of(self.view(), "a guard of the host buffer", Some(location))
    }

    async fn acquire(&self, mode: AccessMode, location: &'static Location<'static>) -> Lease {
        let mut guard = conflicts::acquire(self.view(), mode, self.holder(location));
        if let Err(error) = guard.turn().await {
            tracing::error!(
                target: "wakegraph",
                %error,
                "a guard is never granted: a lost device may still use the host buffer"
            );
            pending::<()>().await;
        }
        take_turn().await;
        Lease::Fence { _guard: guard }
    }

    #[track_caller]
    fn try_acquire(&self, mode: AccessMode) -> Result<Lease> {
        let holder = self.holder(Location::caller());
        Ok(Lease::Fence { _guard: conflicts::try_acquire(self.view(), mode, holder)? })
    }
}

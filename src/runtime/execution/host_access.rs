//! Access to host buffers outside graphs, in the order of the submissions.

use std::future::pending;

use bytemuck::Pod;

use crate::runtime::completion::turn::take_turn;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::host_guard::{HostMut, HostRef, Lease};
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::types::{AccessMode, Result};

impl<T: Pod> HostBuffer<T> {
    /// Reads: waits until no submission and no other guard writes the elements, then holds later
    /// writers off until the guard is dropped.
    ///
    /// Do not await a submission that writes the buffer while holding the guard: it waits for the guard.
    ///
    /// Where the driver of a lost device does not say whether its work is over, such work may still use the
    /// elements. Then this never resolves, and an error in the log says so; [`try_read`](Self::try_read) and
    /// [`try_write`](Self::try_write) fail.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    pub async fn read(&self) -> HostRef<T> {
        let lease = self.acquire(AccessMode::Read).await;
        HostRef::new(self.view(), lease)
    }

    /// Writes: waits until no submission and no other guard uses the elements, then holds later
    /// users off until the guard is dropped.
    ///
    /// Do not await a submission that uses the buffer while holding the guard: it waits for the guard.
    ///
    /// Where the driver of a lost device does not say whether its work is over, such work may still use the
    /// elements. Then this never resolves, and an error in the log says so; [`try_read`](Self::try_read) and
    /// [`try_write`](Self::try_write) fail.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    pub async fn write(&self) -> HostMut<T> {
        let lease = self.acquire(AccessMode::ReadWrite).await;
        HostMut::new(self.view(), lease)
    }

    /// Reads without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while a submission or a guard may write
    /// the elements; [`DeviceLost`](crate::ErrorKind::DeviceLost) if a lost device may still do so.
    pub fn try_read(&self) -> Result<HostRef<T>> {
        Ok(HostRef::new(self.view(), self.try_acquire(AccessMode::Read)?))
    }

    /// Writes without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while a submission or a guard may use the
    /// elements; [`DeviceLost`](crate::ErrorKind::DeviceLost) if a lost device may still do so.
    pub fn try_write(&self) -> Result<HostMut<T>> {
        Ok(HostMut::new(self.view(), self.try_acquire(AccessMode::ReadWrite)?))
    }

    async fn acquire(&self, mode: AccessMode) -> Lease {
        let mut guard = conflicts::acquire(self.view(), mode);
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

    fn try_acquire(&self, mode: AccessMode) -> Result<Lease> {
        Ok(Lease::Fence { _guard: conflicts::try_acquire(self.view(), mode)? })
    }
}

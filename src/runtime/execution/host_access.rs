//! Access to host buffers outside graphs, in the order of the submissions.

use bytemuck::Pod;

use crate::runtime::completion::turn::take_turn;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::host_guard::{HostMut, HostRef, Lease};
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::types::{AccessMode, Error, ErrorKind, Result};

impl<T: Pod> HostBuffer<T> {
    /// Reads: waits until no submission and no other guard writes the elements, then holds later
    /// writers off until the guard is dropped.
    ///
    /// Do not await a submission that writes the buffer while holding the guard: it waits for the guard.
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
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    pub async fn write(&self) -> HostMut<T> {
        let lease = self.acquire(AccessMode::ReadWrite).await;
        HostMut::new(self.view(), lease)
    }

    /// Reads without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) while a submission or a guard may write
    /// the elements.
    pub fn try_read(&self) -> Result<HostRef<T>> {
        Ok(HostRef::new(self.view(), self.try_acquire(AccessMode::Read)?))
    }

    /// Writes without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) while a submission or a guard may use the elements.
    pub fn try_write(&self) -> Result<HostMut<T>> {
        Ok(HostMut::new(self.view(), self.try_acquire(AccessMode::ReadWrite)?))
    }

    async fn acquire(&self, mode: AccessMode) -> Lease {
        let (guard, predecessors) = conflicts::acquire(self.view(), mode);
        for predecessor in predecessors {
            predecessor.finished().await;
        }
        take_turn().await;
        Lease::Fence { _guard: guard }
    }

    fn try_acquire(&self, mode: AccessMode) -> Result<Lease> {
        let guard = conflicts::try_acquire(self.view(), mode).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, "the host buffer is in use by a submission or a guard")
                .help("await `read()` or `write()` instead, or await the submission first")
        })?;
        Ok(Lease::Fence { _guard: guard })
    }
}

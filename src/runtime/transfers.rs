//! Copies between host and device outside a user's graph: each builds a graph of one node.

use bytemuck::Pod;

use crate::runtime::builder::Graph;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::types::Result;

impl<T: Pod> Buffer<T> {
    /// Copies the elements to the host, after everything submitted so far that writes them.
    ///
    /// Made for tests and first steps: it builds a graph of one copy. A service keeps a
    /// [`HostBuffer`] and copies to it inside its graph.
    ///
    /// # Errors
    /// Those of allocating the host memory and of the submission.
    ///
    /// # Cancel safety
    /// Dropping the future detaches the copy.
    pub async fn to_vec(&self) -> Result<Vec<T>> {
        let staging = HostBuffer::allocate(self.device(), self.len())?;
        let mut graph = Graph::new(self.device());
        graph.copy(self, &staging).name("Buffer::to_vec");
        graph.finalize()?.submit().await?;
        Ok(staging.read().await.to_vec())
    }

    /// Copies `elements` from the host to the start of the buffer, after everything submitted so
    /// far that uses them.
    ///
    /// Made for tests and first steps, as [`to_vec`](Self::to_vec).
    ///
    /// # Errors
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when they do not fit or are none; those of
    /// the submission.
    ///
    /// # Cancel safety
    /// Dropping the future detaches the copy.
    pub async fn write(&self, elements: &[T]) -> Result<()> {
        let target = self.slice(..elements.len())?;
        let mut graph = Graph::new(self.device());
        graph.write(&target, elements).name("Buffer::write");
        graph.finalize()?.submit().await
    }
}

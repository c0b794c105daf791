//! Memory that belongs to a graph.

use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal::Result;

use crate::runtime::builder::Graph;
use crate::runtime::builder::memory_command::MemoryCommand;
use crate::runtime::resource::allocation::{Allocation, byte_len};
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::scratch::{ScratchArena, ScratchMemory};

impl Graph {
    /// A buffer for `len` elements that belongs to this graph: for what its nodes hand on to each other.
    ///
    /// It has memory only while an executable of the graph runs, and scratch buffers that are not
    /// needed at a time share it: where all uses of one come before all uses of the other, by the
    /// graph's edges. Each executable has memory of its own, allocated at
    /// [`finalize`](Self::finalize), or [shares](Self::share_scratch) it;
    /// [`ExecutableGraph::graph_memory`](crate::ExecutableGraph::graph_memory) tells how much.
    ///
    /// **Its contents are undefined at the start of every run**: some bytes that earlier commands
    /// have left there.
    ///
    /// ```
    /// # use wakegraph::{Device, Graph};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let (input, output) = (device.buffer_from(&[1u32; 1000])?, device.buffer::<u32>(1000)?);
    /// let mut graph = Graph::new(&device);
    /// let [first, second, third] = [graph.scratch(1000)?, graph.scratch(1000)?, graph.scratch(1000)?];
    /// graph.copy(&input, &first);
    /// graph.copy(&first, &second);
    /// graph.copy(&second, &third); // the memory of `first`, which no node needs any more
    /// graph.copy(&third, &output);
    /// let exec = graph.finalize()?;
    /// assert_eq!(exec.graph_memory()[0].bytes, 2 * 4096);
    /// exec.submit().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) for elements of 0 bytes. At finalize:
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where the buffer is used in another graph.
    pub fn scratch<T: Pod>(&mut self, len: usize) -> Result<Buffer<T>> {
        let device = self.device.clone();
        self.scratch_on(&device, len)
    }

    /// Makes a buffer as [`scratch`](Self::scratch) does, on a device of the caller's choice.
    ///
    /// # Errors
    /// As [`scratch`](Self::scratch).
    pub fn scratch_on<T: Pod>(&mut self, device: &Device, len: usize) -> Result<Buffer<T>> {
        let bytes = byte_len::<T>(len)?;
        self.has_scratch = true;
        let owner = self.scratch_owner.get_or_insert_default();
        let memory = Arc::new(ScratchMemory::new(device.info().id, bytes, owner));
        Ok(Buffer::whole(Allocation::of(device, memory)))
    }

    /// Makes a buffer as [`scratch`](Self::scratch) does, with a node that fills the buffer with zeros: nodes
    /// added from now on find it zeroed in every run.
    ///
    /// # Errors
    /// As [`scratch`](Self::scratch).
    #[track_caller]
    pub fn scratch_zeroed<T: Pod>(&mut self, len: usize) -> Result<Buffer<T>> {
        let buffer = self.scratch(len)?;
        self.memory_command(MemoryCommand::zero(&buffer)).name("zero");
        Ok(buffer)
    }

    /// Has executables finalized from now on keep their scratch buffers in an arena that others use,
    /// too: together they need the memory of the largest, and their runs come one after the other.
    /// See [`ScratchArena`].
    ///
    /// For a sub-graph, the arena of the graph around it counts. The bodies of conditionals and loops
    /// that the runtime runs have scratch memory of their own, and so have buffers of devices whose
    /// [capabilities](crate::capabilities::Capabilities::concurrent_parts) do not let commands use parts
    /// of one allocation at once. An executable keeps its arena, whatever graph it is [updated
    /// from](crate::ExecutableGraph::update_from).
    ///
    /// # Deadlock
    /// A host task that awaits a run of another executable with the same arena waits for ever, as
    /// with a run of its own executable.
    pub fn share_scratch(&mut self, arena: &ScratchArena) {
        self.arena = Some(arena.clone());
    }
}

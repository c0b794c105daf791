//! Copies, fills and hints.

use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal::{Advice, CommandKind, Error, ErrorKind};

use crate::runtime::builder::Graph;
use crate::runtime::builder::command::{Command, accesses};
use crate::runtime::builder::memory_command::{MemoryCommand, StagedCopy, Transfer};
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::memory_arg::{CopySource, MemoryArg};
use crate::runtime::resource::rect::RectCopy;
use crate::runtime::resource::scratch;

impl Graph {
    /// Adds a copy of all of `src` to all of `dst`, which has the same length: between buffers, or
    /// from or to a [`HostBuffer`] (a buffer write or read). Between devices without a direct path
    /// it goes through the host.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](crate::ErrorKind::InvalidSize) when the lengths differ;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the two overlap, or are both on the host.
    #[track_caller]
    pub fn copy<T: Pod>(&mut self, src: impl CopySource<T>, dst: impl MemoryArg<T>) -> NodeBuilder<'_> {
        self.transfer(Transfer::copy(src, dst))
    }

    /// Adds a rectangular copy; see [`RectCopy`]. Operands as for [`copy`](Self::copy), without the
    /// condition on lengths.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](crate::ErrorKind::InvalidSize) when a rectangle is empty, overlaps
    /// itself or is not inside its buffer; those of [`copy`](Self::copy).
    #[track_caller]
    pub fn copy_rect<T: Pod>(
        &mut self,
        src: impl CopySource<T>,
        dst: impl MemoryArg<T>,
        copy: RectCopy,
    ) -> NodeBuilder<'_> {
        self.transfer(Transfer::rect(src, dst, copy))
    }

    /// Adds a write of `elements`, which the graph keeps a copy of, to all of `dst`.
    ///
    /// # Errors
    /// At finalize: those of [`copy`](Self::copy), and [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn write<T: Pod>(&mut self, dst: &Buffer<T>, elements: &[T]) -> NodeBuilder<'_> {
        if elements.is_empty() {
            let error = Error::new(ErrorKind::InvalidSize, "there are no elements to write");
            return self.refuse(CommandKind::BufferWrite, error.help("leave out the node"));
        }
        match dst.device().host_buffer_from(elements) {
            Ok(staging) => self.copy(&staging, dst),
            Err(error) => self.refuse(CommandKind::BufferWrite, error),
        }
    }

    /// Adds a fill of all of `dst` with `value`.
    #[track_caller]
    pub fn fill<T: Pod>(&mut self, dst: &Buffer<T>, value: T) -> NodeBuilder<'_> {
        self.fill_pattern(dst, &[value])
    }

    /// Adds a fill of all of `dst` with a pattern of any number of elements, repeated.
    ///
    /// # Errors
    /// At finalize: [`InvalidSize`](crate::ErrorKind::InvalidSize) when the pattern is empty or does not
    /// divide the buffer.
    #[track_caller]
    pub fn fill_pattern<T: Pod>(&mut self, dst: &Buffer<T>, pattern: &[T]) -> NodeBuilder<'_> {
        self.memory_command(MemoryCommand::fill(dst, pattern))
    }

    /// Adds a hint that `buffer` will soon be used. A device without use for it keeps the order only.
    #[track_caller]
    pub fn prefetch<T: Pod>(&mut self, buffer: &Buffer<T>) -> NodeBuilder<'_> {
        self.memory_command(MemoryCommand::prefetch(buffer))
    }

    /// Adds a hint on how `buffer` will be used. A device without use for it keeps the order only.
    #[track_caller]
    pub fn advise<T: Pod>(&mut self, buffer: &Buffer<T>, advice: Advice) -> NodeBuilder<'_> {
        self.memory_command(MemoryCommand::advise(buffer, advice))
    }

    #[track_caller]
    pub(super) fn memory_command(&mut self, command: MemoryCommand) -> NodeBuilder<'_> {
        let device = command.preferred_device().cloned();
        let MemoryCommand { kind, command, uses } = command;
        let owned = scratch::check_owner(uses.iter().map(|(view, _)| view), self.scratch_owner.as_ref());
        let command = match owned.and(command) {
            Ok(command) => Arc::new(command),
            Err(error) => return self.refuse(kind, error),
        };
        let accesses = accesses(&uses);
        let mut views = uses.into_iter().map(|(view, _)| view);
        let uses = [views.next(), views.next()];
        self.add(kind, device, Ok(accesses), || Command::Memory { command, uses })
    }

    #[track_caller]
    fn transfer(&mut self, transfer: Transfer) -> NodeBuilder<'_> {
        match transfer {
            Transfer::Direct(command) => self.memory_command(command),
            Transfer::Staged(copy) => self.staged(copy),
        }
    }

    /// Between devices that cannot reach each other's memory: a read on the one and a write on the
    /// other, as a sub-graph.
    #[track_caller]
    fn staged(&mut self, copy: StagedCopy) -> NodeBuilder<'_> {
        let (from, to) = (copy.src.allocation.device().clone(), copy.dst.allocation.device().clone());
        let staging = match HostBuffer::<u8>::allocate(&from, copy.src.len) {
            Ok(staging) => staging.view().clone(),
            Err(error) => return self.refuse(CommandKind::BufferCopy, error),
        };
        let mut child = Graph::new(&from);
        child.scratch_owner = self.scratch_owner.clone();
        let [read, write] = copy.halves(&staging);
        child.memory_command(read).on(&from);
        child.memory_command(write).on(&to);
        self.sub_graph(&child).name("staged copy").staged()
    }
}

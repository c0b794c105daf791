//! Stream tasks: the user's own calls in every submission, on a stream that the device lends.
#![expect(unsafe_code, reason = "the closure's work is the user's to vouch for")]

use std::array;
use std::sync::Arc;

use wakegraph_hal::{self as hal, CommandKind, MemoryView, NativeMemory, NativeStream, Result};

use crate::runtime::builder::Graph;
use crate::runtime::builder::native::{NativeAccess, memory_of};
use crate::runtime::builder::node::NodeBuilder;

impl Graph {
    /// Adds a stream task: `closure` runs live in every submission. It gets a stream of the device on which
    /// its work comes after the nodes before it and before those after it, without the host waiting for
    /// either. So it may do what a [native command](Self::native) may not: allocate, load modules, choose
    /// its work again each time, call libraries that refuse to be captured.
    ///
    /// `accesses` declares what the work uses; the closure gets the stream, and these memory ranges in
    /// their order. What the stream is, the [backend](NativeStream::backend) decides:
    ///
    /// | device | the stream is | the closure is called |
    /// |---|---|---|
    /// | `cuda` | a `CUstream`, and its context is current | when the node is enqueued |
    /// | `opencl` | an in-order `cl_command_queue` | when the node is enqueued |
    /// | `host` | null: the closure does the work itself | on a thread of the pool, when its turn comes |
    ///
    /// ```
    /// # #![allow(unsafe_code)]
    /// use wakegraph::interop::NativeAccess;
    /// use wakegraph::{Device, Graph};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let numbers = device.buffer_from(&[3u32, 1, 2])?;
    /// let mut graph = Graph::new(&device);
    /// // SAFETY: the closure uses the buffer as declared, and has done so when it returns.
    /// unsafe {
    ///     graph.stream_task("sort", [NativeAccess::write(&numbers)], |_stream, [numbers]| {
    ///         let address = numbers.address().expect("memory of the host has an address");
    ///         let words = std::ptr::with_exposed_provenance_mut::<u32>(address);
    ///         // SAFETY: these bytes are the buffer's, and nothing else uses them meanwhile.
    ///         let words = unsafe { std::slice::from_raw_parts_mut(words, numbers.len() / 4) };
    ///         words.sort_unstable();
    ///         Ok(())
    ///     })
    /// };
    /// let exec = graph.finalize()?;
    /// exec.submit().await?;
    /// assert_eq!(numbers.to_vec().await?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # When the closure is called
    /// By the thread that enqueues the node: [`submit`](crate::ExecutableGraph::submit) itself
    /// where no host task or future has to be waited for, otherwise a task of the runtime. So it
    /// must not block, nor wait for the device: it would keep the submitting thread, and the order
    /// of what is submitted. For one executable it is never called twice at a time, nor out of
    /// order; it is called for a submission while earlier ones may still run on the device. It is
    /// not called if something before it is known to have failed, or after the submission was
    /// cancelled or its deadline has passed before the node was enqueued.
    ///
    /// The runtime holds no lock meanwhile, so the closure may submit, update and drop executables, its own
    /// too, but must not wait for them. A submission made there of the same executable, or on the same
    /// memory, waits for this one on the host, and needs a tokio runtime.
    ///
    /// An [`update_from`](crate::ExecutableGraph::update_from) replaces the closure for later submissions.
    /// Single updates cannot change or disable a stream task.
    ///
    /// # Errors
    /// At finalize: [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) on a device that has no
    /// stream to lend; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for scratch buffers, for memory
    /// that the device cannot access, and inside the body of a conditional or loop.
    ///
    /// An error of the closure fails the submission, with the kind of that error, and so does a panic, with
    /// [`NativePanicked`](crate::ErrorKind::NativePanicked). Either names the node. What the closure has
    /// enqueued before runs, what depends on the node does not, and the device and the executable stay of
    /// use.
    ///
    /// # Cancel safety
    /// Dropping the submission changes nothing. [Cancelling](crate::Submission::cancel) it does not stop
    /// what a closure has enqueued.
    ///
    /// # Safety
    /// The closure and the work that it enqueues touch nothing but what is declared, in the
    /// declared way, and what stays valid until that work is done, used by nothing else meanwhile.
    /// On devices with a stream, all work is enqueued on the stream that the closure is given, or
    /// on streams that branch off it and join it again before the closure returns. On the host it
    /// is done when the closure returns. The closure keeps neither the stream nor the addresses and
    /// handles, and leaves the stream and the current context as they were: it begins no capture
    /// there that it does not end.
    #[track_caller]
    pub unsafe fn stream_task<const N: usize>(
        &mut self,
        name: impl Into<Arc<str>>,
        accesses: [NativeAccess; N],
        closure: impl Fn(&NativeStream<'_>, [NativeMemory<'_>; N]) -> Result<()> + Send + Sync + 'static,
    ) -> NodeBuilder<'_> {
        let name: Arc<str> = name.into();
        let command = memory_of(CommandKind::StreamTask, &accesses).and_then(|memory| {
            let views: Vec<MemoryView> =
                accesses.iter().map(|access| access.view.to_hal()).collect::<Result<_>>()?;
            let run = move |stream: &NativeStream<'_>| {
                closure(stream, array::from_fn(|index| NativeMemory::new(&views[index])))
            };
            // SAFETY: passed on to the caller.
            Ok(hal::Command::StreamTask(unsafe { hal::NativeCommand::new(name.clone(), memory, run) }))
        });
        self.add_native(CommandKind::StreamTask, &accesses, command).name(&*name)
    }
}

//! Native commands: the user's own work on a device's stream, captured.
#![expect(unsafe_code, reason = "the closure's work is the user's to vouch for")]

use std::sync::Arc;

use bytemuck::Pod;
use wakegraph_hal::{
    self as hal, AccessMode, CommandKind, Error, ErrorKind, MemoryKind, NativeStream, Result, UsmPointer,
};

use crate::runtime::builder::command::Command;
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::builder::{Graph, memory_command};
use crate::runtime::execution::accesses;
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::memory_arg::{MemoryArg, Operand};
use crate::runtime::resource::scratch::{self, ScratchMemory};

/// Accesses of a [native command](Graph::native): an array, whose pointers the closure gets as an array, or a
/// vector, where their number is known at run time.
pub trait NativeAccesses: AsRef<[NativeAccess]> + sealed::Accesses {
    /// The addresses and lengths of the memory, in the order of the accesses.
    type Pointers;

    #[doc(hidden)]
    fn pointers(pointers: Vec<UsmPointer>) -> Result<Self::Pointers>;
}

mod sealed {
    pub trait Accesses {}
}

impl<const N: usize> sealed::Accesses for [NativeAccess; N] {}
impl sealed::Accesses for Vec<NativeAccess> {}

impl<const N: usize> NativeAccesses for [NativeAccess; N] {
    type Pointers = [UsmPointer; N];

    fn pointers(pointers: Vec<UsmPointer>) -> Result<[UsmPointer; N]> {
        pointers.try_into().map_err(|_| Error::new(ErrorKind::Bug, "as many addresses as buffers"))
    }
}

impl NativeAccesses for Vec<NativeAccess> {
    type Pointers = Vec<UsmPointer>;

    fn pointers(pointers: Vec<UsmPointer>) -> Result<Vec<UsmPointer>> {
        Ok(pointers)
    }
}

/// Access of a [native command](Graph::native) or a [stream task](Graph::stream_task) to a buffer.
#[derive(Clone, Debug)]
pub struct NativeAccess {
    pub(super) view: View,
    mode: AccessMode,
}

impl NativeAccess {
    /// Declares that the command reads the buffer.
    pub fn read<T: Pod>(memory: impl MemoryArg<T>) -> Self {
        let Operand(view) = memory.operand();
        Self { view, mode: AccessMode::Read }
    }

    /// Declares that the command writes the buffer, and may read it.
    pub fn write<T: Pod>(memory: impl MemoryArg<T>) -> Self {
        let Operand(view) = memory.operand();
        Self { view, mode: AccessMode::ReadWrite }
    }
}

impl Graph {
    /// Adds a native command: work that `closure` enqueues on the device's own stream, with the
    /// vendor's calls or a library that makes them (cuBLAS, cuDNN), and that from then on is
    /// part of the graph.
    ///
    /// `accesses` declares what the work uses; the closure gets the stream, and the address and
    /// length of each of these, in their order. It is called once for each finalize or
    /// [`update_from`](crate::ExecutableGraph::update_from) of the graph, on the calling thread,
    /// while the stream records what is enqueued instead of running it. An error or a panic of the
    /// closure is theirs. If a device refuses an `update_from` half-way, the closures of the graph
    /// that the executable had before are called once more, on the thread that restores it. A
    /// closure may ask for submissions and updates of executables, its own too, but must not wait
    /// for them.
    ///
    /// On CUDA the work may allocate and free memory in the order of the stream (`cuMemAllocAsync`), as
    /// frameworks do. Such a command is launched on its own between the commands before and after it, and
    /// cannot be inside a conditional, switch or loop that the device decides about. Memory that the
    /// closure allocates and does not free has the same address in every run, and holds its contents until
    /// the next run allocates it again. It is allocated from the first run on; its owner frees it after the
    /// executable has been dropped.
    ///
    /// Level Zero cannot run a list twice at once. There the closure is also called when a submission
    /// finds all lists of its executable in flight, or an update finds the last one so, and must not
    /// submit or update its own executable then.
    ///
    /// ```no_run
    /// use wakegraph::interop::NativeAccess;
    /// use wakegraph::{Device, Error, ErrorKind, Graph};
    /// # unsafe fn my_library_sort(numbers: usize, count: usize, stream: *mut std::ffi::c_void) -> i32 { 0 }
    ///
    /// # fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("cuda:0")?;
    /// let numbers = device.buffer::<u32>(1000)?;
    /// let mut graph = Graph::new(&device);
    /// // SAFETY: the library sorts on the stream, in place.
    /// unsafe {
    ///     graph.native("sort", [NativeAccess::write(&numbers)], |stream, [numbers]| {
    ///         // SAFETY: so many bytes of device memory, and a stream that is captured.
    ///         match unsafe { my_library_sort(numbers.address(), numbers.len() / 4, stream.stream()) } {
    ///             0 => Ok(()),
    ///             code => Err(Error::new(ErrorKind::Driver, format!("the sort failed with {code}"))),
    ///         }
    ///     })
    /// };
    /// # graph.finalize().map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// At finalize: [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) on a device that has no
    /// stream to lend ([`CommandKinds::NATIVE`](crate::capabilities::CommandKinds::NATIVE)), and for work
    /// that allocates where it cannot; the closure's own; [`NativePanicked`](ErrorKind::NativePanicked);
    /// [`Driver`](ErrorKind::Driver) for work that cannot be captured, such as a call that waits: a
    /// [`stream_task`](Self::stream_task) takes it. `Driver` is also the kind for a closure that has ended
    /// the capture, and for a stream that has branched off and does not join. The device stays usable.
    /// Another capture of the thread stays valid, unless the closure waits for the whole context or orders
    /// its stream behind that capture's.
    ///
    /// # Safety
    /// The work touches nothing but what is declared, in the declared way, and what stays valid for
    /// as long as the executable may run, used by nothing else meanwhile. All of it is enqueued on
    /// the stream that the closure is given, or on streams that branch off it and join it again
    /// before the closure returns. The closure keeps neither the stream nor the addresses, makes no
    /// call that waits for the device, and leaves the stream and the current context as they were.
    #[track_caller]
    pub unsafe fn native<A: NativeAccesses>(
        &mut self,
        name: impl Into<Arc<str>>,
        accesses: A,
        closure: impl Fn(&NativeStream<'_>, A::Pointers) -> Result<()> + Send + Sync + 'static,
    ) -> NodeBuilder<'_> {
        let name: Arc<str> = name.into();
        let accesses = accesses.as_ref();
        let views: Vec<View> = accesses.iter().map(|access| access.view.clone()).collect();
        let command = memory_of(CommandKind::Native, accesses).map(|memory| {
            let pointers = move || views.iter().map(memory_command::usm).collect::<Result<_>>();
            let run = move |stream: &NativeStream<'_>| closure(stream, A::pointers(pointers()?)?);
            // SAFETY: passed on to the caller.
            hal::Command::Native(unsafe { hal::NativeCommand::new(name.clone(), memory, run) })
        });
        self.add_native(CommandKind::Native, accesses, command).name(&*name)
    }

    /// Adds a native command or a stream task.
    #[track_caller]
    pub(super) fn add_native(
        &mut self,
        kind: CommandKind,
        accesses: &[NativeAccess],
        command: Result<hal::Command>,
    ) -> NodeBuilder<'_> {
        let declared = accesses.iter().map(|access| access.view.access(access.mode));
        let declared = accesses::merged_by_allocation(declared.collect());
        let uses: Arc<[View]> = accesses.iter().map(|access| access.view.clone()).collect();
        let device = device_of(accesses).cloned();
        match command {
            Err(error) => self.refuse(kind, error),
            Ok(command) => {
                let command = Arc::new(command);
                self.add(kind, device, Ok(declared), || Command::Native { command, uses })
            }
        }
    }
}

/// The device of the memory.
fn device_of(accesses: &[NativeAccess]) -> Option<&Device> {
    let mut views = accesses.iter().map(|access| &access.view);
    let first = views.clone().next();
    let device = views.find(|view| view.kind() == MemoryKind::Device).or(first);
    device.map(|view| view.allocation.device())
}

/// Returns the memory that the device must be able to access. For memory known by its address, the
/// device sees only the address.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for scratch buffers, and for writes to memory that is only
/// read.
pub(super) fn memory_of(kind: CommandKind, accesses: &[NativeAccess]) -> Result<Vec<hal::MemoryView>> {
    let views = accesses.iter().map(|access| &access.view);
    if views.clone().any(|view| ScratchMemory::of(&view.allocation).is_some()) {
        return Err(scratch::refused(&format!("a {kind}")));
    }
    accesses.iter().try_for_each(|access| access.view.check_mode(access.mode))?;
    views.filter(|view| !view.is_raw()).map(View::to_hal).collect()
}

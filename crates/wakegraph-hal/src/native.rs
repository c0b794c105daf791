//! Native commands and stream tasks: the user's own work on the backend's stream.

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::util::panics::catch;
use crate::{CommandKind, Error, ErrorKind, MemoryView, Result, UsmPointer};

/// The closure of a native command: it enqueues its work on the stream, in the vendor's own calls.
pub type NativeFn = dyn Fn(&NativeStream<'_>) -> Result<()> + Send + Sync;

/// A stream, or whatever the backend enqueues work on, for the time of one call.
#[derive(Debug)]
pub struct NativeStream<'a> {
    backend: &'static str,
    stream: *mut c_void,
    context: *mut c_void,
    call: PhantomData<&'a ()>,
}

#[expect(unsafe_code, reason = "closures hand the pointers to the vendor's library")]
impl NativeStream<'_> {
    /// Wraps the handles of a stream that a backend lends for the time of one call.
    ///
    /// # Safety
    /// `stream` and `context` are what [`stream`](Self::stream) and [`context`](Self::context)
    /// promise for this backend: handles of live objects of its driver, which stay valid for as
    /// long as the value. The closures of native commands pass them to the driver without a check.
    ///
    /// ```compile_fail,E0133
    /// # use std::ptr::null_mut;
    /// let stream = wakegraph::interop::NativeStream::new("cuda", null_mut(), null_mut());
    /// ```
    pub unsafe fn new(backend: &'static str, stream: *mut c_void, context: *mut c_void) -> Self {
        Self { backend, stream, context, call: PhantomData }
    }

    /// The backend's name: it tells what the pointers are.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The stream: on `cuda` a `CUstream`, which is what CUDA's runtime and libraries call
    /// `cudaStream_t`; on `hip` a `hipStream_t`; on `opencl` a `cl_command_queue`; null on `host`.
    pub fn stream(&self) -> *mut c_void {
        self.stream
    }

    /// The context that the stream is of: on `cuda` a `CUcontext`, which is current on the calling
    /// thread; on `opencl` a `cl_context`; null on `host`, and on `hip`, where the stream's device is
    /// current on the calling thread.
    pub fn context(&self) -> *mut c_void {
        self.context
    }
}

/// Memory that a stream task has declared, as its closure finds it: by address,
/// by the driver's handle, or by both.
#[derive(Clone, Copy, Debug)]
pub struct NativeMemory<'a> {
    view: &'a MemoryView,
}

impl<'a> NativeMemory<'a> {
    /// Describes the view as closures find it.
    pub fn new(view: &'a MemoryView) -> Self {
        Self { view }
    }

    /// The address of the first byte: on `cuda` a `CUdeviceptr`, on `opencl` one of shared virtual memory
    /// or of a host buffer. There is one except for device memory on OpenCL devices without shared
    /// virtual memory.
    pub fn address(&self) -> Option<usize> {
        let memory = self.view.memory();
        let start = memory.usm().map(UsmPointer::address);
        let start = start.or(memory.host_ptr().map(|start| start.as_ptr().expose_provenance()));
        start.map(|start| start + self.view.offset())
    }

    /// The driver's handle of the memory object that it is a part of: on `opencl` the `cl_mem` of device
    /// memory. Null where there is none.
    pub fn handle(&self) -> *mut c_void {
        self.view.memory().native_handle().map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// The offset of the first byte in the memory object of the [handle](Self::handle).
    pub fn offset(&self) -> usize {
        self.view.offset()
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.view.len()
    }
}

/// The user's own work on the backend's stream.
///
/// As a [native command](crate::Command::Native) it is recorded once: the closure is called when the
/// command is appended. As a [stream task](crate::Command::StreamTask) it is live: the closure is called
/// for each enqueue.
#[derive(Clone)]
pub struct NativeCommand {
    name: Arc<str>,
    memory: Arc<[MemoryView]>,
    run: Arc<NativeFn>,
}

#[expect(unsafe_code, reason = "the closure's work is the user's to vouch for")]
impl NativeCommand {
    /// A command that calls `run` once for each command-buffer that it is appended to, or for each time
    /// that it is enqueued.
    ///
    /// # Safety
    /// What the closure does and enqueues touches nothing but `memory`, which the command keeps alive, and
    /// what stays valid for as long as a command-buffer that holds the command, or an enqueue of it, may
    /// run. Work is enqueued on the stream that the closure is given, or on streams that branch off it and
    /// join it again before the closure returns, and nothing else is left running. The closure keeps the
    /// stream no longer than the call.
    pub unsafe fn new(
        name: impl Into<Arc<str>>,
        memory: impl Into<Arc<[MemoryView]>>,
        run: impl Fn(&NativeStream<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), memory: memory.into(), run: Arc::new(run) }
    }

    /// The command's name, for errors and drawings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The memory that the command touches.
    pub fn memory(&self) -> &[MemoryView] {
        &self.memory
    }

    /// Calls the closure. For backends, while the stream records what is enqueued on it.
    ///
    /// # Errors
    /// The closure's own, or [`NativePanicked`](ErrorKind::NativePanicked). A closure cannot say that the
    /// device is lost: that becomes [`Driver`](ErrorKind::Driver).
    ///
    /// # Safety
    /// The stream records and does not run. The caller runs the recording only while
    /// [`memory`](Self::memory) is alive, and in an order in which nothing else accesses that
    /// memory in a conflicting way. The context of the stream is current on the calling thread.
    ///
    /// ```compile_fail,E0133
    /// # use wakegraph::{Result, hal::{NativeCommand, NativeStream}};
    /// fn call(command: &NativeCommand, stream: &NativeStream<'_>) -> Result<()> {
    ///     command.call(stream)
    /// }
    /// ```
    pub unsafe fn call(&self, stream: &NativeStream<'_>) -> Result<()> {
        // What the closure leaves half done is dropped with the recording.
        self.call_as(CommandKind::Native, stream)
    }

    /// Calls the closure of a [stream task](crate::Command::StreamTask). For backends, which hold no lock
    /// meanwhile that a call of theirs may need: the closure may enqueue other things. It may also have
    /// enqueued something and then fail.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    ///
    /// # Safety
    /// What the stream runs from now on, and on `host` this call, comes after everything in the enqueue's
    /// wait list. The event of the enqueue becomes final only after what is on the stream when this
    /// returns. The context of the stream, if the backend has current ones, is current on the calling
    /// thread.
    pub unsafe fn call_live(&self, stream: &NativeStream<'_>) -> Result<()> {
        self.call_as(CommandKind::StreamTask, stream)
    }

    fn call_as(&self, kind: CommandKind, stream: &NativeStream<'_>) -> Result<()> {
        let name = &self.name;
        match catch(|| (self.run)(stream)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Error::of_closure(error, format!("the closure of {kind} '{name}' failed"))),
            Err(panic) => {
                let why = format!("the closure of {kind} '{name}' panicked: {panic}");
                Err(Error::new(ErrorKind::NativePanicked, why))
            }
        }
    }
}

impl Debug for NativeCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeCommand").field("name", &self.name).field("memory", &self.memory).finish()
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "makes commands that enqueue nothing")]
mod tests {
    use std::ptr;

    use super::*;

    fn call(run: impl Fn() -> Result<()> + Send + Sync + 'static) -> Result<()> {
        // SAFETY: it enqueues nothing.
        let command = unsafe { NativeCommand::new("mine", Vec::new(), move |_| run()) };
        // SAFETY: the closure does not look at the handles.
        let stream = unsafe { NativeStream::new("none", ptr::null_mut(), ptr::null_mut()) };
        // SAFETY: the closure enqueues nothing.
        let recorded = unsafe { command.call(&stream) };
        // SAFETY: as above.
        let live = unsafe { command.call_live(&stream) };
        let kind = |result: &Result<()>| result.as_ref().map_err(Error::kind).copied();
        assert_eq!(kind(&recorded), kind(&live));
        recorded
    }

    #[test]
    fn errors_and_panics_of_the_closure_name_the_command() {
        call(|| Ok(())).unwrap();
        let error = call(|| Err(Error::new(ErrorKind::OutOfMemory, "no workspace"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("'mine' failed: out of memory: no workspace"), "{error}");
        let error = call(|| Err(Error::new(ErrorKind::DeviceLost, "so it seems"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.to_string().contains("'mine' failed"), "{error}");
        assert!(error.to_string().contains("so it seems"), "{error}");
        let error = call(|| panic!("expected")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NativePanicked);
        assert!(error.message().contains("'mine' panicked: expected"), "{error}");
    }
}

//! Native commands: the user's own work on the backend's stream.

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use super::MemoryView;
use crate::types::{Error, ErrorKind, Result};
use crate::util::panics::catch;

/// What a native command calls: it enqueues its work on the stream, in the vendor's own calls.
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
    /// let stream = wakegraph::NativeStream::new("cuda", null_mut(), null_mut());
    /// ```
    pub unsafe fn new(backend: &'static str, stream: *mut c_void, context: *mut c_void) -> Self {
        Self { backend, stream, context, call: PhantomData }
    }

    /// The backend's name: it tells what the pointers are.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The stream: on `cuda` a `CUstream`, which is what CUDA's runtime and libraries call
    /// `cudaStream_t`.
    pub fn stream(&self) -> *mut c_void {
        self.stream
    }

    /// The context that the stream is of, current on the calling thread: on `cuda` a `CUcontext`.
    pub fn context(&self) -> *mut c_void {
        self.context
    }
}

/// The user's own work on the backend's stream, recorded once: the closure is called when the
/// command is appended.
#[derive(Clone)]
pub struct NativeCommand {
    name: Arc<str>,
    memory: Arc<[MemoryView]>,
    run: Arc<NativeFn>,
}

#[expect(unsafe_code, reason = "the closure's work is the user's to vouch for")]
impl NativeCommand {
    /// A command that calls `run` once for each command-buffer that it is appended to.
    ///
    /// # Safety
    /// What the closure enqueues touches nothing but `memory`, which the command keeps alive, and
    /// what stays valid for as long as a command-buffer that holds the command may run. It is
    /// enqueued on the stream that the closure is given, or on streams that branch off it and join
    /// it again before the closure returns, and leaves nothing else running. The closure keeps the
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
    /// The closure's own, or [`NativePanicked`](ErrorKind::NativePanicked).
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
        let name = &self.name;
        // What the closure leaves half done is dropped with the recording.
        match catch(|| (self.run)(stream)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let why = format!("the closure of native command '{name}' failed");
                Err(Error::new(error.kind(), why).caused_by(error))
            }
            Err(panic) => {
                let why = format!("the closure of native command '{name}' panicked: {panic}");
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
        unsafe { command.call(&stream) }
    }

    #[test]
    fn errors_and_panics_of_the_closure_name_the_command() {
        call(|| Ok(())).unwrap();
        let error = call(|| Err(Error::new(ErrorKind::OutOfMemory, "no workspace"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("'mine' failed: out of memory: no workspace"), "{error}");
        let error = call(|| panic!("expected")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NativePanicked);
        assert!(error.message().contains("'mine' panicked: expected"), "{error}");
    }
}

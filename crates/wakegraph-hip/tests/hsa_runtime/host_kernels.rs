//! Kernels that were compiled for the host: a library for each code object, under the name of its
//! contents.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Once;

use libloading::Library;

use crate::kernels::Kernel;
use crate::packets::Dispatch;
use crate::{code_objects, settings};

/// What `host_hip.h` gets: the grid in work-items.
#[repr(C)]
struct Launch {
    grid: [u32; 3],
    group: [u32; 3],
    group_bytes: u32,
    arguments: usize,
}

/// Runs all work-groups.
pub(crate) type HostKernel = unsafe extern "C" fn(*const c_void);

/// Stays loaded: kernels are copied out, and work-items have thread-local variables.
pub(crate) struct HostKernels(ManuallyDrop<Library>);

/// The prefix of the functions that run kernels.
pub(crate) const PREFIX: &str = "wakegraph_run_";

/// Where the library for a code object lies.
pub(crate) fn path(hash: u64) -> PathBuf {
    settings::get().kernels.join(format!("{hash:016x}.so"))
}

impl HostKernels {
    /// The library for a code object, if it has one.
    pub(crate) fn find(hash: u64) -> Option<Self> {
        let path = path(hash);
        if !path.exists() {
            return None;
        }
        // SAFETY: made by `hiprtc`; it has no initialization.
        let library = unsafe { Library::new(&path) };
        let library =
            library.unwrap_or_else(|error| settings::abort(format_args!("{}: {error}", path.display())));
        Some(Self(ManuallyDrop::new(library)))
    }

    pub(crate) fn get(&self, kernel: &str) -> Option<HostKernel> {
        // SAFETY: the header declares every function with this prefix with this type.
        let found = unsafe { self.0.get::<HostKernel>(format!("{PREFIX}{kernel}").as_bytes()) };
        found.ok().map(|function| *function)
    }
}

thread_local! {
    /// The name of the kernel that runs on this thread, or null.
    static RUNNING: Cell<*const c_char> = const { Cell::new(std::ptr::null()) };
}

pub(crate) fn run(function: &HostKernel, kernel: &Kernel, packet: &Dispatch) {
    let name = CString::new(kernel.name.as_str()).unwrap();
    let launch = Launch {
        grid: packet.grid,
        group: packet.group,
        group_bytes: packet.group_bytes,
        arguments: packet.arguments,
    };
    RUNNING.set(name.as_ptr());
    // SAFETY: the packet was checked against the code object; which memory the kernel touches is
    // for pages to decide.
    unsafe { function((&raw const launch).cast()) };
    RUNNING.set(std::ptr::null());
}

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
    fn write(file: c_int, text: *const c_void, bytes: usize) -> isize;
    fn strlen(text: *const c_char) -> usize;
}

const SEGMENTATION_FAULT: c_int = 11;

/// Has the name of the kernel printed when one touches an address that is not mapped.
pub(crate) fn name_kernels_in_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler calls only what signal handlers may call.
        unsafe { signal(SEGMENTATION_FAULT, on_fault as *const () as usize) };
    });
}

/// Prints, and leaves the rest to the default: the instruction faults again.
extern "C" fn on_fault(number: c_int) {
    let name = RUNNING.get();
    if !name.is_null() {
        let before = b"hsa_runtime: an address that is not mapped, touched by kernel ";
        // SAFETY: not null, so a string that `run` keeps.
        let length = unsafe { strlen(name) };
        for (text, bytes) in
            [(before.as_ptr().cast(), before.len()), (name.cast(), length), (c"\n".as_ptr().cast(), 1)]
        {
            // SAFETY: constants and the name.
            unsafe { write(2, text, bytes) };
        }
    }
    // SAFETY: 0 is the default action.
    unsafe { signal(number, 0) };
}

/// The names of the kernels in a code object.
pub(crate) fn names(code: &[u8]) -> Vec<String> {
    let kernels = code_objects::Elf::of(code).map(|elf| elf.kernels()).unwrap_or_default();
    kernels.into_iter().map(|kernel| kernel.name).collect()
}

//! Ranges for the tools that read NVTX: Nsight Systems and Nsight Compute, or CUPTI.
//!
//! NVTX 3 has no library to link or load. It is a header, compiled into each program, that loads a library of
//! the tool's, which the tool names in an environment variable, and gives it tables to write functions to.
//! The module `injection` does what that header does. Without a tool there is nothing to call.

mod injection;

use std::ffi::CString;
use std::marker::PhantomData;

use injection::{EventAttributes, Tool, tool};

/// Whether a tool listens.
pub(crate) fn has_listener() -> bool {
    tool().is_some()
}

/// A range until it is dropped, on whichever thread.
#[derive(Debug)]
pub(crate) struct NvtxRange {
    tool: &'static Tool,
    id: u64,
}

impl NvtxRange {
    /// Begins a range, if a tool listens. Its payload is the number of the run that it belongs to.
    pub(crate) fn start(run: u64, name: impl FnOnce() -> String) -> Option<Self> {
        let tool = tool()?;
        let name = c_string(name());
        Some(Self { tool, id: tool.range_start(&EventAttributes::new(&name, run))? })
    }
}

impl Drop for NvtxRange {
    fn drop(&mut self) {
        self.tool.range_end(self.id);
    }
}

/// A range of the thread that begins it, which contains what that thread hands to devices, until it
/// is dropped.
#[derive(Debug)]
pub(crate) struct NvtxThreadRange {
    tool: &'static Tool,
    /// It ends on its thread.
    not_send: PhantomData<*const ()>,
}

impl NvtxThreadRange {
    /// Begins a range, if a tool listens. Its payload is the number of the run that it belongs to.
    pub(crate) fn start(run: u64, name: impl FnOnce() -> String) -> Option<Self> {
        let tool = tool()?;
        let name = c_string(name());
        let has_begun = tool.range_push(&EventAttributes::new(&name, run));
        has_begun.then_some(Self { tool, not_send: PhantomData })
    }
}

impl Drop for NvtxThreadRange {
    fn drop(&mut self) {
        self.tool.range_pop();
    }
}

/// The text up to its first NUL.
fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let end = error.nul_position();
        CString::new(&error.into_vec()[..end]).unwrap_or_default()
    })
}

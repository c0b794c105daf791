//! Programs: built once for each source and device, and kept for the next kernel of the same source.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::fmt::{self, Debug};
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::device::Shared;
use super::query;
use super::spirv;
use super::sys::{self, Failure, Owned, Program, call, create};
use crate::types::{Error, ErrorKind, Result};

/// Argument kinds are compared with the declaration, so the program has to keep them.
const OPTIONS: &str = "-cl-kernel-arg-info";

/// Programs beyond this number are kept only as long as a kernel of theirs is.
const MOST_UNUSED: usize = 256;

/// What a program is built from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Code<'a> {
    /// OpenCL C, after a prelude.
    Source { prelude: &'static str, source: &'a str },
    /// SPIR-V.
    Binary(&'a [u8]),
}

impl Code<'_> {
    /// What tells it from other code: all of it.
    fn key(self) -> Vec<u8> {
        match self {
            Self::Source { prelude, source } => [b"C", prelude.as_bytes(), source.as_bytes()].concat(),
            Self::Binary(binary) => [b"B", binary].concat(),
        }
    }
}

/// The programs of one device by their code.
#[derive(Default)]
pub(super) struct Programs(Mutex<HashMap<Vec<u8>, Arc<Owned<Program>>>>);

impl Programs {
    /// The program of this code, built if it is the first time; `kernel` is for errors.
    ///
    /// # Errors
    /// [`Driver`](ErrorKind::Driver) with the build log when it does not compile.
    pub(super) fn get(&self, shared: &Shared, code: Code<'_>, kernel: &str) -> Result<Arc<Owned<Program>>> {
        let key = code.key();
        if let Some(known) = self.0.lock().get(&key) {
            return Ok(known.clone());
        }
        // Built without the lock: it takes long. Two threads that build the same keep one of the two.
        let program = Arc::new(build(shared, code, kernel)?);
        let mut known = self.0.lock();
        if known.len() >= MOST_UNUSED {
            known.retain(|_, program| Arc::strong_count(program) > 1);
        }
        Ok(known.entry(key).or_insert(program).clone())
    }
}

impl Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Programs").field(&self.0.lock().len()).finish()
    }
}

fn build(shared: &Shared, code: Code<'_>, kernel: &str) -> Result<Owned<Program>> {
    let core = shared.core;
    if let Code::Binary(binary) = code
        && let Some(fault) = spirv::fault(binary)
    {
        return Err(refused(binary, kernel).caused_by(fault));
    }
    let program = create(shared, code).map_err(|failure| match (code, failure.code) {
        (Code::Binary(binary), sys::CL_INVALID_VALUE) => {
            refused(binary, kernel).caused_by(Error::from(failure))
        }
        _ => failure.into(),
    })?;
    let options =
        CString::new(OPTIONS).map_err(|_| Error::new(ErrorKind::Bug, "the build options hold a NUL"))?;
    let (raw, device, text) = (program.raw(), shared.id.raw(), options.as_ptr());
    // SAFETY: all objects are alive; without a callback the call ends when the program is built.
    let built =
        unsafe { call!(core, clBuildProgram(raw, 1, &raw const device, text, None, ptr::null_mut())) };
    match built {
        Ok(()) => Ok(program),
        Err(failure @ Failure { code: sys::CL_OUT_OF_HOST_MEMORY | sys::MISSING_FUNCTION, .. }) => {
            Err(failure.into())
        }
        Err(failure) => {
            let log = query::build_log(core, raw, device);
            let code_name = super::error::describe(failure.code);
            let (what, remedy) = match code {
                Code::Source { .. } => ("does not compile", "correct the kernel's source"),
                Code::Binary(_) => ("has SPIR-V that does not compile", VALIDATE),
            };
            let why = format!("kernel '{kernel}' {what} ({code_name}):\n{log}");
            Err(Error::new(ErrorKind::Driver, why).help(remedy))
        }
    }
}

const VALIDATE: &str =
    "check the module with `spirv-val`; it has to be for OpenCL, in a version that the device takes";

/// The error for bytes that are no SPIR-V for the driver.
fn refused(binary: &[u8], kernel: &str) -> Error {
    let why = format!("kernel '{kernel}': its {} bytes are no SPIR-V module", binary.len());
    Error::new(ErrorKind::Driver, why).help(VALIDATE)
}

fn create(shared: &Shared, code: Code<'_>) -> Result<Owned<Program>, Failure> {
    let (core, context) = (shared.core, shared.context.raw());
    let program = match code {
        Code::Source { prelude, source } => {
            // The driver takes a length of 0 for a text that ends in NUL, so an empty one is left out.
            let texts: SmallVec<[&str; 2]> =
                [prelude, source].into_iter().filter(|text| !text.is_empty()).collect();
            let count = texts.len() as sys::cl_uint;
            let lens: SmallVec<[usize; 2]> = texts.iter().map(|text| text.len()).collect();
            let mut starts: SmallVec<[*const c_char; 2]> =
                texts.iter().map(|text| text.as_ptr().cast()).collect();
            let (starts, lens) = (starts.as_mut_ptr(), lens.as_ptr());
            // SAFETY: as many texts as lengths, which the driver copies.
            unsafe { create!(core, clCreateProgramWithSource(context, count, starts, lens)) }
        }
        Code::Binary(binary) => {
            let (bytes, len) = (binary.as_ptr().cast(), binary.len());
            // SAFETY: `len` bytes, which the driver copies and checks.
            unsafe { create!(core, clCreateProgramWithIL(context, bytes, len)) }
        }
    }?;
    // SAFETY: the program has just been created, for us.
    Ok(unsafe { Owned::new(core, program) })
}

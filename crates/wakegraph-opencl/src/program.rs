//! Programs: built once for each source and device, and cached for further kernels of the same source.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use wakegraph_hal::support::library::keep_handlers;
use wakegraph_hal::support::spirv;
use wakegraph_hal::{CodeOrigin, Compilation, Error, ErrorKind, Result};

use super::context::OpenclContext;
use super::error::describe;
use super::platform::{Query as _, query_program_on_device};
use super::sys::{self, DriverResult, OpenclFailure, Owned, Program, call, create};

/// Makes programs keep the kinds of arguments, which are compared with the kernel's declaration. Without
/// another option the language is at least OpenCL C 1.2, for which the portable dialect is made.
const OPTIONS: &CStr = c"-cl-kernel-arg-info";

/// The options for a vendor's variant: the newest language that the device is sure to have.
fn own_options(context: &OpenclContext) -> &'static CStr {
    match context.features.version {
        (3.., _) => c"-cl-kernel-arg-info -cl-std=CL3.0",
        (2, _) => c"-cl-kernel-arg-info -cl-std=CL2.0",
        _ => OPTIONS,
    }
}

/// The code that a program is built from.
#[derive(Debug)]
pub(super) enum Code<'a> {
    /// The portable dialect behind its prelude. Not empty: the driver takes a length of 0 for a text that
    /// ends in NUL.
    Portable(String),
    /// OpenCL C. Not empty, either.
    OpenclC(String),
    /// SPIR-V.
    Binary(&'a [u8]),
}

impl Code<'_> {
    /// The key of the cache: all of the code.
    fn key(&self) -> Vec<u8> {
        match self {
            Self::Portable(source) => [b"P", source.as_bytes()].concat(),
            Self::OpenclC(source) => [b"C", source.as_bytes()].concat(),
            Self::Binary(binary) => [b"B", *binary].concat(),
        }
    }
}

/// The program of this code, built the first time; `kernel` names it in errors. What the driver keeps on disk
/// counts as built.
///
/// # Errors
/// [`Driver`](ErrorKind::Driver) with the build log when it does not compile.
pub(super) fn get(
    context: &OpenclContext,
    code: &Code<'_>,
    kernel: &str,
) -> Result<(Arc<Owned<Program>>, Compilation)> {
    let build = || Ok((Arc::new(keep_handlers(|| build(context, code, kernel))?), CodeOrigin::Compiled));
    context.programs.get_or_compile(code.key(), build)
}

fn build(context: &OpenclContext, code: &Code<'_>, kernel: &str) -> Result<Owned<Program>> {
    if let Code::Binary(binary) = code
        && let Some(fault) = spirv::fault(binary)
    {
        return Err(spirv::no_module(binary, kernel, fault));
    }
    let program = create(context, code).map_err(|failure| match (code, failure.code) {
        (Code::Binary(binary), sys::CL_INVALID_VALUE) => {
            spirv::no_module(binary, kernel, Error::from(failure))
        }
        _ => failure.into(),
    })?;
    let options = match code {
        Code::OpenclC(_) => own_options(context),
        Code::Portable(_) | Code::Binary(_) => OPTIONS,
    };
    let (raw, device, text) = (program.raw(), context.id.raw(), options.as_ptr());
    let _alone = alone(context);
    // SAFETY: all objects are alive; without a callback the call ends when the program is built.
    let built = unsafe {
        call!(context.core, clBuildProgram(raw, 1, &raw const device, text, None, ptr::null_mut()))
    };
    built.map_err(|failure| not_built(context, &program, code, kernel, failure))?;
    Ok(program)
}

/// Whether a source in the portable dialect compiles with this behind it. Nothing is built from it.
///
/// # Errors
/// [`Driver`](ErrorKind::Driver) with the log when it does not compile.
pub(super) fn compiles(context: &OpenclContext, code: &Code<'_>, end: &str, kernel: &str) -> Result<()> {
    let Code::Portable(source) = code else { return Ok(()) };
    let code = Code::Portable([source, end].concat());
    let program = create(context, &code)?;
    let (raw, device, core) = (program.raw(), context.id.raw(), context.core);
    let (devices, options) = (&raw const device, OPTIONS.as_ptr());
    let (headers, names, none) = (ptr::null(), ptr::null_mut(), ptr::null_mut());
    let _alone = alone(context);
    // SAFETY: all objects are alive, and there are no headers; without a callback the call ends when the
    // program is compiled.
    let compiled =
        unsafe { call!(core, clCompileProgram(raw, 1, devices, options, 0, headers, names, None, none)) };
    compiled.map_err(|failure| not_built(context, &program, &code, kernel, failure))
}

/// Keeps other threads from compiling, where the driver cannot do two things at once.
fn alone(context: &OpenclContext) -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    context.features.builds_alone.then(|| ALONE.lock())
}

/// The error for code that the driver refuses, with the log.
fn not_built(
    context: &OpenclContext,
    program: &Owned<Program>,
    code: &Code<'_>,
    kernel: &str,
    failure: OpenclFailure,
) -> Error {
    if let sys::CL_OUT_OF_HOST_MEMORY | sys::MISSING_FUNCTION = failure.code {
        return failure.into();
    }
    let query = query_program_on_device(context.core, program.raw(), context.id.raw());
    let log = query.text(sys::CL_PROGRAM_BUILD_LOG).unwrap_or_default();
    let code_name = describe(failure.code);
    let (what, remedy) = match code {
        Code::Portable(_) | Code::OpenclC(_) => ("does not compile", "correct the kernel's source"),
        Code::Binary(_) => ("has SPIR-V that does not compile", spirv::VALIDATE),
    };
    let why = format!("kernel '{kernel}' {what} ({code_name}):\n{log}");
    Error::new(ErrorKind::Driver, why).help(remedy)
}

fn create(context: &OpenclContext, code: &Code<'_>) -> DriverResult<Owned<Program>> {
    let (core, raw) = (context.core, context.raw.raw());
    match code {
        Code::Portable(source) | Code::OpenclC(source) => {
            let (mut start, len): (*const c_char, _) = (source.as_ptr().cast(), source.len());
            // SAFETY: one text of this length, which the driver copies.
            unsafe { create!(core, clCreateProgramWithSource(raw, 1, &raw mut start, &raw const len)) }
        }
        Code::Binary(binary) => {
            let (bytes, len) = (binary.as_ptr().cast(), binary.len());
            // SAFETY: `len` bytes, which the driver copies and checks.
            unsafe { create!(core, clCreateProgramWithIL(raw, bytes, len)) }
        }
    }
}

//! Programs: modules, built once for each code and device, and cached for further kernels of the
//! same code.
#![expect(unsafe_code, reason = "calls the driver")]

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::kernel_declaration::no_variant;
use wakegraph_hal::support::spirv;
use wakegraph_hal::{Error, ErrorKind, KernelDesc, Result, dialect};

use super::context::LevelZeroContext;
use super::driver::list;
use super::error::describe;
use super::ocloc::{self, Language};
use super::sys::{self, BuildLog, DriverResult, LevelZeroFailure, Module, Owned, call};

/// Has the compiler address whole allocations above 4 GiB.
const LARGE_BUFFERS: &CStr = c"-ze-opt-greater-than-4GB-buffer-required";

/// The code of a kernel for a device.
#[derive(Debug)]
pub(super) struct KernelCode<'a> {
    /// SPIR-V.
    pub(super) binary: Cow<'a, [u8]>,
    /// The kernel's name in it.
    pub(super) symbol: String,
    /// Whether it is in the portable dialect, where each slice is followed by its length.
    pub(super) portable: bool,
}

/// The variant for the device, compiled to SPIR-V.
///
/// # Errors
/// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) without a variant; those of the
/// compiler.
pub(super) fn code<'a>(context: &LevelZeroContext, desc: &'a KernelDesc<'_>) -> Result<KernelCode<'a>> {
    let (name, sources, product) = (desc.name, desc.sources, context.product);
    let own = |binary| KernelCode { binary, symbol: name.to_owned(), portable: false };
    if let Some(binary) = &sources.spirv {
        return Ok(own(Cow::Borrowed(&**binary)));
    }
    if let Some(source) = &sources.opencl_c {
        let binary = ocloc::compile(name, source, Language::OpenclC30, product)?;
        return Ok(own(Cow::Owned(binary.to_vec())));
    }
    let Some(source) = &sources.c else {
        let remedy = "add SPIR-V (`spirv:`) or a source in the portable C dialect (`c:`)";
        return Err(no_variant(desc).help(remedy));
    };
    let source = [dialect::OPENCL, source].concat();
    let binary = ocloc::compile(name, &source, Language::OpenclC12, product)?;
    Ok(KernelCode { binary: Cow::Owned(binary.to_vec()), symbol: dialect::entry_name(name), portable: true })
}

/// Whether the source in the portable dialect compiles with this behind it.
///
/// # Errors
/// Those of the compiler.
pub(super) fn compiles(context: &LevelZeroContext, desc: &KernelDesc<'_>, end: &str) -> Result<()> {
    let source = [dialect::OPENCL, desc.sources.c.as_deref().unwrap_or_default(), end].concat();
    ocloc::compile(desc.name, &source, Language::OpenclC12, context.product).map(drop)
}

/// The module of this SPIR-V, built the first time; `kernel` names it in errors.
///
/// # Errors
/// [`Driver`](ErrorKind::Driver) with the build log when it cannot be built.
pub(super) fn module(context: &LevelZeroContext, binary: &[u8], kernel: &str) -> Result<Arc<Owned<Module>>> {
    context.modules.get_or_compile(binary.to_vec(), || Ok(Arc::new(build(context, binary, kernel)?)))
}

fn build(context: &LevelZeroContext, binary: &[u8], kernel: &str) -> Result<Owned<Module>> {
    if let Some(fault) = spirv::fault(binary) {
        return Err(spirv::no_module(binary, kernel, fault));
    }
    let mut desc = sys::ze_module_desc_t::new();
    desc.format = sys::ZE_MODULE_FORMAT_IL_SPIRV;
    desc.inputSize = binary.len();
    desc.pInputModule = binary.as_ptr();
    desc.pBuildFlags = match context.features.relaxed_limits {
        true => LARGE_BUFFERS.as_ptr(),
        false => ptr::null(),
    };
    let (api, raw, device) = (context.api, context.raw(), context.device);
    let (mut module, mut log) = (ptr::null_mut(), ptr::null_mut());
    let places = (&raw mut module, &raw mut log);
    // SAFETY: context and device are of one driver; the module's bytes and options live through the
    // call.
    let built = unsafe { call!(api, zeModuleCreate(raw, device, &raw const desc, places.0, places.1)) };
    // SAFETY: the driver has just created the log for this object.
    let log = (!log.is_null()).then(|| unsafe { Owned::new(api, log) });
    match built {
        // SAFETY: the driver has just created the module for this object.
        Ok(()) => Ok(unsafe { Owned::new(api, module) }),
        Err(LevelZeroFailure {
            code:
                code @ (sys::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE
                | sys::ZE_RESULT_ERROR_MODULE_LINK_FAILURE
                | sys::ZE_RESULT_ERROR_INVALID_NATIVE_BINARY),
            ..
        }) => {
            let log = match log.map(|log| log_text(context, &log)) {
                Some(Ok(text)) => text,
                Some(Err(failure)) => {
                    format!("there is no log: {} returned {}", failure.call, describe(failure.code))
                }
                None => "there is no log".to_owned(),
            };
            let code = describe(code);
            let why = format!("kernel '{kernel}' has SPIR-V that does not compile ({code}):\n{log}");
            Err(Error::new(ErrorKind::Driver, why).help(spirv::VALIDATE))
        }
        Err(failure) => Err(failure.into()),
    }
}

fn log_text(context: &LevelZeroContext, log: &Owned<BuildLog>) -> DriverResult<String> {
    let (api, mut size) = (context.api, 0);
    // SAFETY: without a place for the text, the function tells its length.
    unsafe { call!(api, zeModuleBuildLogGetString(log.raw(), &raw mut size, ptr::null_mut())) }?;
    let mut text = vec![0u8; size];
    let (size, place) = (&raw mut size, text.as_mut_ptr().cast::<c_char>());
    // SAFETY: there is room for as many bytes as `size` says.
    unsafe { call!(api, zeModuleBuildLogGetString(log.raw(), size, place)) }?;
    // The compiler says the same once for each attempt.
    let (text, mut lines) = (String::from_utf8_lossy(&text), Vec::new());
    for line in text.trim_end_matches('\0').lines() {
        if !line.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    Ok(lines.join("\n"))
}

/// The names of the module's kernels.
pub(super) fn kernel_names(context: &LevelZeroContext, module: &Owned<Module>) -> DriverResult<Vec<String>> {
    let names = list(ptr::null::<c_char>(), |count, places| {
        // SAFETY: the module is alive; there is room for as many as `count` says.
        unsafe { call!(context.api, zeModuleGetKernelNames(module.raw(), count, places)) }
    })?;
    let names = names.into_iter().filter(|name| !name.is_null());
    // SAFETY: the names end in NUL, and live as long as the module.
    Ok(names.map(|name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()).collect())
}

//! The backend's own kernel, in the portable dialect. hipRTC compiles it when it is first used.

use std::borrow::Cow;

use wakegraph_hal::{AccessMode, KernelArg, Param, ParamKind, Result, UsmPointer, dialect};

use super::device_inner::HipDeviceInner;
use super::function::HipFunction;
use super::launch::HipLaunch;
use super::program;

/// Work-items of a fill: enough for every compute unit there is.
const MOST_FILL_ITEMS: usize = 1 << 19;

/// A launch that repeats a pattern of any length over memory. The caller has bound the context.
///
/// # Errors
/// Those of a compilation, the first time: without hipRTC, there is no such kernel.
pub(super) fn fill(device: &HipDeviceInner, memory: UsmPointer, pattern: UsmPointer) -> Result<HipLaunch> {
    fill_by(device, memory.len().min(MOST_FILL_ITEMS), memory, pattern)
}

/// As [`fill`], by so many work-items.
pub(super) fn fill_by(
    device: &HipDeviceInner,
    items: usize,
    memory: UsmPointer,
    pattern: UsmPointer,
) -> Result<HipLaunch> {
    const NAME: &str = "wakegraph_fill";
    let slice = |name, access| Param {
        name: Cow::Borrowed(name),
        kind: ParamKind::Buffer { access, element_size: 1, element_align: 1 },
    };
    let params = [slice("memory", AccessMode::Write), slice("pattern", AccessMode::Read)];
    let function = match device.fill.get() {
        Some(function) => function,
        None => {
            let source = include_str!("fill.c");
            let text = format!("{}{source}{}", dialect::HIP, dialect::entry_point(NAME, &params));
            let (entry, architecture) = (dialect::entry_name(NAME), &device.architecture);
            let code = program::compile(NAME, &text, architecture)?;
            let function = HipFunction::load(&device.pool, &code, &entry, NAME, architecture)?;
            device.fill.get_or_init(|| function)
        }
    };
    HipLaunch::builtin(function.raw, &params, &[KernelArg::Usm(memory), KernelArg::Usm(pattern)], items)
}

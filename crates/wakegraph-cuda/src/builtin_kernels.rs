//! The backend's own kernels, in PTX. Each is loaded when it is first used.

use wakegraph_hal::Result;

use super::device_inner::CudaDeviceInner;
use super::function::CudaFunction;
use super::launch::CudaLaunch;

/// A kernel of the backend's own.
#[derive(Clone, Copy, Debug)]
pub(super) enum BuiltinKernel {
    /// Repeats a pattern of any length over memory.
    Fill,
    /// Repeats a word over memory, as a memset node does.
    Set,
    /// Decides about a conditional node by a word in memory.
    Condition,
    /// Counts a finished run in a completion counter.
    Count,
}

/// The PTX in a file, which the driver takes with a NUL at its end.
macro_rules! ptx {
    ($file:literal) => {
        concat!(include_str!($file), "\0").as_bytes()
    };
}

impl BuiltinKernel {
    /// A launch of this kernel over so many work-items. Each argument is an address or a number, of
    /// which a shorter parameter takes the low bytes. The caller has bound the context.
    pub(super) fn launch(self, device: &CudaDeviceInner, args: &[u64], items: usize) -> Result<CudaLaunch> {
        let loaded = &device.builtin_kernels[self as usize];
        let function = match loaded.get() {
            Some(function) => function,
            None => {
                let (name, code) = match self {
                    Self::Fill => ("wakegraph_fill", ptx!("fill.ptx")),
                    Self::Set => ("wakegraph_set", ptx!("set.ptx")),
                    Self::Condition => ("wakegraph_condition", ptx!("condition.ptx")),
                    Self::Count => ("wakegraph_count", ptx!("count.ptx")),
                };
                let function = CudaFunction::load(&device.pool, code, name, name)?;
                loaded.get_or_init(|| function)
            }
        };
        Ok(CudaLaunch::builtin(function.raw, args, items))
    }
}

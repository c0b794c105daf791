//! Kernels, loaded from the first source variant that CUDA takes; their launches in the driver's form; and
//! the backend's own kernels.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CString, c_int};
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::errors::foreign;
use wakegraph_hal::support::kernel_cache::load_or_compile_again;
use wakegraph_hal::support::launch::{HIDDEN_WORDS, LaunchArguments, LaunchGeometry};
use wakegraph_hal::support::sources::source_params;
use wakegraph_hal::support::streams::{DriverContext as _, prepare_launch};
use wakegraph_hal::{
    Compilation, Error, ErrorKind, Kernel, KernelDesc, KernelLaunch, Param, ParamKind, Result, dialect,
};

use super::device::{CudaDeviceInner, CudaMemory, OVERLAP_CAPABILITY, OverlapPolicy};
use super::program::{self, CudaFunction};
use super::sys::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE,
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_SUCCESS, CUfunction, CudaFailure, call, get,
};

/// A loaded kernel.
#[derive(Debug)]
pub(super) struct CudaKernel {
    name: String,
    params: Vec<Param>,
    pub(super) function: CudaFunction,
    /// Whether it is in the portable dialect: its entry point also takes the launch's flags, offset
    /// and size, and skips work-items beyond that size.
    is_portable: bool,
    pub(super) wait: KernelWait,
    max_work_group_size: usize,
    /// Shared memory that its source declares.
    static_shared: usize,
    /// The most dynamic shared memory that launches have been allowed; 0 for what they have in any case.
    allowed_shared: Mutex<usize>,
    compilation: Compilation,
}

impl CudaKernel {
    pub(super) fn load(device: &CudaDeviceInner, desc: &KernelDesc<'_>) -> Result<Self> {
        let code = code(device.compute_capability, desc)?;
        let _bound = device.context.bind()?;
        let load = |code: &KernelCode| program::module(&device.pool, &code.code, desc.name);
        let (module, KernelCode { portable, compilation, .. }) =
            load_or_compile_again(code, load, |refused| {
                program::forget(&refused.code);
                self::code(device.compute_capability, desc)
            })?;
        let entry = if portable { dialect::entry_name(desc.name) } else { desc.name.to_owned() };
        let function = CudaFunction::of(module, &entry, desc.name)?;
        // Code for older devices knows no wait.
        let is_new = || -> Result<bool, CudaFailure> {
            Ok(function.attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION)? >= OVERLAP_CAPABILITY as usize)
        };
        let wait = match portable {
            true if is_new()? => KernelWait::IfTold,
            false if desc.sources.cuda_waits && is_new()? => KernelWait::Always,
            _ => KernelWait::Never,
        };
        let kernel = Self {
            name: desc.name.into(),
            params: desc.params.into(),
            is_portable: portable,
            wait,
            max_work_group_size: function.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared: function.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            allowed_shared: Mutex::new(0),
            compilation,
            function,
        };
        kernel.check_parameters()?;
        Ok(kernel)
    }

    /// Lets launches of the function have so much dynamic shared memory. The limit is only ever raised: other
    /// threads launch with more, and so do nodes of graphs. The caller has bound the context.
    fn allow_shared(&self, bytes: usize) -> Result<(), CudaFailure> {
        // What a work-group may have without this call, its static part included.
        const GRANTED: usize = 48 << 10;
        if bytes == 0 || bytes + self.static_shared <= GRANTED {
            return Ok(());
        }
        let mut allowed = self.allowed_shared.lock();
        if bytes > *allowed {
            let (driver, attribute) =
                (self.function.context().driver, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
            let limit = c_int::try_from(bytes).unwrap_or(c_int::MAX);
            // SAFETY: the function is loaded, its context bound.
            unsafe { call!(driver, cuFuncSetAttribute(self.function.raw, attribute, limit)) }?;
            *allowed = bytes;
        }
        Ok(())
    }

    /// Whether the code's parameters have the declared sizes, on drivers that tell (from 12.4 on).
    fn check_parameters(&self) -> Result<()> {
        let Some(ask) = self.function.context().driver.cuFuncGetParamInfo else { return Ok(()) };
        let expected = parameters(&self.params, self.is_portable);
        // The last parameter of the entry point is not declared in the source.
        let declared = expected.len() - usize::from(self.is_portable);
        for index in 0..=expected.len() {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is loaded; both pointers are valid for numbers.
            let outcome = unsafe { ask(self.function.raw, index, &raw mut offset, &raw mut size) };
            let found = match outcome {
                CUDA_SUCCESS => Some(size),
                CUDA_ERROR_INVALID_VALUE => None,
                code => return Err(CudaFailure::new("cuFuncGetParamInfo", code).into()),
            };
            if found == expected.get(index).map(|(_, size)| *size) {
                continue;
            }
            let why = match (found, expected.get(index)) {
                (Some(found), Some((name, size))) => {
                    format!(
                        "parameter {index}, {name}, is declared with {size} bytes and has {found} in the code"
                    )
                }
                (None, _) => format!("it is declared with {declared} parameters, its code has {index}"),
                (Some(_), None) => format!("it is declared with {declared} parameters, its code has more"),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, format!("kernel '{}': {why}", self.name))
                .help("declare the parameters of the code, in its order"));
        }
        Ok(())
    }
}

/// The parameters that the code must have, and their bytes.
fn parameters(params: &[Param], portable: bool) -> Vec<(String, usize)> {
    let size = |kind: Option<&ParamKind>| match kind {
        Some(ParamKind::Value { size }) => *size,
        // Its offset in the dynamic shared memory.
        Some(ParamKind::Local { .. }) => size_of::<u32>(),
        Some(ParamKind::Buffer { .. }) | None => size_of::<u64>(),
    };
    let launch = portable.then(|| ("the launch".into(), size_of::<[u64; HIDDEN_WORDS]>()));
    source_params(params, portable).map(|(name, kind)| (name, size(kind))).chain(launch).collect()
}

/// The code that the driver loads.
struct KernelCode {
    code: Arc<[u8]>,
    /// Whether it is in the portable dialect.
    portable: bool,
    compilation: Compilation,
}

impl AsRef<[u8]> for KernelCode {
    fn as_ref(&self) -> &[u8] {
        &self.code
    }
}

fn code(capability: u32, desc: &KernelDesc<'_>) -> Result<KernelCode> {
    let KernelDesc { name, params, sources } = *desc;
    let given = |code| KernelCode { code, portable: false, compilation: Compilation::default() };
    let compiled = |portable| move |(code, compilation)| KernelCode { code, portable, compilation };
    if let Some(cubin) = &sources.cubin {
        return Ok(given(Arc::from(&cubin[..])));
    }
    if let Some(ptx) = &sources.ptx {
        let text = CString::new(ptx.as_bytes()).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("kernel '{name}': the PTX holds a NUL"))
        })?;
        return Ok(given(text.into_bytes_with_nul().into()));
    }
    if let Some(source) = &sources.cuda_c {
        return program::compile(name, source, &[], capability).map(compiled(false));
    }
    if let Some(source) = &sources.c {
        let text = format!("{}{source}{}", dialect::CUDA, dialect::entry_point(name, params));
        let options = dialect::cuda_options(source);
        return program::compile(name, &text, options, capability).map(compiled(true));
    }
    let why = format!("kernel '{name}' has no variant for CUDA, only {:?}", sources.names());
    Err(Error::new(ErrorKind::FeatureNotSupported, why)
        .help("add a source in the portable C dialect (`c:`), CUDA C++, PTX or a cubin"))
}

impl Kernel for CudaKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn max_work_group_size(&self) -> usize {
        self.max_work_group_size
    }

    fn own_local_memory(&self) -> usize {
        self.static_shared
    }

    fn compilation(&self) -> Compilation {
        self.compilation
    }
}

/// Threads that the hardware issues together.
const WARP: usize = 32;

/// A kernel's way to wait for the end of the one before it, before it touches memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KernelWait {
    Never,
    /// If its launch says so: the portable dialect's entry points.
    IfTold,
    /// In every launch: other code whose author has declared it.
    Always,
}

/// A launch with all its parameters, as a graph's node takes them.
#[derive(Clone, Debug)]
pub(super) struct CudaLaunch {
    function: CUfunction,
    geometry: LaunchGeometry,
    arguments: LaunchArguments,
    wait: KernelWait,
    /// Whether it waits for the end of the kernel before it, so that it may be started earlier, and
    /// lets the one behind it be started so.
    pub(super) overlaps: bool,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for CudaLaunch {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaLaunch {}

impl CudaLaunch {
    /// Also lets the kernel have the shared memory that the launch needs. The caller has bound the
    /// context.
    pub(super) fn of(device: &CudaDeviceInner, launch: &KernelLaunch) -> Result<Self> {
        let kernel = launch.kernel.downcast_ref::<CudaKernel>();
        let kernel = kernel.filter(|kernel| Arc::ptr_eq(kernel.function.context(), &device.context));
        let kernel = kernel.ok_or_else(|| foreign("kernel"))?;
        let limits = (usize::MAX, WARP);
        let (geometry, arguments) = prepare_launch(device, launch, kernel.is_portable, limits)?;
        kernel.allow_shared(arguments.local())?;
        let (function, wait) = (kernel.function.raw, kernel.wait);
        Ok(Self { function, geometry, arguments, wait, overlaps: false })
    }

    /// Has it [overlap](OverlapPolicy) with kernels before and behind it, if it can and is small enough. The
    /// caller has bound the context.
    pub(super) fn overlap(&mut self, device: &CudaDeviceInner) {
        let is_wanted = || match device.overlap {
            OverlapPolicy::Never => false,
            OverlapPolicy::IfSmall => self.fits_twice(device),
            OverlapPolicy::Always => true,
        };
        self.set_overlaps(self.wait != KernelWait::Never && is_wanted());
    }

    /// Whether the device can hold the work-groups of two such launches at a time. The caller has bound the
    /// context.
    fn fits_twice(&self, device: &CudaDeviceInner) -> bool {
        let (function, LaunchGeometry { grid, block }) = (self.function, &self.geometry);
        let (driver, multiprocessors) = (device.context.driver, device.parts.info.compute_units as u64);
        let product =
            |sizes: &[u32; 3]| sizes.iter().fold(1_u64, |all, &size| all.saturating_mul(size.into()));
        let groups = product(grid).saturating_mul(2);
        if groups <= multiprocessors {
            return true;
        }
        let (items, shared) = (c_int::try_from(product(block)).unwrap_or(c_int::MAX), self.arguments.local());
        // SAFETY: the function is loaded, its context bound.
        let resident: Result<c_int, _> =
            unsafe { get!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(function, items, shared)) };
        resident.is_ok_and(|resident| groups <= multiprocessors * u64::try_from(resident).unwrap_or(0))
    }

    /// As [`overlap`](Self::overlap), for the launch that takes the place of another one: most have
    /// its size, and the driver need not be asked again.
    pub(super) fn overlap_like(&mut self, current: &Self, device: &CudaDeviceInner) {
        let size = |launch: &Self| (launch.function, launch.geometry, launch.arguments.local());
        match current.overlaps && size(self) == size(current) {
            true => self.set_overlaps(true),
            false => self.overlap(device),
        }
    }

    fn set_overlaps(&mut self, overlaps: bool) {
        self.overlaps = overlaps;
        if overlaps && self.wait == KernelWait::IfTold {
            self.arguments.set_overlaps();
        }
    }

    /// Gives it the argument with this index of `launch`. False, and without effect, if it has to be made
    /// again for that.
    pub(super) fn replace_argument(&mut self, launch: &KernelLaunch, index: usize) -> Result<bool> {
        let (params, arg) = (launch.kernel.params(), &launch.args[index]);
        self.arguments.replace(params, index, arg, CudaMemory::address_of)
    }

    /// Calls `use_it` with the launch as the driver takes it. The driver copies what the pointers
    /// point to.
    pub(super) fn with_params<R>(&self, use_it: impl FnOnce(&CUDA_KERNEL_NODE_PARAMS_v2) -> R) -> R {
        let ([x, y, z], [block_x, block_y, block_z]) = (self.geometry.grid, self.geometry.block);
        self.arguments.with_pointers(|pointers| {
            use_it(&CUDA_KERNEL_NODE_PARAMS_v2 {
                func: self.function,
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: u32::try_from(self.arguments.local()).unwrap_or(u32::MAX),
                kernelParams: pointers.as_mut_ptr(),
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: std::ptr::null_mut(),
            })
        })
    }
}

/// A kernel of the backend's own, in PTX. It is loaded when it is first used.
#[derive(Clone, Copy, Debug)]
pub(super) enum BuiltinKernel {
    /// Repeats a pattern of any length over memory.
    Fill,
    /// Repeats a word over memory, as a memset node does.
    Set,
    /// Decides about a conditional node by a word in memory.
    Condition,
    /// Counts a run that has ended in a completion counter.
    Count,
}

/// The PTX in a file, which the driver takes with a NUL at its end.
macro_rules! ptx {
    ($file:literal) => {
        concat!(include_str!($file), "\0").as_bytes()
    };
}

impl BuiltinKernel {
    /// A launch of this kernel over this many work-items. Each argument is an address or a number, of
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
                let function = CudaFunction::of(program::module(&device.pool, code, name)?, name, name)?;
                loaded.get_or_init(|| function)
            }
        };
        let (geometry, arguments) = (LaunchGeometry::linear(items), LaunchArguments::of_words(args));
        let (function, wait) = (function.raw, KernelWait::Never);
        Ok(CudaLaunch { function, geometry, arguments, wait, overlaps: false })
    }
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::AccessMode;

    use super::*;

    #[test]
    fn slices_of_the_dialect_have_two_parameters() {
        let param = |name: &'static str, kind| Param { name: name.into(), kind };
        let params = [
            param("a", ParamKind::Value { size: 4 }),
            param("x", ParamKind::Buffer { access: AccessMode::Read, element_size: 4, element_align: 4 }),
            param("tile", ParamKind::Local { element_size: 4 }),
        ];
        let sizes =
            |portable| parameters(&params, portable).into_iter().map(|(_, size)| size).collect::<Vec<_>>();
        assert_eq!(sizes(false), [4, 8, 4]);
        assert_eq!(sizes(true), [4, 8, 8, 4, 8, 56]);
    }
}

//! Kernels, loaded from the first source variant that HIP takes; their launches in the driver's form; and the
//! backend's own kernel.
#![expect(unsafe_code, reason = "calls the driver")]

use std::borrow::Cow;
use std::sync::Arc;

use wakegraph_hal::support::errors::foreign;
use wakegraph_hal::support::kernel_cache::load_or_compile_again;
use wakegraph_hal::support::launch::{LaunchArguments, LaunchGeometry};
use wakegraph_hal::support::streams::{DriverContext as _, prepare_launch};
use wakegraph_hal::{
    AccessMode, Compilation, Error, ErrorKind, Kernel, KernelArg, KernelDesc, KernelLaunch, Param, ParamKind,
    Range, Result, UsmPointer, dialect,
};

use super::context::HipStream;
use super::device::{HipDeviceInner, HipMemory, LOCAL_GAPS};
use super::program::{self, HipFunction};
use super::sys::{
    HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, HipFailure, dim3,
    hipFunction_t, hipKernelNodeParams, outcome,
};

/// A loaded kernel.
#[derive(Debug)]
pub(super) struct HipKernel {
    name: String,
    params: Vec<Param>,
    pub(super) function: HipFunction,
    /// Whether it is in the portable dialect: its entry point also takes the launch's size and
    /// offset, and skips work-items beyond that size.
    is_portable: bool,
    max_work_group_size: usize,
    /// Local memory that its source declares.
    static_local: usize,
    compilation: Compilation,
}

impl HipKernel {
    pub(super) fn load(device: &HipDeviceInner, desc: &KernelDesc<'_>) -> Result<Self> {
        let architecture = &device.architecture;
        let code = code(architecture, desc)?;
        let _bound = device.context.bind()?;
        let load = |code: &KernelCode| program::module(&device.pool, &code.code, desc.name, architecture);
        let (module, KernelCode { portable, compilation, .. }) =
            load_or_compile_again(code, load, |refused| {
                program::forget(&refused.code);
                self::code(architecture, desc)
            })?;
        let entry = if portable { dialect::entry_name(desc.name) } else { desc.name.to_owned() };
        let function = HipFunction::of(module, &entry, desc.name)?;
        Ok(Self {
            name: desc.name.into(),
            params: desc.params.into(),
            is_portable: portable,
            max_work_group_size: function.attribute(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_local: function.attribute(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            compilation,
            function,
        })
    }

    /// Checks that a work-group can have this much dynamic local memory beside the kernel's own. The
    /// driver would end the process.
    fn check_local(&self, dynamic: usize, most: usize) -> Result<()> {
        let needed = self.static_local + dynamic;
        if needed <= most {
            return Ok(());
        }
        let why =
            format!("kernel '{}' needs {needed} bytes of local memory, the device has {most}", self.name);
        Err(Error::new(ErrorKind::InvalidSize, why).help("use smaller work-groups, or less memory for each"))
    }
}

/// The code object that the driver loads.
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

fn code(architecture: &str, desc: &KernelDesc<'_>) -> Result<KernelCode> {
    let KernelDesc { name, params, sources } = *desc;
    let compiled = |portable| move |(code, compilation)| KernelCode { code, portable, compilation };
    if let Some(object) = &sources.code_object {
        let (code, compilation) = (Arc::from(&object[..]), Compilation::default());
        return Ok(KernelCode { code, portable: false, compilation });
    }
    if let Some(source) = &sources.hip_c {
        return program::compile(name, source, architecture).map(compiled(false));
    }
    if let Some(source) = &sources.c {
        let text = dialect::hip(source) + &dialect::entry_point(name, params);
        return program::compile(name, &text, architecture).map(compiled(true));
    }
    let why = format!("kernel '{name}' has no variant for HIP, only {:?}", sources.names());
    Err(Error::new(ErrorKind::FeatureNotSupported, why)
        .help("add a source in the portable C dialect (`c:`), HIP C++ or a code object"))
}

impl Kernel for HipKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn max_work_group_size(&self) -> usize {
        self.max_work_group_size
    }

    fn compilation(&self) -> Compilation {
        self.compilation
    }
}

/// The packet of a launch has its size in work-items, in 32 bits for each dimension.
const MOST_ITEMS: usize = u32::MAX as usize;

/// A launch with all its parameters, as a graph's node takes them.
#[derive(Clone, Debug)]
pub(super) struct HipLaunch {
    function: hipFunction_t,
    geometry: LaunchGeometry,
    arguments: LaunchArguments,
}

// SAFETY: any thread may launch a function, and several may do so at a time.
unsafe impl Send for HipLaunch {}
// SAFETY: as for `Send`.
unsafe impl Sync for HipLaunch {}

impl HipLaunch {
    /// The launch of a kernel of this device.
    pub(super) fn of(device: &HipDeviceInner, launch: &KernelLaunch) -> Result<Self> {
        let kernel = launch.kernel.downcast_ref::<HipKernel>();
        let kernel = kernel.filter(|kernel| Arc::ptr_eq(kernel.function.context(), &device.context));
        let kernel = kernel.ok_or_else(|| foreign("kernel"))?;
        let (geometry, arguments) =
            prepare_launch(device, launch, kernel.is_portable, (MOST_ITEMS, device.wavefront))?;
        kernel.check_local(arguments.local(), device.parts.capabilities.local_memory + LOCAL_GAPS)?;
        Ok(Self { function: kernel.function.raw, geometry, arguments })
    }

    /// Gives it the argument with this index of `launch`. False, and without effect, if it has to be made
    /// again for that.
    pub(super) fn replace_argument(&mut self, launch: &KernelLaunch, index: usize) -> Result<bool> {
        let (params, arg) = (launch.kernel.params(), &launch.args[index]);
        self.arguments.replace(params, index, arg, HipMemory::address_of)
    }

    /// Calls `use_it` with the launch as the driver takes it. The driver copies what the pointers
    /// point to.
    pub(super) fn with_params<R>(&self, use_it: impl FnOnce(&hipKernelNodeParams) -> R) -> R {
        let three = |[x, y, z]: [u32; 3]| dim3 { x, y, z };
        self.arguments.with_pointers(|pointers| {
            use_it(&hipKernelNodeParams {
                blockDim: three(self.geometry.block),
                extra: std::ptr::null_mut(),
                func: self.function.cast(),
                gridDim: three(self.geometry.grid),
                kernelParams: pointers.as_mut_ptr(),
                sharedMemBytes: u32::try_from(self.arguments.local()).unwrap_or(u32::MAX),
            })
        })
    }

    /// Starts it on a stream, outside of graphs. The caller has bound the context.
    pub(super) fn start(&self, stream: &HipStream) -> Result<(), HipFailure> {
        self.with_params(|params| {
            let hipKernelNodeParams { blockDim: b, gridDim: g, sharedMemBytes: shared, .. } = *params;
            let (function, arguments, extra) = (self.function, params.kernelParams, params.extra);
            let (driver, raw, _arguments) =
                (stream.driver(), stream.raw(), stream.context().arguments.hold());
            let call = driver.hipModuleLaunchKernel;
            // SAFETY: function and stream are of one device; the driver copies the arguments.
            outcome("hipModuleLaunchKernel", unsafe {
                call(function, g.x, g.y, g.z, b.x, b.y, b.z, shared, raw, arguments, extra)
            })
        })
    }
}

/// Work-items of a fill: enough for every compute unit there is.
const MOST_FILL_ITEMS: usize = 1 << 19;

/// A launch of the backend's own kernel, which repeats a pattern of any length over memory. It is in the
/// portable dialect, and hipRTC compiles it when it is first used. The caller has bound the context.
///
/// # Errors
/// Those of a compilation, the first time: without hipRTC, there is no such kernel.
pub(super) fn fill(device: &HipDeviceInner, memory: UsmPointer, pattern: UsmPointer) -> Result<HipLaunch> {
    fill_by(device, memory.len().min(MOST_FILL_ITEMS), memory, pattern)
}

/// As [`fill`], by this many work-items.
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
            let (code, _) = program::compile(NAME, &text, architecture)?;
            let load = |code: &Arc<[u8]>| program::module(&device.pool, code, NAME, architecture);
            let (module, _) = load_or_compile_again(code, load, |refused| {
                program::forget(refused);
                Ok(program::compile(NAME, &text, architecture)?.0)
            })?;
            let function = HipFunction::of(module, &entry, NAME)?;
            device.fill.get_or_init(|| function)
        }
    };
    let (range, geometry) = (Range::linear(items), LaunchGeometry::linear(items));
    let args = [KernelArg::Usm(memory), KernelArg::Usm(pattern)];
    let arguments = LaunchArguments::portable(&params, &args, &range, &geometry, HipMemory::address_of)?;
    Ok(HipLaunch { function: function.raw, geometry, arguments })
}

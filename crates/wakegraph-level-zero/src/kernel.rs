//! Kernels, and their instances: a kernel handle for each recorded launch, with its arguments set.
//!
//! Arguments, group size and offset are the state of a handle, and the driver takes one call at a
//! time. So every recorded launch has a handle of its own, set once.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use wakegraph_hal::support::errors::foreign;
use wakegraph_hal::support::kernel_cache::load_or_compile_again;
use wakegraph_hal::support::launch::{
    KernelDeclaration, MemoryArgument, SourceArgument, SourceArguments, divides, kernel_symbol,
};
use wakegraph_hal::support::sources::{self, FoundParam, FoundType};
use wakegraph_hal::support::spirv::{self, SpirvParam};
use wakegraph_hal::{
    Compilation, Error, ErrorKind, Kernel, KernelArg, KernelDesc, KernelLaunch, Param, ParamKind, Range,
    Result, dialect,
};

use super::context::LevelZeroContext;
use super::memory::own_memory;
use super::program::{self, KernelCode};
use super::sys::{self, DriverResult, Module, Owned, call, fill, get};

/// A kernel of a module. The fields are dropped in this order.
#[derive(Debug)]
pub(super) struct LevelZeroKernel {
    /// A handle that is never launched. Lists name alternatives by it.
    handle: Owned<sys::Kernel>,
    module: Arc<Owned<Module>>,
    symbol: CString,
    declaration: KernelDeclaration,
    max_work_group_size: usize,
    /// Local memory that the source declares.
    own_local_memory: usize,
    compilation: Compilation,
    context: Arc<LevelZeroContext>,
}

/// A kernel handle with arguments, group size and offset, and the number of groups to launch. The
/// fields are dropped in this order.
#[derive(Debug)]
pub(super) struct LevelZeroKernelInstance {
    handle: Owned<sys::Kernel>,
    pub(super) groups: sys::ze_group_count_t,
    _module: Arc<Owned<Module>>,
}

/// The instance of a recorded launch. A list that is changed in place needs none, so an update
/// leaves it to the next recording.
#[derive(Default, Debug)]
pub(super) struct LaunchInstance(OnceLock<Arc<LevelZeroKernelInstance>>);

impl LaunchInstance {
    pub(super) fn new(instance: LevelZeroKernelInstance) -> Self {
        Self(OnceLock::from(Arc::new(instance)))
    }

    pub(super) fn get(&self) -> Option<&Arc<LevelZeroKernelInstance>> {
        self.0.get()
    }

    /// Creates it for this launch, unless it is there.
    pub(super) fn create(&self, context: &LevelZeroContext, launch: &KernelLaunch) -> Result<()> {
        if self.0.get().is_none() {
            let kernel = LevelZeroKernel::of(&*launch.kernel, context)?;
            let instance = Arc::new(kernel.instance(&launch.args, &launch.range)?);
            self.0.get_or_init(|| instance);
        }
        Ok(())
    }
}

impl LevelZeroKernelInstance {
    /// The handle, for calls. It is valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_kernel_handle_t {
        self.handle.raw()
    }
}

/// A range as the driver takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchShape {
    pub(super) group_size: [u32; 3],
    pub(super) groups: sys::ze_group_count_t,
    pub(super) offset: [u32; 3],
}

/// The address of memory, or 0.
#[derive(Debug)]
pub(super) struct LevelZeroAddress(usize);

impl MemoryArgument for LevelZeroAddress {
    /// The value of a null pointer is null.
    fn value(&self) -> (usize, *const c_void) {
        let place = if self.0 == 0 { ptr::null() } else { ptr::from_ref(&self.0).cast() };
        (size_of::<usize>(), place)
    }
}

pub(super) type LevelZeroArgument<'a> = SourceArgument<'a, LevelZeroAddress>;

impl LevelZeroKernel {
    pub(super) fn load(context: &Arc<LevelZeroContext>, desc: &KernelDesc<'_>) -> Result<Self> {
        let name = desc.name;
        let load = |code: &KernelCode<'_>| program::module(context, &code.binary, name);
        let (module, code) = load_or_compile_again(program::code(context, desc)?, load, |refused| {
            program::forget(&refused.binary);
            program::code(context, desc)
        })?;
        let KernelCode { binary, symbol, portable, compilation } = code;
        let names = program::kernel_names(context, &module)?;
        if !names.contains(&symbol) {
            let own = |name: &String| match portable {
                true => name.strip_prefix(&dialect::entry_name("")).unwrap_or(name).to_owned(),
                false => name.clone(),
            };
            let there: Vec<_> = names.iter().map(own).collect();
            let why = format!("the code has no kernel '{name}': it has {}", there.join(", "));
            return Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("name the function in the source as the kernel"));
        }
        let symbol = kernel_symbol(&symbol)?;
        let handle = create_kernel(context, &module, &symbol)?;
        let properties = KernelProperties::read(context, &handle)?;
        check_parameters(context, desc, &binary, &symbol.to_string_lossy(), portable, properties.arguments)?;
        let largest = context.capabilities.max_work_group_size;
        Ok(Self {
            handle,
            module,
            symbol,
            declaration: KernelDeclaration::new(desc, portable, properties.required_work_group),
            // Old drivers do not tell.
            max_work_group_size: match properties.max_group_size {
                0 => largest,
                own => largest.min(own),
            },
            own_local_memory: properties.own_local_memory,
            compilation,
            context: Arc::clone(context),
        })
    }

    /// The kernel, if `device` can launch it.
    pub(super) fn of<'a>(kernel: &'a dyn Kernel, device: &LevelZeroContext) -> Result<&'a Self> {
        kernel
            .downcast_ref::<Self>()
            .filter(|kernel| {
                kernel.context.shares_memory_with(device) && kernel.context.device == device.device
            })
            .ok_or_else(|| foreign("kernel"))
    }

    /// A handle that is never launched.
    pub(super) fn raw(&self) -> sys::ze_kernel_handle_t {
        self.handle.raw()
    }

    /// An instance with these arguments, for this range.
    pub(super) fn instance(&self, args: &[KernelArg], range: &Range) -> Result<LevelZeroKernelInstance> {
        let (context, shape) = (&self.context, self.shape(range)?);
        let handle = create_kernel(context, &self.module, &self.symbol)?;
        let (api, raw) = (context.api, handle.raw());
        for (index, (param, argument)) in (0..).zip(&self.arguments(args)?) {
            let (len, value) = argument.value();
            // SAFETY: only this thread knows the handle, and the driver copies `len` bytes.
            let set = unsafe { call!(api, zeKernelSetArgumentValue(raw, index, len, value)) };
            set.map_err(|failure| self.declaration.not_accepted(param, failure.into()))?;
        }
        let [x, y, z] = shape.group_size;
        // SAFETY: only this thread knows the handle.
        unsafe { call!(api, zeKernelSetGroupSize(raw, x, y, z)) }?;
        if context.features.global_offset {
            let [x, y, z] = shape.offset;
            // SAFETY: as above.
            unsafe { call!(api, zeKernelSetGlobalOffsetExp(raw, x, y, z)) }?;
        }
        if self.may_hold_pointers() {
            let all = sys::ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST
                | sys::ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE
                | sys::ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED;
            // SAFETY: as above.
            unsafe { call!(api, zeKernelSetIndirectAccess(raw, all)) }?;
        }
        Ok(LevelZeroKernelInstance { handle, groups: shape.groups, _module: Arc::clone(&self.module) })
    }

    /// Whether a value is large enough for a pointer, through which the kernel may access memory.
    fn may_hold_pointers(&self) -> bool {
        self.declaration
            .params
            .iter()
            .any(|param| matches!(param.kind, ParamKind::Value { size } if size >= size_of::<usize>()))
    }

    /// The arguments in the order of the source.
    pub(super) fn arguments<'a>(
        &'a self,
        args: &'a [KernelArg],
    ) -> Result<SourceArguments<'a, LevelZeroAddress>> {
        self.declaration.arguments(args, |arg| address(&self.context, arg))
    }

    /// Group size, number of groups and offset for a range.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) for groups that do not divide the range or are not
    /// those that the source demands, and for numbers beyond 32 bits.
    pub(super) fn shape(&self, range: &Range) -> Result<LaunchShape> {
        let global = range.global_size();
        let local = self.declaration.local_size(range)?.unwrap_or_else(|| {
            largest_group(global, self.context.capabilities.max_work_item_sizes, self.max_work_group_size)
        });
        if !divides(local, global) {
            let why = format!("{range}: the work-group size does not divide the global size");
            return Err(Error::new(ErrorKind::InvalidSize, why));
        }
        let groups = [0, 1, 2].map(|dimension| global[dimension] / local[dimension]);
        let numbers = (narrow(local), narrow(groups), narrow(range.offset()));
        let (Some(group_size), Some([x, y, z]), Some(offset)) = numbers else {
            let why = format!("{range}: sizes and offsets of this device have 32 bits");
            return Err(Error::new(ErrorKind::InvalidSize, why).help("launch it in pieces"));
        };
        let groups = sys::ze_group_count_t { groupCountX: x, groupCountY: y, groupCountZ: z };
        Ok(LaunchShape { group_size, groups, offset })
    }
}

/// Properties of a kernel, as the driver reports them.
struct KernelProperties {
    arguments: usize,
    /// 0 where the driver does not tell.
    max_group_size: usize,
    own_local_memory: usize,
    /// The work-group size that the source requires, if it does.
    required_work_group: Option<[usize; 3]>,
}

impl KernelProperties {
    fn read(context: &LevelZeroContext, kernel: &Owned<sys::Kernel>) -> DriverResult<Self> {
        let mut largest = sys::ze_kernel_max_group_size_properties_ext_t::new();
        let mut properties = sys::ze_kernel_properties_t::new();
        if context.features.kernel_group_size {
            properties.pNext = (&raw mut largest).cast();
        }
        // SAFETY: the kernel is alive, and so is the structure behind the first, which the driver
        // knows.
        let properties = unsafe { fill!(context.api, zeKernelGetProperties(kernel.raw()), properties) }?;
        let required =
            [properties.requiredGroupSizeX, properties.requiredGroupSizeY, properties.requiredGroupSizeZ]
                .map(|size| size as usize);
        Ok(Self {
            arguments: properties.numKernelArgs as usize,
            max_group_size: largest.maxGroupSize as usize,
            own_local_memory: properties.localMemSize as usize,
            required_work_group: required.iter().all(|&size| size > 0).then_some(required),
        })
    }
}

/// Compares the parameters in the code with the declaration, as far as the SPIR-V tells them: that of the
/// portable dialect has the types as texts.
fn check_parameters(
    context: &LevelZeroContext,
    desc: &KernelDesc<'_>,
    binary: &[u8],
    symbol: &str,
    portable: bool,
    count: usize,
) -> Result<()> {
    let found = spirv::params(binary, symbol).unwrap_or_default();
    let types = spirv::source_types(binary, symbol).filter(|_| portable).unwrap_or_default();
    let found = |index: usize| {
        let (param, of_type) = (found.get(index)?, types.get(index));
        let elements = of_type.map(|(pointer, _)| FoundType::behind(pointer));
        Some(match param {
            SpirvParam::Value(size) if !portable => {
                FoundParam::Value(Some(FoundType { name: "value".into(), size: Some(*size) }))
            }
            SpirvParam::Other if !portable => return None,
            // A structure is passed by a pointer to it.
            SpirvParam::Value(_) | SpirvParam::Other => {
                FoundParam::Value(of_type.map(|(name, _)| FoundType::named(name)))
            }
            SpirvParam::Buffer => {
                let is_const = of_type.is_some_and(|(_, qualifiers)| qualifiers.contains("const"));
                FoundParam::Buffer { elements, is_const }
            }
            SpirvParam::Local => FoundParam::Local(elements),
        })
    };
    sources::check(desc, portable, count, found, |end| program::compiles(context, desc, end))
}

fn create_kernel(
    context: &LevelZeroContext,
    module: &Owned<Module>,
    symbol: &CString,
) -> DriverResult<Owned<sys::Kernel>> {
    let mut desc = sys::ze_kernel_desc_t::new();
    desc.pKernelName = symbol.as_ptr();
    // SAFETY: the module is alive, and the name ends in NUL.
    let raw = unsafe { get!(context.api, zeKernelCreate(module.raw(), &raw const desc)) }?;
    // SAFETY: the driver has just created the kernel for this object.
    Ok(unsafe { Owned::new(context.api, raw) })
}

fn address(context: &LevelZeroContext, arg: &KernelArg) -> Result<LevelZeroAddress> {
    Ok(LevelZeroAddress(match arg {
        KernelArg::Usm(pointer) => pointer.address(),
        // Host memory of other backends is refused: old drivers do so, new ones say nothing.
        KernelArg::Memory(view) => {
            let memory = own_memory(context, view).ok_or_else(|| foreign("memory"))?;
            memory.address() + view.offset()
        }
        KernelArg::Value(_) | KernelArg::Local(_) => 0,
    }))
}

fn narrow(sizes: [usize; 3]) -> Option<[u32; 3]> {
    let mut narrow = [0; 3];
    for (narrow, size) in narrow.iter_mut().zip(sizes) {
        *narrow = u32::try_from(size).ok()?;
    }
    Some(narrow)
}

/// The group whose size in each dimension, from the first on, is the largest divisor of the range's
/// that fits into what is left of `total`. A prime length beyond the limits means groups of 1.
fn largest_group(global: [usize; 3], most: [usize; 3], total: usize) -> [usize; 3] {
    let mut left = total.max(1);
    [0, 1, 2].map(|dimension| {
        let size = largest_divisor(global[dimension], most[dimension].min(left));
        left /= size;
        size
    })
}

/// The largest divisor of `number` up to `most`, which is at least 1.
fn largest_divisor(number: usize, most: usize) -> usize {
    (1..=most.min(number)).rev().find(|divisor| number.is_multiple_of(*divisor)).unwrap_or(1)
}

impl Kernel for LevelZeroKernel {
    fn name(&self) -> &str {
        &self.declaration.name
    }

    fn params(&self) -> &[Param] {
        &self.declaration.params
    }

    fn max_work_group_size(&self) -> usize {
        self.max_work_group_size
    }

    fn own_local_memory(&self) -> usize {
        self.own_local_memory
    }

    fn compilation(&self) -> Compilation {
        self.compilation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_the_largest_divisors_that_fit() {
        let most = [256, 256, 64];
        for (global, total, expected) in [
            ([1000, 1, 1], 256, [250, 1, 1]),
            ([1 << 20, 1, 1], 256, [256, 1, 1]),
            ([7, 9, 1], 256, [7, 9, 1]),
            ([64, 64, 64], 256, [64, 4, 1]),
            ([65_537, 2, 1], 256, [1, 2, 1]),
            ([3, 5, 7], 1, [1, 1, 1]),
            ([1, 1, 128], 256, [1, 1, 64]),
        ] {
            assert_eq!(largest_group(global, most, total), expected, "{global:?}");
        }
    }

    #[test]
    fn null_pointers_have_no_value() {
        assert_eq!(LevelZeroAddress(0).value(), (8, ptr::null()));
        let address = LevelZeroAddress(16);
        assert_eq!(address.value(), (8, ptr::from_ref(&address.0).cast()));
    }
}

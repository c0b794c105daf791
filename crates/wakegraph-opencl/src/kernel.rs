//! Kernels, and their instances: a `cl_kernel` for each recorded launch, with its arguments set.
//!
//! A launch reads the arguments of its `cl_kernel` when it is enqueued, and OpenCL does not allow
//! several threads to set them at once. So every launch has an instance of its own, set once.
#![expect(unsafe_code, reason = "calls the driver")]

use std::borrow::Cow;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::errors::foreign;
use wakegraph_hal::support::launch::{
    KernelDeclaration, MemoryArgument, SourceArgument, SourceArguments, kernel_symbol, no_variant,
};
use wakegraph_hal::support::memory::DriverAllocation as _;
use wakegraph_hal::support::sources::{self, FoundParam, FoundType};
use wakegraph_hal::{
    Compilation, Error, ErrorKind, Kernel, KernelArg, KernelDesc, Param, Range, Result, dialect,
};

use super::context::OpenclContext;
use super::memory::OpenclMemory;
use super::platform::{Query as _, query_kernel, query_kernel_argument, query_kernel_on_device};
use super::program::{self, Code};
use super::sys::{self, DriverResult, MemObject, Owned, Program, call, create};

/// A kernel of a built program.
#[derive(Debug)]
pub(super) struct OpenclKernel {
    declaration: KernelDeclaration,
    /// The name in the program.
    symbol: CString,
    program: Arc<Owned<Program>>,
    max_work_group_size: usize,
    /// Local memory that the source declares.
    own_local_memory: usize,
    compilation: Compilation,
    context: Arc<OpenclContext>,
}

/// A kernel of the driver with its arguments, and the parts of buffers that these refer to.
#[derive(Debug)]
pub(super) struct OpenclKernelInstance {
    pub(super) kernel: Owned<sys::Kernel>,
    parts: SmallVec<[Owned<MemObject>; 2]>,
}

/// Memory as the driver takes it.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum OpenclAddress {
    /// A buffer object.
    Buffer(sys::cl_mem),
    /// An address in shared memory, which is passed by another call and has no size.
    Pointer(usize),
}

pub(super) type OpenclArgument<'a> = SourceArgument<'a, OpenclAddress>;

impl MemoryArgument for OpenclAddress {
    fn value(&self) -> (usize, *const c_void) {
        match self {
            Self::Buffer(buffer) => (size_of::<sys::cl_mem>(), ptr::from_ref(buffer).cast()),
            Self::Pointer(address) => (0, ptr::with_exposed_provenance(*address)),
        }
    }
}

/// Whether an argument is passed by its address in shared memory.
pub(super) fn is_pointer(argument: &OpenclArgument<'_>) -> bool {
    matches!(argument, SourceArgument::Memory(OpenclAddress::Pointer(_)))
}

impl OpenclKernel {
    pub(super) fn load(context: &Arc<OpenclContext>, desc: &KernelDesc<'_>) -> Result<Self> {
        let name = desc.name;
        let (code, symbol, portable) = code(context, desc)?;
        let (program, compilation) = program::get(context, &code, name)?;
        let symbol = kernel_symbol(&symbol)?;
        let kernel = create_kernel(context, &program, &symbol).map_err(|failure| match failure.code {
            sys::CL_INVALID_KERNEL_NAME => {
                Error::new(ErrorKind::InvalidArgument, format!("the source has no kernel '{name}'"))
                    .help("name the function in the source as the kernel")
            }
            _ => failure.into(),
        })?;
        check_parameters(context, kernel.raw(), desc, &code, portable)?;
        let query = query_kernel_on_device(context.core, kernel.raw(), context.id.raw());
        let required = query.value::<[usize; 3]>(sys::CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        let required = (required != [0; 3]).then_some(required);
        Ok(Self {
            declaration: KernelDeclaration::new(desc, portable, required),
            symbol,
            program,
            max_work_group_size: query.value(sys::CL_KERNEL_WORK_GROUP_SIZE)?,
            // No argument is set yet, so this is the source's own, unless so little is left for gaps anyway.
            own_local_memory: query
                .value::<sys::cl_ulong>(sys::CL_KERNEL_LOCAL_MEM_SIZE)
                .map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
                .saturating_sub(context.features.local_gaps),
            compilation,
            context: Arc::clone(context),
        })
    }

    /// The work-group size for a launch; `None` leaves it to the driver.
    pub(super) fn local_size(&self, range: &Range) -> Result<Option<[usize; 3]>> {
        self.declaration.local_size(range)
    }

    /// The kernel, if `device` can launch it.
    pub(super) fn of<'a>(kernel: &'a dyn Kernel, device: &OpenclContext) -> Result<&'a Self> {
        kernel
            .downcast_ref::<Self>()
            .filter(|kernel| kernel.context.shares_memory_with(device) && kernel.context.id == device.id)
            .ok_or_else(|| foreign("kernel"))
    }

    /// An instance with these arguments.
    pub(super) fn instance(&self, args: &[KernelArg]) -> Result<OpenclKernelInstance> {
        let mut parts = SmallVec::new();
        let arguments = self.declaration.arguments(args, |arg| address(&self.context, arg, &mut parts))?;
        let kernel = create_kernel(&self.context, &self.program, &self.symbol)?;
        for (index, (param, argument)) in (0..).zip(&arguments) {
            self.set(&kernel, index, param, argument)?;
        }
        Ok(OpenclKernelInstance { kernel, parts })
    }

    /// Gives an instance another argument, which is [plain](is_plain). Launches that are enqueued already
    /// have read the old one. The caller has exclusive use of the instance.
    pub(super) fn set_argument(
        &self,
        instance: &OpenclKernelInstance,
        index: usize,
        arg: &KernelArg,
    ) -> Result<()> {
        let (mut parts, param) = (SmallVec::new(), &self.declaration.params[index]);
        let (own, len) =
            self.declaration.argument(param, arg, |arg| address(&self.context, arg, &mut parts))?;
        let place = self.declaration.place(index) as u32;
        self.set(&instance.kernel, place, param, &own)?;
        len.map_or(Ok(()), |len| self.set(&instance.kernel, place + 1, param, &len))
    }

    /// The arguments in the order of the source; `None` if they refer to parts of buffers.
    pub(super) fn plain_arguments<'a>(
        &'a self,
        args: &'a [KernelArg],
    ) -> Option<SourceArguments<'a, OpenclAddress>> {
        let mut parts = SmallVec::new();
        let arguments = self.declaration.arguments(args, |arg| address(&self.context, arg, &mut parts));
        arguments.ok().filter(|_| parts.is_empty())
    }

    /// Sets an argument. The caller has exclusive use of the kernel.
    fn set(
        &self,
        kernel: &Owned<sys::Kernel>,
        index: u32,
        param: &Param,
        argument: &OpenclArgument<'_>,
    ) -> Result<()> {
        let (core, raw, (len, value)) = (self.context.core, kernel.raw(), argument.value());
        let set = if is_pointer(argument) {
            // SAFETY: the kernel is the caller's. The driver does not read through the pointer.
            unsafe { call!(core, clSetKernelArgSVMPointer(raw, index, value)) }
        } else {
            // SAFETY: the kernel is the caller's, and the driver copies `len` bytes.
            unsafe { call!(core, clSetKernelArg(raw, index, len, value)) }
        };
        set.map_err(|failure| self.declaration.not_accepted(param, failure.into()))
    }
}

impl OpenclKernelInstance {
    /// Whether its arguments refer to no parts of buffers, which would have to live as long.
    pub(super) fn is_plain(&self) -> bool {
        self.parts.is_empty()
    }
}

/// The source variant for the device, the kernel's name in it, and whether it is in the portable
/// dialect.
fn code<'a>(context: &OpenclContext, desc: &'a KernelDesc<'_>) -> Result<(Code<'a>, Cow<'a, str>, bool)> {
    let sources = desc.sources;
    let own_name = Cow::Borrowed(desc.name);
    match (&sources.opencl_c, &sources.spirv, &sources.c) {
        (Some(own), ..) => Ok((Code::OpenclC([own, "\n"].concat()), own_name, false)),
        (_, Some(binary), _) if context.features.spirv => Ok((Code::Binary(binary), own_name, false)),
        (.., Some(c)) => {
            Ok((Code::Portable(dialect::opencl(c) + "\n"), dialect::entry_name(desc.name).into(), true))
        }
        _ => Err(no_variant(desc).help("add a source in the portable C dialect (`c:`)")),
    }
}

fn create_kernel(
    context: &OpenclContext,
    program: &Owned<Program>,
    name: &CString,
) -> DriverResult<Owned<sys::Kernel>> {
    // SAFETY: the program is built, and the name ends in NUL.
    unsafe { create!(context.core, clCreateKernel(program.raw(), name.as_ptr())) }
}

/// Compares the parameters in the source with the declaration, as far as the driver reports them: of a
/// program from a binary it may know their number only.
fn check_parameters(
    context: &OpenclContext,
    kernel: sys::cl_kernel,
    desc: &KernelDesc<'_>,
    code: &Code<'_>,
    portable: bool,
) -> Result<()> {
    let core = context.core;
    let count: sys::cl_uint = query_kernel(core, kernel).value(sys::CL_KERNEL_NUM_ARGS)?;
    let found = |index: usize| {
        let query = query_kernel_argument(core, kernel, index as sys::cl_uint);
        let type_name = || query.text(sys::CL_KERNEL_ARG_TYPE_NAME).ok().filter(|name| !name.is_empty());
        let elements = || type_name().map(|pointer| FoundType::behind(&pointer));
        Some(match query.value(sys::CL_KERNEL_ARG_ADDRESS_QUALIFIER).ok()? {
            sys::CL_KERNEL_ARG_ADDRESS_GLOBAL | sys::CL_KERNEL_ARG_ADDRESS_CONSTANT => {
                let qualifiers = query.value::<sys::cl_bitfield>(sys::CL_KERNEL_ARG_TYPE_QUALIFIER);
                let is_const = qualifiers.is_ok_and(|all| all & sys::CL_KERNEL_ARG_TYPE_CONST != 0);
                FoundParam::Buffer { elements: elements(), is_const }
            }
            sys::CL_KERNEL_ARG_ADDRESS_LOCAL => FoundParam::Local(elements()),
            sys::CL_KERNEL_ARG_ADDRESS_PRIVATE => {
                FoundParam::Value(type_name().map(|name| FoundType::named(&name)))
            }
            _ => return None,
        })
    };
    let compiles = |end: &str| program::compiles(context, code, end, desc.name);
    sources::check(desc, portable, count as usize, found, compiles)
}

/// Whether the driver takes the argument without a part of a buffer, which would have to live as long.
pub(super) fn is_plain(context: &OpenclContext, arg: &KernelArg) -> bool {
    let mut parts = SmallVec::new();
    !matches!(arg, KernelArg::Memory(_)) || address(context, arg, &mut parts).is_ok() && parts.is_empty()
}

/// Memory for the driver. A part of a buffer that it refers to is added to `parts`.
fn address(
    context: &OpenclContext,
    arg: &KernelArg,
    parts: &mut SmallVec<[Owned<MemObject>; 2]>,
) -> Result<OpenclAddress> {
    let view = match arg {
        KernelArg::Memory(view) => view,
        KernelArg::Usm(pointer) if pointer.address() != 0 => {
            return Ok(OpenclAddress::Pointer(pointer.address()));
        }
        _ => return Ok(OpenclAddress::Buffer(ptr::null_mut())),
    };
    let memory = OpenclMemory::of(view)?;
    let start = memory.usm_address().filter(|_| memory.is_in(context));
    let is_whole = view.len() == view.memory().len() || view.offset() == 0 && !context.features.sub_buffers;
    Ok(match (start, memory.buffer_in(context)) {
        // Drivers for CPUs launch sooner with a buffer object than with an address.
        (_, Some(buffer)) if is_whole => OpenclAddress::Buffer(buffer.raw()),
        (Some(start), _) => OpenclAddress::Pointer(start + view.offset()),
        (None, Some(_)) => {
            let part = memory.part(context, view.offset(), view.len())?;
            let address = OpenclAddress::Buffer(part.raw());
            parts.push(part);
            address
        }
        (None, None) => return Err(foreign("memory")),
    })
}

impl Kernel for OpenclKernel {
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

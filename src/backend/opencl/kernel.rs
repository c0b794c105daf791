//! Kernels, and their instances: one `cl_kernel` for each recorded launch, with its arguments set.
//!
//! Setting arguments is the one thing that OpenCL does not allow on several threads at once, and a launch reads them when
//! it is enqueued: so every launch has an instance of its own, set once.
#![expect(unsafe_code, reason = "calls the driver")]

use std::any::Any;
use std::borrow::Cow;
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::device::Shared;
use super::memory::OpenclMemory;
use super::program::Code;
use super::query::KernelQuery;
use super::sys::{self, Failure, MemObject, Owned, Program, call, create};
use crate::hal::{Kernel, KernelArg, KernelDesc, MemoryView, Param, ParamKind, dialect};
use crate::types::{Error, ErrorKind, Result};

/// A kernel of a built program.
#[derive(Debug)]
pub(super) struct OpenclKernel {
    name: CString,
    text: String,
    params: Vec<Param>,
    program: Arc<Owned<Program>>,
    max_work_group_size: usize,
    /// The only work-group size that the source allows, if it names one.
    required_work_group: Option<[usize; 3]>,
    shared: Arc<Shared>,
}

/// A driver's kernel with its arguments, and the parts of buffers that these refer to.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) kernel: Owned<sys::Kernel>,
    _parts: SmallVec<[Owned<MemObject>; 2]>,
}

/// One argument as the driver takes it.
#[derive(Debug)]
pub(super) enum Argument<'a> {
    /// Bytes that the driver copies: a value, or the handle of a buffer object.
    Bytes(Cow<'a, [u8]>),
    /// An address in shared memory.
    Pointer(usize),
    /// So many bytes of local memory.
    Local(usize),
}

impl OpenclKernel {
    pub(super) fn load(shared: &Arc<Shared>, desc: &KernelDesc<'_>) -> Result<Self> {
        let name = desc.name;
        let (code, symbol) = code(shared, desc)?;
        let program = shared.programs.get(shared, code, name)?;
        let symbol = CString::new(symbol.as_ref()).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("kernel {name:?}: a NUL in the name"))
        })?;
        let kernel = create_kernel(shared, &program, &symbol).map_err(|failure| match failure.code {
            sys::CL_INVALID_KERNEL_NAME => {
                Error::new(ErrorKind::InvalidArgument, format!("the source has no kernel '{name}'"))
                    .help("name the function in the source as the kernel")
            }
            _ => failure.into(),
        })?;
        let query = KernelQuery { core: shared.core, kernel: kernel.raw() };
        check_parameters(query, desc)?;
        let device = shared.id.raw();
        let required = query.work_group::<[usize; 3]>(device, sys::CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        Ok(Self {
            name: symbol,
            text: name.into(),
            params: desc.params.into(),
            program,
            max_work_group_size: query.work_group(device, sys::CL_KERNEL_WORK_GROUP_SIZE)?,
            required_work_group: (required != [0; 3]).then_some(required),
            shared: Arc::clone(shared),
        })
    }

    pub(super) fn required_work_group(&self) -> Option<[usize; 3]> {
        self.required_work_group
    }

    /// The kernel, if `device` can launch it.
    pub(super) fn of<'a>(kernel: &'a dyn Kernel, device: &Shared) -> Result<&'a Self> {
        kernel
            .as_any()
            .downcast_ref::<Self>()
            .filter(|kernel| {
                Arc::ptr_eq(&kernel.shared.context, &device.context) && kernel.shared.id == device.id
            })
            .ok_or_else(|| super::foreign("kernel"))
    }

    /// An instance with these arguments.
    pub(super) fn instance(&self, args: &[KernelArg]) -> Result<Instance> {
        let kernel = create_kernel(&self.shared, &self.program, &self.name)?;
        let mut parts = SmallVec::new();
        for (index, arg) in args.iter().enumerate() {
            let set = argument(&self.shared, arg, &mut parts)
                .and_then(|argument| Ok(set_argument(&self.shared, &kernel, index, &argument)?));
            set.map_err(|error| {
                let param = self.params.get(index).map_or("", |param| &param.name);
                let why = format!("kernel '{}': argument {index} '{param}' is not accepted", self.text);
                Error::new(error.kind(), why).caused_by(error)
            })?;
        }
        Ok(Instance { kernel, _parts: parts })
    }
}

/// The variant that the device takes, and what the kernel is called in it.
fn code<'a>(shared: &Shared, desc: &'a KernelDesc<'_>) -> Result<(Code<'a>, Cow<'a, str>)> {
    let sources = desc.sources;
    let own_name = Cow::Borrowed(desc.name);
    match (&sources.opencl_c, &sources.spirv, &sources.c) {
        (Some(source), ..) => Ok((Code::Source { prelude: "", source }, own_name)),
        (_, Some(binary), _) if shared.features.spirv => Ok((Code::Binary(binary), own_name)),
        (.., Some(source)) => {
            let entry = dialect::entry_name(desc.name);
            Ok((Code::Source { prelude: dialect::OPENCL, source }, entry.into()))
        }
        _ => {
            let there = sources.names();
            let why = format!("kernel '{}' has no variant for this device, only {there:?}", desc.name);
            Err(Error::new(ErrorKind::FeatureNotSupported, why)
                .help("add a source in the portable C dialect (`c:`)"))
        }
    }
}

fn create_kernel(
    shared: &Shared,
    program: &Owned<Program>,
    name: &CString,
) -> Result<Owned<sys::Kernel>, Failure> {
    // SAFETY: the program is built, and the name ends in NUL.
    let kernel = unsafe { create!(shared.core, clCreateKernel(program.raw(), name.as_ptr())) }?;
    // SAFETY: the kernel has just been created, for us.
    Ok(unsafe { Owned::new(shared.core, kernel) })
}

/// Whether the parameters in the source are those of the declaration, as far as the driver tells.
fn check_parameters(query: KernelQuery<'_>, desc: &KernelDesc<'_>) -> Result<()> {
    let (name, declared) = (desc.name, desc.params.len());
    let in_source = query.arguments()? as usize;
    if in_source != declared {
        let why =
            format!("kernel '{name}' is declared with {declared} parameters, its source has {in_source}");
        return Err(Error::new(ErrorKind::InvalidArgument, why)
            .help("declare the parameters of the source, in its order"));
    }
    for (index, param) in desc.params.iter().enumerate() {
        // A program from a binary, or an old driver, has no such information.
        let Ok(address) = query.argument_address(index as u32) else { return Ok(()) };
        let found = match address {
            sys::CL_KERNEL_ARG_ADDRESS_GLOBAL | sys::CL_KERNEL_ARG_ADDRESS_CONSTANT => "a buffer",
            sys::CL_KERNEL_ARG_ADDRESS_LOCAL => "local memory",
            sys::CL_KERNEL_ARG_ADDRESS_PRIVATE => "a value",
            _ => continue,
        };
        let expected = match param.kind {
            ParamKind::Buffer { .. } => "a buffer",
            ParamKind::Local { .. } => "local memory",
            ParamKind::Value { .. } => "a value",
        };
        if found != expected {
            let why = format!(
                "kernel '{name}': parameter {index} '{}' is declared as {expected}, in the source it is {found}",
                param.name
            );
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        }
        let ParamKind::Value { size: declared } = param.kind else { continue };
        let Ok(type_name) = query.argument_type(index as u32) else { continue };
        if let Some(size) = scalar_size(&type_name).filter(|&size| size != declared) {
            let why = format!(
                "kernel '{name}': parameter {index} '{}' is declared as a value of {declared} bytes, in the source it is \
                 a {type_name} of {size}",
                param.name
            );
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        }
    }
    Ok(())
}

/// The size of a scalar type of OpenCL C or of the portable dialect; not every driver compares it with the argument's.
fn scalar_size(type_name: &str) -> Option<usize> {
    Some(match type_name {
        "char" | "uchar" | "i8" | "u8" => 1,
        "short" | "ushort" | "half" | "i16" | "u16" => 2,
        "int" | "uint" | "float" | "i32" | "u32" => 4,
        "long" | "ulong" | "double" | "i64" | "u64" => 8,
        _ => return None,
    })
}

/// The argument for the driver; a part of a buffer that it needs is added to `parts`.
pub(super) fn argument<'a>(
    shared: &Shared,
    arg: &'a KernelArg,
    parts: &mut SmallVec<[Owned<MemObject>; 2]>,
) -> Result<Argument<'a>> {
    Ok(match arg {
        KernelArg::Value(bytes) => Argument::Bytes(Cow::Borrowed(bytes)),
        KernelArg::Local(bytes) => Argument::Local(*bytes),
        KernelArg::Usm(pointer) => Argument::Pointer(pointer.address()),
        KernelArg::Memory(view) => {
            let memory = memory(view)?;
            let start = memory.shared_address().filter(|_| memory.is_in(shared));
            match (start, memory.buffer_in(shared)) {
                // Drivers for CPUs launch sooner with a buffer object than with an address.
                (_, Some(buffer)) if view.len() == view.memory().len() => handle(buffer),
                (Some(start), _) => Argument::Pointer(start.as_ptr().expose_provenance() + view.offset()),
                (None, Some(buffer)) => {
                    let part = part(shared, buffer, view)?;
                    let argument = handle(&part);
                    parts.push(part);
                    argument
                }
                (None, None) => return Err(super::foreign("memory")),
            }
        }
    })
}

/// A buffer object as an argument is the bytes of its handle.
fn handle(buffer: &Owned<MemObject>) -> Argument<'static> {
    Argument::Bytes(Cow::Owned(buffer.raw().expose_provenance().to_ne_bytes().to_vec()))
}

pub(super) fn memory(view: &MemoryView) -> Result<&OpenclMemory> {
    view.memory().as_any().downcast_ref().ok_or_else(|| super::foreign("memory"))
}

/// A part of a buffer as an object of its own.
fn part(shared: &Shared, buffer: &Owned<MemObject>, view: &MemoryView) -> Result<Owned<MemObject>, Failure> {
    let region = sys::cl_buffer_region { origin: view.offset(), size: view.len() };
    let (whole, flags, kind) = (buffer.raw(), sys::CL_MEM_READ_WRITE, sys::CL_BUFFER_CREATE_TYPE_REGION);
    let region = (&raw const region).cast();
    // SAFETY: the buffer is alive, and the kind says that there is a region behind the pointer.
    let part = unsafe { create!(shared.core, clCreateSubBuffer(whole, flags, kind, region)) }?;
    // SAFETY: the part has just been created, for us.
    Ok(unsafe { Owned::new(shared.core, part) })
}

fn set_argument(
    shared: &Shared,
    kernel: &Owned<sys::Kernel>,
    index: usize,
    argument: &Argument<'_>,
) -> Result<(), Failure> {
    let (core, kernel, index) = (shared.core, kernel.raw(), index as sys::cl_uint);
    match argument {
        Argument::Bytes(bytes) => {
            let (len, bytes) = (bytes.len(), bytes.as_ptr().cast());
            // SAFETY: the kernel is this thread's alone, and the driver copies `len` bytes.
            unsafe { call!(core, clSetKernelArg(kernel, index, len, bytes)) }
        }
        Argument::Local(len) => {
            // SAFETY: the kernel is this thread's alone.
            unsafe { call!(core, clSetKernelArg(kernel, index, *len, ptr::null())) }
        }
        Argument::Pointer(address) => {
            let pointer = ptr::with_exposed_provenance(*address);
            // SAFETY: the kernel is this thread's alone; the pointer is followed only when it is launched.
            unsafe { call!(core, clSetKernelArgSVMPointer(kernel, index, pointer)) }
        }
    }
}

impl Kernel for OpenclKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        &self.text
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn max_work_group_size(&self) -> usize {
        self.max_work_group_size
    }
}

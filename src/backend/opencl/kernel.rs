//! Kernels, and their instances: one `cl_kernel` for each recorded launch, with its arguments set.
//!
//! Setting arguments is the one thing that OpenCL does not allow on several threads at once, and a
//! launch reads them when it is enqueued: so every launch has an instance of its own, set once.
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
    /// Whether it is of the portable dialect: then each slice is followed by its length.
    portable: bool,
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
    /// The length of the slice before it, in elements.
    Length(u64),
}

impl OpenclKernel {
    pub(super) fn load(shared: &Arc<Shared>, desc: &KernelDesc<'_>) -> Result<Self> {
        let name = desc.name;
        let (code, symbol, portable) = code(shared, desc)?;
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
        check_parameters(query, desc, portable)?;
        let device = shared.id.raw();
        let required = query.work_group::<[usize; 3]>(device, sys::CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        Ok(Self {
            name: symbol,
            text: name.into(),
            params: desc.params.into(),
            portable,
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
        let arguments = self.arguments(&self.shared, args, &mut parts)?;
        for (index, (param, argument)) in arguments.iter().enumerate() {
            set_argument(&self.shared, &kernel, index, argument)
                .map_err(|failure| self.not_accepted(param, failure.into()))?;
        }
        Ok(Instance { kernel, _parts: parts })
    }

    /// All arguments of the code in its order, with the parameters that they belong to: in the
    /// dialect the length of a slice follows it. Parts of buffers that they need are added to
    /// `parts`.
    pub(super) fn arguments<'a>(
        &self,
        shared: &Shared,
        args: &'a [KernelArg],
        parts: &mut SmallVec<[Owned<MemObject>; 2]>,
    ) -> Result<SmallVec<[(&Param, Argument<'a>); 8]>> {
        let mut all = SmallVec::new();
        for (param, arg) in self.params.iter().zip(args) {
            let own = argument(shared, arg, parts).map_err(|error| self.not_accepted(param, error))?;
            all.push((param, own));
            let len = dialect::slice_len(param, arg).filter(|_| self.portable);
            all.extend(len.map(|len| (param, Argument::Length(len))));
        }
        Ok(all)
    }

    fn not_accepted(&self, param: &Param, error: Error) -> Error {
        let why = format!("kernel '{}': argument '{}' is not accepted", self.text, param.name);
        Error::new(error.kind(), why).caused_by(error)
    }
}

/// The variant that the device takes, what the kernel is called in it, and whether it is of the
/// portable dialect.
fn code<'a>(shared: &Shared, desc: &'a KernelDesc<'_>) -> Result<(Code<'a>, Cow<'a, str>, bool)> {
    let sources = desc.sources;
    let own_name = Cow::Borrowed(desc.name);
    match (&sources.opencl_c, &sources.spirv, &sources.c) {
        (Some(source), ..) => Ok((Code::Source { prelude: "", source }, own_name, false)),
        (_, Some(binary), _) if shared.features.spirv => Ok((Code::Binary(binary), own_name, false)),
        (.., Some(source)) => {
            let entry = dialect::entry_name(desc.name);
            Ok((Code::Source { prelude: dialect::OPENCL, source }, entry.into(), true))
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

/// What a parameter of the source must be.
#[derive(Clone, Copy)]
enum Expected {
    Buffer,
    Local,
    /// A value of so many bytes.
    Value(usize),
    /// The length of the slice before it, of the dialect.
    Length,
}

/// The parameters that the source must have: of a kernel in the dialect, slices have two.
fn expected(params: &[Param], portable: bool) -> Vec<(&Param, Expected)> {
    let mut all = Vec::new();
    for param in params {
        let (expected, is_slice) = match param.kind {
            ParamKind::Value { size } => (Expected::Value(size), false),
            ParamKind::Buffer { .. } => (Expected::Buffer, true),
            ParamKind::Local { .. } => (Expected::Local, true),
        };
        all.push((param, expected));
        if portable && is_slice {
            all.push((param, Expected::Length));
        }
    }
    all
}

/// Whether the parameters in the source are those of the declaration, as far as the driver tells.
fn check_parameters(query: KernelQuery<'_>, desc: &KernelDesc<'_>, portable: bool) -> Result<()> {
    let expected = expected(desc.params, portable);
    let (name, declared, in_source) = (desc.name, expected.len(), query.arguments()? as usize);
    let help = match portable {
        true => {
            "declare the parameters of the source, in its order; there `&[T]` is SLICE(const T, x), `&mut [T]` is \
                 SLICE(T, x), and `Local<T>` is LOCAL_SLICE(T, x), which are two parameters each"
        }
        false => "declare the parameters of the source, in its order",
    };
    let refused =
        |why: String| Err(Error::new(ErrorKind::InvalidArgument, format!("kernel '{name}'{why}")).help(help));
    if in_source != declared {
        return refused(format!(" is declared with {declared} parameters, its source has {in_source}"));
    }
    for (index, (param, expected)) in expected.into_iter().enumerate() {
        // A program from a binary, or an old driver, has no such information.
        let Ok(address) = query.argument_address(index as u32) else { return Ok(()) };
        let found = match address {
            sys::CL_KERNEL_ARG_ADDRESS_GLOBAL | sys::CL_KERNEL_ARG_ADDRESS_CONSTANT => "a buffer",
            sys::CL_KERNEL_ARG_ADDRESS_LOCAL => "local memory",
            sys::CL_KERNEL_ARG_ADDRESS_PRIVATE => "a value",
            _ => continue,
        };
        let (what, size) = match expected {
            Expected::Buffer => ("a buffer", None),
            Expected::Local => ("local memory", None),
            Expected::Value(size) => ("a value", Some(size)),
            Expected::Length => ("a value", Some(size_of::<u64>())),
        };
        let of = if matches!(expected, Expected::Length) { "the length of " } else { "" };
        let param = format!(": parameter {index}, {of}'{}',", param.name);
        if found != what {
            return refused(format!("{param} is declared as {what}, in the source it is {found}"));
        }
        let (Some(declared), Ok(type_name)) = (size, query.argument_type(index as u32)) else { continue };
        if let Some(size) = scalar_size(&type_name).filter(|&size| size != declared) {
            return refused(format!(
                "{param} is declared as a value of {declared} bytes, in the source it is a {type_name} of {size}"
            ));
        }
    }
    Ok(())
}

/// The size of a scalar type of OpenCL C or of the portable dialect; not every driver compares it
/// with the argument's.
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
fn argument<'a>(
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
        Argument::Length(len) => {
            let len = ptr::from_ref(len).cast();
            // SAFETY: the kernel is this thread's alone, and the driver copies the number.
            unsafe { call!(core, clSetKernelArg(kernel, index, size_of::<u64>(), len)) }
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

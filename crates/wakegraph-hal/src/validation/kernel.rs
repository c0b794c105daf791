//! Kernels: signatures, arguments and index spaces.

use std::fmt::{self, Display};
use std::sync::Arc;

use smallvec::SmallVec;

use super::operand::{Extent, ViewOperand, address};
use crate::{
    CommandUpdate, Device, Error, ErrorKind, Kernel, KernelArg, KernelDesc, KernelLaunch, Param, ParamKind,
    Range, Result,
};

/// Whether a kernel can have this name, these sources and these parameters at all.
pub(super) fn check_signature(desc: &KernelDesc<'_>) -> Result<()> {
    let name = desc.name;
    if name.is_empty() || name.contains('\0') {
        return Err(invalid(format!("kernel {name:?}: the name is empty or holds a NUL")));
    }
    // On every device, whichever variant that takes: drivers read beyond a text of no bytes.
    if let Some(variant) = desc.sources.empty_variant() {
        return Err(invalid(format!("kernel '{name}': its source `{variant}` is empty"))
            .help(format!("give the kernel's code as `{variant}`, or leave that variant out")));
    }
    for (index, param) in desc.params.iter().enumerate() {
        let why = match param.kind {
            ParamKind::Value { size: 0 } => "is a value of 0 bytes".into(),
            ParamKind::Buffer { element_size: 0, .. } | ParamKind::Local { element_size: 0 } => {
                "has elements of 0 bytes".into()
            }
            ParamKind::Buffer { element_align, .. } if !element_align.is_power_of_two() => {
                format!("has elements aligned to {element_align}, which is not a power of two")
            }
            _ => continue,
        };
        return Err(invalid(format!("kernel '{name}': parameter {index} '{}' {why}", param.name)));
    }
    Ok(())
}

/// Whether the alternatives are other kernels than the command's own, which is registered anyway.
pub(super) fn check_alternatives(launch: &KernelLaunch) -> Result<()> {
    let own = |alternative: &&Arc<dyn Kernel>| same_kernel(alternative, &launch.kernel);
    match launch.alternatives.iter().find(own) {
        None => Ok(()),
        Some(kernel) => Err(invalid(format!(
            "{}: '{}' is listed among its own alternatives",
            Subject::launch(launch),
            kernel.name()
        ))
        .help("list only the other kernels")),
    }
}

/// Whether the two are one object. Only the data counts: one type can have several vtables.
pub(super) fn same_kernel(a: &Arc<dyn Kernel>, b: &Arc<dyn Kernel>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// The subject of an error about a kernel launch.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    kernel: &'a dyn Kernel,
    updated: Option<u32>,
}

impl<'a> Subject<'a> {
    /// The launch, as it is appended or enqueued.
    pub(super) fn launch(launch: &'a KernelLaunch) -> Self {
        Self { kernel: &*launch.kernel, updated: None }
    }

    /// An update of the command with this index, which holds `kernel` or shall hold it.
    pub(super) fn update(kernel: &'a Arc<dyn Kernel>, index: u32) -> Self {
        Self { kernel: &**kernel, updated: Some(index) }
    }
}

impl Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.updated {
            Some(index) => write!(f, "update of command {index} (kernel '{}')", self.kernel.name()),
            None => write!(f, "kernel '{}'", self.kernel.name()),
        }
    }
}

/// Whether the kernel can be launched with these arguments and this index space on `device`.
pub(super) fn check<'a>(launch: LaunchView<'a>, device: &'a dyn Device, subject: Subject<'a>) -> Result<()> {
    let check = LaunchCheck { launch, device, subject };
    check.arguments()?;
    check.aliases()?;
    check.local_memory()?;
    check.range()
}

/// A launch as it is, or as an update would leave it.
pub(super) struct LaunchView<'a> {
    kernel: &'a dyn Kernel,
    args: LaunchArgs<'a>,
    range: Range,
}

enum LaunchArgs<'a> {
    Own(&'a [KernelArg]),
    Updated(SmallVec<[&'a KernelArg; 8]>),
}

impl<'a> LaunchArgs<'a> {
    fn iter(&self) -> impl Iterator<Item = &'a KernelArg> {
        let (own, updated) = match self {
            Self::Own(args) => (*args, &[][..]),
            Self::Updated(args) => (&[][..], &args[..]),
        };
        own.iter().chain(updated.iter().copied())
    }

    fn len(&self) -> usize {
        match self {
            Self::Own(args) => args.len(),
            Self::Updated(args) => args.len(),
        }
    }
}

impl<'a> LaunchView<'a> {
    pub(super) fn of(launch: &'a KernelLaunch) -> Self {
        Self { kernel: &*launch.kernel, args: LaunchArgs::Own(&launch.args), range: launch.range }
    }

    /// The launch of `kernel` after an update, which names all of its arguments that the launch lacks.
    pub(super) fn updated(
        launch: &'a KernelLaunch,
        kernel: &'a Arc<dyn Kernel>,
        update: &'a CommandUpdate,
    ) -> Self {
        let arg = |index| {
            let new = update.args.iter().rfind(|(named, _)| *named == index).map(|(_, arg)| arg);
            new.or_else(|| launch.args.get(index))
        };
        let args = LaunchArgs::Updated((0..kernel.params().len()).filter_map(arg).collect());
        Self { kernel: &**kernel, args, range: update.range_after(launch.range) }
    }
}

struct LaunchCheck<'a> {
    launch: LaunchView<'a>,
    device: &'a dyn Device,
    subject: Subject<'a>,
}

impl<'a> LaunchCheck<'a> {
    fn arguments(&self) -> Result<()> {
        let (params, args) = (self.launch.kernel.params(), &self.launch.args);
        if params.len() != args.len() {
            let (takes, given) = (params.len(), args.len());
            let why = format_args!("takes {takes} arguments, {given} were given");
            return Err(self.error(ErrorKind::InvalidArgument, why));
        }
        self.pairs().try_for_each(|(param, arg)| self.argument(param, arg))
    }

    fn argument(&self, param: &Param, arg: &KernelArg) -> Result<()> {
        match (&param.kind, arg) {
            (ParamKind::Value { size }, KernelArg::Value(bytes)) if bytes.len() == *size => Ok(()),
            (ParamKind::Buffer { element_size, element_align, .. }, KernelArg::Memory(view)) => {
                ViewOperand { name: &param.name, view }.check_access(&self.subject, self.device)?;
                if view.is_empty() {
                    let why = format_args!("argument '{}' has 0 bytes", param.name);
                    return Err(self.error(ErrorKind::InvalidSize, why).help("pass a null pointer"));
                }
                self.elements(param, view.len(), *element_size)?;
                let alignment = self.device.capabilities().view_alignment.max(1);
                if !view.offset().is_multiple_of(alignment) {
                    let offset = view.offset();
                    return Err(self.wrong(
                        param,
                        format_args!("starts at byte {offset}, the device needs a multiple of {alignment}"),
                    ));
                }
                // Allocations are aligned for any element, so where there is no address the offset
                // decides.
                self.aligned(param, address(view).unwrap_or(view.offset()), *element_align)
            }
            (ParamKind::Buffer { element_size, element_align, .. }, KernelArg::Usm(pointer)) => {
                if pointer.address() == 0 && !pointer.is_empty() {
                    return Err(self.wrong(param, "is a null pointer"));
                }
                if pointer.address().checked_add(pointer.len()).is_none() {
                    let (address, len) = (pointer.address(), pointer.len());
                    let why = format_args!("ends beyond the address space: {len} bytes at {address:#x}");
                    return Err(self.wrong(param, why));
                }
                self.elements(param, pointer.len(), *element_size)?;
                self.aligned(param, pointer.address(), *element_align)
            }
            (ParamKind::Local { .. }, KernelArg::Local(0)) => {
                Err(self.wrong(param, "is local memory of 0 bytes"))
            }
            (ParamKind::Local { element_size }, KernelArg::Local(bytes)) => {
                self.elements(param, *bytes, *element_size)
            }
            (expected, given) => {
                Err(self.wrong(param, format_args!("is {given}, the parameter takes {expected}")))
            }
        }
    }

    fn elements(&self, param: &Param, len: usize, element_size: usize) -> Result<()> {
        if len.is_multiple_of(element_size) {
            return Ok(());
        }
        Err(self.wrong(param, format_args!("has {len} bytes, not whole elements of {element_size} bytes")))
    }

    fn aligned(&self, param: &Param, position: usize, align: usize) -> Result<()> {
        if position.is_multiple_of(align) {
            return Ok(());
        }
        Err(self.wrong(param, format_args!("starts at {position:#x}, not aligned to {align} bytes")))
    }

    /// No memory that the kernel writes may be reached through a second argument: a host kernel
    /// holds it as `&mut`, a device compiler may assume as much.
    fn aliases(&self) -> Result<()> {
        let mut buffers = SmallVec::<[(&Param, bool, Extent); 8]>::new();
        for (param, arg) in self.pairs() {
            let ParamKind::Buffer { access, .. } = &param.kind else { continue };
            let extent = match arg {
                KernelArg::Memory(view) => Extent::of_view(view),
                KernelArg::Usm(pointer) => Extent::of_pointer(*pointer, pointer.len()),
                KernelArg::Value(_) | KernelArg::Local(_) => continue,
            };
            let shares = |(_, writes, other): &&(&Param, bool, Extent)| {
                (access.writes() || *writes) && extent.overlaps(other)
            };
            if let Some((other, writes, other_extent)) = buffers.iter().find(shares) {
                let written = if *writes { other } else { param };
                let why = format!(
                    "arguments '{}' ({other_extent}) and '{}' ({extent}) overlap, and '{}' is written",
                    other.name, param.name, written.name
                );
                let error = self.error(ErrorKind::InvalidArgument, why);
                return Err(error.help("pass disjoint ranges, or one parameter that reads and writes"));
            }
            buffers.push((param, access.writes(), extent));
        }
        Ok(())
    }

    fn local_memory(&self) -> Result<()> {
        let bytes = self.launch.args.iter().map(|arg| match arg {
            KernelArg::Local(bytes) => *bytes,
            _ => 0,
        });
        let own = self.launch.kernel.own_local_memory();
        let total = bytes.fold(own, usize::saturating_add);
        let most = self.device.capabilities().local_memory;
        if total > most {
            let of_own = match own {
                0 => String::new(),
                own => format!(" ({own} of them are the kernel's own variables)"),
            };
            let why = format_args!("needs {total} bytes of local memory, the device has {most}{of_own}");
            return Err(self
                .error(ErrorKind::InvalidSize, why)
                .help("use smaller work-groups, or less memory for each"));
        }
        Ok(())
    }

    fn range(&self) -> Result<()> {
        let range = &self.launch.range;
        range.check().map_err(|error| self.error(error.kind(), error.message()))?;
        if range.is_empty() {
            let why = format_args!("{range} has a dimension of size 0");
            return Err(self.error(ErrorKind::InvalidSize, why).help("put an empty command in its place"));
        }
        let capabilities = self.device.capabilities();
        let most = capabilities.max_global_index;
        let mut ends = range.global_size().into_iter().zip(range.offset());
        if ends.any(|(size, offset)| size.checked_add(offset).is_none_or(|end| end - 1 > most)) {
            let why = format_args!("the indices of {range} go beyond {most}, the device's largest");
            return Err(self.error(ErrorKind::InvalidSize, why).help("launch a part of the range at a time"));
        }
        if range.offset() != [0; 3] && !capabilities.global_offset {
            let why = format_args!("{range} starts at an offset, which the device cannot do");
            return Err(self
                .error(ErrorKind::FeatureNotSupported, why)
                .help("pass the offset as an argument"));
        }
        let Some(local) = range.local_size() else { return Ok(()) };
        let groups = range.global_size().into_iter().zip(local).map(|(global, local)| global / local);
        for (dimension, (groups, most)) in groups.zip(capabilities.max_work_groups).enumerate() {
            if groups > most {
                let why =
                    format_args!("{groups} work-groups in dimension {dimension}, the device allows {most}");
                return Err(self.error(ErrorKind::InvalidSize, why).help("use larger work-groups"));
            }
        }
        self.work_group(local)
    }

    fn work_group(&self, local: [usize; 3]) -> Result<()> {
        let capabilities = self.device.capabilities();
        let dimensions = local.into_iter().zip(capabilities.max_work_item_sizes).enumerate();
        for (dimension, (size, most)) in dimensions {
            if size > most {
                let why = format_args!(
                    "the work-group is {size} large in dimension {dimension}, the device allows {most}"
                );
                return Err(self.error(ErrorKind::InvalidSize, why).help("use smaller work-groups"));
            }
        }
        let size = local.into_iter().fold(1, usize::saturating_mul);
        let limits = [
            ("device", capabilities.max_work_group_size),
            ("kernel", self.launch.kernel.max_work_group_size()),
        ];
        for (who, most) in limits {
            if size > most {
                let why =
                    format_args!("a work-group of {local:?} has {size} work-items, the {who} allows {most}");
                return Err(self.error(ErrorKind::InvalidSize, why).help("use smaller work-groups"));
            }
        }
        Ok(())
    }

    fn pairs(&self) -> impl Iterator<Item = (&'a Param, &'a KernelArg)> + use<'a, '_> {
        self.launch.kernel.params().iter().zip(self.launch.args.iter())
    }

    #[cold]
    fn wrong(&self, param: &Param, why: impl Display) -> Error {
        self.error(ErrorKind::InvalidArgument, format_args!("argument '{}' {why}", param.name))
    }

    #[cold]
    fn error(&self, kind: ErrorKind, why: impl Display) -> Error {
        Error::new(kind, format!("{}: {why}", self.subject))
    }
}

#[cold]
fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, why)
}

//! Kernels as they are loaded on devices: parameters and arguments, with the words in which error messages
//! name them, and the variants of the code.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::{AccessMode, BlockCode, HostArgs, HostCode, MemoryView, Range, Result, UsmPointer};

/// A kernel for [`Device::create_kernel`](crate::Device::create_kernel) to load.
#[derive(Clone, Copy, Debug)]
pub struct KernelDesc<'a> {
    /// The name of the function in the sources.
    pub name: &'a str,
    /// The kernel's parameters, in order.
    pub params: &'a [Param],
    /// The kernel's code.
    pub sources: &'a KernelSources,
}

impl<'a> KernelDesc<'a> {
    /// Describes the kernel `name` of these sources.
    pub const fn new(name: &'a str, params: &'a [Param], sources: &'a KernelSources) -> Self {
        Self { name, params, sources }
    }
}

/// A kernel loaded on a device.
pub trait Kernel: Any + Debug + Send + Sync {
    /// The kernel's name.
    fn name(&self) -> &str;

    /// The kernel's parameters, in order.
    fn params(&self) -> &[Param];

    /// Largest work-group that the kernel can be launched with.
    fn max_work_group_size(&self) -> usize;

    /// Whether [`Event::stop`](crate::Event::stop) ends a launch before all of it has run.
    fn can_be_stopped(&self) -> bool {
        false
    }

    /// Local memory that the code declares for each work-group beside its parameters, in bytes; 0 where
    /// it is not known.
    fn own_local_memory(&self) -> usize {
        0
    }

    /// How the device has got the kernel's code. The default suits code that its author gave as it is.
    fn compilation(&self) -> Compilation {
        Compilation::default()
    }
}

downcast!(Kernel);

/// How a device has got a kernel's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compilation {
    /// Where the code comes from.
    pub origin: CodeOrigin,
    /// Time to get it from there, without loading it.
    pub time: Duration,
}

/// Where a kernel's code comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CodeOrigin {
    /// Its author gave it in a form that the device takes: a binary, or a closure for the CPU.
    #[default]
    Given,
    /// A compiler has made it.
    Compiled,
    /// The [`KernelCache`](crate::KernelCache) had it.
    Disk,
    /// The process had compiled it before, for another kernel of the same source or another device.
    Memory,
}

impl CodeOrigin {
    /// The origin's name: `given`, `compiled`, `disk` or `memory`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Compiled => "compiled",
            Self::Disk => "disk",
            Self::Memory => "memory",
        }
    }
}

/// The kind of argument that a parameter takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// A value of `size` bytes, passed by copy.
    Value {
        /// Size in bytes.
        size: usize,
    },
    /// A range of memory holding elements of `element_size` bytes.
    Buffer {
        /// Use that the kernel makes of the memory.
        access: AccessMode,
        /// Size of an element in bytes; the argument's length must be a multiple of it.
        element_size: usize,
        /// Alignment of an element in bytes.
        element_align: usize,
    },
    /// Local memory of a work-group, holding elements of `element_size` bytes; the argument gives
    /// the length.
    Local {
        /// Size of an element in bytes.
        element_size: usize,
    },
}

/// One parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Param {
    /// The parameter's name, for error messages.
    pub name: Cow<'static, str>,
    /// The kind of argument that it takes.
    pub kind: ParamKind,
}

/// The bytes of a value argument.
pub type ValueBytes = SmallVec<[u8; 16]>;

/// An argument of a kernel launch.
#[derive(Debug)]
pub enum KernelArg {
    /// The bytes of a value.
    Value(ValueBytes),
    /// A range of memory.
    Memory(MemoryView),
    /// A raw pointer, for a [`ParamKind::Buffer`] parameter; null for no bytes.
    Usm(UsmPointer),
    /// Local memory of this many bytes.
    Local(usize),
}

impl Clone for KernelArg {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            // `SmallVec::clone` copies byte by byte.
            Self::Value(bytes) => Self::Value(ValueBytes::from_slice(bytes)),
            Self::Memory(view) => Self::Memory(view.clone()),
            Self::Usm(pointer) => Self::Usm(*pointer),
            Self::Local(bytes) => Self::Local(*bytes),
        }
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { size } => write!(f, "a value of {}", Bytes(*size)),
            Self::Buffer { access, element_size, .. } => {
                let access = match access {
                    AccessMode::Read => "read",
                    AccessMode::Write => "write",
                    AccessMode::ReadWrite => "read and write",
                };
                write!(f, "memory of {element_size}-byte elements to {access}")
            }
            Self::Local { element_size } => write!(f, "local memory of {element_size}-byte elements"),
        }
    }
}

impl fmt::Display for KernelArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(bytes) => write!(f, "a value of {}", Bytes(bytes.len())),
            Self::Memory(view) => write!(f, "memory of {}", Bytes(view.len())),
            Self::Usm(pointer) => write!(f, "a pointer to {}", Bytes(pointer.len())),
            Self::Local(bytes) => write!(f, "local memory of {}", Bytes(*bytes)),
        }
    }
}

/// Displays a number of bytes.
#[derive(Debug)]
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" })
    }
}

/// A kernel's code, in the variants its author supplied. A device takes the first that it
/// understands, in this order:
///
/// | backend | variants |
/// |---|---|
/// | host | `host`: of `each:`, `group:`, `item:` or `host:` in `kernel!` |
/// | OpenCL | `opencl_c`, `spirv`, `c` |
/// | CUDA | `cubin`, `ptx`, `cuda_c`, `c` |
/// | HIP | `code_object`, `hip_c`, `c` |
/// | Level Zero | `spirv`, `opencl_c`, `c` |
///
/// A backend may define variants of its own: [`other`](Self::other) sets one by
/// name, and [`variant`](Self::variant) finds any variant by name.
///
/// A vendor's variant gets exactly the declared parameters; `c` gets the length of each slice
/// besides. On CUDA and HIP a vendor's variant is launched in whole work-groups, so it has to leave
/// out the work-items beyond the range, and a range with an offset is refused; `c` knows neither
/// limit.
#[derive(Clone, Default)]
pub struct KernelSources {
    /// Rust code.
    pub host: Option<HostCode>,
    /// Source in the [portable C dialect](crate::dialect).
    pub c: Option<Cow<'static, str>>,
    /// OpenCL C, without prelude.
    pub opencl_c: Option<Cow<'static, str>>,
    /// SPIR-V for OpenCL's environment.
    pub spirv: Option<Cow<'static, [u8]>>,
    /// CUDA C++, without prelude, with an `extern "C"` entry point.
    pub cuda_c: Option<Cow<'static, str>>,
    /// PTX.
    pub ptx: Option<Cow<'static, str>>,
    /// A cubin or fatbin.
    pub cubin: Option<Cow<'static, [u8]>>,
    /// HIP C++, without prelude, with an `extern "C"` entry point.
    pub hip_c: Option<Cow<'static, str>>,
    /// A code object of AMD's.
    pub code_object: Option<Cow<'static, [u8]>>,
    /// Whether the variants for CUDA [wait](Self::cuda_waits) for the kernel before them.
    pub cuda_waits: bool,
    /// Variants that only their backends know, by name.
    others: Vec<(&'static str, Cow<'static, [u8]>)>,
}

/// Setters, one a variant.
macro_rules! variants {
    ($($variant:ident: $code:ty),+ $(,)?) => {
        impl KernelSources {
            $(
                #[doc = concat!("Sets `", stringify!($variant), "`.")]
                #[must_use]
                pub fn $variant(mut self, code: impl Into<Cow<'static, $code>>) -> Self {
                    self.$variant = Some(code.into());
                    self
                }
            )+
        }
    };
}

variants! {
    c: str, opencl_c: str, spirv: [u8], cuda_c: str, ptx: str, cubin: [u8], hip_c: str, code_object: [u8],
}

impl KernelSources {
    /// No code.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `host` to a closure that is called once per launch.
    #[must_use]
    pub fn host(
        mut self,
        code: impl Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.host = Some(HostCode::Whole(Arc::new(code)));
        self
    }

    /// Sets `host` to code that is called for each block of a launch.
    #[must_use]
    pub fn host_blocks(mut self, code: BlockCode) -> Self {
        self.host = Some(HostCode::Blocks(code));
        self
    }

    /// Declares that `cubin`, `ptx` and `cuda_c`, each that is given, wait for the kernel before
    /// them, so that the device may start them while that one ends ("programmatic dependent
    /// launch"). By giving these sources to a kernel its author promises of the code for compute
    /// capability 9.0 and newer: **every thread executes `griddepcontrol.wait`
    /// (`cudaGridDependencySynchronize()`) before it reads or writes any memory but its own
    /// variables, the kernel's parameters and constants, and before it ends**, whatever the
    /// arguments are. A thread that is beyond the end of its data waits, too, before it returns.
    ///
    /// A kernel that executes `griddepcontrol.launch_dependents` first of all lets the kernel
    /// behind it start early; without the instruction that is when it ends.
    ///
    /// The portable dialect needs no such declaration: its kernels wait.
    #[must_use]
    pub fn cuda_waits(self, cuda_waits: bool) -> Self {
        Self { cuda_waits, ..self }
    }

    /// Sets a variant that only its backend knows.
    #[must_use]
    pub fn other(mut self, name: &'static str, code: impl Into<Cow<'static, [u8]>>) -> Self {
        self.others.retain(|(known, _)| *known != name);
        self.others.push((name, code.into()));
        self
    }

    /// The code of the variant with this name, unless it is the closure.
    pub fn variant(&self, name: &str) -> Option<&[u8]> {
        self.code().find(|(known, _)| *known == name).map(|(_, code)| code)
    }

    /// The names of the variants there are, for messages.
    pub fn names(&self) -> Vec<&'static str> {
        let host = self.host.is_some().then_some("host");
        host.into_iter().chain(self.code().map(|(name, _)| name)).collect()
    }

    /// The name of the first variant that is given and has no code.
    pub(super) fn empty_variant(&self) -> Option<&'static str> {
        self.code().find(|(_, code)| code.is_empty()).map(|(name, _)| name)
    }

    /// All variants but the closure, with their names.
    fn code(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let Self {
            host: _,
            c,
            opencl_c,
            spirv,
            cuda_c,
            ptx,
            cubin,
            hip_c,
            code_object,
            cuda_waits: _,
            others,
        } = self;
        let known = [
            ("c", c.as_deref().map(str::as_bytes)),
            ("opencl_c", opencl_c.as_deref().map(str::as_bytes)),
            ("spirv", spirv.as_deref()),
            ("cuda_c", cuda_c.as_deref().map(str::as_bytes)),
            ("ptx", ptx.as_deref().map(str::as_bytes)),
            ("cubin", cubin.as_deref()),
            ("hip_c", hip_c.as_deref().map(str::as_bytes)),
            ("code_object", code_object.as_deref()),
        ];
        let known = known.into_iter().filter_map(|(name, code)| Some((name, code?)));
        known.chain(others.iter().map(|(name, code)| (*name, &**code)))
    }
}

impl Debug for KernelSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KernelSources").field(&self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_a_parameter_takes_and_what_it_was_given() {
        let memory = |access| ParamKind::Buffer { access, element_size: 4, element_align: 4 };
        for (kind, words) in [
            (ParamKind::Value { size: 1 }, "a value of 1 byte"),
            (memory(AccessMode::Read), "memory of 4-byte elements to read"),
            (memory(AccessMode::Write), "memory of 4-byte elements to write"),
            (memory(AccessMode::ReadWrite), "memory of 4-byte elements to read and write"),
            (ParamKind::Local { element_size: 8 }, "local memory of 8-byte elements"),
        ] {
            assert_eq!(kind.to_string(), words);
        }
        assert_eq!(KernelArg::Value(smallvec::smallvec![0; 8]).to_string(), "a value of 8 bytes");
        assert_eq!(KernelArg::Local(16).to_string(), "local memory of 16 bytes");
    }

    #[test]
    fn variants_are_found_by_name() {
        let sources = KernelSources::new().c("source").other("msl", b"first".as_slice());
        let sources = sources.other("msl", b"second".as_slice());
        assert_eq!(sources.names(), ["c", "msl"]);
        assert_eq!(sources.variant("c"), Some(b"source".as_slice()));
        assert_eq!(sources.variant("msl"), Some(b"second".as_slice()));
        assert_eq!(sources.variant("spirv"), None);
        assert_eq!(sources.empty_variant(), None);
        assert_eq!(sources.other("wgsl", Vec::new()).empty_variant(), Some("wgsl"));
    }
}

//! A kernel's code.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::Arc;

use super::HostArgs;
use crate::{Range, Result};

/// A kernel that runs on the host: called once a launch, with the whole index space and all
/// arguments.
pub type HostFn = Arc<dyn Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync>;

/// A kernel's code, in the variants its author supplied. A device takes the first that it
/// understands, in this order:
///
/// | backend | variants |
/// |---|---|
/// | host | `host` |
/// | OpenCL | `opencl_c`, `spirv`, `c` |
/// | CUDA | `cubin`, `ptx`, `cuda_c`, `c` |
/// | HIP | `code_object`, `hip_c`, `c` |
/// | Level Zero | `spirv`, `opencl_c`, `c` |
///
/// A backend outside this crate may define variants of its own: [`other`](Self::other) sets one by
/// name, and [`variant`](Self::variant) finds any variant by name.
///
/// A vendor's variant gets exactly the declared parameters; `c` gets the length of each slice
/// besides. On CUDA and HIP a vendor's variant is launched in whole work-groups, so it has to leave
/// out the work-items beyond the range, and a range with an offset is refused; `c` knows neither
/// limit.
#[derive(Clone, Default)]
pub struct KernelSources {
    /// A Rust closure.
    pub host: Option<HostFn>,
    /// Source in the [portable C dialect](super::dialect).
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
    /// Variants that this crate does not know, by name.
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

    /// Sets `host`.
    #[must_use]
    pub fn host(
        mut self,
        code: impl Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.host = Some(Arc::new(code));
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

    /// Sets a variant that this crate does not know.
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

//! A kernel's code.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::Arc;

use super::HostArgs;
use crate::types::{Range, Result};

/// A kernel that runs on the host: called once a launch, with the whole index space and all arguments.
pub type HostFn = Arc<dyn Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync>;

/// A kernel's code, in the variants its author supplied. A device takes the first that it understands, in this order:
///
/// | backend | variants |
/// |---|---|
/// | host | `host` |
/// | OpenCL | `opencl_c`, `spirv`, `c` |
/// | CUDA | `cubin`, `ptx`, `cuda_c`, `c` |
/// | HIP | `code_object`, `hip_c`, `c` |
/// | Level Zero | `spirv` |
///
/// A vendor's variant gets exactly the declared parameters. On CUDA and HIP it is launched in whole work-groups, so it
/// has to leave out the work-items beyond its data, and a range with an offset is refused; `c` knows neither limit.
#[derive(Clone, Default)]
#[non_exhaustive]
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

    /// The names of the variants there are, for messages.
    pub fn names(&self) -> Vec<&'static str> {
        let Self { host, c, opencl_c, spirv, cuda_c, ptx, cubin, hip_c, code_object } = self;
        let all = [
            ("host", host.is_some()),
            ("c", c.is_some()),
            ("opencl_c", opencl_c.is_some()),
            ("spirv", spirv.is_some()),
            ("cuda_c", cuda_c.is_some()),
            ("ptx", ptx.is_some()),
            ("cubin", cubin.is_some()),
            ("hip_c", hip_c.is_some()),
            ("code_object", code_object.is_some()),
        ];
        all.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect()
    }
}

impl Debug for KernelSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KernelSources").field(&self.names()).finish()
    }
}

//! Explanations of where kernels come from, as data and as text.

use std::fmt::{self, Display};
use std::time::Duration;

use wakegraph_hal::CodeOrigin;

/// Explanation of where a device has a kernel's code from, and how long that took when the kernel was first
/// needed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KernelExplanation {
    /// The kernel's name.
    pub kernel: String,
    /// The name that opens its device.
    pub device: String,
    /// Where its code comes from.
    pub origin: CodeOrigin,
    /// Time to compile it, or to get it from where it was kept. For OpenCL, what the driver keeps by itself
    /// counts as compiled.
    pub compile: Duration,
    /// Time to load the code onto the device.
    pub load: Duration,
}

impl Display for KernelExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, device, origin, compile, load } = self;
        write!(f, "kernel '{kernel}' on {device}: ")?;
        match origin {
            CodeOrigin::Given => f.write_str("code as given")?,
            CodeOrigin::Compiled => write!(f, "compiled in {compile:.1?}")?,
            CodeOrigin::Disk => write!(f, "from disk in {compile:.1?}")?,
            CodeOrigin::Memory => write!(f, "compiled before")?,
        }
        write!(f, ", loaded in {load:.1?}")
    }
}

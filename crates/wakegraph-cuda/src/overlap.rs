//! Programmatic dependent launch: a kernel is started while the one before it still runs.
//!
//! Between two kernels in a row the device idles for most of a microsecond. From compute capability 9.0
//! on, a kernel behind a programmatic edge is started as soon as all work-groups of the one before it
//! have called `griddepcontrol.launch_dependents`, and goes on from its own `griddepcontrol.wait` when
//! that kernel is over and its writes are visible. Entry points of the portable dialect execute both
//! instructions before anything else if the launch has the flag, so a kernel's own code runs after all
//! of its predecessors, as with an ordinary edge.
//!
//! The two instructions cost each work-group some time, which a kernel of many rounds of work-groups
//! never gets back; so a launch overlaps only if the device can hold all of its work-groups twice: beside
//! those of a kernel before it that is as large.
//! `WAKEGRAPH_CUDA_OVERLAP` is `never` to have none overlap, and `always` to have all that can.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;

use wakegraph_hal::support::launch_geometry::LaunchGeometry;

use super::sys::{CUfunction, Driver, get};

/// The first compute capability that has the instructions.
pub(super) const OVERLAP_CAPABILITY: u32 = 90;

/// Which kernels are started before the ones before them have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OverlapPolicy {
    Never,
    /// Those that fit on the device beside another that is as large.
    IfSmall,
    Always,
}

impl OverlapPolicy {
    /// What the environment says, on a device of this compute capability.
    pub(super) fn of(driver: &Driver, compute_capability: u32) -> Self {
        match std::env::var("WAKEGRAPH_CUDA_OVERLAP").as_deref() {
            _ if compute_capability < OVERLAP_CAPABILITY || driver.cuGraphAddNode.is_none() => Self::Never,
            Ok("never") => Self::Never,
            Ok("always") => Self::Always,
            Ok(value) => {
                let why = "WAKEGRAPH_CUDA_OVERLAP is neither `never` nor `always`, and ignored";
                tracing::warn!(target: "wakegraph::cuda", value, "{why}");
                Self::IfSmall
            }
            Err(_) => Self::IfSmall,
        }
    }
}

/// When a kernel waits for the end of the one before it, before it touches memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KernelWait {
    Never,
    /// If its launch says so: the portable dialect's entry points.
    IfTold,
    /// In every launch: other code whose author has declared it.
    Always,
}

/// Whether a device with so many multiprocessors can hold the work-groups of two such launches at a time.
/// The caller has bound the context.
pub(super) fn fits_twice(
    driver: &Driver,
    multiprocessors: u64,
    function: CUfunction,
    LaunchGeometry { grid, block }: &LaunchGeometry,
    shared_bytes: usize,
) -> bool {
    let product = |sizes: &[u32; 3]| sizes.iter().fold(1_u64, |all, &size| all.saturating_mul(size.into()));
    let groups = product(grid).saturating_mul(2);
    if groups <= multiprocessors {
        return true;
    }
    let items = c_int::try_from(product(block)).unwrap_or(c_int::MAX);
    // SAFETY: the function is loaded, its context bound.
    let resident: Result<c_int, _> =
        unsafe { get!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(function, items, shared_bytes)) };
    resident.is_ok_and(|resident| groups <= multiprocessors * u64::try_from(resident).unwrap_or(0))
}

//! OpenCL's devices: two runtimes that need no GPU, whole and split, in both lowerings, and beside
//! a host device.
//!
//! They are found by their platform's name, so that each runtime is there or ignored by itself.

use std::sync::Arc;

use wakegraph::backend::opencl::{self, Lowering, OpenclBackend, OpenclOptions};
use wakegraph::backend::{self};
use wakegraph::hal::{self, Backend as _};
use wakegraph::{Error, ErrorKind, Result};

use crate::registry::{Need, Variant};

type Devices = Result<Vec<Arc<dyn hal::Device>>>;

/// Both runtimes are for CPUs: an address of the test's is one of a kernel's.
const ONE: &[Need] = &[Need::Results, Need::SharedMemory];
const TWO: &[Need] = &[Need::Results, Need::SharedMemory, Need::TwoDevices];

const fn variant(device: &'static str, can: &'static [Need], open: fn() -> Devices) -> Variant {
    Variant { backend: "opencl", device, can, open }
}

pub(crate) const VARIANTS: &[Variant] = &[
    variant("intel", ONE, || one(INTEL, OpenclOptions::new())),
    variant("intel-replay", ONE, || one(INTEL, lowering(Lowering::Replay))),
    variant("intel-command-buffer", ONE, || one(INTEL, lowering(Lowering::CommandBuffer))),
    variant("intel-buffer-objects-replay", ONE, || {
        one(INTEL, lowering(Lowering::Replay).shared_memory(false))
    }),
    variant("intel-buffer-objects-command-buffer", ONE, || {
        one(INTEL, lowering(Lowering::CommandBuffer).shared_memory(false))
    }),
    variant("intel-two-parts-replay", TWO, || two_parts(INTEL, lowering(Lowering::Replay))),
    variant("intel-two-parts-command-buffer", TWO, || two_parts(INTEL, lowering(Lowering::CommandBuffer))),
    variant("intel-buffer-objects-two-parts", TWO, || {
        two_parts(INTEL, OpenclOptions::new().shared_memory(false))
    }),
    variant("intel-and-host", TWO, || with_host(INTEL)),
    variant("pocl", ONE, || one(POCL, OpenclOptions::new())),
    variant("pocl-replay", ONE, || one(POCL, lowering(Lowering::Replay))),
    variant("pocl-command-buffer", ONE, || one(POCL, lowering(Lowering::CommandBuffer))),
    variant("pocl-buffer-objects-replay", ONE, || one(POCL, lowering(Lowering::Replay).shared_memory(false))),
    variant("pocl-buffer-objects-command-buffer", ONE, || {
        one(POCL, lowering(Lowering::CommandBuffer).shared_memory(false))
    }),
    variant("pocl-two-parts-replay", TWO, || two_parts(POCL, lowering(Lowering::Replay))),
    variant("pocl-two-parts-command-buffer", TWO, || two_parts(POCL, lowering(Lowering::CommandBuffer))),
    variant("pocl-buffer-objects-two-parts", TWO, || {
        two_parts(POCL, OpenclOptions::new().shared_memory(false))
    }),
    variant("host-and-pocl", TWO, || host_first(POCL)),
    // Only under `scripts/oclgrind.sh`, which shows what kernels do beyond their slices.
    Variant {
        backend: "oclgrind",
        device: "0",
        can: &[Need::Results],
        open: || one(OCLGRIND, OpenclOptions::new()),
    },
];

const INTEL: &str = "Intel(R) OpenCL";
const POCL: &str = "Portable Computing Language";
const OCLGRIND: &str = "Oclgrind";

fn lowering(lowering: Lowering) -> OpenclOptions {
    OpenclOptions::new().lowering(lowering)
}

/// The first device of the platform.
fn open(platform: &str, options: OpenclOptions) -> Result<Arc<dyn hal::Device>> {
    for index in 0..OpenclBackend.device_count()? {
        let device = opencl::open(index, options.clone())?;
        if device.info().driver.starts_with(platform) {
            return Ok(device);
        }
    }
    Err(Error::new(ErrorKind::Unavailable, format!("the OpenCL platform '{platform}' is not installed")))
}

fn one(platform: &str, options: OpenclOptions) -> Devices {
    Ok(vec![open(platform, options)?])
}

fn two_parts(platform: &str, options: OpenclOptions) -> Devices {
    open(platform, options)?.sub_devices(2.try_into().expect("not 0"))
}

fn with_host(platform: &str) -> Devices {
    Ok(vec![open(platform, OpenclOptions::new())?, backend::open("host:0")?])
}

fn host_first(platform: &str) -> Devices {
    Ok(vec![backend::open("host:0")?, open(platform, OpenclOptions::new())?])
}

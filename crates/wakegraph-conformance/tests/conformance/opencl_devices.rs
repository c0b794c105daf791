//! OpenCL's devices: every one that is found, whole and split, in both lowerings, and beside a host device.
//!
//! Two runtimes for CPUs and one for GPUs have names of their own, are found by their platforms, and are
//! ignored by name where they are not installed. Any other device has its own name in lower case.

use std::sync::Arc;

use wakegraph::backend::opencl::{self, Lowering, OpenclBackend, OpenclOptions};
use wakegraph::backend::{self};
use wakegraph::hal::{self, Backend as _, Progress};
use wakegraph::{Error, ErrorKind, Result};

use wakegraph_conformance::{Devices, Need, Variant};

/// On a CPU, an address of the test's is one of a kernel's.
const CPU: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles, Need::SharedMemory];
const CPU_TWICE: &[Need] =
    &[Need::Results, Need::DeviceCode, Need::Doubles, Need::SharedMemory, Need::TwoDevices];
const GPU: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles];
const GPU_TWICE: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles, Need::TwoDevices];

/// A device, and what its tests are called.
#[derive(Clone)]
struct Found {
    name: String,
    /// Where the device is the first of its platform, how the platform's name begins.
    platform: Option<&'static str>,
    index: usize,
    is_cpu: bool,
    is_required_with_backend: bool,
}

/// The runtimes that have names: what their platforms are called, whether they are for CPUs, and whether
/// `scripts/opencl-runtimes.sh` installs them.
const RUNTIMES: [(&str, &str, bool, bool); 3] = [
    ("intel", "Intel(R) OpenCL", true, true),
    ("pocl", "Portable Computing Language", true, true),
    ("nvidia", "NVIDIA CUDA", false, false),
];
const OCLGRIND: &str = "Oclgrind";

pub(crate) fn variants() -> Vec<Variant> {
    let mut variants: Vec<_> = devices().iter().flat_map(ways).collect();
    // Only under `scripts/oclgrind.sh`, which shows what kernels do beyond their slices.
    variants.push(Variant {
        backend: "oclgrind",
        device: "0".into(),
        can: GPU,
        is_required_with_backend: true,
        open: Box::new(|| Ok(vec![first_of(OCLGRIND, &OpenclOptions::new())?])),
    });
    variants
}

/// The runtimes with names, and the other devices that are there.
fn devices() -> Vec<Found> {
    let mut all: Vec<_> = RUNTIMES
        .map(|(name, platform, is_cpu, is_required_with_backend)| Found {
            name: name.into(),
            platform: Some(platform),
            index: 0,
            is_cpu,
            is_required_with_backend,
        })
        .into();
    let mut seen = vec![OCLGRIND];
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let Ok(device) = opencl::open(index, OpenclOptions::new()) else { continue };
        let is_of = |platform: &str| device.info().driver.starts_with(platform);
        if is_of(OCLGRIND) {
            continue;
        }
        let named = RUNTIMES.iter().find(|(_, platform, ..)| is_of(platform));
        let name = match named {
            Some((_, platform, ..)) if !seen.contains(platform) => {
                seen.push(platform);
                continue;
            }
            Some((name, ..)) => format!("{name}-{index}"),
            None => format!("{}-{index}", in_lower_case(&device.info().name)),
        };
        let is_cpu = device.capabilities().progress == Progress::HostCores;
        all.push(Found { name, platform: None, index, is_cpu, is_required_with_backend: false });
    }
    all
}

fn in_lower_case(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// All the ways to use a device.
fn ways(found: &Found) -> Vec<Variant> {
    let (one, two) = if found.is_cpu { (CPU, CPU_TWICE) } else { (GPU, GPU_TWICE) };
    let default = OpenclOptions::new();
    let (replay, command_buffer) = (lowering(Lowering::Replay), lowering(Lowering::CommandBuffer));
    let objects = |options: &OpenclOptions| options.clone().shared_memory(false);
    let single = [
        ("", default.clone()),
        ("-replay", replay.clone()),
        ("-command-buffer", command_buffer.clone()),
        ("-buffer-objects-replay", objects(&replay)),
        ("-buffer-objects-command-buffer", objects(&command_buffer)),
    ];
    let parts = [
        ("-two-parts-replay", replay),
        ("-two-parts-command-buffer", command_buffer),
        ("-buffer-objects-two-parts", objects(&default)),
    ];
    let variant = |name: String, can, open: Box<dyn Fn() -> Devices>| Variant {
        backend: "opencl",
        device: name.into(),
        can,
        is_required_with_backend: found.is_required_with_backend,
        open,
    };
    let mut variants = Vec::new();
    for (way, options) in single {
        let this = found.clone();
        let open = move || Ok(vec![this.open(&options)?]);
        variants.push(variant(format!("{}{way}", found.name), one, Box::new(open)));
    }
    for (way, options) in parts {
        let this = found.clone();
        let open = move || this.open(&options)?.sub_devices(2.try_into().expect("not 0"));
        variants.push(variant(format!("{}{way}", found.name), two, Box::new(open)));
    }
    let this = found.clone();
    // One runtime comes second, so that both orders are tested.
    let (name, open): (_, Box<dyn Fn() -> Devices>) = match &*found.name {
        "pocl" => ("host-and-pocl".into(), Box::new(move || Ok(vec![host()?, this.open(&default)?]))),
        name => (format!("{name}-and-host"), Box::new(move || Ok(vec![this.open(&default)?, host()?]))),
    };
    variants.push(variant(name, two, open));
    variants
}

fn lowering(lowering: Lowering) -> OpenclOptions {
    OpenclOptions::new().lowering(lowering)
}

fn host() -> Result<Arc<dyn hal::Device>> {
    backend::open("host:0")
}

impl Found {
    fn open(&self, options: &OpenclOptions) -> Result<Arc<dyn hal::Device>> {
        match self.platform {
            Some(platform) => first_of(platform, options),
            None => opencl::open(self.index, options.clone()),
        }
    }
}

/// The first device of the platform.
fn first_of(platform: &str, options: &OpenclOptions) -> Result<Arc<dyn hal::Device>> {
    for index in 0..OpenclBackend.device_count()? {
        let device = opencl::open(index, OpenclOptions::new())?;
        if device.info().driver.starts_with(platform) {
            return opencl::open(index, options.clone());
        }
    }
    Err(Error::new(ErrorKind::Unavailable, format!("the OpenCL platform '{platform}' is not installed")))
}

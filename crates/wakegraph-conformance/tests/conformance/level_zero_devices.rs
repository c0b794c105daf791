//! Level Zero's devices: those that the test driver of `crates/wakegraph-level-zero/tests/level_zero_driver`
//! plays, in both lowerings, two at once and beside a host device; or those of Intel's driver without
//! hardware, under `scripts/level-zero.sh`.
//!
//! The test driver is loaded instead of the loader, unless the environment says what to load: with
//! `ZE_ENABLE_ALT_DRIVERS` the loader finds it, or Intel's driver. Without Intel's compiler `libocloc.so`
//! there would be no kernels, and nothing is loaded.
#![expect(unsafe_code, reason = "sets variables before anything runs")]

use std::path::PathBuf;
use std::sync::Arc;

use wakegraph::backend::level_zero::{self, LevelZeroBackend, LevelZeroOptions, Lowering};
use wakegraph::backend::{self};
use wakegraph::hal::{self, Backend as _};
use wakegraph::{Error, ErrorKind, Result};

use wakegraph_conformance::{Devices, Need, Variant};

/// Kernels run on the CPU, where an address of the test's is one of theirs.
const TEST: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles, Need::SharedMemory];
const TEST_TWICE: &[Need] =
    &[Need::Results, Need::DeviceCode, Need::Doubles, Need::SharedMemory, Need::TwoDevices];

const LIBRARY: &str = "WAKEGRAPH_LEVEL_ZERO_LIBRARY";
const DRIVERS: &str = "ZE_ENABLE_ALT_DRIVERS";
const TEST_DRIVER: &str = "liblevel_zero_driver.so";
/// How names of the test driver's devices begin; the name of what it plays follows.
const TEST_DEVICE: &str = "wakegraph test device ";

/// Chooses the test driver, which cargo has built beside the tests, where nothing else is chosen. To be
/// called before there are threads.
pub(crate) fn choose_library() {
    let is_chosen = [LIBRARY, DRIVERS].iter().any(|variable| std::env::var_os(variable).is_some());
    let built = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("examples").join(TEST_DRIVER));
    let built: Option<PathBuf> = built().filter(|path| path.exists());
    let compiler = std::env::var_os("WAKEGRAPH_OCLOC_LIBRARY").unwrap_or_else(|| "libocloc.so".into());
    // SAFETY: the compiler's library runs no code that could do harm when it is loaded.
    let has_compiler = || unsafe { libloading::Library::new(&compiler) }.is_ok();
    if let (false, Some(path), true) = (is_chosen, built, has_compiler()) {
        // SAFETY: there is no other thread yet.
        unsafe { std::env::set_var(LIBRARY, path) };
    }
}

pub(crate) fn variants() -> Vec<Variant> {
    match intel_product() {
        Some(product) => intel_variants(&product),
        None => test_variants(),
    }
}

/// The devices that Intel's driver plays without hardware.
fn intel_product() -> Option<String> {
    let drivers = std::env::var(DRIVERS).unwrap_or_default();
    drivers.contains("libze_intel_gpu").then(|| std::env::var("ProductFamilyOverride").unwrap_or_default())
}

fn options(lowering: Lowering) -> LevelZeroOptions {
    LevelZeroOptions::new().lowering(lowering)
}

fn variant(device: String, can: &'static [Need], open: impl Fn() -> Devices + 'static) -> Variant {
    let is_required_with_backend = true;
    Variant {
        backend: "level_zero",
        device: device.into(),
        can,
        is_required_with_backend,
        open: Box::new(open),
    }
}

const LOWERINGS: [(&str, Lowering); 2] = [("append", Lowering::Append), ("execute", Lowering::Execute)];

fn intel_variants(product: &str) -> Vec<Variant> {
    let ways = LOWERINGS.map(|(name, lowering)| (name, options(lowering)));
    let without = ("without-copy-engine", LevelZeroOptions::new().copy_engine(false));
    let ways = ways.into_iter().chain([without]);
    let one = |(way, options): (&str, LevelZeroOptions)| {
        variant(format!("intel-{product}-{way}"), &[], move || {
            Ok(vec![level_zero::open(0, options.clone())?])
        })
    };
    ways.map(one).collect()
}

fn test_variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for device in ["all", "append", "old", "mutable-3e", "copy-engine", "wrap"] {
        for (way, lowering) in LOWERINGS {
            // A device that cannot append lists executes them, whatever the option says.
            if (device, lowering) != ("old", Lowering::Append) {
                let open = move || Ok(vec![find(device, 0, &options(lowering))?]);
                variants.push(variant(format!("{device}-{way}"), TEST, open));
            }
        }
    }
    variants.push(variant("copy-engine-unused".into(), TEST, || {
        Ok(vec![find("copy-engine", 0, &LevelZeroOptions::new().copy_engine(false))?])
    }));
    for (way, lowering) in LOWERINGS {
        variants.push(variant(format!("two-devices-{way}"), TEST_TWICE, move || {
            (0..2).map(|index| find("two", index, &options(lowering))).collect()
        }));
        variants.push(variant(format!("two-sub-devices-{way}"), TEST_TWICE, move || {
            find("sub", 0, &options(lowering))?.sub_devices(2.try_into().expect("not 0"))
        }));
    }
    variants.push(variant("two-drivers".into(), TEST_TWICE, || {
        Ok(vec![find("all", 0, &LevelZeroOptions::new())?, find("append", 0, &LevelZeroOptions::new())?])
    }));
    variants.push(variant("all-and-host".into(), TEST_TWICE, || {
        Ok(vec![find("all", 0, &LevelZeroOptions::new())?, backend::open("host:0")?])
    }));
    variants
}

/// A device that the test driver plays, by the driver's name and the device's number.
fn find(driver: &str, number: usize, options: &LevelZeroOptions) -> Result<Arc<dyn hal::Device>> {
    let name = format!("{TEST_DEVICE}{driver}-{number}");
    for index in 0..LevelZeroBackend.device_count()? {
        let device = level_zero::open(index, options.clone())?;
        if device.info().name == name {
            return Ok(device);
        }
    }
    Err(Error::new(ErrorKind::Unavailable, format!("the driver has no '{name}'")))
}

//! The devices of the backends in this repository, and what each can show. A new backend adds an entry to
//! [`variants`], nothing else.

use wakegraph::backend;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph_conformance::{Devices, Need, Variant};

const HOST: &[Need] = &[
    Need::Results,
    Need::Doubles,
    Need::SharedMemory,
    Need::FailingKernels,
    Need::Concurrency,
    Need::DeferredDrops,
];
const HOST_TWICE: &[Need] = &[
    Need::Results,
    Need::Doubles,
    Need::SharedMemory,
    Need::FailingKernels,
    Need::Concurrency,
    Need::DeferredDrops,
    Need::TwoDevices,
];

const CUDA: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles, Need::Cuda];
const CUDA_TWICE: &[Need] = &[Need::Results, Need::DeviceCode, Need::Doubles, Need::Cuda, Need::TwoDevices];

pub(crate) fn variants() -> Vec<Variant> {
    if let Some(variants) = crate::hip_devices::variants_of_child() {
        return variants;
    }
    let mut variants = vec![
        Variant::new("host", "0", HOST, || Ok(vec![backend::open("host:0")?])),
        Variant::new("host", "0-polled", HOST, || open_host(1, HostOptions::polled, true)),
        Variant::new("host", "two-devices", HOST_TWICE, || open_host(2, HostOptions::peer_access, true)),
        Variant::new("host", "two-devices-without-peer-access", HOST_TWICE, || {
            open_host(2, HostOptions::peer_access, false)
        }),
        Variant::new("host", "two-sub-devices", HOST_TWICE, || {
            host::open(HostOptions::new().threads(4))?.sub_devices(2.try_into().expect("not 0"))
        }),
        Variant::new("cuda", "0", CUDA, || Ok(vec![backend::open("cuda:0")?])),
        Variant::new("cuda", "share-and-rest", CUDA_TWICE, || Ok(backend::open("cuda:0")?.share(16)?.into())),
        Variant::new("cuda", "two-devices", CUDA_TWICE, || {
            Ok(vec![backend::open("cuda:0")?, backend::open("cuda:1")?])
        }),
        Variant::new("cuda", "0-and-host", CUDA_TWICE, || {
            Ok(vec![backend::open("cuda:0")?, backend::open("host:0")?])
        }),
    ];
    variants.extend(crate::hip_devices::variants());
    variants.extend(crate::opencl_devices::variants());
    variants.extend(crate::level_zero_devices::variants());
    variants
}

fn open_host(count: usize, option: fn(HostOptions, bool) -> HostOptions, value: bool) -> Devices {
    let options = option(HostOptions::new().threads(2), value);
    (0..count).map(|_| host::open(options.clone())).collect()
}

/// Each backend with what a device of it can do, here or in another process of this run.
pub(crate) fn abilities(variants: &[Variant]) -> Vec<(&'static str, &'static [Need])> {
    let here = variants.iter().map(|variant| (variant.backend, variant.can));
    here.chain(crate::hip_devices::abilities().map(|can| ("hip", can))).collect()
}

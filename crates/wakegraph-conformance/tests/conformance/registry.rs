//! Which devices the suite runs on, and what each can show. A new backend adds an entry to
//! [`backends`], nothing else.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Completion, Failed, Trial};
use parking_lot::RwLock;
use tokio::runtime::Runtime;
use wakegraph::backend;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::hal::QueueOrder;
use wakegraph::{Device, Result, hal};

use crate::{features, in_flight};

/// What a test asks of the device it runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Commands do what they say.
    Results,
    /// Memory keeps its bytes, and times are taken; a driver without hardware does neither.
    Execution,
    /// Kernels are compiled from C.
    DeviceCode,
    /// Kernels can compute with doubles.
    Doubles,
    /// A second device.
    TwoDevices,
    /// The queue of the test is in order.
    InOrderQueue,
    /// The first device's streams are those of CUDA's driver.
    Cuda,
    /// Kernels see the test's own memory while they run: they wait for the test, or tell it what happens.
    SharedMemory,
    /// Kernels that fail without taking the device with them. Rust closures can; device code has no
    /// way to say so.
    FailingKernels,
    /// Two kernels that nothing orders are sure to run at the same time. OpenCL and CUDA promise
    /// that of none.
    Concurrency,
    /// What is in flight may be dropped, which the contract does not ask for.
    DeferredDrops,
    /// Commands that use different parts of one allocation need no order.
    ConcurrentParts,
    /// No other test of the process runs meanwhile. Calls of a driver that wait for the device hold locks of
    /// the driver, so a loop that ends only when it is stopped could keep the test from stopping it.
    Alone,
}

impl Need {
    /// Whether a device that can show these can show this.
    pub(crate) fn is_in(self, can: &[Self]) -> bool {
        let is_implied = match self {
            Self::Execution => can.contains(&Self::Results),
            Self::Alone => true,
            _ => false,
        };
        can.contains(&self) || is_implied
    }

    /// Whether only an open device, or its queue, tells.
    pub(crate) fn is_told_by_device(self) -> bool {
        matches!(self, Self::InOrderQueue | Self::ConcurrentParts)
    }

    /// What a device without it lacks.
    fn name(self) -> &'static str {
        match self {
            Self::Results => "commands that do what they say",
            Self::Execution => "hardware",
            Self::DeviceCode => "kernels in C",
            Self::Doubles => "doubles in kernels",
            Self::TwoDevices => "a second device",
            Self::Cuda => "streams of CUDA's driver",
            Self::InOrderQueue => "an in-order queue",
            Self::SharedMemory => "kernels that see the test's own memory",
            Self::FailingKernels => "kernels that can fail, as closures on the host can",
            Self::Concurrency => "kernels that are sure to run at the same time",
            Self::ConcurrentParts => "parts of one allocation that can be used at once",
            Self::DeferredDrops => "drops of what is in flight, beyond the contract",
            Self::Alone => "a process to itself",
        }
    }
}

/// One test of the suite.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) topic: &'static str,
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(&Setup),
}

/// The devices a test runs on: at least one.
pub(crate) struct Setup {
    pub(crate) devices: Vec<Device>,
    can: &'static [Need],
    order: QueueOrder,
}

impl Setup {
    /// Whether the devices can show this.
    pub(crate) fn can(&self, need: Need) -> bool {
        match need {
            Need::InOrderQueue => self.order == QueueOrder::InOrder,
            Need::ConcurrentParts => self.devices.iter().all(|device| device.capabilities().concurrent_parts),
            need => need.is_in(self.can),
        }
    }

    /// Of the queue that the tests of the contract use.
    pub(crate) fn queue_order(&self) -> QueueOrder {
        self.order
    }

    /// The first device.
    pub(crate) fn device(&self) -> &Device {
        &self.devices[0]
    }

    /// The first device's side of the backend contract, with its checks.
    pub(crate) fn hal(&self) -> &hal::ValidatedDevice {
        self.device().hal()
    }

    /// Runs a test's async part inside tokio.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(future)
    }
}

pub(crate) type Devices = Result<Vec<Arc<dyn hal::Device>>>;

/// One way to open a backend's devices.
pub(crate) struct Variant {
    pub(crate) backend: &'static str,
    pub(crate) device: Cow<'static, str>,
    pub(crate) can: &'static [Need],
    /// Whether it has to be there where `WAKEGRAPH_REQUIRE` lists its backend.
    pub(crate) is_required_with_backend: bool,
    pub(crate) open: Box<dyn Fn() -> Devices>,
}

impl Variant {
    fn new(backend: &'static str, device: &'static str, can: &'static [Need], open: fn() -> Devices) -> Self {
        let is_required_with_backend = true;
        Self { backend, device: device.into(), can, is_required_with_backend, open: Box::new(open) }
    }
}

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

fn backends() -> Vec<Variant> {
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

/// Where the reactors of some devices run, as long as the process.
static REACTORS: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a tokio runtime")
});

/// The same devices with their reactors on a runtime, where they are polled.
fn polled_in_runtime(variant: &Variant) -> Option<Vec<Device>> {
    let devices: Vec<_> = (variant.open)().ok()?.into_iter().map(Device::from_hal).collect();
    let [device] = &devices[..] else { return None };
    let is_polled = !device.capabilities().notifies || device.capabilities().prefers_polls;
    if !is_polled || !cfg!(target_os = "linux") {
        return None;
    }
    device.run_reactor_on(REACTORS.handle()).expect("a runtime with an I/O driver");
    Some(devices)
}

/// Each backend with what a device of it can do, here or in another process of this run.
fn abilities(variants: &[Variant]) -> Vec<(&'static str, &'static [Need])> {
    let here = variants.iter().map(|variant| (variant.backend, variant.can));
    let here = here.chain(crate::hip_devices::abilities().map(|can| ("hip", can)));
    here.collect()
}

/// The suite for every device: what is to run, and what is ignored and why. The tests of the
/// contract run once more on out-of-order queues, where the device has such, and those of graphs
/// with the reactor on a runtime.
pub(crate) fn trials(contract: &[Test], graph: &[Test]) -> Vec<Trial> {
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default();
    let required = |variant: &Variant| {
        let is_listed = |listed: &str| required.split(',').any(|name| name.trim() == listed);
        variant.is_required_with_backend && is_listed(variant.backend)
            || is_listed(&format!("{}/{}", variant.backend, variant.device))
    };
    let variants = backends();
    let all: Vec<Test> = contract.iter().chain(graph).copied().collect();
    let page = features::check(&all, &abilities(&variants));
    let mut trials = vec![Trial::test("docs/features", || page.map_err(Failed::from))];
    for variant in &variants {
        let Variant { backend, device, .. } = variant;
        match (variant.open)() {
            Ok(devices) => {
                let devices: Vec<_> = devices.into_iter().map(Device::from_hal).collect();
                let setup = |devices: &Vec<Device>, order| {
                    Arc::new(Setup { devices: devices.clone(), can: variant.can, order })
                };
                let in_order = setup(&devices, QueueOrder::InOrder);
                trials.extend(contract.iter().chain(graph).map(|test| trial(variant, "", test, &in_order)));
                if devices[0].capabilities().out_of_order_queues {
                    let (way, queue) = ("out-of-order-queue/", setup(&devices, QueueOrder::OutOfOrder));
                    trials.extend(contract.iter().map(|test| trial(variant, way, test, &queue)));
                }
                if let Some(devices) = polled_in_runtime(variant) {
                    let (way, in_runtime) = ("reactor-on-runtime/", setup(&devices, QueueOrder::InOrder));
                    trials.extend(graph.iter().map(|test| trial(variant, way, test, &in_runtime)));
                }
            }
            Err(error) => {
                let fails = required(variant);
                trials.push(Trial::ignorable_test(format!("{backend}/{device}/all"), move || match fails {
                    true => Err(Failed::from(format!("WAKEGRAPH_REQUIRE asks for this device: {error}"))),
                    false => Ok(Completion::ignored_with(error)),
                }));
            }
        }
    }
    trials
}

thread_local! {
    static LACKS: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// For a test that finds the device without a capability, right before it returns: it counts as
/// ignored, not as passed.
pub(crate) fn lacks(what: &'static str) {
    LACKS.set(Some(what));
}

/// Held by the tests that run: shared, but for those that run alone.
static RUNNING: RwLock<()> = RwLock::new(());

fn trial(variant: &Variant, way: &str, test: &Test, setup: &Arc<Setup>) -> Trial {
    let name = format!("{}/{}/{way}{}/{}", variant.backend, variant.device, test.topic, test.name);
    let missing = test.needs.iter().find(|need| !setup.can(**need));
    let (run, setup) = (test.run, setup.clone());
    let drops = test.needs.contains(&Need::DeferredDrops);
    let (backend, test) = (variant.backend, *test);
    Trial::ignorable_test(name, move || {
        if let Some(missing) = missing {
            // The page is checked against all other needs without running a test.
            if missing.is_told_by_device() {
                features::record(backend, &test, false);
            }
            return Ok(Completion::ignored_with(format!("needs {}", missing.name())));
        }
        let (_alone, _shared) = match test.needs.contains(&Need::Alone) {
            true => (Some(RUNNING.write()), None),
            false => (None, Some(RUNNING.read())),
        };
        LACKS.set(None);
        in_flight::run(|| run(&setup), drops);
        let lacks = LACKS.take();
        features::record(backend, &test, lacks.is_none());
        Ok(lacks.map_or(Completion::Completed, |what| Completion::ignored_with(format!("needs {what}"))))
    })
}

/// Names the tests of one file: what they need, and the functions.
macro_rules! tests {
    ($topic:literal: $($needs:expr => [$($name:ident),+ $(,)?]),+ $(,)?) => {
        pub(crate) const TESTS: &[$crate::registry::Test] = &[$($($crate::registry::Test {
            topic: $topic,
            name: stringify!($name),
            needs: $needs,
            run: $name,
        }),+),+];
    };
}
pub(crate) use tests;

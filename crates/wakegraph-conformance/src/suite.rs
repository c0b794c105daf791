//! The needs of tests, the devices that they run on, and the trials that follow.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Debug};
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Completion, Failed, Trial};
use parking_lot::RwLock;
use tokio::runtime::Runtime;
use wakegraph::hal::QueueOrder;
use wakegraph::{Device, Result, hal};

use crate::in_flight;

/// A requirement of a test to the device that it runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
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
    /// Objects in flight may be dropped, which the contract does not ask for.
    DeferredDrops,
    /// Commands that use different parts of one allocation need no order.
    ConcurrentParts,
    /// No other test of the process runs meanwhile. Calls of a driver that wait for the device hold locks of
    /// the driver, so a loop that ends only when it is stopped could keep the test from stopping it.
    Alone,
}

impl Need {
    /// Whether a device that can show these can show this.
    pub fn is_in(self, can: &[Self]) -> bool {
        let is_implied = match self {
            Self::Execution => can.contains(&Self::Results),
            Self::Alone => true,
            _ => false,
        };
        can.contains(&self) || is_implied
    }

    /// Whether only an open device, or its queue, tells.
    pub fn is_told_by_device(self) -> bool {
        matches!(self, Self::InOrderQueue | Self::ConcurrentParts)
    }

    /// The name of what a device without it lacks.
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
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The file, such as `graph/edges`.
    pub topic: &'static str,
    /// The function.
    pub name: &'static str,
    /// The requirements of the test to its device.
    pub needs: &'static [Need],
    pub(crate) run: fn(&Setup),
}

/// The devices a test runs on: at least one.
#[derive(Debug)]
pub struct Setup {
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

/// The devices of a variant: mostly one.
pub type Devices = Result<Vec<Arc<dyn hal::Device>>>;

/// One way to open a backend's devices.
pub struct Variant {
    /// The backend's name.
    pub backend: &'static str,
    /// The name of the device or devices.
    pub device: Cow<'static, str>,
    /// The requirements that the devices meet.
    pub can: &'static [Need],
    /// Whether it has to be there where `WAKEGRAPH_REQUIRE` lists its backend.
    pub is_required_with_backend: bool,
    /// Opens the devices.
    pub open: Box<dyn Fn() -> Devices>,
}

impl Variant {
    /// Devices that `open` opens, of which the tests that need no more than they `can` show run on them.
    pub fn new(
        backend: &'static str,
        device: impl Into<Cow<'static, str>>,
        can: &'static [Need],
        open: impl Fn() -> Devices + 'static,
    ) -> Self {
        Self { backend, device: device.into(), can, is_required_with_backend: true, open: Box::new(open) }
    }
}

impl Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {:?}", self.backend, self.device, self.can)
    }
}

/// Where the reactors of some devices run, as long as the process.
static REACTORS: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a tokio runtime")
});

/// Opens the devices with their reactors on a runtime, where they are polled.
fn polled_in_runtime(variant: &Variant) -> Option<Vec<Device>> {
    let devices: Vec<_> = (variant.open)().ok()?.into_iter().map(Device::from_hal).collect();
    let [device] = &devices[..] else { return None };
    if device.capabilities().notifies {
        return None;
    }
    device.run_reactor_on(REACTORS.handle()).expect("a runtime with timers");
    Some(devices)
}

/// The suite for every device: what is to run, and what is ignored and why. The tests of the
/// contract run once more on out-of-order queues, where the device has such, and those of graphs
/// with the reactor on a runtime.
///
/// `observe` learns of each test that has run to its end on a backend, or that an open device has ignored.
pub fn trials(variants: &[Variant], observe: fn(&'static str, &Test, bool)) -> Vec<Trial> {
    let (contract, graph): (Vec<_>, Vec<_>) =
        (crate::hal::tests().collect(), crate::graph::tests().collect());
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default();
    let required = |variant: &Variant| {
        let is_listed = |listed: &str| required.split(',').any(|name| name.trim() == listed);
        variant.is_required_with_backend && is_listed(variant.backend)
            || is_listed(&format!("{}/{}", variant.backend, variant.device))
    };
    let mut trials = Vec::new();
    for variant in variants {
        let Variant { backend, device, .. } = variant;
        match (variant.open)() {
            Ok(devices) => {
                let devices: Vec<_> = devices.into_iter().map(Device::from_hal).collect();
                let setup = |devices: &Vec<Device>, order| {
                    Arc::new(Setup { devices: devices.clone(), can: variant.can, order })
                };
                let in_order = setup(&devices, QueueOrder::InOrder);
                trials.extend(
                    contract.iter().chain(&graph).map(|test| trial(variant, "", test, &in_order, observe)),
                );
                if devices[0].capabilities().out_of_order_queues {
                    let (way, queue) = ("out-of-order-queue/", setup(&devices, QueueOrder::OutOfOrder));
                    trials.extend(contract.iter().map(|test| trial(variant, way, test, &queue, observe)));
                }
                if let Some(devices) = polled_in_runtime(variant) {
                    let (way, in_runtime) = ("reactor-on-runtime/", setup(&devices, QueueOrder::InOrder));
                    trials.extend(graph.iter().map(|test| trial(variant, way, test, &in_runtime, observe)));
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

fn trial(
    variant: &Variant,
    way: &str,
    test: &Test,
    setup: &Arc<Setup>,
    observe: fn(&'static str, &Test, bool),
) -> Trial {
    let name = format!("{}/{}/{way}{}/{}", variant.backend, variant.device, test.topic, test.name);
    let missing = test.needs.iter().find(|need| !setup.can(**need));
    let (run, setup) = (test.run, setup.clone());
    let drops = test.needs.contains(&Need::DeferredDrops);
    let (backend, test) = (variant.backend, *test);
    Trial::ignorable_test(name, move || {
        if let Some(missing) = missing {
            // All other needs are known without a device.
            if missing.is_told_by_device() {
                observe(backend, &test, false);
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
        observe(backend, &test, lacks.is_none());
        Ok(lacks.map_or(Completion::Completed, |what| Completion::ignored_with(format!("needs {what}"))))
    })
}

/// Names the tests of one file: what they need, and the functions.
macro_rules! tests {
    ($topic:literal: $($needs:expr => [$($name:ident),+ $(,)?]),+ $(,)?) => {
        pub(crate) const TESTS: &[$crate::suite::Test] = &[$($($crate::suite::Test {
            topic: $topic,
            name: stringify!($name),
            needs: $needs,
            run: $name,
        }),+),+];
    };
}
pub(crate) use tests;

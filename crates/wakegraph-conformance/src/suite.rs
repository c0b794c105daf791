//! The needs of tests, and the devices that they run on.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Debug};
use std::sync::Arc;

use wakegraph::hal::QueueOrder;
use wakegraph::{Device, Result, hal};

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
    pub(crate) fn name(self) -> &'static str {
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
    /// The function itself.
    pub(crate) run: fn(&Setup),
}

/// The devices a test runs on: at least one.
#[derive(Debug)]
pub struct Setup {
    pub(crate) devices: Vec<Device>,
    pub(crate) can: &'static [Need],
    pub(crate) order: QueueOrder,
    /// Whether an earlier variant has opened the first device, or this one has in another way.
    pub(crate) is_another_way: bool,
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

thread_local! {
    static LACKS: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// For a test that finds the device without a capability, right before it returns: it counts as
/// ignored, not as passed.
pub(crate) fn lacks(what: &'static str) {
    LACKS.set(Some(what));
}

/// Runs a test, and returns what it found the device to lack.
pub(crate) fn run(test: &Test, setup: &Setup) -> Option<&'static str> {
    LACKS.set(None);
    (test.run)(setup);
    LACKS.take()
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

//! Devices, runtimes and small graphs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Runtime};
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::kernel::RawKernel;
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions};
use wakegraph::{Device, ExecutableGraph, Graph, Range, Result};

use crate::support::Hold;

/// A host device with threads of its own.
pub(crate) fn device() -> Device {
    Device::from_hal(host::open(HostOptions::new().threads(2)).unwrap())
}

/// A host device that must be polled, like a GPU.
pub(crate) fn polled_device() -> Device {
    Device::from_hal(host::open(HostOptions::new().threads(2).polled(true)).unwrap())
}

/// A device that completes what the control says.
pub(crate) fn manual(notifies: bool) -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(notifies));
    (Device::from_hal(device), control)
}

pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

pub(crate) fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Runs a test in a runtime of one thread, then in one of several.
pub(crate) fn in_both_runtimes<F: Future>(test: impl Fn() -> F) {
    current_thread().block_on(test());
    multi_thread().block_on(test());
}

/// A kernel without parameters.
pub(crate) fn raw(name: &str, code: impl Fn() -> Result<()> + Send + Sync + 'static) -> Arc<RawKernel> {
    RawKernel::new(name).host(move |_, _| code())
}

/// A graph of one kernel.
pub(crate) fn single(device: &Device, kernel: &Arc<RawKernel>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.launch(kernel.call(), Range::linear(1));
    graph.finalize().unwrap()
}

/// A kernel that waits for the test.
pub(crate) fn held_kernel(hold: &Hold) -> Arc<RawKernel> {
    let held = hold.held();
    raw("held", move || {
        held.pass();
        Ok(())
    })
}

/// A graph of one kernel that waits for the test.
pub(crate) fn held(device: &Device, hold: &Hold) -> ExecutableGraph {
    single(device, &held_kernel(hold))
}

/// How often something ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn kernel(&self) -> Arc<RawKernel> {
        let count = self.clone();
        raw("count", move || {
            count.add_one();
            Ok(())
        })
    }

    /// A graph of one kernel that counts.
    pub(crate) fn graph(&self, device: &Device) -> ExecutableGraph {
        single(device, &self.kernel())
    }
}

/// Lets other tasks of this runtime run for a while.
pub(crate) async fn yield_often() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

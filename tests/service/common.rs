//! Devices, pools, and futures that a test polls by hand.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::task::noop_waker_ref;
use tokio::runtime::Builder;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::service::ExecutablePool;
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions};
use wakegraph::{Device, ExecutableGraph, Graph, Result};

/// A host device with threads of its own.
pub(crate) fn host() -> Device {
    Device::from_hal(host::open(HostOptions::new().threads(2)).unwrap())
}

/// A device that completes what the control says.
pub(crate) fn manual(name: &str) -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).name(name));
    (Device::from_hal(device), control)
}

/// An executable with one fill, of memory of its own.
pub(crate) fn fill(device: &Device, bytes: usize) -> Result<ExecutableGraph> {
    let mut graph = Graph::new(device);
    graph.fill(&device.buffer::<u8>(bytes)?, 1);
    graph.finalize()
}

/// A pool whose slots have nothing but their number.
pub(crate) fn pool(device: &Device, slots: usize) -> ExecutablePool<usize> {
    let device = device.clone();
    ExecutablePool::new(slots, move |slot| Ok((fill(&device, 4)?, slot.index())))
}

/// A value whose drop panics.
#[derive(Debug)]
pub(crate) struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("on purpose")
    }
}

/// Counts what several closures do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add_one(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs a test in a runtime of one thread, so that its tasks run only where it awaits.
pub(crate) fn run<F: Future>(test: F) -> F::Output {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
}

/// Polls a future once.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(noop_waker_ref()))
}

/// Lets other tasks of this runtime run for a while.
pub(crate) async fn yield_often() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

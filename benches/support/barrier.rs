//! A barrier that keeps kernels waiting, so that what is behind them stays in flight.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use wakegraph::kernel::RawKernel;
use wakegraph::{Device, ExecutableGraph, Graph, Range};

/// Closed until opened.
#[derive(Clone, Default)]
pub struct Barrier(Arc<(Mutex<bool>, Condvar)>);

impl Barrier {
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    pub fn pass(&self) {
        let open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }

    /// An executable of one kernel, which passes the barrier.
    pub fn executable(&self, device: &Device) -> ExecutableGraph {
        let waits = self.clone();
        let kernel = RawKernel::new("wait").writes::<u32>("x").host(move |_, _| {
            waits.pass();
            Ok(())
        });
        let data = device.buffer::<u32>(16).expect("a small buffer");
        let mut graph = Graph::new(device);
        graph.launch(kernel.call().memory::<u32>(&data), Range::linear(16));
        graph.finalize().expect("a valid graph")
    }
}

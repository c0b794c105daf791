//! Native commands whose closures submit and update their own executable while they are recorded.
#![expect(unsafe_code, reason = "makes native commands that enqueue nothing")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, NodeId, Range, kernel};

use crate::common::multi_thread;
use crate::faulty::{Updates, faulty_updates};
use crate::support::must_end;

kernel! {
    fn mix(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_mul(31).wrapping_add(n)),
    }
}

fn mixed(start: u32, numbers: &[u32]) -> u32 {
    numbers.iter().fold(start, |x, n| x.wrapping_mul(31).wrapping_add(*n))
}

/// The executable that the closure submits and updates, and a node of it.
type Own = Arc<Mutex<Option<(ExecutableGraph, NodeId)>>>;

/// An executable of `mix` on two devices, with a native command between.
struct Setup {
    devices: [Device; 2],
    /// How many updates more succeed on the second device.
    second_updates: Updates,
    x: [Buffer<u32>; 2],
    exec: ExecutableGraph,
    own: Own,
}

impl Setup {
    fn new() -> Self {
        let open = || host::open(HostOptions::new().threads(1)).unwrap();
        let ((a, _), (b, second_updates)) = (faulty_updates(open()), faulty_updates(open()));
        let (devices, own) = ([a, b], Own::default());
        let x = devices.each_ref().map(|device| device.buffer_from(&[1u32; 4]).unwrap());
        let (graph, node) = graph(&devices, 1, &x, &own);
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        *own.lock() = Some((exec.clone(), node));
        Self { devices, second_updates, x, exec, own }
    }

    fn other_graph(&self, n: u32) -> Graph {
        graph(&self.devices, n, &self.x, &self.own).0
    }

    async fn contents(&self) -> [u32; 2] {
        [self.x[0].to_vec().await.unwrap()[0], self.x[1].to_vec().await.unwrap()[0]]
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // The executable keeps the closure, and the closure the executable.
        drop(self.own.lock().take());
    }
}

fn graph(devices: &[Device; 2], n: u32, x: &[Buffer<u32>; 2], own: &Own) -> (Graph, NodeId) {
    let mut graph = Graph::new(&devices[0]);
    let first = graph.launch(mix(n, &x[0]), Range::linear(4)).id();
    let own = own.clone();
    // SAFETY: it enqueues nothing.
    let native = unsafe {
        graph.native("updates its executable", [], move |_, []| {
            let own = own.lock().clone();
            if let Some((exec, node)) = own {
                drop(exec.submit());
                drop(exec.update().enabled(node, true).apply());
                drop(exec.submit());
            }
            Ok(())
        })
    };
    let native = native.after([first]).id();
    graph.launch(mix(n, &x[1]), Range::linear(4)).after([native]);
    (graph, first)
}

#[test]
fn a_native_closure_may_submit_and_update_its_executable() {
    must_end(|| {
        multi_thread().block_on(async {
            let setup = Setup::new();
            setup.exec.update_from(&setup.other_graph(2)).await.unwrap();
            setup.exec.submit().await.unwrap();
            // What the closure has submitted comes before the update.
            assert_eq!(setup.contents().await, [mixed(1, &[1, 1, 2]); 2]);
        })
    });
}

#[test]
fn a_native_closure_may_do_so_while_an_update_is_taken_back() {
    must_end(|| {
        multi_thread().block_on(async {
            let setup = Setup::new();
            setup.second_updates.store(0, Ordering::SeqCst);
            let error = setup.exec.update_from(&setup.other_graph(2)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
            setup.exec.submit().await.unwrap();
            // The closure has been called twice, for the other graph and for the one that was restored.
            assert_eq!(setup.contents().await, [mixed(1, &[1; 5]); 2]);
        })
    });
}

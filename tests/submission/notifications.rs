//! What happens inside a device's notification, and what must not.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, ThreadId};

use wakegraph::Graph;

use crate::common::{current_thread, manual, yield_often};

/// Tells on which thread it is dropped.
struct Last(Sender<ThreadId>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap();
    }
}

#[test]
fn closures_and_buffers_are_not_dropped_inside() {
    let (device, control) = manual(true);
    let (send, dropped) = channel();
    let last = Arc::new(Last(send));
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    let task = graph.host_task((), async move |()| drop(last)).id();
    graph.fill(&x, 1).after([task]);
    let exec = graph.finalize().unwrap();
    drop(graph);
    let runtime = current_thread();
    let mut submission = {
        let _entered = runtime.enter();
        exec.submit()
    };
    drop(exec);
    while control.pending() == 0 {
        runtime.block_on(yield_often());
    }
    // The run is the last one to hold the executable, and this thread is the one that notifies.
    control.complete_all();
    assert!(submission.is_finished());
    assert_ne!(dropped.recv().unwrap(), thread::current().id());
    runtime.block_on(&mut submission).unwrap();
}

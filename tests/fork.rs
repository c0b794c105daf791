//! A process that forks with open devices. The only test of its process, so that no thread of another test
//! holds a lock when the process is forked.
#![cfg(all(unix, not(miri)))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(unsafe_code, reason = "calls the system's library")]

use std::ffi::c_int;

use futures::FutureExt as _;
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, Graph, Queue, Range, Result};

#[path = "../crates/wakegraph-conformance/src/support/mod.rs"]
mod support;

use support::block_on;

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: u32) -> u32;
    fn _exit(code: c_int) -> !;
}

wakegraph::kernel! {
    fn add_one(x: &mut [u32]) { item: |i, x| x[i] += 1 }
}

/// What a parent has before it forks.
struct Parent {
    device: Device,
    queue: Queue,
    exec: ExecutableGraph,
    x: Buffer<u32>,
}

impl Parent {
    fn new() -> Result<Self> {
        let device = Device::open("host")?;
        let (queue, x) = (device.queue()?, device.buffer(4)?);
        let mut graph = Graph::new(&device);
        graph.launch(add_one(&x), Range::linear(4));
        Ok(Self { exec: graph.finalize()?, device, queue, x })
    }

    /// Whether everything that would hang in a child is refused there.
    fn is_refused(&self) -> bool {
        let is_refused = |result: Option<Result<()>>| match result {
            Some(Err(error)) => {
                let has_remedy = error.to_string().contains("fork before the first device is opened");
                error.kind() == ErrorKind::Unavailable && has_remedy
            }
            _ => false,
        };
        let drained = self.device.drain().now_or_never();
        is_refused(self.exec.submit().now_or_never())
            && is_refused(self.queue.fill(&self.x, 1).wait().now_or_never())
            && is_refused(self.x.to_vec().now_or_never().map(|read| read.map(drop)))
            && is_refused(Some(Device::open("host:1").map(drop)))
            && drained.is_some()
    }
}

#[test]
fn children_of_a_process_with_devices_are_refused() {
    let parent = Parent::new().unwrap();
    block_on(parent.exec.submit()).unwrap();
    // SAFETY: the child calls this crate, which takes no lock that another thread may hold, and `_exit`.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: a child that hangs is ended by a signal.
        unsafe { alarm(60) };
        let code = if parent.is_refused() { 0 } else { 1 };
        // What the parent has is dropped in the child without a hang, too.
        drop(parent);
        // SAFETY: ends the child alone.
        unsafe { _exit(code) };
    }
    let mut status = -1;
    // SAFETY: the child is this process's own.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed, or hung");
    // The parent goes on.
    block_on(parent.exec.submit()).unwrap();
    assert_eq!(block_on(parent.x.to_vec()).unwrap(), [2; 4]);
}

//! What cannot be seen from outside: memory that is let go, locks that are not taken.

use std::sync::Arc;

use crate::backend::null::NullOptions;
use crate::runtime::ordering::locks_taken;
use crate::runtime::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph};
use crate::{NodeId, Range};

crate::kernel! {
    fn mix(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_mul(31).wrapping_add(n)),
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// An executable of one launch.
fn launch(device: &Device, x: &Buffer<u32>) -> (ExecutableGraph, NodeId) {
    let mut graph = Graph::new(device);
    let node = graph.launch(mix(0, x), Range::linear(x.len())).id();
    (graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap(), node)
}

#[test]
fn buffers_that_were_swapped_out_are_freed_when_no_run_uses_them() {
    for notifies in [true, false] {
        let (device, control) =
            crate::backend::null::open(NullOptions::new().manual(true).notifies(notifies));
        let device = Device::from_hal(device);
        let mut buffer = device.buffer::<u32>(4).unwrap();
        let (exec, node) = launch(&device, &buffer);
        let memory = |buffer: &Buffer<u32>| Arc::downgrade(&buffer.view().allocation);
        for _ in 0..3 {
            let old = memory(&buffer);
            let running = exec.submit();
            buffer = device.buffer::<u32>(4).unwrap();
            block_on(exec.update().launch(node, mix(1, &buffer)).apply()).unwrap();
            assert!(old.upgrade().is_some(), "the run uses it");
            control.complete_all();
            block_on(running).unwrap();
            while old.strong_count() > 0 {
                std::thread::yield_now();
            }
            // With nothing in flight it goes at once.
            let old = memory(&buffer);
            buffer = device.buffer::<u32>(4).unwrap();
            block_on(exec.update().launch(node, mix(1, &buffer)).apply()).unwrap();
            assert_eq!(old.strong_count(), 0);
        }
    }
}

#[test]
fn an_update_that_keeps_the_memory_takes_no_order_lock() {
    let device = Device::open("host:942").unwrap();
    let x = device.buffer::<u32>(4).unwrap();
    let (exec, node) = launch(&device, &x);
    let before = locks_taken();
    for n in 0..10 {
        let update = exec.update().launch(node, mix(n, &x)).enabled(node, n % 2 == 0);
        block_on(update.apply()).unwrap();
        block_on(exec.submit()).unwrap();
    }
    assert_eq!(locks_taken() - before, 0);
}

#[test]
fn rivals_are_those_of_the_memory_in_use() {
    let device = Device::open("host:943").unwrap();
    let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
    let (exec, node) = launch(&device, &x);
    let rivals = |exec: &ExecutableGraph| exec.shared.state.lock().rivals.len();
    let [of_x, of_y] = [&x, &y].map(|buffer| launch(&device, buffer).0);
    assert_eq!([&exec, &of_x, &of_y].map(rivals), [1, 1, 0]);
    block_on(exec.update().launch(node, mix(1, &y)).apply()).unwrap();
    assert_eq!([&exec, &of_x, &of_y].map(rivals), [1, 0, 1]);
    block_on(exec.update().launch(node, mix(1, device.buffer::<u32>(4).unwrap())).apply()).unwrap();
    assert_eq!([&exec, &of_x, &of_y].map(rivals), [0, 0, 0]);
    // One that is refused leaves everything as it was.
    block_on(exec.update().launch(node, mix(1, &x)).range(node, Range::new([1, 1])).apply()).unwrap_err();
    assert_eq!([&exec, &of_x, &of_y].map(rivals), [0, 0, 0]);
}

/// What only a run in flight uses still counts, for executables of before and after, until the run is over.
#[test]
fn runs_in_flight_keep_their_rivals() {
    let (device, control) = crate::backend::null::open(NullOptions::new().manual(true));
    let device = Device::from_hal(device);
    let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
    let (exec, node) = launch(&device, &x);
    let rivals = |exec: &ExecutableGraph| exec.shared.state.lock().rivals.len();
    let before = launch(&device, &x).0;
    let running = exec.submit();
    block_on(exec.update().launch(node, mix(1, &y)).apply()).unwrap();
    assert_eq!([&exec, &before].map(rivals), [1, 1]);
    let after = launch(&device, &x).0;
    assert_eq!([&exec, &before, &after].map(rivals), [2, 2, 2]);
    let waiting = after.submit();
    assert_eq!(control.complete_all(), 2, "the second waits for the first, on the device");
    block_on(async { (running.await, waiting.await) }).0.unwrap();
    // A thread of the runtime's own sees to it.
    while rivals(&exec) > 0 {
        std::thread::yield_now();
    }
    assert_eq!([&before, &after].map(rivals), [1, 1], "each other's");
}

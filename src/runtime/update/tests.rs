//! What cannot be seen from outside: memory that is let go, locks that are not taken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::kernel::RawKernel;
use crate::runtime::execution::conflicts::registers_locked;
use crate::runtime::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph};
use crate::testing::{FakeDevice, FakeOptions};
use crate::{NodeId, Range, RangeBound};

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
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(notifies));
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
fn an_update_that_keeps_the_memory_locks_no_register() {
    let device = Device::open("host:942").unwrap();
    let x = device.buffer::<u32>(4).unwrap();
    let (exec, node) = launch(&device, &x);
    let before = registers_locked();
    for n in 0..10 {
        let update = exec.update().launch(node, mix(n, &x)).enabled(node, n % 2 == 0);
        block_on(update.apply()).unwrap();
        block_on(exec.submit()).unwrap();
    }
    assert_eq!(registers_locked() - before, 0);
}

/// Whether a submission has to consult others about the memory that it uses.
fn is_contested(exec: &ExecutableGraph) -> bool {
    // A submission notices that nothing conflicts any more.
    block_on(exec.submit()).unwrap();
    !exec.inner.state.lock().contested.is_empty()
}

#[test]
fn an_update_moves_conflicts_to_the_new_memory() {
    let device = Device::open("host:943").unwrap();
    let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
    let (exec, node) = launch(&device, &x);
    let [of_x, of_y] = [&x, &y].map(|buffer| launch(&device, buffer).0);
    assert_eq!([&exec, &of_x, &of_y].map(is_contested), [true, true, false]);
    block_on(exec.update().launch(node, mix(1, &y)).apply()).unwrap();
    assert_eq!([&exec, &of_x, &of_y].map(is_contested), [true, false, true]);
    block_on(exec.update().launch(node, mix(1, device.buffer::<u32>(4).unwrap())).apply()).unwrap();
    assert_eq!([&exec, &of_x, &of_y].map(is_contested), [false; 3]);
    // One that is refused leaves everything as it was.
    block_on(exec.update().launch(node, mix(1, &x)).range(node, Range::new([1, 1])).apply()).unwrap_err();
    assert_eq!([&exec, &of_x, &of_y].map(is_contested), [false; 3]);
}

/// Memory that only a run in flight still uses is ordered, for executables made before the update
/// and after it.
#[test]
fn a_run_in_flight_keeps_its_place_on_the_old_memory() {
    for made_before in [true, false] {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        let device = Device::from_hal(device);
        let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
        let (exec, node) = launch(&device, &x);
        let other = || launch(&device, &x).0;
        let before = made_before.then(other);
        let running = exec.submit();
        block_on(exec.update().launch(node, mix(1, &y)).apply()).unwrap();
        let other = before.unwrap_or_else(other);
        let waiting = other.submit();
        assert_eq!(waiting.event().run().comes_after(), 1, "the devices wait");
        assert_eq!(control.complete_all(), 2);
        block_on(async { (running.await, waiting.await) }).0.unwrap();
        let last = other.submit();
        control.complete_all();
        block_on(last).unwrap();
        assert!(other.inner.state.lock().contested.is_empty());
    }
}

/// A run that was submitted before an update does not use what the update brings.
#[test]
fn runs_before_an_update_do_not_hold_the_new_memory() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    let device = Device::from_hal(device);
    let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
    let (exec, node) = launch(&device, &x);
    let running = exec.submit();
    block_on(exec.update().launch(node, mix(1, &y)).apply()).unwrap();
    let other = launch(&device, &y).0.submit();
    assert_eq!(other.event().run().comes_after(), 0);
    control.complete_all();
    block_on(async { (running.await, other.await) }).0.unwrap();
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The closure of a bound awaits a submission, which its own thread completes.
#[test]
fn bounds_of_kernels_may_await_submissions() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    let device = Device::from_hal(device);
    let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
    let (other, _) = launch(&device, &y);
    let is_awaited = Arc::new(AtomicBool::new(false));
    let awaited = is_awaited.clone();
    let kernel = RawKernel::new("add").value::<u32>("n").writes::<u32>("x").range_bound(move |args| {
        if args.value::<u32>()? == 7 {
            let mut submission = other.submit();
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let cx = &mut Context::from_waker(&waker);
            assert!(Pin::new(&mut submission).poll(cx).is_pending());
            control.complete_all();
            // As an executor does that finds nothing more to do.
            thread::park_timeout(Duration::from_secs(60));
            awaited.store(Pin::new(&mut submission).poll(cx).is_ready(), Ordering::Relaxed);
        }
        Ok(RangeBound::ANY)
    });
    let kernel = kernel.host(|_, _| Ok(()));
    let mut graph = Graph::new(&device);
    let n = graph.param::<u32>(4);
    graph.launch(kernel.call().value(4_u32).memory::<u32>(&x), Range::linear(4)).param("n", &n);
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let begun = Instant::now();
    block_on(exec.update().param(&n, 7).apply()).unwrap();
    assert!(is_awaited.load(Ordering::Relaxed));
    assert!(begun.elapsed() < Duration::from_secs(60), "nothing has woken the closure");
}

//! What cannot be seen from outside: memory that is let go, locks that are not taken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use wakegraph_hal::fake::{FakeDevice, FakeOptions};

use crate::kernel::{RangeBound, RawKernel};
use crate::runtime::execution::conflicts::registers_locked;
use crate::runtime::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph};
use crate::{ErrorKind, NodeId, Range};

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

/// An executable of a host task that waits for the semaphore, and a launch behind it.
fn gated(device: &Device, x: &Buffer<u32>, gate: &Arc<Semaphore>) -> (ExecutableGraph, NodeId) {
    let (mut graph, gate) = (Graph::new(device), gate.clone());
    let task = async move |()| gate.acquire().await.map(SemaphorePermit::forget);
    let hold = graph.host_task((), task).id();
    let node = graph.launch(mix(0, x), Range::linear(x.len())).after([hold]).id();
    (graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap(), node)
}

#[test]
fn an_update_that_waits_keeps_the_last_one_before_it() {
    const UPDATES: u32 = 100;
    let device = Device::open("host:944").unwrap();
    let (x, gate) = (device.buffer::<u32>(1).unwrap(), Arc::new(Semaphore::new(0)));
    block_on(async {
        let (exec, node) = gated(&device, &x, &gate);
        let mut runs = vec![exec.submit()];
        let mut updates = vec![exec.update().launch(node, mix(1, &x)).apply()];
        let first = exec.inner.state.lock().fence.clone().unwrap();
        for n in 2..=UPDATES {
            runs.push(exec.submit());
            updates.push(exec.update().launch(node, mix(n, &x)).apply());
        }
        // The first update, with those that wait: for it, the next update and the run between the two.
        let references = Arc::strong_count(&first);
        assert!(references < 10, "{references}");
        runs.push(exec.submit());
        gate.add_permits(runs.len());
        for update in updates {
            update.await.unwrap();
        }
        for run in runs {
            run.await.unwrap();
        }
        assert!(exec.inner.state.lock().fence.as_ref().is_none_or(|fence| fence.is_lifted()));
        let expected = (0..=UPDATES).fold(0u32, |x, n| x.wrapping_mul(31).wrapping_add(n));
        assert_eq!(x.to_vec().await.unwrap(), [expected]);
    });
}

#[test]
fn an_update_that_waits_registers_its_own_memory_only() {
    const UPDATES: usize = 100;
    let device = Device::open("host:945").unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let buffers: Vec<_> = (0..=UPDATES).map(|_| device.buffer::<u32>(1).unwrap()).collect();
    block_on(async {
        let (exec, node) = gated(&device, &buffers[0], &gate);
        let held = exec.submit();
        let before = registers_locked();
        let updates = buffers[1..].iter().map(|x| exec.update().launch(node, mix(1, x)).apply());
        let updates: Vec<_> = updates.collect();
        let locked = registers_locked() - before;
        // The first one has tried whether it can be applied at once.
        assert!(locked <= UPDATES + 3, "{locked}");
        gate.add_permits(1);
        held.await.unwrap();
        for update in updates {
            update.await.unwrap();
        }
        // Each is taken out again when the next one is applied.
        let locked = registers_locked() - before;
        assert!(locked < 10 * UPDATES, "{locked}");
        assert!(is_free(&buffers[0]) && is_free(&buffers[UPDATES - 1]));
    });
}

/// Whether no executable is registered for the memory.
fn is_free(x: &Buffer<u32>) -> bool {
    x.view().allocation.register.get_or_default().lock().user_count() == 0
}

/// Updates that a runtime gives up when it shuts down, among others.
#[test]
fn what_comes_behind_an_update_that_is_given_up_waits_for_those_before_it() {
    for is_first in [true, false] {
        let device = Device::open("host:946").unwrap();
        let (x, gate) = (device.buffer::<u32>(1).unwrap(), Arc::new(Semaphore::new(0)));
        let (lasting, doomed) =
            (tokio::runtime::Runtime::new().unwrap(), tokio::runtime::Runtime::new().unwrap());
        let (exec, node) = gated(&device, &x, &gate);
        let update = |n| exec.update().launch(node, mix(n, &x)).apply();
        let _entered = lasting.enter();
        let mut runs = vec![exec.submit()];
        let first = (!is_first).then(|| update(1));
        let given_up = {
            let _entered = doomed.enter();
            [2, 3].map(update)
        };
        runs.push(exec.submit());
        let last = update(4);
        runs.push(exec.submit());
        drop(doomed);
        for update in given_up {
            assert_eq!(block_on(update).unwrap_err().kind(), ErrorKind::Cancelled);
        }
        gate.add_permits(3);
        lasting.block_on(async {
            for update in first.into_iter().chain([last]) {
                update.await.unwrap();
            }
            for run in runs {
                run.await.unwrap();
            }
            let expected =
                [0, u32::from(!is_first), 4].iter().fold(0u32, |x, n| x.wrapping_mul(31).wrapping_add(*n));
            assert_eq!(x.to_vec().await.unwrap(), [expected]);
        });
    }
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
        assert_eq!(waiting.event().run().comes_after().len(), 1, "the devices wait");
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
    assert_eq!(other.event().run().comes_after().len(), 0);
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

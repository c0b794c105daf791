//! Values of users that a run holds: errors, what closures capture, panics. Their `Drop` may
//! submit, block or panic.

use std::fmt::{self, Display};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use wakegraph::kernel::RawKernel;
use wakegraph::{Device, Error, ErrorKind, ExecutableGraph, Graph, WakePolicy};

use crate::common::{device, manual, multi_thread, polled_device, raw, single};
use crate::support::{Hold, PANIC, block_on, must_end, must_end_on_a_small_stack, silence_expected_panics};

/// Calls a closure when it is dropped. Serves as an error and as something that closures capture.
struct OnDrop(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl OnDrop {
    fn new(action: impl FnOnce() + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::new(action))))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        let action = self.0.lock().unwrap().take();
        action.into_iter().for_each(|action| action());
    }
}

impl fmt::Debug for OnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDrop")
    }
}

impl Display for OnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error that acts when it is dropped")
    }
}

impl std::error::Error for OnDrop {}

/// Gives a host task or kernel something to do once, and then nothing any more.
type Slot<T> = Arc<Mutex<Option<T>>>;

fn slot<T>() -> Slot<T> {
    Arc::default()
}

/// A graph whose host task fails with what is in the slot.
fn failing_task(device: &Device, error: &Slot<OnDrop>) -> ExecutableGraph {
    let error = error.clone();
    let mut graph = Graph::new(device);
    graph.host_task((), async move |()| error.lock().unwrap().take().map_or(Ok(()), Err));
    graph.finalize().unwrap()
}

/// A graph whose kernel fails with what is in the slot.
fn failing_kernel(device: &Device, error: &Slot<OnDrop>) -> ExecutableGraph {
    let error = error.clone();
    single(
        device,
        &raw("failing", move || match error.lock().unwrap().take() {
            Some(error) => Err(Error::new(ErrorKind::Driver, "failing on purpose").caused_by(error)),
            None => Ok(()),
        }),
    )
}

type Failing = fn(&Device, &Slot<OnDrop>) -> ExecutableGraph;

const FAILING: [Failing; 2] = [failing_task, failing_kernel];

/// Tests with each sort of device, and with a user's error in each place it can come from.
fn with_each_failing(test: impl Fn(ExecutableGraph, Slot<OnDrop>) + Send + Copy + 'static) {
    for failing in FAILING {
        for open in [device, polled_device] {
            must_end(move || {
                let error = slot();
                test(failing(&open(), &error), error);
            });
        }
    }
}

#[test]
fn an_error_may_submit_when_it_is_dropped() {
    with_each_failing(|exec, error| {
        multi_thread().block_on(async {
            let (submits, (dropped, is_dropped)) = (exec.clone(), channel());
            *error.lock().unwrap() = Some(OnDrop::new(move || {
                drop(submits.submit());
                dropped.send(()).unwrap();
            }));
            exec.submit().await.unwrap_err();
            while is_dropped.try_recv().is_err() {
                exec.submit().await.unwrap();
            }
        });
    });
}

#[test]
fn an_error_whose_drop_panics_stops_no_later_run() {
    silence_expected_panics();
    with_each_failing(|exec, error| {
        multi_thread().block_on(async {
            let (dropped, is_dropped) = channel();
            *error.lock().unwrap() = Some(OnDrop::new(move || {
                dropped.send(()).unwrap();
                std::panic::panic_any(PANIC);
            }));
            // Only the runtime holds the error then.
            let failed = exec.submit();
            while !failed.is_finished() {
                tokio::task::yield_now().await;
            }
            drop(failed);
            while is_dropped.try_recv().is_err() {
                exec.submit().await.unwrap();
            }
            exec.submit().await.unwrap();
        });
    });
}

#[test]
fn a_second_error_whose_drop_panics_stops_no_run() {
    silence_expected_panics();
    must_end(|| {
        multi_thread().block_on(async {
            let mut graph = Graph::new(&device());
            let first = graph.host_task((), async |()| Err::<(), _>("first")).id();
            let beside = graph.host_task((), async |()| ()).id();
            let error = slot();
            *error.lock().unwrap() = Some(OnDrop::new(|| std::panic::panic_any(PANIC)));
            // Independent of the first, so that it runs; it fails last.
            let (send, receive) = tokio::sync::oneshot::channel();
            let receive = Arc::new(Mutex::new(Some(receive)));
            graph.host_task((), async move |()| {
                let first_is_over = receive.lock().unwrap().take().unwrap();
                first_is_over.await.unwrap();
                error.lock().unwrap().take().map_or(Ok(()), Err)
            });
            graph.empty().after([first, beside]);
            let exec = graph.finalize().unwrap();
            let submission = exec.submit();
            // All tasks but the one that waits are over, and so the first failure is known.
            while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 1 {
                tokio::task::yield_now().await;
            }
            send.send(()).unwrap();
            assert!(submission.await.unwrap_err().to_string().contains("first"));
        });
    });
}

/// An executable of one kernel that waits for the test and captures `value`.
fn capturing(device: &Device, hold: &Hold, value: OnDrop) -> ExecutableGraph {
    let held = hold.held();
    single(
        device,
        &raw("capturing", move || {
            let _ = &value;
            held.pass();
            Ok(())
        }),
    )
}

/// Lets a run end that is the last to hold its executable, and with it `value`.
fn dropped_by_its_run(device: &Device, value: OnDrop) {
    let hold = Hold::new();
    let exec = capturing(device, &hold, value);
    drop(exec.submit());
    drop(exec);
    hold.open();
}

#[test]
fn a_captured_value_may_wait_for_its_own_device() {
    for policy in [WakePolicy::Latency, WakePolicy::Efficient] {
        for open in [device, polled_device] {
            must_end(move || {
                let device = open();
                device.set_wake_policy(policy);
                let (other, (dropped, is_dropped)) = (single(&device, &raw("other", || Ok(()))), channel());
                let waits = other.clone();
                dropped_by_its_run(
                    &device,
                    OnDrop::new(move || {
                        block_on(waits.submit()).unwrap();
                        dropped.send(()).unwrap();
                    }),
                );
                is_dropped.recv().unwrap();
                block_on(other.submit()).unwrap();
            });
        }
    }
}

#[test]
fn an_unawaited_error_may_wait_for_its_own_device() {
    for open in [device, polled_device] {
        must_end(move || {
            let device = open();
            let (error, hold) = (slot(), Hold::new());
            let (other, (dropped, is_dropped)) = (single(&device, &raw("other", || Ok(()))), channel());
            let waits = other.clone();
            *error.lock().unwrap() = Some(OnDrop::new(move || {
                block_on(waits.submit()).unwrap();
                dropped.send(()).unwrap();
            }));
            let held = hold.held();
            let exec = single(
                &device,
                &raw("failing", move || {
                    held.pass();
                    match error.lock().unwrap().take() {
                        Some(error) => {
                            Err(Error::new(ErrorKind::Driver, "failing on purpose").caused_by(error))
                        }
                        None => Ok(()),
                    }
                }),
            );
            drop(exec.submit());
            drop(exec);
            hold.open();
            is_dropped.recv().unwrap();
            block_on(other.submit()).unwrap();
        });
    }
}

#[test]
fn a_drop_that_blocks_holds_up_no_other() {
    for open in [device, polled_device] {
        must_end(move || {
            const BLOCKED: usize = 3;
            let device = open();
            let (send, receive): (Vec<_>, Vec<Receiver<()>>) = (0..BLOCKED).map(|_| channel()).unzip();
            let (all_dropped, are_all_dropped) = channel();
            for receive in receive {
                let all_dropped = all_dropped.clone();
                dropped_by_its_run(
                    &device,
                    OnDrop::new(move || {
                        receive.recv().unwrap();
                        all_dropped.send(()).unwrap();
                    }),
                );
            }
            // Comes after all that block, and lets them go on.
            dropped_by_its_run(
                &device,
                OnDrop::new(move || {
                    send.iter().for_each(|send| send.send(()).unwrap());
                }),
            );
            (0..BLOCKED).for_each(|_| are_all_dropped.recv().unwrap());
        });
    }
}

#[test]
fn a_captured_value_whose_drop_panics_stops_nothing() {
    silence_expected_panics();
    for open in [device, polled_device] {
        must_end(move || {
            let device = open();
            let (dropped, is_dropped) = channel();
            dropped_by_its_run(
                &device,
                OnDrop::new(move || {
                    dropped.send(()).unwrap();
                    std::panic::panic_any(PANIC);
                }),
            );
            is_dropped.recv().unwrap();
            block_on(single(&device, &raw("other", || Ok(()))).submit()).unwrap();
            let (dropped, is_dropped) = channel();
            dropped_by_its_run(&device, OnDrop::new(move || dropped.send(()).unwrap()));
            is_dropped.recv().unwrap();
        });
    }
}

/// Each executable is captured by the kernel of the next; gives the last.
fn nested(device: &Device, count: usize, first: Option<OnDrop>) -> ExecutableGraph {
    let mut last: Option<ExecutableGraph> = None;
    let mut first = first;
    for _ in 0..count {
        let captured = (last.take(), first.take());
        let kernel = RawKernel::new("capturing").host(move |_, _| {
            let _ = &captured;
            Ok(())
        });
        last = Some(single(device, &kernel));
    }
    last.unwrap()
}

#[test]
fn nested_executables_are_dropped_without_recursion() {
    const COUNT: usize = 10_000;
    let device = device();
    for by_its_run in [false, true] {
        let device = device.clone();
        must_end_on_a_small_stack(move || {
            let (dropped, is_dropped) = channel();
            let exec = nested(&device, COUNT, Some(OnDrop::new(move || dropped.send(()).unwrap())));
            if by_its_run {
                let outermost = OnDrop::new(move || drop(exec));
                dropped_by_its_run(&device, outermost);
            } else {
                drop(exec);
            }
            is_dropped.recv().unwrap();
        });
    }
}

#[test]
fn the_thread_with_the_last_handle_drops_an_executable() {
    let (dropped, is_dropped) = channel();
    let hold = Hold::new();
    let value = OnDrop::new(move || dropped.send(std::thread::current().id()).unwrap());
    let exec = capturing(&device(), &hold, value);
    drop(exec.clone());
    assert!(is_dropped.try_recv().is_err());
    drop(exec);
    assert_eq!(is_dropped.try_recv(), Ok(std::thread::current().id()));
}

/// Submits when its task is woken.
struct Submits {
    exec: ExecutableGraph,
    woken: Sender<()>,
}

impl Wake for Submits {
    fn wake(self: Arc<Self>) {
        drop(self.exec.submit());
        self.woken.send(()).unwrap();
    }
}

#[test]
fn a_waker_may_submit() {
    // Whether the reactor's thread sees the end first is up to chance.
    for _ in 0..50 {
        must_end(|| {
            let (device, control) = manual(false);
            device.set_wake_policy(WakePolicy::Efficient);
            let fill = || {
                let mut graph = Graph::new(&device);
                graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
                graph.finalize().unwrap()
            };
            let (first, second) = (fill(), fill());
            // It gets a run to use again, as the device that is lost makes no events for another.
            let used = second.submit();
            control.complete_all();
            block_on(used).unwrap();
            let (woken, is_woken) = channel();
            let waker = Waker::from(Arc::new(Submits { exec: second.clone(), woken }));
            let mut earlier = first.submit();
            assert!(pin!(&mut earlier).poll(&mut Context::from_waker(&waker)).is_pending());
            control.complete_all();
            control.lose_device();
            // The device refuses it, and so it reads the result of the earlier one, which has
            // ended unseen.
            drop(second.prepare().after(&earlier).submit());
            is_woken.recv().unwrap();
        });
    }
}

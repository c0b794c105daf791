//! Updates that wait for their turn: the memory that they bring is ordered as if they had been
//! applied already.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, SemaphorePermit};
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::graph::NodePath;
use wakegraph::kernel::RawKernel;
use wakegraph::update::Applied;
use wakegraph::{
    Device, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, NodeId, Range, Submission,
    kernel, read, write,
};

use crate::common::{
    Count, current_thread, device, held_kernel, in_both_runtimes, multi_thread, polled_device, yield_often,
};
use crate::faulty::faulty_updates;
use crate::support::{Hold, block_on};

kernel! {
    fn mix(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_mul(31).wrapping_add(n)),
    }
    fn set(n: u32, x: &mut [u32]) {
        host: |_, n, x| x.fill(n),
    }
    fn check(n: u32, x: &[u32]) {
        host: |_, n, x| assert!(x.iter().all(|x| *x == n)),
    }
}

fn finalize(graph: &Graph) -> ExecutableGraph {
    graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap()
}

fn mixed(start: u32, numbers: &[u32]) -> u32 {
    numbers.iter().fold(start, |x, n| x.wrapping_mul(31).wrapping_add(*n))
}

fn numbers(device: &Device) -> HostBuffer<u32> {
    device.host_buffer_from(&[1u32; 4]).unwrap()
}

/// An executable that uses one buffer, and a run of it that an update has to wait for.
struct Running {
    exec: ExecutableGraph,
    node: NodeId,
    first: Submission,
    hold: Hold,
}

impl Running {
    /// A kernel that waits for the test, a host task, then `mix(1, x)` or `check`.
    fn start(device: &Device, x: &HostBuffer<u32>) -> Self {
        let hold = Hold::new();
        let mut graph = Graph::new(device);
        let first = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
        let task = graph.host_task((), async |()| ()).after([first]).id();
        let node = graph.launch(mix(1, x), Range::linear(x.len())).after([task]);
        let node = node.alternative(check(1, x)).id();
        let exec = finalize(&graph);
        let first = exec.submit();
        hold.wait_for(1);
        Self { exec, node, first, hold }
    }

    fn update(&self, n: u32, x: &HostBuffer<u32>) -> Applied {
        let applied = self.exec.update().launch(self.node, mix(n, x)).apply();
        assert!(!applied.is_known());
        applied
    }

    fn update_that_fails(&self, n: u32, x: &HostBuffer<u32>) -> Applied {
        let update = self.exec.update().launch(self.node, mix(n, x));
        update.range(self.node, Range::new([1, 1])).apply()
    }
}

/// Takes a place in the order for a guard that has to wait.
async fn waiting<F: Future>(guard: F) -> Pin<Box<F>> {
    let mut guard = Box::pin(guard);
    assert!(futures::poll!(&mut guard).is_pending());
    guard
}

fn is_in_use<T>(guard: wakegraph::Result<T>) -> bool {
    guard.is_err_and(|error| error.kind() == ErrorKind::InvalidOperation)
}

#[test]
fn a_guard_waits_for_submissions_behind_the_update() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let run = Running::start(&device, &x);
            let applied = run.update(5, &y);
            assert!(y.try_write().is_ok(), "what is in flight does not use it");
            let second = run.exec.submit();
            assert!(is_in_use(y.try_write()) && is_in_use(y.try_read()));
            let guard = waiting(y.write()).await;
            run.hold.open();
            assert_eq!(*guard.await, [mixed(1, &[5]); 4]);
            assert!(second.is_finished());
            run.first.await.unwrap();
            applied.await.unwrap();
        }
    });
}

#[test]
fn submissions_behind_the_update_wait_for_guards_before_it() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let guard = y.try_write().unwrap();
            let run = Running::start(&device, &x);
            // The second one has to wait behind the first.
            let applied = [run.update(4, &x), run.update(5, &y)];
            let second = run.exec.submit();
            run.hold.open();
            run.first.await.unwrap();
            for applied in applied {
                applied.await.unwrap();
            }
            yield_often().await;
            assert!(!second.is_finished());
            assert_eq!(*guard, [1; 4]);
            drop(guard);
            second.await.unwrap();
            assert_eq!(*y.read().await, [mixed(1, &[5]); 4]);
        }
    });
}

#[test]
fn submissions_behind_the_update_wait_for_guards_after_it() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let run = Running::start(&device, &x);
            let applied = run.update(5, &y);
            let mut guard = y.write().await;
            let second = run.exec.submit();
            run.hold.open();
            run.first.await.unwrap();
            applied.await.unwrap();
            yield_often().await;
            assert!(!second.is_finished());
            guard.fill(2);
            drop(guard);
            second.await.unwrap();
            assert_eq!(*y.read().await, [mixed(2, &[5]); 4]);
        }
    });
}

#[test]
fn readers_share_what_the_update_only_reads() {
    in_both_runtimes(|| async {
        let device = device();
        let [x, y] = [(); 2].map(|()| numbers(&device));
        let run = Running::start(&device, &x);
        let before = y.try_read().unwrap();
        let applied = run.exec.update().launch(run.node, check(1, &y)).apply();
        let second = run.exec.submit();
        let after = y.try_read().unwrap();
        assert!(is_in_use(y.try_write()));
        run.hold.open();
        applied.await.unwrap();
        second.await.unwrap();
        assert_eq!((*before).to_vec(), (*after).to_vec());
    });
}

/// A graph whose only kernel has `x` to itself until the test lets it go on.
fn user(device: &Device, x: &HostBuffer<u32>, hold: &Hold) -> ExecutableGraph {
    let held = hold.held();
    let kernel = RawKernel::new("user").writes::<u32>("x").host(move |_, args| {
        let x = args.write::<u32>()?;
        held.pass();
        x.fill(7);
        Ok(())
    });
    let mut graph = Graph::new(device);
    graph.launch(kernel.call().memory::<u32>(x), Range::linear(1));
    graph.finalize().unwrap()
}

#[test]
fn submissions_behind_the_update_wait_for_users_of_its_memory() {
    multi_thread().block_on(async {
        for device in [device(), polled_device()] {
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let hold = Hold::new();
            let (before, run) = (user(&device, &y, &hold), Running::start(&device, &x));
            let applied = run.update(5, &y);
            let after = user(&device, &y, &hold);
            // They do not wait for what is in flight, which does not use the memory.
            let using = [before.submit(), after.submit()];
            hold.wait_for(1);
            let second = run.exec.submit();
            run.hold.open();
            run.first.await.unwrap();
            applied.await.unwrap();
            yield_often().await;
            assert!(!second.is_finished());
            hold.open();
            second.await.unwrap();
            assert!(using.iter().all(Submission::is_finished));
            assert_eq!(*y.read().await, [mixed(7, &[5]); 4]);
        }
    });
}

#[test]
fn executables_wait_for_submissions_behind_the_update() {
    multi_thread().block_on(async {
        for device in [device(), polled_device()] {
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let hold = Hold::new();
            let (before, run) = (user(&device, &y, &hold), Running::start(&device, &x));
            let applied = run.update(5, &y);
            let second = run.exec.submit();
            let after = user(&device, &y, &hold);
            let using = [before.submit(), after.submit()];
            yield_often().await;
            assert_eq!(hold.arrived(), 0);
            run.hold.open();
            applied.await.unwrap();
            hold.wait_for(1);
            assert!(second.is_finished());
            hold.open();
            for using in using {
                using.await.unwrap();
            }
        }
    });
}

#[test]
fn memory_stays_ordered_until_an_update_takes_it_out() {
    in_both_runtimes(|| async {
        let device = device();
        let [x, y] = [(); 2].map(|()| numbers(&device));
        let run = Running::start(&device, &x);
        let applied = [run.update(2, &y), run.update(3, &x)];
        let second = run.exec.submit();
        // The first update has taken it out by then, and the second one brings it back.
        let guard = waiting(x.write()).await;
        run.hold.open();
        assert_eq!(*guard.await, [mixed(1, &[1, 3]); 4]);
        second.await.unwrap();
        for applied in applied {
            applied.await.unwrap();
        }
        assert_eq!(*y.try_write().unwrap(), [1; 4]);
        // Guards of memory that was taken out block no submission.
        let guard = y.write().await;
        run.exec.submit().await.unwrap();
        drop(guard);
    });
}

#[test]
fn a_failed_update_takes_its_memory_out_again() {
    in_both_runtimes(|| async {
        for fails_behind_another in [false, true] {
            let device = device();
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let run = Running::start(&device, &x);
            let earlier = fails_behind_another.then(|| run.update(1, &x));
            let failing = run.update_that_fails(5, &y);
            let guard = y.try_write().unwrap();
            run.hold.open();
            if let Some(earlier) = earlier {
                earlier.await.unwrap();
            }
            assert_eq!(failing.await.unwrap_err().kind(), ErrorKind::InvalidArgument);
            run.exec.submit().await.unwrap();
            drop(guard);
            assert_eq!(*x.read().await, [mixed(1, &[1, 1]); 4]);
        }
    });
}

/// Updates with memory that a runtime which shuts down gives up.
#[test]
fn an_update_that_is_given_up_takes_its_memory_out_again() {
    for runtime in [current_thread as fn() -> Runtime, multi_thread] {
        let device = device();
        let [x, y] = [(); 2].map(|()| numbers(&device));
        let (doomed, lasting) = (runtime(), multi_thread());
        let entered = lasting.enter();
        let run = Running::start(&device, &x);
        let first = run.update(2, &x);
        let given_up = {
            let _entered = doomed.enter();
            run.update(3, &y)
        };
        let last = run.update(4, &x);
        let guard = y.try_write().unwrap();
        drop(doomed);
        assert_eq!(block_on(given_up).unwrap_err().kind(), ErrorKind::Cancelled);
        let second = run.exec.submit();
        drop(entered);
        run.hold.open();
        lasting.block_on(async {
            for done in [first, last] {
                done.await.unwrap();
            }
            second.await.unwrap();
            assert_eq!(*x.read().await, [mixed(1, &[1, 4]); 4]);
        });
        drop(guard);
    }
}

#[test]
fn a_dropped_executable_is_ordered_until_its_runs_end() {
    in_both_runtimes(|| async {
        let device = device();
        let [x, y] = [(); 2].map(|()| numbers(&device));
        let run = Running::start(&device, &x);
        drop(run.update(5, &y));
        drop(run.exec.submit());
        drop((run.exec, run.first));
        let guard = waiting(y.write()).await;
        run.hold.open();
        assert_eq!(*guard.await, [mixed(1, &[5]); 4]);
        assert_eq!(*x.try_write().unwrap(), [mixed(1, &[1]); 4]);
    });
}

#[test]
fn graphs_bring_memory_of_host_tasks() {
    in_both_runtimes(|| async {
        let device = device();
        let [x, y] = [(); 2].map(|()| numbers(&device));
        let hold = Hold::new();
        let held = held_kernel(&hold);
        let graph = |x: &HostBuffer<u32>| {
            let mut graph = Graph::new(&device);
            let first = graph.launch(held.call(), Range::linear(1)).id();
            graph.host_task((write(x),), async |(mut x,)| x.fill(9)).after([first]);
            graph
        };
        let exec = finalize(&graph(&x));
        let first = exec.submit();
        hold.wait_for(1);
        let applied = exec.update_from(&graph(&y));
        assert!(!applied.is_known());
        let guard = y.try_write().unwrap();
        let second = exec.submit();
        hold.open();
        first.await.unwrap();
        applied.await.unwrap();
        yield_often().await;
        assert!(!second.is_finished());
        assert_eq!(*guard, [1; 4]);
        drop(guard);
        second.await.unwrap();
        assert_eq!(*y.read().await, [9; 4]);
    });
}

#[test]
fn submissions_behind_a_breaking_update_do_not_start() {
    in_both_runtimes(|| async {
        let open = || host::open(HostOptions::new().threads(1)).unwrap();
        let ((a, only_one), (b, refuses)) = (faulty_updates(open()), faulty_updates(open()));
        let (hold, count) = (Hold::new(), Count::default());
        let [x, y] = [&a, &b].map(|device| device.host_buffer_from(&[1u32; 4]).unwrap());
        let mut graph = Graph::new(&a);
        let held = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
        let counting = graph.launch(count.kernel().call(), Range::linear(1)).after([held]).id();
        let task = graph.host_task((read(&x),), async |_| ()).after([counting]).id();
        let first = graph.launch(mix(1, &x), Range::linear(4)).after([task]).id();
        let second = graph.launch(mix(2, &y), Range::linear(4)).after([first]).id();
        let exec = finalize(&graph);
        let running = exec.submit();
        hold.wait_for(1);
        only_one.store(1, Ordering::SeqCst);
        refuses.store(0, Ordering::SeqCst);
        let breaking = exec.update().launch(first, mix(10, &x)).launch(second, mix(20, &y)).apply();
        assert!(!breaking.is_known());
        let behind = [exec.submit(), exec.submit()];
        hold.open();
        running.await.unwrap();
        breaking.await.unwrap_err();
        for submission in behind {
            let error = submission.await.unwrap_err();
            assert!(error.message().contains("could not be taken back"), "{error}");
        }
        assert_eq!(count.get(), 1);
        assert_eq!(*x.try_read().unwrap(), [mixed(1, &[1]); 4]);
        assert_eq!(*y.try_read().unwrap(), [mixed(1, &[2]); 4]);
    });
}

#[test]
fn an_update_behind_a_breaking_one_takes_its_memory_out() {
    in_both_runtimes(|| async {
        let open = || host::open(HostOptions::new().threads(1)).unwrap();
        let ((a, only_one), (b, refuses)) = (faulty_updates(open()), faulty_updates(open()));
        let hold = Hold::new();
        let [x, y, z] = [&a, &b, &b].map(|device| device.host_buffer_from(&[1u32; 4]).unwrap());
        let mut graph = Graph::new(&a);
        let held = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
        let task = graph.host_task((), async |()| ()).after([held]).id();
        let first = graph.launch(mix(1, &x), Range::linear(4)).after([task]).id();
        let second = graph.launch(mix(2, &y), Range::linear(4)).after([first]).id();
        let exec = finalize(&graph);
        let running = exec.submit();
        hold.wait_for(1);
        only_one.store(1, Ordering::SeqCst);
        refuses.store(0, Ordering::SeqCst);
        let breaking = exec.update().launch(first, mix(10, &x)).launch(second, mix(20, &y)).apply();
        let behind = exec.update().launch(second, mix(20, &z)).apply();
        let submission = exec.submit();
        let guard = waiting(z.write()).await;
        hold.open();
        running.await.unwrap();
        for failing in [breaking, behind] {
            failing.await.unwrap_err();
        }
        submission.await.unwrap_err();
        assert_eq!(*guard.await, [1; 4]);
    });
}

/// An executable each of whose runs waits for a permit before `node`.
struct Gated {
    exec: ExecutableGraph,
    permits: Arc<Semaphore>,
    node: NodePath,
}

impl Gated {
    /// `add` adds the node, behind the task that waits for a permit.
    fn new(device: &Device, add: impl FnOnce(&mut Graph, NodeId) -> NodePath) -> Self {
        let permits = Arc::new(Semaphore::new(0));
        let waiting = permits.clone();
        let mut graph = Graph::new(device);
        let task = graph.host_task((), async move |()| waiting.acquire().await.map(SemaphorePermit::forget));
        let task = task.id();
        let node = add(&mut graph, task);
        Self { exec: finalize(&graph), permits, node }
    }

    /// With `mix(1, x)` in a body.
    fn in_body(device: &Device, x: &HostBuffer<u32>) -> Self {
        let flag = device.host_buffer_from(&[1u32]).unwrap();
        let mut body = Graph::new(device);
        let node = body.launch(mix(1, x), Range::linear(x.len())).id();
        Self::new(device, |graph, task| node.within(graph.if_nonzero(&flag, &body).after([task]).id()))
    }

    /// A submission while `earlier` waits for a permit, and then gets one.
    async fn let_go(&self, earlier: Submission) {
        self.permits.add_permits(1);
        earlier.await.unwrap();
    }

    /// Whether a submission behind an update that waits for `held` has `y` to itself. Gives what is in
    /// `y` then.
    async fn value_behind(&self, held: Submission, applied: Applied, y: &HostBuffer<u32>) -> u32 {
        let last = self.exec.submit();
        self.let_go(held).await;
        applied.await.unwrap();
        assert!(is_in_use(y.try_write()));
        let guard = waiting(y.write()).await;
        self.let_go(last).await;
        guard.await[0]
    }
}

#[test]
fn a_node_of_a_body_that_is_enabled_again_brings_its_memory() {
    in_both_runtimes(|| async {
        for disabled_before in [true, false] {
            let device = device();
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let gated = Gated::in_body(&device, &x);
            let set = |enabled| gated.exec.update().enabled(gated.node.clone(), enabled).apply();
            let move_to_y = || gated.exec.update().launch(gated.node.clone(), mix(2, &y)).apply();
            if disabled_before {
                move_to_y().await.unwrap();
                set(false).await.unwrap();
            }
            let first = gated.exec.submit();
            let disabled = (!disabled_before).then(|| (move_to_y(), set(false)));
            let held = gated.exec.submit();
            let applied = set(true);
            assert!(!applied.is_known());
            gated.let_go(first).await;
            if let Some((moved, disabled)) = disabled {
                moved.await.unwrap();
                disabled.await.unwrap();
            }
            assert_eq!(gated.value_behind(held, applied, &y).await, mixed(1, &[2]));
        }
    });
}

#[test]
fn an_alternative_that_is_chosen_again_brings_its_memory() {
    in_both_runtimes(|| async {
        for moved_before in [true, false] {
            let device = device();
            let [x, y] = [(); 2].map(|()| numbers(&device));
            let mut group = None;
            let gated = Gated::new(&device, |graph, task| {
                let range = Range::linear(4);
                let both = graph.command_group().launch(mix(1, &x), range).launch(set(7, &x), range).build();
                let node = graph.add_group(&both).after([task]).id();
                group = Some(both);
                node.into()
            });
            let group = group.unwrap();
            let choose = |index| gated.exec.update().choose(&group, index).apply();
            let move_to_y = || gated.exec.update().launch(gated.node.clone(), mix(2, &y)).apply();
            if moved_before {
                move_to_y().await.unwrap();
            }
            let first = gated.exec.submit();
            let moved = (!moved_before).then(move_to_y);
            let other = choose(1);
            let held = gated.exec.submit();
            let applied = choose(0);
            assert!(!applied.is_known());
            gated.let_go(first).await;
            if let Some(moved) = moved {
                moved.await.unwrap();
            }
            other.await.unwrap();
            let expected = if moved_before { mixed(1, &[2, 2]) } else { mixed(1, &[2]) };
            assert_eq!(gated.value_behind(held, applied, &y).await, expected);
        }
    });
}

// What one brings may include what all before it bring: that must not grow without bounds.
#[test]
fn many_choices_may_wait() {
    in_both_runtimes(|| async {
        let device = device();
        let x = numbers(&device);
        let mut group = None;
        let gated = Gated::new(&device, |graph, task| {
            let range = Range::linear(4);
            let both = graph.command_group().launch(mix(1, &x), range).launch(set(7, &x), range).build();
            let node = graph.add_group(&both).after([task]).id();
            group = Some(both);
            node.into()
        });
        let group = group.unwrap();
        let held = gated.exec.submit();
        let choices: Vec<_> = (1..=64).map(|n| gated.exec.update().choose(&group, n % 2).apply()).collect();
        gated.let_go(held).await;
        for chosen in choices {
            chosen.await.unwrap();
        }
    });
}

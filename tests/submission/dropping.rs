//! Dropping or forgetting anything at any point breaks nothing, and all is freed.

use tokio::sync::mpsc;
use wakegraph::kernel::RawKernel;
use wakegraph::{
    Buffer, Device, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, Range, Submission, read, write,
};

use crate::common::{current_thread, device, in_both_runtimes, multi_thread, polled_device};
use crate::support::{Hold, Token, Tracker, forget};

/// Everything a program holds.
#[derive(Default)]
struct Holdings {
    device: Option<Device>,
    buffer: Option<Buffer<u32>>,
    host: Option<HostBuffer<u32>>,
    graph: Option<Graph>,
    exec: Option<ExecutableGraph>,
    first: Option<Submission>,
    second: Option<Submission>,
}

const THINGS: usize = 7;
const STEPS: usize = 8;

impl Holdings {
    fn let_go(&mut self, thing: usize, forget: bool) {
        fn one<T: Send + 'static>(thing: &mut Option<T>, forget: bool) {
            match thing.take() {
                Some(thing) if forget => crate::support::forget(thing),
                thing => drop(thing),
            }
        }
        match thing {
            0 => one(&mut self.device, forget),
            1 => one(&mut self.buffer, forget),
            2 => one(&mut self.host, forget),
            3 => one(&mut self.graph, forget),
            4 => one(&mut self.exec, forget),
            5 => one(&mut self.first, forget),
            _ => one(&mut self.second, forget),
        }
    }

    /// held kernel on the buffer -> copy to the host buffer -> host task, if wanted
    fn build(&mut self, hold: &Hold, token: Token, host_task: bool) {
        let (Some(device), Some(buffer), Some(host)) = (&self.device, &self.buffer, &self.host) else {
            return;
        };
        let (held, kept) = (hold.held(), token.clone());
        let kernel = RawKernel::new("held").writes::<u32>("x").host(move |_, args| {
            let _kept = &kept;
            held.pass();
            args.write::<u32>()?.iter_mut().for_each(|x| *x += 1);
            Ok(())
        });
        let mut graph = Graph::new(device);
        graph.launch(kernel.call().memory::<u32>(buffer), Range::linear(1));
        graph.copy(buffer, host);
        if host_task {
            graph.host_task((read(host),), async move |(host,)| {
                let _token = token;
                tokio::task::yield_now().await;
                assert!(host[0] > 0);
            });
        }
        self.graph = Some(graph);
    }
}

/// One program: lets go of `thing` after step `at`.
async fn run(device: Device, host_task: bool, thing: usize, at: usize, forget: bool) {
    let (hold, tracker) = (Hold::new(), Tracker::new());
    let mut holdings = Holdings::default();
    for step in 0..STEPS {
        match step {
            0 => {
                holdings.buffer = Some(device.buffer(64).unwrap());
                holdings.host = Some(device.host_buffer(64).unwrap());
                holdings.device = Some(device.clone());
            }
            1 => holdings.build(&hold, tracker.token(), host_task),
            2 => holdings.exec = holdings.graph.as_ref().map(|graph| graph.finalize().unwrap()),
            3 => holdings.first = holdings.exec.as_ref().map(ExecutableGraph::submit),
            4 if holdings.first.is_some() => hold.wait_for(1),
            5 => holdings.second = holdings.exec.as_ref().map(ExecutableGraph::submit),
            6 => hold.open(),
            7 => {
                for submission in [&mut holdings.first, &mut holdings.second].into_iter().flatten() {
                    submission.await.unwrap();
                }
            }
            _ => {}
        }
        if step == at {
            holdings.let_go(thing, forget);
        }
    }
    drop((holdings, device));
    // What was forgotten itself, and what it holds, is gone for good; a submission holds nothing.
    if !(forget && matches!(thing, 3 | 4)) {
        let freed = tokio::task::spawn_blocking(move || tracker.wait_until_freed());
        freed.await.unwrap();
    }
}

#[test]
fn at_every_point() {
    for runtime in [current_thread(), multi_thread()] {
        for open in [device, polled_device] {
            runtime.block_on(async {
                for (host_task, forget) in [(false, false), (false, true), (true, false), (true, true)] {
                    for thing in 0..THINGS {
                        for at in 0..STEPS {
                            run(open(), host_task, thing, at, forget).await;
                        }
                    }
                }
            });
        }
    }
}

#[test]
fn everything_in_flight_is_freed_after_it_has_run() {
    in_both_runtimes(|| async {
        let all = [(device(), false), (device(), true), (polled_device(), false), (polled_device(), true)];
        for (device, profiling) in all {
            let (hold, tracker) = (Hold::new(), Tracker::new());
            let output = device.host_buffer::<u32>(64).unwrap();
            {
                let mut holdings = Holdings {
                    device: Some(device.clone()),
                    buffer: Some(device.buffer(64).unwrap()),
                    host: Some(output.clone()),
                    ..Holdings::default()
                };
                holdings.build(&hold, tracker.token(), true);
                let exec = holdings.graph.as_ref().unwrap();
                let exec = exec.finalize_with(FinalizeOptions::new().profiling(profiling)).unwrap();
                drop(holdings);
                for i in 0..20 {
                    let submission = exec.submit();
                    if i % 2 == 0 { drop(submission) } else { forget(submission) }
                }
            }
            hold.wait_for(1);
            assert!(tracker.alive() > 0);
            hold.open();
            assert_eq!(*output.read().await, [20; 64], "the guard waits for all of them");
            tokio::task::spawn_blocking(move || tracker.wait_until_freed()).await.unwrap();
        }
    });
}

#[test]
fn an_event_alone_keeps_nothing_but_itself() {
    in_both_runtimes(|| async {
        let (device, hold, tracker) = (device(), Hold::new(), Tracker::new());
        let (held, token) = (hold.held(), tracker.token());
        let kernel = crate::common::raw("held", move || {
            let _token = &token;
            held.pass();
            Ok(())
        });
        let event = crate::common::single(&device, &kernel).submit().event();
        drop(kernel);
        hold.open();
        event.wait().await.unwrap();
        tracker.wait_until_freed();
        event.wait().await.unwrap();
    });
}

#[test]
fn a_view_that_outlives_everything_keeps_its_memory() {
    in_both_runtimes(|| async {
        let (give, mut take) = mpsc::unbounded_channel();
        let submission = {
            let device = device();
            let host = device.host_buffer_from(&[3u64; 32]).unwrap();
            let mut graph = Graph::new(&device);
            graph.host_task((write(&host),), async move |(mut host,)| {
                host[0] = 4;
                give.send(host).unwrap();
            });
            graph.finalize().unwrap().submit()
        };
        let view = take.recv().await.unwrap();
        assert!(!submission.is_finished());
        assert_eq!((view[0], view[31]), (4, 3));
        drop(view);
        submission.await.unwrap();
    });
}

#[test]
fn raw_kernels_are_freed_while_their_device_stays_open() {
    let (device, tracker) = (device(), Tracker::new());
    for _ in 0..3 {
        let token = tracker.token();
        let kernel = crate::common::raw("kept", move || {
            let _token = &token;
            Ok(())
        });
        let (one, other) = (crate::common::single(&device, &kernel), crate::common::single(&device, &kernel));
        drop(kernel);
        crate::support::block_on(one.submit()).unwrap();
        drop(one);
        assert_eq!(tracker.alive(), 1);
        crate::support::block_on(other.submit()).unwrap();
        drop(other);
        tracker.wait_until_freed();
    }
}

/// Tells its number when it is dropped.
struct Numbered(usize, std::sync::mpsc::Sender<usize>);

impl Drop for Numbered {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

#[test]
fn partitions_are_dropped_from_the_last_to_the_first() {
    let device = device();
    let (buffer, host) = (device.buffer::<u32>(1).unwrap(), device.host_buffer::<u32>(1).unwrap());
    let mut graph = Graph::new(&device);
    let (dropped, numbers) = std::sync::mpsc::channel();
    for number in 0..4 {
        let kept = Numbered(number, dropped.clone());
        let kernel = RawKernel::new("numbered").writes::<u32>("x").host(move |_, args| {
            let _kept = &kept;
            args.write::<u32>()?.fill(1);
            Ok(())
        });
        graph.launch(kernel.call().memory::<u32>(&buffer), Range::linear(1));
        graph.copy(&buffer, &host);
        // Between two partitions of the device.
        graph.host_task((write(&host),), async |(_host,)| ());
        graph.copy(&host, &buffer);
    }
    let exec = graph.finalize().unwrap();
    assert!(exec.plan().partitions().len() > 7, "{}", exec.plan_text());
    drop(graph);
    assert!(numbers.try_recv().is_err(), "the executable has the kernels");
    drop(exec);
    assert_eq!(numbers.try_iter().collect::<Vec<_>>(), [3, 2, 1, 0]);
}

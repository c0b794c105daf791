//! Graphs over two devices: copies between them, order across them, both at once.

use wakegraph::kernel::RawKernel;
use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{Graph, Range, read};

use crate::kernels::{add, mix};
use crate::suite::{Need, Setup, tests};
use crate::support::{Hold, PANIC};

tests!("graph/multi_device":
    &[Need::Results, Need::TwoDevices] => [back_and_forth, rectangles_between_devices, fan_out_and_join,
        host_tasks_between_devices, a_failed_task_stops_the_other_device],
    &[Need::Results, Need::TwoDevices, Need::Concurrency] => [both_work_at_once],
    &[Need::Results, Need::TwoDevices, Need::FailingKernels] => [a_failure_stops_the_other_device]);

// a: mix 1 -> copy -> b: mix 2 -> copy -> a: mix 3
fn back_and_forth(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (x, y) = (a.buffer_from(&[1u32; 100]).unwrap(), b.buffer::<u32>(100).unwrap());
    let mut graph = Graph::new(a);
    graph.launch(mix(1, &x), Range::linear(100));
    graph.copy(&x, &y);
    graph.launch(mix(2, &y), Range::linear(100));
    graph.copy(&y, &x);
    graph.launch(mix(3, &x), Range::linear(100));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut expected = 1u32;
        for _ in 0..3 {
            exec.submit().await.unwrap();
            for n in 1..=3 {
                expected = expected.wrapping_mul(31).wrapping_add(n);
            }
            assert_eq!(x.to_vec().await.unwrap(), [expected; 100]);
        }
        // Many in flight at once.
        let submissions: Vec<_> = (0..50).map(|_| exec.submit()).collect();
        for submission in submissions {
            submission.await.unwrap();
            for n in 1..=3 {
                expected = expected.wrapping_mul(31).wrapping_add(n);
            }
        }
        assert_eq!(x.to_vec().await.unwrap(), [expected; 100]);
    });
}

fn rectangles_between_devices(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let x = a.buffer_from(&(0..20u32).collect::<Vec<_>>()).unwrap();
    let y = b.buffer::<u32>(12).unwrap();
    let mut graph = Graph::new(a);
    let copy = RectCopy::new([2, 2], Layout::rows(5).origin([1, 1]), Layout::rows(4).origin([2, 0]));
    graph.copy_rect(&x, &y, copy);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [0, 0, 6, 7, 0, 0, 11, 12, 0, 0, 0, 0]);
        }
    });
}

//      a: fill
//      /     \
//  a: add   copy -> b: add
//      \     /
//      copy back, join
fn fan_out_and_join(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (x, back) = (a.buffer::<u32>(8).unwrap(), a.buffer::<u32>(8).unwrap());
    let y = b.buffer::<u32>(8).unwrap();
    let (first, second) = (a.host_buffer::<u32>(8).unwrap(), a.host_buffer::<u32>(8).unwrap());
    let mut graph = Graph::new(a);
    graph.fill(&x, 1);
    graph.copy(&x, &y);
    graph.launch(add(10, &x), Range::linear(8));
    graph.launch(add(100, &y), Range::linear(8));
    graph.copy(&y, &back);
    graph.copy(&x, &first);
    graph.copy(&back, &second);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
            assert_eq!((&*first.read().await, &*second.read().await), (&[11; 8][..], &[101; 8][..]));
        }
    });
}

fn host_tasks_between_devices(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (x, y) = (a.buffer_from(&[1u32; 4]).unwrap(), b.buffer::<u32>(4).unwrap());
    let (from, to) = (a.host_buffer::<u32>(4).unwrap(), b.host_buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(a);
    graph.launch(add(1, &x), Range::linear(4));
    graph.copy(&x, &from);
    let accesses = (read(&from), wakegraph::write(&to));
    graph.host_task(accesses, async |(from, mut to)| to.copy_from_slice(&from));
    graph.copy(&to, &y);
    graph.launch(add(5, &y), Range::linear(4));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..=3 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [1 + replay + 5; 4]);
        }
    });
}

// a: add 1 -> copy -> task fails -> b: never starts; b: independent runs
fn a_failed_task_stops_the_other_device(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (x, host) = (a.buffer::<u32>(4).unwrap(), a.host_buffer::<u32>(4).unwrap());
    let (dependent, independent) = (b.buffer::<u32>(4).unwrap(), b.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(a);
    graph.launch(add(1, &x), Range::linear(4));
    graph.copy(&x, &host);
    let failing =
        graph.host_task((read(&host),), async |(_host,)| Err::<(), _>(PANIC)).name("the culprit").id();
    graph.launch(add(10, &dependent), Range::linear(4)).after([failing]);
    graph.launch(add(100, &independent), Range::linear(4));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..=3 {
            let error = exec.submit().await.unwrap_err();
            assert!(error.node().unwrap().contains("the culprit"), "{error}");
            assert_eq!(*host.read().await, [replay; 4]);
            assert_eq!(dependent.to_vec().await.unwrap(), [0; 4]);
            assert_eq!(independent.to_vec().await.unwrap(), [100 * replay; 4]);
        }
    });
}

/// Each kernel waits until the other has started: only devices that work at the same time get through.
fn both_work_at_once(setup: &Setup) {
    let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
    let mut graph = Graph::new(setup.device());
    for device in &setup.devices[..2] {
        let barrier = barrier.clone();
        let kernel = RawKernel::new("meet").host(move |_, _| {
            barrier.wait();
            Ok(())
        });
        graph.launch(kernel.call(), Range::linear(1)).on(device);
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..5 {
            exec.submit().await.unwrap();
        }
    });
}

// a: fails -> b: never starts; b: independent runs
fn a_failure_stops_the_other_device(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (dependent, independent) = (Hold::new(), Hold::new());
    [&dependent, &independent].into_iter().for_each(Hold::open);
    let mut graph = Graph::new(a);
    let fail = RawKernel::new("fail")
        .host(|_, _| Err(wakegraph::Error::new(wakegraph::ErrorKind::Driver, "broken")));
    let passing = |hold: &Hold| {
        let held = hold.held();
        RawKernel::new("pass").host(move |_, _| {
            held.pass();
            Ok(())
        })
    };
    let failing = graph.launch(fail.call(), Range::linear(1)).on(a).name("the culprit").id();
    graph.launch(passing(&dependent).call(), Range::linear(1)).on(b).after([failing]);
    graph.launch(passing(&independent).call(), Range::linear(1)).on(b);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..=3 {
            let error = exec.submit().await.unwrap_err();
            assert!(error.node().unwrap().contains("the culprit"), "{error}");
            assert_eq!(error.device(), Some(a.selector()), "{error}");
            assert_eq!((dependent.arrived(), independent.arrived()), (0, replay));
        }
    });
}

//! Several runtimes and threads that share devices, buffers and executables.

use std::sync::Arc;
use std::thread;

use wakegraph::{Graph, Range, write};

use crate::common::{Count, current_thread, device, multi_thread, polled_device};

wakegraph::kernel! {
    fn add_one(x: &mut [u32]) { host: |_, x| x.iter_mut().for_each(|x| *x += 1) }
}

#[test]
fn share_a_device_and_its_buffers() {
    for device in [device(), polled_device()] {
        let x = device.buffer::<u32>(16).unwrap();
        let host = device.host_buffer::<u32>(16).unwrap();
        let shared = {
            let mut graph = Graph::new(&device);
            graph.launch(add_one(&x), Range::linear(16));
            graph.finalize().unwrap()
        };
        thread::scope(|scope| {
            for number in 0..4 {
                let (device, x, host, shared) = (&device, &x, &host, &shared);
                scope.spawn(move || {
                    let runtime = if number % 2 == 0 { current_thread() } else { multi_thread() };
                    let mut graph = Graph::new(device);
                    graph.launch(add_one(x), Range::linear(16));
                    graph
                        .host_task((write(host),), async |(mut host,)| host.iter_mut().for_each(|x| *x += 1));
                    let own = graph.finalize().unwrap();
                    runtime.block_on(async {
                        for _ in 0..100 {
                            let (own, shared) = (own.submit(), shared.submit());
                            own.await.unwrap();
                            shared.await.unwrap();
                        }
                    });
                });
            }
        });
        current_thread().block_on(async {
            assert_eq!(x.to_vec().await.unwrap(), [800; 16]);
            assert_eq!(*host.read().await, [400; 16]);
        });
    }
}

#[test]
fn submissions_and_executables_are_sent_between_threads() {
    let device = device();
    let count = Count::default();
    let exec = Arc::new(count.graph(&device));
    let submissions: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let exec = exec.clone();
                scope.spawn(move || (0..50).map(|_| exec.submit()).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    multi_thread().block_on(async {
        let tasks: Vec<_> = submissions.into_iter().map(tokio::spawn).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
    assert_eq!(count.get(), 200);
}

#[test]
fn public_types_are_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<wakegraph::Device>();
    check::<wakegraph::Graph>();
    check::<wakegraph::ExecutableGraph>();
    check::<wakegraph::Submission>();
    check::<wakegraph::Event>();
    check::<wakegraph::Buffer<f32>>();
    check::<wakegraph::HostBuffer<f32>>();
    check::<wakegraph::HostRef<f32>>();
    check::<wakegraph::HostMut<f32>>();
    check::<wakegraph::Error>();
}

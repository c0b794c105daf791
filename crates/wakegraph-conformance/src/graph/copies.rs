//! Copies, reads, writes, hints.

use wakegraph::graph::CommandKind;
use wakegraph::memory::Advice;
use wakegraph::{Graph, Range};

use crate::kernels::add;
use crate::suite::{Need, Setup, tests};

tests!("graph/copies":
    &[Need::Results] => [there_and_back, parts, writes_keep_their_elements, hints_keep_the_order],
    &[] => [kinds_follow_the_sides]);

fn there_and_back(setup: &Setup) {
    let device = setup.device();
    let input = device.host_buffer_from(&[1u16, 2, 3]).unwrap();
    let (a, b) = (device.buffer::<u16>(3).unwrap(), device.buffer::<u16>(3).unwrap());
    let output = device.host_buffer::<u16>(3).unwrap();
    let mut graph = Graph::new(device);
    graph.copy(&input, &a);
    graph.copy(&a, &b);
    graph.copy(&b, &output);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 0..3 {
            input.write().await.fill(replay);
            exec.submit().await.unwrap();
            assert_eq!(*output.read().await, [replay; 3]);
        }
    });
}

fn parts(setup: &Setup) {
    let device = setup.device();
    let a = device.buffer_from(&[1u32, 2, 3, 4, 5, 6]).unwrap();
    let output = device.host_buffer::<u32>(6).unwrap();
    let mut graph = Graph::new(device);
    graph.copy(a.slice(..2).unwrap(), a.slice(4..).unwrap());
    graph.copy(a.slice(3..).unwrap(), output.slice(..3).unwrap());
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(a.to_vec().await.unwrap(), [1, 2, 3, 4, 1, 2]);
            assert_eq!(*output.read().await, [4, 1, 2, 0, 0, 0]);
        }
    });
}

fn writes_keep_their_elements(setup: &Setup) {
    let device = setup.device();
    let a = device.buffer::<u32>(3).unwrap();
    let mut graph = Graph::new(device);
    let mut elements = vec![7, 8, 9];
    graph.write(&a, &elements);
    elements.fill(0);
    drop(elements);
    graph.launch(add(1, &a), Range::linear(3));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(a.to_vec().await.unwrap(), [8, 9, 10]);
        }
    });
}

fn hints_keep_the_order(setup: &Setup) {
    let device = setup.device();
    let a = device.buffer::<u32>(4).unwrap();
    let output = device.host_buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    graph.fill(&a, 1);
    let prefetch = graph.prefetch(&a).id();
    graph.advise(&a, Advice::PreferDevice).after([prefetch]);
    graph.launch(add(1, &a), Range::linear(4));
    graph.prefetch(&a);
    graph.copy(&a, &output);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(*output.read().await, [2; 4]);
        }
    });
}

fn kinds_follow_the_sides(setup: &Setup) {
    let device = setup.device();
    let (a, b) = (device.buffer::<u8>(4).unwrap(), device.buffer::<u8>(4).unwrap());
    let host = device.host_buffer::<u8>(4).unwrap();
    let mut graph = Graph::new(device);
    let copy = graph.copy(&a, &b).id();
    let read = graph.copy(&b, &host).id();
    let write = graph.copy(&host, &a).id();
    let kinds = [copy, read, write].map(|node| graph.kind(node).unwrap());
    assert_eq!(kinds, [CommandKind::BufferCopy, CommandKind::BufferRead, CommandKind::BufferWrite]);
    let exec = graph.finalize().unwrap();
    setup.block_on(async { exec.submit().await }).unwrap();
}

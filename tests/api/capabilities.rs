//! Graphs on devices that can do less than others.
use wakegraph::capabilities::CommandKinds;
use wakegraph::graph::CommandKind;
use wakegraph::hal::{Capabilities, UpdateCapabilities};
use wakegraph::interop::NativeAccess;
use wakegraph::memory::Advice;
use wakegraph::plan::PartitionPolicy;
use wakegraph::testing::{FakeDevice, FakeOptions};
use wakegraph::{Device, ErrorKind, FinalizeOptions, Graph, Range};

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn device(change: impl FnOnce(&mut Capabilities)) -> Device {
    Device::from_hal(FakeDevice::open(FakeOptions::new().capabilities(change)).0)
}

#[test]
fn a_missing_command_is_refused_with_the_node() {
    let device = device(|can| can.commands -= CommandKinds::BUFFER_FILL);
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1).name("clear");
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
    assert!(error.to_string().contains("clear"), "{error}");
    assert!(error.message().contains(CommandKind::BufferFill.name()), "{error}");
}

#[test]
fn scratch_buffers_beyond_all_memory_are_refused() {
    for concurrent_parts in [true, false] {
        let device = device(|can| can.concurrent_parts = concurrent_parts);
        let mut graph = Graph::new(&device);
        let x = graph.scratch::<u8>(usize::MAX).unwrap();
        graph.fill(&x, 1);
        assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}

#[test]
fn missing_updates_and_profiles_are_refused() {
    let lacking = [
        (device(|can| can.update = UpdateCapabilities::empty()), FinalizeOptions::new().updatable(true)),
        (device(|can| can.profiling = false), FinalizeOptions::new().profiling(true)),
    ];
    for (device, options) in lacking {
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        assert_eq!(graph.finalize_with(options).unwrap_err().kind(), ErrorKind::FeatureNotSupported);
        graph.finalize().unwrap();
    }
}

wakegraph::kernel! {
    fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
}

#[test]
fn a_work_group_larger_than_the_device_allows_is_refused() {
    let device = device(|can| (can.max_work_group_size, can.max_work_item_sizes) = (8, [8, 8, 2]));
    let x = device.buffer::<u32>(16).unwrap();
    let of_16 = |graph: &mut Graph| graph.launch(add(1, &x), Range::linear(16).local([16])).name("wide").id();
    let mut graph = Graph::new(&device);
    of_16(&mut graph);
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    assert!(error.to_string().contains("wide") && error.to_string().contains('8'), "{error}");
    // Another graph fits, and an update of it is refused the same way; it works afterwards.
    let mut graph = Graph::new(&device);
    let node = graph.launch(add(1, &x), Range::linear(16).local([8])).name("narrow").id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let error = block_on(exec.update().range(node, Range::linear(16).local([16])).apply()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    assert!(error.to_string().contains("narrow"), "{error}");
    block_on(exec.update().range(node, Range::linear(8).local([4])).apply()).unwrap();
    for _ in 0..2 {
        block_on(exec.submit()).unwrap();
    }
}

#[test]
fn an_update_without_its_capability_is_refused_by_name() {
    use UpdateCapabilities as Can;
    let local = |size| Range::linear(16).local([size]);
    for bit in [
        Can::KERNEL_ARGUMENTS,
        Can::LOCAL_WORK_SIZE,
        Can::GLOBAL_WORK_SIZE,
        Can::GLOBAL_WORK_OFFSET,
        Can::KERNEL_HANDLE,
        Can::ENABLED,
        Can::MEMORY_OPERANDS,
        Can::BODIES,
    ] {
        let device = device(|can| can.update = Can::all() - bit);
        let x = device.buffer::<u32>(32).unwrap();
        let mut graph = Graph::new(&device);
        let node = graph.launch(add(1, &x), local(4)).name("target").alternative(other(&x)).id();
        let fill = graph.fill(&x, 1).name("target").id();
        let (flag, mut body) = (device.buffer::<u32>(1).unwrap(), Graph::new(&device));
        let inside = body.launch(add(1, &x), local(4)).id();
        let inside = inside.within(graph.if_nonzero(&flag, &body).name("target").id());
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let change = |bit| match bit {
            Can::KERNEL_ARGUMENTS => exec.update().launch(node, add(2, &x)),
            Can::LOCAL_WORK_SIZE => exec.update().range(node, local(8)),
            Can::GLOBAL_WORK_SIZE => exec.update().range(node, Range::linear(32).local([4])),
            Can::GLOBAL_WORK_OFFSET => exec.update().range(node, local(4).starting_at([4])),
            Can::KERNEL_HANDLE => exec.update().launch(node, other(&x)),
            Can::BODIES => exec.update().launch(inside.clone(), add(2, &x)),
            Can::MEMORY_OPERANDS => exec.update().fill(fill, &x, 2),
            _ => exec.update().enabled(node, false),
        };
        let error = block_on(change(bit).apply()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{bit:?}: {error}");
        assert!(error.to_string().contains("target"), "{error}");
        assert!(error.message().contains(&format!("{bit:?}")), "{error}");
        // The executable works on, and what the device can change, it changes.
        let possible = if bit == Can::KERNEL_ARGUMENTS { Can::ENABLED } else { Can::KERNEL_ARGUMENTS };
        block_on(change(possible).apply()).unwrap();
        for _ in 0..2 {
            block_on(exec.submit()).unwrap();
        }
    }
}

#[test]
fn memory_of_a_device_out_of_reach_is_refused() {
    let [ours, theirs] = [(); 2].map(|()| device(|_| ()));
    let (near, far) = (ours.buffer::<u32>(4).unwrap(), theirs.buffer::<u32>(4).unwrap());
    let range = Range::linear(4);
    // By a queue, out of the event; it runs other commands then.
    let queue = ours.queue().unwrap();
    let error = block_on(queue.launch(add(1, &far), range).wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    block_on(queue.launch(add(1, &near), range).wait()).unwrap();
    // By a node that is put on another device than its memory.
    let mut graph = Graph::new(&ours);
    graph.launch(add(1, &far), range).name("far").on(&ours);
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("far"), "{error}");
    // By an update, which changes nothing.
    let mut graph = Graph::new(&ours);
    let node = graph.launch(add(1, &near), range).name("near").id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let error = block_on(exec.update().launch(node, add(1, &far)).apply()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("near"), "{error}");
    for _ in 0..2 {
        block_on(exec.submit()).unwrap();
    }
}

wakegraph::kernel! {
    fn other(x: &mut [u32]) { item: |i, x| x[i] = 0 }
}

#[test]
fn a_device_without_hints_keeps_their_order() {
    let device = device(|can| can.commands -= CommandKinds::USM_PREFETCH | CommandKinds::USM_ADVISE);
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    let fill = graph.fill(&x, 1).id();
    let prefetch = graph.prefetch(&x).id();
    let advice = graph.advise(&x, Advice::ReadMostly).after([prefetch]).id();
    let last = graph.fill(&x, 2).id();
    assert_eq!(graph.kind(prefetch).unwrap(), CommandKind::UsmPrefetch);
    assert_eq!(graph.predecessors(prefetch).unwrap(), [fill]);
    assert!(graph.predecessors(last).unwrap().contains(&advice));
    let options = FinalizeOptions::new().partition(PartitionPolicy::Fewest);
    let exec = graph.finalize_with(options).unwrap();
    assert_eq!(exec.plan().nodes(0).len(), 4, "{}", exec.plan_text());
    block_on(exec.submit()).unwrap();
}

/// On OpenCL without shared memory, several devices must not use parts of one buffer object at once.
#[test]
fn accesses_to_parts_are_ordered_without_concurrent_parts() {
    for concurrent_parts in [true, false] {
        let device = device(|can| can.concurrent_parts = concurrent_parts);
        let x = device.buffer::<u32>(4).unwrap();
        let (left, right) = (x.slice(..2).unwrap(), x.slice(2..).unwrap());
        let host = device.host_buffer::<u32>(2).unwrap();
        let mut graph = Graph::new(&device);
        let first = graph.fill(&left, 1).id();
        let second = graph.fill(&right, 2).id();
        let read = graph.copy(&left, &host).id();
        let expected = if concurrent_parts { vec![] } else { vec![first] };
        assert_eq!(graph.predecessors(second).unwrap(), expected);
        let expected = if concurrent_parts { vec![first] } else { vec![second] };
        assert_eq!(graph.predecessors(read).unwrap(), expected);
    }
}

#[test]
fn scratch_buffers_do_not_share_without_concurrent_parts() {
    for concurrent_parts in [true, false] {
        let device = device(|can| can.concurrent_parts = concurrent_parts);
        let mut graph = Graph::new(&device);
        let y = device.buffer::<u32>(1024).unwrap();
        let [a, b, c] = [(); 3].map(|()| graph.scratch::<u32>(1024).unwrap());
        graph.fill(&a, 1);
        graph.copy(&a, &b);
        graph.copy(&b, &c);
        graph.copy(&c, &y);
        let exec = graph.finalize().unwrap();
        let [memory] = exec.graph_memory() else { panic!("one device") };
        assert_eq!(memory.bytes, 4096 * if concurrent_parts { 2 } else { 3 });
        block_on(exec.submit()).unwrap();
    }
}

#[test]
#[expect(unsafe_code, reason = "makes a stream task that does nothing")]
fn a_device_without_streams_refuses_stream_tasks() {
    let device = device(|can| can.stream_tasks = false);
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    // SAFETY: it does nothing.
    unsafe { graph.stream_task("mine", [NativeAccess::write(&x)], |_, [_]| Ok(())) };
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
    assert!(error.node().unwrap().contains("stream task 'mine'"), "{error}");
    assert!(error.message().contains("no stream to lend"), "{error}");
}

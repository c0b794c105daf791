//! Copies by an engine, each of which begins another part of a command-buffer's graph.

use wakegraph_hal::{NativeCommand, NativeStream};

use super::super::sys::{
    CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE,
    CUDA_ERROR_NOT_SUPPORTED,
};
use super::*;

const CHAIN: CommandBufferDesc = CommandBufferDesc { in_order: true, ..PLAIN };

/// Memory of the device and of the host.
struct Memories {
    here: Arc<dyn Memory>,
    host: Arc<dyn Memory>,
}

impl Memories {
    fn of(bench: &Bench) -> Self {
        let host = bench.device.allocate(&MemoryDesc::new(64, MemoryKind::Host)).unwrap();
        Self { here: bench.memory(), host }
    }

    fn up(&self) -> Command {
        copy(&self.host, &self.here)
    }

    fn down(&self) -> Command {
        copy(&self.here, &self.host)
    }
}

fn copy(src: &Arc<dyn Memory>, dst: &Arc<dyn Memory>) -> Command {
    let [src, dst] = [src, dst].map(|memory| MemoryView::whole(memory.clone()));
    Command::BufferCopy { src, dst }
}

/// How many of the driver's graphs one enqueue launches.
fn launched(bench: &Bench, buffer: &dyn CommandBuffer) -> usize {
    let before = fake::calls("cuGraphLaunch");
    bench.run(buffer).unwrap();
    fake::calls("cuGraphLaunch") - before
}

#[test]
fn copies_by_an_engine_begin_parts() {
    let bench = Bench::new();
    let memories = Memories::of(&bench);
    let (up, down) = (|| memories.up(), || memories.down());
    let kernel = || bench.launch(1, &memories.here);
    let (other, fill) = (bench.memory(), || Command::BufferFill {
        dst: MemoryView::whole(memories.here.clone()),
        pattern: [0u8; 4][..].into(),
    });
    for (commands, parts) in [
        (vec![up(), kernel(), down()], 2),
        (vec![up(), up(), kernel(), kernel(), down(), down()], 2),
        (vec![kernel(), up(), kernel(), down(), kernel()], 3),
        (vec![fill(), up()], 2),
        (vec![up(), down()], 1),
        (vec![Command::Empty, up(), Command::Empty, kernel()], 1),
        // The device's own kernels do these.
        (vec![kernel(), copy(&other, &memories.here), kernel()], 1),
    ] {
        for desc in [CHAIN, PLAIN] {
            let (buffer, _) = bench.chain(desc, &commands);
            assert_eq!(launched(&bench, &*buffer), parts, "{commands:?}");
        }
    }
}

/// Commands, each with the numbers of those before it.
type Commands<'a> = Vec<(Command, &'a [usize])>;

#[test]
fn no_part_keeps_commands_apart_that_could_run_beside_each_other() {
    let bench = Bench::new();
    let memories = Memories::of(&bench);
    let (up, down) = (|| memories.up(), || memories.down());
    let kernel = || bench.launch(1, &memories.here);
    fake::capture_nodes(&[CU_GRAPH_NODE_TYPE_MEM_ALLOC]);
    let dags: [(Commands<'_>, usize); 7] = [
        (vec![(up(), &[]), (up(), &[]), (kernel(), &[0, 1]), (down(), &[2])], 2),
        (vec![(kernel(), &[]), (down(), &[0]), (down(), &[0]), (kernel(), &[1, 2])], 2),
        (vec![(kernel(), &[]), (down(), &[0]), (kernel(), &[0]), (down(), &[2])], 2),
        (vec![(kernel(), &[]), (kernel(), &[]), (down(), &[0]), (down(), &[1])], 1),
        // The second request may be computed while the first one is copied, and the other way round.
        (vec![(up(), &[]), (kernel(), &[0]), (down(), &[1]), (up(), &[]), (kernel(), &[3])], 1),
        (vec![(kernel(), &[]), (kernel(), &[]), (down(), &[0, 1]), (kernel(), &[1])], 1),
        (vec![(Command::Empty, &[]), (Command::Empty, &[]), (native(), &[0, 1])], 1),
    ];
    for (commands, parts) in dags {
        let mut buffer = bench.device.create_command_buffer(&PLAIN).unwrap();
        let mut points = Vec::new();
        for (command, after) in &commands {
            let after: Vec<SyncPoint> = after.iter().map(|&earlier| points[earlier]).collect();
            points.push(buffer.append(command, &after).unwrap().sync_point);
        }
        buffer.finalize().unwrap();
        assert_eq!(launched(&bench, &*buffer), parts, "{commands:?}");
    }
}

#[test]
fn commands_of_any_part_are_updated() {
    let bench = Bench::new();
    let memories = Memories::of(&bench);
    let (first, last) = (bench.launch(1, &memories.here), bench.launch(2, &memories.here));
    let desc = CommandBufferDesc { updatable: true, ..CHAIN };
    let (mut buffer, handles) = bench.chain(desc, &[first, memories.up(), last]);
    fake::watch_kernels();
    let update = |handle, n| CommandUpdate::new(handle).args([(0, number(n))]);
    buffer.update(&[update(handles[0], 10), update(handles[2], 20)]).unwrap();
    let mut set: Vec<_> = fake::kernels().values().map(|node| node.args[0] as u32).collect();
    set.sort_unstable();
    assert_eq!(set, [10, 20]);
    // The other operands are compared part by part.
    let compared = fake::calls("cuGraphExecUpdate");
    let down = CommandUpdate { command: Some(Box::new(memories.down())), ..CommandUpdate::new(handles[1]) };
    buffer.update(&[down]).unwrap();
    assert_eq!(fake::calls("cuGraphExecUpdate") - compared, 2);
    // With a copy within the device, there is one part.
    let here = Box::new(copy(&bench.memory(), &memories.here));
    let made = fake::calls("cuGraphInstantiateWithFlags");
    buffer.update(&[CommandUpdate { command: Some(here), ..CommandUpdate::new(handles[1]) }]).unwrap();
    assert_eq!(fake::calls("cuGraphInstantiateWithFlags") - made, 1);
    assert_eq!(launched(&bench, &*buffer), 1);
}

#[test]
fn a_part_that_cannot_be_launched_fails_those_before_it() {
    let bench = Bench::new();
    let memories = Memories::of(&bench);
    let (buffer, _) = bench.chain(CHAIN, &[bench.launch(1, &memories.here), memories.down()]);
    let before = fake::calls("cuStreamSynchronize");
    // Nothing is launched.
    fake::fail("cuGraphLaunch", 1, OUT_OF_MEMORY);
    let event = bench.event();
    assert_eq!(bench.enqueue(&*buffer, &[], &event).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert!(event.is_idle());
    // The kernel is launched, and uses its memory until the event is final.
    for in_batch in [false, true] {
        fake::fail_later("cuGraphLaunch", 1, 1, OUT_OF_MEMORY);
        fake::hold(true);
        match in_batch {
            false => bench.enqueue(&*buffer, &[], &event).unwrap(),
            true => bench.enqueue_batch(&*buffer, &event),
        }
        assert!(matches!(event.status(), EventStatus::Pending));
        fake::hold(false);
        let error = failed(event.status());
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("cuda:0"), "{error}");
        bench.run(&*buffer).unwrap();
    }
    assert_eq!(fake::calls("cuStreamSynchronize"), before, "the caller may be a worker of tokio's");
}

#[test]
fn a_copy_that_cannot_be_added_leaves_no_part() {
    let bench = Bench::new();
    let memories = Memories::of(&bench);
    let mut buffer = bench.device.create_command_buffer(&CHAIN).unwrap();
    buffer.append(&bench.launch(1, &memories.here), &[]).unwrap();
    fake::fail("cuGraphAddMemcpyNode", 1, OUT_OF_MEMORY);
    buffer.append(&memories.down(), &[]).unwrap_err();
    buffer.append(&bench.launch(2, &memories.here), &[]).unwrap();
    buffer.finalize().unwrap();
    assert_eq!(launched(&bench, &*buffer), 1);
}

#[test]
fn a_launch_on_another_stream_comes_after_all_parts_of_the_last_one() {
    let bench = Bench::new();
    let memories = Memories::of(&bench);
    let kernel = || bench.launch(1, &memories.here);
    let others = [(); 2].map(|()| bench.queue());
    fake::hold(true);
    for (commands, waits) in [(vec![kernel(), memories.down()], 1), (vec![kernel()], 0)] {
        let (buffer, _) = bench.chain(CHAIN, &commands);
        bench.enqueue(&*buffer, &[], &bench.event()).unwrap();
        for queue in &others {
            bench.order_after_allocations(&**queue);
            for waits in [waits, 0] {
                let (event, before) = (bench.event(), fake::calls("cuStreamWaitEvent"));
                // SAFETY: the fake driver runs nothing.
                unsafe { buffer.enqueue(&**queue, WaitList::NONE, Signal::new(&event)) }.unwrap();
                assert_eq!(fake::calls("cuStreamWaitEvent") - before, waits);
            }
        }
    }
}

/// A native command that enqueues nothing itself: [`fake::capture_nodes`] says what the capture holds.
fn native() -> Command {
    // SAFETY: it enqueues nothing.
    Command::Native(unsafe { NativeCommand::new("step", Vec::new(), |_| Ok(())) })
}

#[test]
fn captured_work_that_allocates_is_a_part_of_its_own() {
    let bench = Bench::new();
    let memories = Memories::of(&bench);
    let kernel = || bench.launch(1, &memories.here);
    let allocating = [CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_FREE];
    for (nodes, commands, parts) in [
        (&allocating[..], vec![native()], 1),
        (&allocating, vec![kernel(), native()], 2),
        (&allocating, vec![native(), kernel()], 2),
        (&allocating, vec![Command::Empty, native(), native(), kernel()], 3),
        (&allocating, vec![memories.up(), kernel(), native(), memories.down(), kernel(), memories.down()], 4),
        (&allocating[..1], vec![kernel(), native(), kernel()], 3),
        // The driver clones what does not allocate.
        (&allocating[1..2], vec![kernel(), native(), kernel()], 1),
        (&[], vec![kernel(), native(), kernel()], 1),
    ] {
        fake::capture_nodes(nodes);
        let [before, cloned] = ["cuStreamEndCapture", "cuGraphAddChildGraphNode"].map(fake::calls);
        let (buffer, _) = bench.chain(PLAIN, &commands);
        let captured = commands.iter().filter(|command| matches!(command, Command::Native(_))).count();
        assert_eq!(fake::calls("cuStreamEndCapture") - before, captured, "each closure is called once");
        let clones = if nodes.contains(&CU_GRAPH_NODE_TYPE_MEM_ALLOC) { 0 } else { captured };
        assert_eq!(fake::calls("cuGraphAddChildGraphNode") - cloned, clones);
        for _ in 0..2 {
            assert_eq!(launched(&bench, &*buffer), parts, "{commands:?}");
        }
    }
}

#[test]
fn captured_work_that_allocates_follows_several_commands_without_nodes() {
    let bench = Bench::new();
    fake::capture_nodes(&[CU_GRAPH_NODE_TYPE_MEM_ALLOC]);
    let mut buffer = bench.device.create_command_buffer(&PLAIN).unwrap();
    let empty = [(); 2].map(|()| buffer.append(&Command::Empty, &[]).unwrap().sync_point);
    buffer.append(&native(), &empty).unwrap();
    buffer.finalize().unwrap();
    assert_eq!(launched(&bench, &*buffer), 1);
}

#[test]
fn work_that_allocates_is_refused_by_name_except_in_command_buffers() {
    let bench = Bench::new();
    let condition = MemoryView::whole(bench.memory());
    let mut body = Body::new();
    body.push(native(), &[]).unwrap();
    let choice = Command::If { condition, then: Arc::new(body), otherwise: None };
    fake::capture_nodes(&[CU_GRAPH_NODE_TYPE_MEM_ALLOC]);
    let mut buffer = bench.device.create_command_buffer(&PLAIN).unwrap();
    let error = buffer.append(&choice, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
    assert!(error.message().contains("'step' allocates memory inside a conditional or loop"), "{error}");
    let event = bench.event();
    // SAFETY: the fake driver runs nothing.
    let alone = unsafe { bench.queue.enqueue(&Arc::new(native()), WaitList::NONE, Signal::new(&event)) };
    let error = alone.unwrap_err();
    assert!(error.message().contains("'step' allocates memory outside a command-buffer"), "{error}");
    fake::capture_nodes(&[CU_GRAPH_NODE_TYPE_KERNEL]);
    buffer.append(&choice, &[]).unwrap();
}

#[test]
fn captures_that_a_closure_breaks_are_named_and_leave_the_buffer_usable() {
    let bench = Bench::new();
    // SAFETY: it enqueues nothing.
    let failing = unsafe {
        let fails = |_: &NativeStream<'_>| Err(crate::Error::new(ErrorKind::OutOfMemory, "no room"));
        Command::Native(NativeCommand::new("failing", Vec::new(), fails))
    };
    let mut buffer = bench.device.create_command_buffer(&PLAIN).unwrap();
    for (code, found) in [
        (401, "the closure has ended the capture"),
        (901, "a call of the closure has made the capture invalid"),
        (904, "a stream that branches off does not join"),
    ] {
        fake::fail("cuStreamEndCapture", 1, code);
        let error = buffer.append(&native(), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.message().starts_with(&format!("native command 'step' cannot be captured: {found}")));
        assert!(error.to_string().contains("`stream_task`"), "{error}");
        fake::fail("cuStreamEndCapture", 1, code);
        let error = buffer.append(&failing, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "what the closure says comes first");
        assert!(error.message().contains("'failing' failed") && error.message().contains(found), "{error}");
        assert!(error.to_string().contains("`stream_task`"), "{error}");
    }
    let error = buffer.append(&failing, &[]).unwrap_err();
    assert!(!error.to_string().contains("`stream_task`"), "it could have been captured: {error}");
    let [begun, ended] = ["cuStreamBeginCapture", "cuStreamEndCapture"].map(fake::calls);
    assert_eq!(begun, ended);
    buffer.append(&native(), &[]).unwrap();
    buffer.finalize().unwrap();
    bench.run(&*buffer).unwrap();
}

#[test]
fn an_update_of_other_commands_leaves_captured_work_alone() {
    let bench = Bench::new();
    let memory = bench.memory();
    fake::capture_nodes(&[CU_GRAPH_NODE_TYPE_MEM_ALLOC]);
    let commands = [bench.launch(1, &memory), native(), bench.launch(2, &memory)];
    let (mut buffer, handles) = bench.chain(UPDATABLE, &commands);
    let update = CommandUpdate::new(handles[0]).args([(0, number(3))]);
    let [captures, instances] = ["cuStreamEndCapture", "cuGraphInstantiateWithFlags"].map(fake::calls);
    buffer.update(&[update]).unwrap();
    let now = ["cuStreamEndCapture", "cuGraphInstantiateWithFlags"].map(fake::calls);
    assert_eq!(now, [captures, instances], "the kernel's node is set");
    let (other, _) = bench.chain(UPDATABLE, &commands);
    let updates = fake::calls("cuGraphExecUpdate");
    buffer.update_from(&*other).unwrap();
    assert_eq!(fake::calls("cuGraphExecUpdate"), updates, "the driver cannot update such an instance");
    assert_eq!(launched(&bench, &*buffer), 3);
}

#[test]
fn a_failure_leaves_the_parts_as_they_were() {
    let bench = Bench::new();
    let memory = bench.memory();
    for desc in [PLAIN, CommandBufferDesc { profiling: true, ..PLAIN }] {
        let mut buffer = bench.device.create_command_buffer(&desc).unwrap();
        let first = buffer.append(&bench.launch(1, &memory), &[]).unwrap().sync_point;
        fake::capture_nodes(&[CU_GRAPH_NODE_TYPE_MEM_ALLOC]);
        let step = buffer.append(&native(), &[first]).unwrap().sync_point;
        let failing = if desc.profiling { "cuGraphAddEventRecordNode" } else { "cuGraphCreate" };
        fake::fail(failing, 1, CUDA_ERROR_NOT_SUPPORTED);
        buffer.append(&native(), &[step]).map_or_else(drop, |_| assert!(!desc.profiling));
        fake::succeed(failing);
        buffer.append(&bench.launch(2, &memory), &[step]).unwrap();
        buffer.finalize().unwrap();
        bench.run(&*buffer).unwrap();
    }
}

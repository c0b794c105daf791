//! Commands outside command-buffers: calls on the stream, or graphs that are launched once.

use super::*;

/// The graphs that enqueueing the command makes, and the calls of `function`.
fn enqueue(bench: &Bench, command: Command, function: &'static str) -> [usize; 2] {
    let calls = || [fake::calls("cuGraphInstantiateWithFlags"), fake::calls(function)];
    let (before, event) = (calls(), bench.event());
    // SAFETY: the fake driver runs nothing.
    unsafe { bench.queue.enqueue(&Arc::new(command), WaitList::NONE, Signal::new(&event)) }.unwrap();
    assert!(matches!(event.wait(None), EventStatus::Complete));
    let after = calls();
    [0, 1].map(|index| after[index] - before[index])
}

fn host_memory(bench: &Bench) -> Arc<dyn Memory> {
    bench.device.allocate(&MemoryDesc::new(64, MemoryKind::Host)).unwrap()
}

fn copy(src: &Arc<dyn Memory>, dst: &Arc<dyn Memory>) -> Command {
    let [src, dst] = [src, dst].map(|memory| MemoryView::whole(memory.clone()));
    Command::BufferCopy { src, dst }
}

#[test]
fn a_command_of_one_call_makes_no_graph() {
    let bench = Bench::new();
    let (memory, host) = (bench.memory(), host_memory(&bench));
    let fill = |pattern: &[u8]| {
        let dst = MemoryView::whole(memory.clone());
        Command::BufferFill { dst, pattern: pattern.into() }
    };
    for (command, function) in [
        (bench.launch(1, &memory), "cuLaunchKernel"),
        (copy(&host, &memory), "cuMemcpyAsync"),
        (copy(&memory, &host), "cuMemcpyAsync"),
        (fill(&[1]), "cuMemsetD8Async"),
        (fill(&[1, 2]), "cuMemsetD16Async"),
        (fill(&[1, 2, 3, 4]), "cuMemsetD32Async"),
    ] {
        assert_eq!(enqueue(&bench, command, function), [0, 1], "{function}");
    }
}

#[test]
fn a_copy_for_which_the_host_would_wait_is_a_graph() {
    let bench = Bench::new();
    let (one, other) = (host_memory(&bench), host_memory(&bench));
    assert_eq!(enqueue(&bench, copy(&one, &other), "cuMemcpyAsync"), [1, 0]);
}

#[test]
fn a_fill_that_is_more_than_one_call_is_a_graph() {
    let bench = Bench::new();
    let dst = MemoryView::new(bench.memory(), 0, 63).unwrap();
    let fill = Command::BufferFill { dst, pattern: [1, 2, 3].as_slice().into() };
    assert_eq!(enqueue(&bench, fill, "cuGraphLaunch"), [1, 1]);
}

//! Which kernels get a programmatic edge to the one before them.

use super::super::kernel::CudaKernel;
use super::*;

/// A launch over so many work-items of a kernel that can wait for the one before it.
fn launch_over(bench: &Bench, memory: &Arc<dyn Memory>, range: Range) -> Command {
    let params = bench.kernel.params();
    let sources = KernelSources::new().ptx("the fake driver does not read this");
    let desc = KernelDesc { name: "add", params, sources: &sources };
    let mut kernel = CudaKernel::load(bench.device.inner(), &desc).unwrap();
    kernel.can_overlap = true;
    let args = vec![number(1), KernelArg::Memory(MemoryView::whole(memory.clone()))];
    let kernel = Arc::new(kernel);
    Command::Kernel(Box::new(KernelLaunch { kernel, args, range, alternatives: Vec::new() }))
}

fn launch(bench: &Bench, memory: &Arc<dyn Memory>, items: usize) -> Command {
    launch_over(bench, memory, Range::linear(items))
}

/// How many nodes have a programmatic edge, and how many kernels have others, in a chain.
fn edges(bench: &Bench, desc: CommandBufferDesc, commands: &[Command]) -> [usize; 2] {
    let calls = || [fake::calls("cuGraphAddNode"), fake::calls("cuGraphAddKernelNode")];
    let before = calls();
    bench.chain(desc, commands);
    let after = calls();
    [0, 1].map(|index| after[index] - before[index])
}

#[test]
fn small_kernels_of_a_chain_overlap() {
    let bench = Bench::new();
    let memory = bench.memory();
    let small = || launch(&bench, &memory, 16);
    assert_eq!(edges(&bench, PLAIN, &[small(), small(), small()]), [2, 1]);
}

#[test]
fn kernels_that_an_update_may_change_do_not_overlap() {
    let bench = Bench::new();
    let memory = bench.memory();
    let small = || launch(&bench, &memory, 16);
    assert_eq!(edges(&bench, UPDATABLE, &[small(), small()]), [0, 2]);
    let profiling = CommandBufferDesc { profiling: true, ..PLAIN };
    assert_eq!(edges(&bench, profiling, &[small(), small()]), [0, 2]);
}

#[test]
fn kernels_of_which_the_device_cannot_hold_two_do_not_overlap() {
    let bench = Bench::new();
    let memory = bench.memory();
    // The fake device has 1,024 multiprocessors, and says that none holds more than the one work-group that it
    // is sure to hold.
    let groups = |count| launch_over(&bench, &memory, Range::linear(count).local([1]));
    assert_eq!(edges(&bench, PLAIN, &[groups(512), groups(512)]), [1, 1]);
    assert_eq!(edges(&bench, PLAIN, &[groups(512), groups(513), groups(512), groups(512)]), [1, 3]);
}

#[test]
fn only_kernels_that_wait_for_the_one_before_overlap() {
    let bench = Bench::new();
    let memory = bench.memory();
    let small = || launch(&bench, &memory, 16);
    let fill = Command::BufferFill { dst: MemoryView::whole(memory.clone()), pattern: [1].as_slice().into() };
    assert_eq!(edges(&bench, PLAIN, &[small(), bench.launch(1, &memory), small()]), [0, 3]);
    assert_eq!(edges(&bench, PLAIN, &[small(), fill, small()]), [0, 2]);
}

#[test]
fn a_kernel_behind_two_others_waits_for_both() {
    let bench = Bench::new();
    let memory = bench.memory();
    let calls = fake::calls("cuGraphAddNode");
    let mut buffer = bench.device.create_command_buffer(&PLAIN).unwrap();
    let first = buffer.append(&launch(&bench, &memory, 16), &[]).unwrap().sync_point;
    let second = buffer.append(&launch(&bench, &memory, 16), &[]).unwrap().sync_point;
    buffer.append(&launch(&bench, &memory, 16), &[first, second]).unwrap();
    assert_eq!(fake::calls("cuGraphAddNode"), calls);
}

#[test]
fn a_refused_programmatic_edge_becomes_an_ordinary_one() {
    let bench = Bench::new();
    let memory = bench.memory();
    fake::fail("cuGraphAddNode", 1, INVALID_VALUE);
    let small = || launch(&bench, &memory, 16);
    assert_eq!(edges(&bench, PLAIN, &[small(), small(), small()]), [2, 2]);
}

#[test]
fn only_updatable_command_buffers_are_updated() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (_, handles) = bench.chain(UPDATABLE, &[bench.launch(1, &memory)]);
    let (mut fixed, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    let error = fixed.update(&[CommandUpdate::new(handles[0])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    let (other, _) = bench.chain(PLAIN, &[bench.launch(2, &memory)]);
    assert_eq!(fixed.update_from(&*other).unwrap_err().kind(), ErrorKind::InvalidOperation);
    bench.run(&*fixed).unwrap();
}

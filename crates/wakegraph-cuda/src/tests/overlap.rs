//! Which kernels get a programmatic edge to the one before them.

use super::super::kernel::{CudaKernel, CudaLaunch, KernelWait};
use super::*;

/// A launch over so many work-items of a kernel that can wait for the one before it.
fn launch_over(bench: &Bench, memory: &Arc<dyn Memory>, range: Range) -> Command {
    let params = bench.kernel.params();
    let sources = KernelSources::new().ptx("the fake driver does not read this");
    let desc = KernelDesc { name: "add", params, sources: &sources };
    let mut kernel = CudaKernel::load(bench.device.inner(), &desc).unwrap();
    kernel.wait = KernelWait::IfTold;
    let args = vec![number(1), KernelArg::Memory(MemoryView::whole(memory.clone()))];
    let kernel = Arc::new(kernel);
    Command::Kernel(Arc::new(KernelLaunch { kernel, args, range, alternatives: Vec::new() }))
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
fn timed_kernels_do_not_overlap() {
    let bench = Bench::new();
    let memory = bench.memory();
    let small = || launch(&bench, &memory, 16);
    for desc in [PLAIN, UPDATABLE] {
        let profiling = CommandBufferDesc { profiling: true, ..desc };
        assert_eq!(edges(&bench, profiling, &[small(), small()]), [0, 2]);
    }
}

#[test]
fn kernels_of_which_the_device_cannot_hold_two_do_not_overlap() {
    let bench = Bench::new();
    let memory = bench.memory();
    // The fake device has 1,024 multiprocessors, and says that none holds more than the one work-group
    // that it is sure to hold.
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

/// What an update calls: kernels with a programmatic edge, other kernels, instances, changed
/// kernels.
fn calls_of(update: impl FnOnce()) -> [usize; 4] {
    const CALLS: [&str; 4] = [
        "cuGraphAddNode",
        "cuGraphAddKernelNode",
        "cuGraphInstantiateWithFlags",
        "cuGraphExecKernelNodeSetParams",
    ];
    let before = CALLS.map(fake::calls);
    update();
    let after = CALLS.map(fake::calls);
    [0, 1, 2, 3].map(|index| after[index] - before[index])
}

fn set_size(handle: CommandHandle, items: usize) -> CommandUpdate {
    CommandUpdate::new(handle).global_size(Some([items, 1, 1]))
}

fn enable(handle: CommandHandle, enabled: bool) -> CommandUpdate {
    CommandUpdate::new(handle).enabled(Some(enabled))
}

/// Of the fake device's 1,024 multiprocessors, more than half.
const LARGE: usize = 513;

/// A chain of so many small kernels with work-groups of one work-item.
fn small_chain(
    bench: &Bench,
    memory: &Arc<dyn Memory>,
    count: usize,
) -> (Box<dyn CommandBuffer>, Vec<CommandHandle>) {
    let small: Vec<_> =
        (0..count).map(|_| launch_over(bench, memory, Range::linear(16).local([1]))).collect();
    let mut chain = None;
    assert_eq!(calls_of(|| chain = Some(bench.chain(UPDATABLE, &small))), [count - 1, 1, 1, 0]);
    chain.unwrap()
}

#[test]
fn updates_that_keep_kernels_small_keep_their_edges() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (mut buffer, handles) = small_chain(&bench, &memory, 3);
    assert_eq!(calls_of(|| buffer.update(&[set_size(handles[1], 512)]).unwrap()), [0, 0, 0, 1]);
    let all: Vec<_> = handles.iter().map(|handle| set_size(*handle, 10)).collect();
    assert_eq!(calls_of(|| buffer.update(&all).unwrap()), [0, 0, 0, 3]);
    bench.run(&*buffer).unwrap();
}

#[test]
fn a_kernel_that_an_update_makes_large_does_not_start_early() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (mut buffer, handles) = small_chain(&bench, &memory, 4);
    let grow = [set_size(handles[1], LARGE)];
    assert_eq!(calls_of(|| buffer.update(&grow).unwrap()), [1, 3, 1, 0], "the third follows a large one");
    bench.run(&*buffer).unwrap();
    // From now on its size does not matter.
    for items in [16, LARGE] {
        assert_eq!(calls_of(|| buffer.update(&[set_size(handles[1], items)]).unwrap()), [0, 0, 0, 1]);
    }
    let both = [set_size(handles[0], LARGE), set_size(handles[3], LARGE)];
    assert_eq!(calls_of(|| buffer.update(&both).unwrap()), [0, 4, 1, 0]);
    bench.run(&*buffer).unwrap();
}

#[test]
fn the_first_kernel_of_a_chain_may_become_large() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (mut buffer, handles) = small_chain(&bench, &memory, 3);
    for items in [LARGE, 16] {
        assert_eq!(calls_of(|| buffer.update(&[set_size(handles[0], items)]).unwrap()), [0, 0, 0, 1]);
    }
    bench.run(&*buffer).unwrap();
}

#[test]
fn kernels_beside_a_disabled_one_do_not_start_early() {
    let bench = Bench::new();
    let memory = bench.memory();
    for disabled in 0..3 {
        let (mut buffer, handles) = small_chain(&bench, &memory, 3);
        let [off, on] = [false, true].map(|enabled| [enable(handles[disabled], enabled)]);
        // In the middle it has two edges.
        let early = usize::from(disabled != 1);
        assert_eq!(calls_of(|| buffer.update(&off).unwrap()), [early, 3 - early, 1, 0]);
        assert_eq!(calls_of(|| buffer.update(&on).unwrap()), [0, 0, 0, 1]);
        assert_eq!(calls_of(|| buffer.update(&off).unwrap()), [0; 4], "it has ordinary edges by now");
        bench.run(&*buffer).unwrap();
    }
}

#[test]
fn an_alternative_that_does_not_wait_does_not_start_early() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (mut buffer, handles) = small_chain(&bench, &memory, 2);
    let update = CommandUpdate::new(handles[1]).kernel(Some(bench.kernel.clone()));
    assert_eq!(calls_of(|| buffer.update(&[update]).unwrap()), [0, 2, 1, 0]);
    bench.run(&*buffer).unwrap();
}

#[test]
fn an_update_from_a_graph_with_other_edges_makes_a_new_instance() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (mut buffer, _) = small_chain(&bench, &memory, 2);
    let group = |items| launch_over(&bench, &memory, Range::linear(items).local([1]));
    for (items, is_alike) in [(16, true), (LARGE, false), (LARGE, true), (16, false)] {
        let (other, _) = bench.chain(UPDATABLE, &[group(16), group(items)]);
        let in_place = fake::calls("cuGraphExecUpdate");
        let made = calls_of(|| buffer.update_from(&*other).unwrap())[2];
        assert_eq!((made == 0, fake::calls("cuGraphExecUpdate") > in_place), (is_alike, is_alike), "{items}");
    }
    bench.run(&*buffer).unwrap();
}

/// A kernel in PTX with eight parameters.
fn ptx_kernel(bench: &Bench, waits: bool) -> Arc<dyn Kernel> {
    let number = |_| Param { name: "n".into(), kind: ParamKind::Value { size: 4 } };
    let params: Vec<_> = (0..8).map(number).collect();
    let sources = KernelSources::new().ptx("the fake driver does not read this").cuda_waits(waits);
    bench.device.create_kernel(&KernelDesc { name: "add", params: &params, sources: &sources }).unwrap()
}

fn ptx_launch(kernel: &Arc<dyn Kernel>) -> KernelLaunch {
    KernelLaunch::new(kernel.clone(), (0..8).map(number).collect(), Range::linear(16))
}

#[test]
fn kernels_of_other_languages_overlap_if_they_are_declared_to_wait() {
    let bench = Bench::new();
    let overlapping = |waits| {
        let kernel = ptx_kernel(&bench, waits);
        let chain = [(), ()].map(|()| Command::Kernel(Arc::new(ptx_launch(&kernel))));
        edges(&bench, PLAIN, &chain) == [1, 1]
    };
    assert!(overlapping(true) && !overlapping(false));
    fake::code_is_for(89);
    assert!(!overlapping(true), "code for an older device cannot wait");
    fake::code_is_for(90);
    assert!(overlapping(true));
}

#[test]
fn the_arguments_of_declared_kernels_stay_as_they_are() {
    let bench = Bench::new();
    let mut launch = CudaLaunch::of(bench.device.inner(), &ptx_launch(&ptx_kernel(&bench, true))).unwrap();
    launch.overlap(bench.device.inner());
    assert!(launch.overlaps);
    launch.with_params(|params| {
        for index in 0..8 {
            // SAFETY: there are eight pointers to parameters.
            let place = unsafe { params.kernelParams.wrapping_add(index).read() };
            // SAFETY: each parameter is such a number.
            assert_eq!(unsafe { place.cast::<u32>().read() }, index as u32);
        }
    });
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

//! Updates of command-buffers, by hand and at random, some of which the driver refuses.

use super::super::device::CudaMemory;
use super::*;

const COMMANDS: usize = 5;
const SET: &str = "cuGraphExecKernelNodeSetParams";

/// A generator of numbers that are the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What may be in the launches.
struct Choices {
    kernels: [Arc<dyn Kernel>; 2],
    memory: [Arc<dyn Memory>; 2],
}

impl Choices {
    fn launch(&self) -> KernelLaunch {
        let args = vec![number(0), KernelArg::Memory(MemoryView::whole(self.memory[0].clone()))];
        let launch = KernelLaunch::new(self.kernels[0].clone(), args, Range::linear(16));
        launch.alternatives(vec![self.kernels[1].clone()])
    }

    fn update(&self, handles: &[CommandHandle], numbers: &mut Numbers) -> CommandUpdate {
        let mut update = CommandUpdate::new(handles[numbers.below(COMMANDS as u64) as usize]);
        for _ in 0..numbers.below(3) {
            update.args.push(match numbers.below(2) {
                0 => (0, number(numbers.below(1 << 32) as u32)),
                _ => {
                    let memory = self.memory[numbers.below(2) as usize].clone();
                    let offset = 8 * numbers.below(4) as usize;
                    (1, KernelArg::Memory(MemoryView::new(memory, offset, 16).unwrap()))
                }
            });
        }
        if numbers.below(4) == 0 {
            update.global_size = Some([1 + numbers.below(1000) as usize, 1, 1]);
        }
        if numbers.below(4) == 0 {
            update.kernel = Some(self.kernels[numbers.below(2) as usize].clone());
        }
        update
    }
}

fn bytes(arg: &KernelArg) -> u64 {
    match arg {
        KernelArg::Value(bytes) => u32::from_ne_bytes(bytes[..].try_into().unwrap()).into(),
        KernelArg::Memory(view) => CudaMemory::address_of(view).unwrap(),
        _ => panic!("{arg:?}"),
    }
}

#[test]
fn random_updates_leave_what_those_that_succeeded_say() {
    fake::watch_kernels();
    let bench = Bench::new();
    let sources = KernelSources::new().ptx("the fake driver does not read this");
    let desc = KernelDesc { name: "other", params: bench.kernel.params(), sources: &sources };
    let kernels = [bench.kernel.clone(), bench.device.create_kernel(&desc).unwrap()];
    let choices = Choices { kernels, memory: [bench.memory(), bench.memory()] };
    let launches = vec![Command::Kernel(Arc::new(choices.launch())); COMMANDS];
    let (mut buffer, handles) = bench.chain(UPDATABLE, &launches);
    let mut model = vec![choices.launch(); COMMANDS];
    let mut numbers = Numbers(0x5eed);
    // The node of each command: the one that its first update sets.
    let mut nodes: Vec<usize> = Vec::new();
    for handle in &handles {
        buffer.update(&[CommandUpdate::new(*handle).args([(0, number(0))])]).unwrap();
        nodes.extend(fake::kernels().into_keys().find(|node| !nodes.contains(node)));
    }
    let mut functions = [None; 2];
    for _ in 0..2_000 {
        let count = 1 + numbers.below(2 * COMMANDS as u64);
        let updates: Vec<_> = (0..count).map(|_| choices.update(&handles, &mut numbers)).collect();
        let fails = numbers.below(3) == 0;
        if fails {
            fake::fail_later(SET, numbers.below(count) as usize, 1, INVALID_VALUE);
        }
        let updated = buffer.update(&updates);
        assert_eq!(updated.is_err(), fails);
        if updated.is_ok() {
            for update in &updates {
                update.apply_to(&mut model[update.handle.index as usize]).unwrap();
            }
        }
        let set = fake::kernels();
        for (index, expected) in model.iter().enumerate() {
            let Some(Command::Kernel(held)) = buffer.command(index) else { panic!("command {index}") };
            let args = |launch: &KernelLaunch| launch.args.iter().map(bytes).collect::<Vec<_>>();
            assert_eq!((args(held), held.range), (args(expected), expected.range));
            assert!(Arc::ptr_eq(&held.kernel, &expected.kernel));
            let node = set[&nodes[index]];
            assert_eq!(node.args[..], args(expected));
            let size = expected.range.global_size()[0] as u32;
            assert_eq!((node.groups[0], node.items[0]), (size.div_ceil(256), size.min(256)));
            let kernel = usize::from(!Arc::ptr_eq(&expected.kernel, &choices.kernels[0]));
            assert_eq!(*functions[kernel].get_or_insert(node.function), node.function);
        }
    }
    assert_ne!(functions[0], functions[1]);
}

#[test]
fn replaced_memory_is_freed_by_the_next_launch() {
    let bench = Bench::new();
    let [old, new] = [(); 2].map(|()| bench.memory());
    let gone = Arc::downgrade(&old);
    let (mut buffer, handles) = bench.chain(UPDATABLE, &[bench.launch(1, &old)]);
    drop(old);
    let [first, second, third] = [(); 3].map(|()| bench.event());
    fake::hold(true);
    bench.enqueue(&*buffer, &[], &first).unwrap();
    let arg = KernelArg::Memory(MemoryView::whole(new));
    buffer
        .update(&[CommandUpdate { args: vec![(1, arg)].into(), ..CommandUpdate::new(handles[0]) }])
        .unwrap();
    bench.enqueue(&*buffer, &[], &second).unwrap();
    assert!(gone.upgrade().is_some(), "a launch in flight may use it");
    fake::hold(false);
    bench.enqueue(&*buffer, &[], &third).unwrap();
    assert!(gone.upgrade().is_none());
}

#[test]
fn a_failed_update_changes_nothing() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (mut buffer, handles) = bench.chain(UPDATABLE, &[bench.launch(1, &memory), bench.launch(2, &memory)]);
    for enabled in [None, Some(false)] {
        let updates = [update_of(handles[0], 5, enabled), update_of(handles[1], 6, None)];
        fake::fail_later("cuGraphExecKernelNodeSetParams", 1, 1, INVALID_VALUE);
        assert_eq!(buffer.update(&updates).unwrap_err().kind(), ErrorKind::Driver);
        bench.run(&*buffer).unwrap();
    }
    fake::fail("cuGraphExecKernelNodeSetParams", 1, INVALID_VALUE);
    assert_eq!(buffer.update(&[update_of(handles[0], 5, None)]).unwrap_err().kind(), ErrorKind::Driver);
    bench.run(&*buffer).unwrap();
}

/// Each case: the function that fails, after how many successes, and the update that then leaves
/// the state unknown.
#[test]
fn an_update_that_cannot_be_undone_breaks_the_buffer() {
    const SET: &str = "cuGraphExecKernelNodeSetParams";
    type Update = fn(&mut dyn CommandBuffer, &[CommandHandle], &dyn CommandBuffer) -> crate::Result<()>;
    let ways: [(&str, usize, Update); 3] = [
        (SET, 0, |buffer, handles, _| buffer.update(&[update_of(handles[0], 5, None)])),
        (SET, 1, |buffer, handles, _| {
            buffer.update(&[update_of(handles[0], 5, None), update_of(handles[1], 6, Some(false))])
        }),
        ("cuGraphExecUpdate", 0, |buffer, _, other| {
            fake::fail("cuGraphInstantiateWithFlags", 1, INVALID_VALUE);
            buffer.update_from(other)
        }),
    ];
    for (function, skip, update) in ways {
        let bench = Bench::new();
        let memory = bench.memory();
        let commands = [bench.launch(1, &memory), bench.launch(2, &memory)];
        let (mut buffer, handles) = bench.chain(UPDATABLE, &commands);
        let (other, _) = bench.chain(UPDATABLE, &commands);
        fake::fail_later(function, skip, 2, INVALID_VALUE);
        let errors = [
            update(&mut *buffer, &handles, &*other).unwrap_err(),
            bench.run(&*buffer).unwrap_err(),
            buffer.update(&[update_of(handles[1], 7, None)]).unwrap_err(),
            bench.run(&*buffer).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
            assert!(error.message().contains("could not be undone"), "{error}");
            assert!(error.to_string().contains("update_from"), "{error}");
        }
        // A new instance does what is known.
        buffer.update_from(&*other).unwrap();
        bench.run(&*buffer).unwrap();
        buffer.update(&[update_of(handles[1], 8, None)]).unwrap();
    }
}

/// The driver forgets parameters that a node got shortly before it was disabled, and a disabled
/// memset node does not keep the order.
#[test]
fn enabled_nodes_get_their_parameters_again() {
    let bench = Bench::new();
    let memory = bench.memory();
    let view = || MemoryView::whole(memory.clone());
    let fill = |byte: u8| Command::BufferFill { dst: view(), pattern: [byte].as_slice().into() };
    let half = |start| MemoryView::new(memory.clone(), start, 32).unwrap();
    let copy = Command::BufferCopy { src: half(0), dst: half(32) };
    let commands = [bench.launch(1, &memory), fill(1), copy];
    let (mut buffer, handles) = bench.chain(UPDATABLE, &commands);
    assert_eq!(fake::calls("cuGraphAddMemsetNode"), 0, "it could be disabled");
    let switch = |buffer: &mut dyn CommandBuffer, enabled| {
        let updates: Vec<_> = handles
            .iter()
            .map(|&handle| CommandUpdate { enabled: Some(enabled), ..CommandUpdate::new(handle) })
            .collect();
        let counts = || ["cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams"].map(fake::calls);
        let before = counts();
        buffer.update(&updates).unwrap();
        let after = counts();
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(switch(&mut *buffer, false), [0, 0]);
    assert_eq!(switch(&mut *buffer, true), [2, 0], "the copy has what it had from the start");
    buffer.update_from(&*bench.chain(UPDATABLE, &commands).0).unwrap();
    assert_eq!(switch(&mut *buffer, false), [0, 0]);
    assert_eq!(switch(&mut *buffer, true), [2, 1]);
}

/// What nodes a fill has depends on its operands, so the driver compares a new graph.
#[test]
fn operands_of_fills_and_copies_change_by_a_comparison_of_graphs() {
    let bench = Bench::new();
    let [old, new] = [(); 2].map(|()| bench.memory());
    let gone = Arc::downgrade(&old);
    let fill = |memory: &Arc<dyn Memory>, pattern: &[u8]| Command::BufferFill {
        dst: MemoryView::whole(memory.clone()),
        pattern: pattern.into(),
    };
    let commands = [fill(&old, &[1]), bench.launch(1, &new)];
    let (mut buffer, handles) = bench.chain(UPDATABLE, &commands);
    drop((commands, old));
    bench.run(&*buffer).unwrap();
    let with =
        |memory: Command| CommandUpdate { command: Some(Box::new(memory)), ..CommandUpdate::new(handles[0]) };
    let counts = || ["cuGraphExecUpdate", "cuGraphInstantiateWithFlags"].map(fake::calls);
    let before = counts();
    // The driver refuses it, and so does a new instance: nothing has changed.
    fake::fail("cuGraphExecUpdate", 1, INVALID_VALUE);
    fake::fail("cuGraphInstantiateWithFlags", 1, INVALID_VALUE);
    let update = [with(fill(&new, &[2])), update_of(handles[1], 5, None)];
    assert_eq!(buffer.update(&update).unwrap_err().kind(), ErrorKind::Driver);
    bench.run(&*buffer).unwrap();
    assert!(gone.upgrade().is_some());
    let failed = counts();
    assert!(failed[0] > before[0]);
    // Both commands at once, in one comparison.
    buffer.update(&update).unwrap();
    assert_eq!(counts(), [failed[0] + 1, failed[1]]);
    bench.run(&*buffer).unwrap();
    assert!(gone.upgrade().is_none());
    // A command that is off stays off, which takes a new instance.
    buffer.update(&[CommandUpdate { enabled: Some(false), ..with(fill(&new, &[1, 2, 3, 4])) }]).unwrap();
    assert_eq!(counts()[1], failed[1] + 1);
    bench.run(&*buffer).unwrap();
}

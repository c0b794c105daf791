//! Random updates of launches, some of which the driver refuses, against a simple model.

use super::super::memory::CudaMemory;
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
    let launches = vec![Command::Kernel(Box::new(choices.launch())); COMMANDS];
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

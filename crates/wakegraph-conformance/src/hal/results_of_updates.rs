//! Updates as they show in memory, on every device that can be updated.

use std::sync::Arc;

use wakegraph::hal::{
    AccessMode, Command, CommandBufferDesc, CommandHandle, CommandUpdate, HostArgs, Kernel, KernelArg,
    KernelDesc, KernelLaunch, KernelSources, MemoryView, Param, ParamKind, UpdateCapabilities as Can,
    ValidatedCommandBuffer, ValueBytes,
};
use wakegraph::{Range, Result};

use super::bench::{Bench, complete, enqueue, read, value};
use super::launches::{ground, mixed, words};
use crate::kernels::SOURCE;
use crate::suite::{Need, Setup, lacks, tests};

tests!("updates/results": &[Need::Results] => [arguments, memory, sizes_and_offsets, kernels,
    kernels_of_other_parameters, replaced_kernels_may_go, what_was_enqueued_keeps_its_values]);

// grind x, five times, in flight; then mix x in its place, and nothing else holds `grind`
fn replaced_kernels_may_go(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().update.contains(Can::KERNEL_HANDLE | Can::KERNEL_ARGUMENTS) {
        return lacks("this update");
    }
    let x = bench.memory(&[0; 4]);
    let mut expected = 0;
    for n in 0..20 {
        let (Command::Kernel(mut grind), Command::Kernel(mix)) = (bench.grind(&x), bench.mix(n, &x)) else {
            unreachable!("both are kernels")
        };
        Arc::make_mut(&mut grind).alternatives = vec![mix.kernel.clone()];
        let mut buffer = bench.buffer(CommandBufferDesc::new().updatable(true));
        let handle = buffer.append(&Command::Kernel(grind), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        let events = [(); 6].map(|()| bench.event());
        for event in &events[..5] {
            enqueue(&buffer, &bench.queue, event).unwrap();
            expected = ground(expected);
        }
        let mut update = CommandUpdate::new(handle);
        update.kernel = Some(mix.kernel.clone());
        update.args.push((0, number(n)));
        buffer.update(&[update]).unwrap();
        enqueue(&buffer, &bench.queue, &events[5]).unwrap();
        expected = mixed(expected, n);
        events.iter().for_each(complete);
        assert_eq!(words(&x), [expected], "round {n}");
    }
}

/// A command-buffer of one launch of `add` or `mix` over the first elements of a buffer of 8.
struct Updatable {
    bench: Bench,
    buffer: ValidatedCommandBuffer,
    handle: CommandHandle,
    mix: Arc<dyn Kernel>,
    x: MemoryView,
}

pub(super) fn number(number: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&number.to_ne_bytes()))
}

pub(super) fn kernel(bench: &Bench, name: &str, step: fn(u32, u32) -> u32) -> Arc<dyn Kernel> {
    let (element_size, element_align) = (4, 4);
    let x = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size, element_align };
    let params = [value("n", 4), Param { name: "x".into(), kind: x }];
    let host = move |range: &Range, args: &mut HostArgs<'_>| {
        let n = args.value()?;
        let first = range.offset()[0];
        let x = args.write::<u32>()?;
        x[first..first + range.global_size()[0]].iter_mut().for_each(|x| *x = step(*x, n));
        Ok(())
    };
    let sources = KernelSources::new().host(host).c(SOURCE);
    bench.device.create_kernel(&KernelDesc::new(name, &params, &sources)).unwrap()
}

impl Updatable {
    fn new(setup: &Setup, needed: Can) -> Option<Self> {
        if !setup.hal().capabilities().update.contains(needed) {
            return None;
        }
        let bench = Bench::new(setup);
        let add = kernel(&bench, "add", |x, n| x.wrapping_add(n));
        let mix = kernel(&bench, "mix", |x, n| x.wrapping_mul(31).wrapping_add(n));
        let x = bench.memory(&[0; 32]);
        let mut buffer = bench.buffer(CommandBufferDesc::new().updatable(true));
        let args = vec![number(1), KernelArg::Memory(x.clone())];
        let launch = KernelLaunch::new(add, args, Range::linear(4)).alternatives(vec![mix.clone()]);
        let handle = buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        Some(Self { bench, buffer, handle, mix, x })
    }

    fn update(&mut self, change: impl FnOnce(&mut CommandUpdate)) -> Result<()> {
        let mut update = CommandUpdate::new(self.handle);
        change(&mut update);
        self.buffer.update(&[update])
    }

    fn run(&self) -> Vec<u32> {
        self.bench.run_buffer(&self.buffer);
        numbers(&self.x)
    }
}

pub(super) fn numbers(view: &MemoryView) -> Vec<u32> {
    read(view).chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn arguments(setup: &Setup) {
    let Some(mut this) = Updatable::new(setup, Can::KERNEL_ARGUMENTS) else { return lacks("this update") };
    assert_eq!(this.run(), [1, 1, 1, 1, 0, 0, 0, 0]);
    this.update(|update| update.args.push((0, number(10)))).unwrap();
    assert_eq!(this.run(), [11, 11, 11, 11, 0, 0, 0, 0]);
    assert_eq!(this.run(), [21, 21, 21, 21, 0, 0, 0, 0]);
}

fn memory(setup: &Setup) {
    let Some(mut this) = Updatable::new(setup, Can::KERNEL_ARGUMENTS) else { return lacks("this update") };
    let other = this.bench.memory(&[0; 16]);
    this.update(|update| update.args.push((1, KernelArg::Memory(other.clone())))).unwrap();
    assert_eq!(this.run(), [0; 8]);
    assert_eq!(numbers(&other), [1; 4]);
}

fn sizes_and_offsets(setup: &Setup) {
    let needed = Can::GLOBAL_WORK_SIZE | Can::GLOBAL_WORK_OFFSET | Can::LOCAL_WORK_SIZE;
    let Some(mut this) = Updatable::new(setup, needed) else { return lacks("this update") };
    this.update(|update| update.global_size = Some([6, 1, 1])).unwrap();
    assert_eq!(this.run(), [1, 1, 1, 1, 1, 1, 0, 0]);
    this.update(|update| update.global_offset = Some([2, 0, 0])).unwrap();
    assert_eq!(this.run(), [1, 1, 2, 2, 2, 2, 1, 1]);
    this.update(|update| update.local_size = Some(Some([3, 1, 1]))).unwrap();
    assert_eq!(this.run(), [1, 1, 3, 3, 3, 3, 2, 2]);
}

fn kernels(setup: &Setup) {
    let Some(mut this) = Updatable::new(setup, Can::KERNEL_HANDLE | Can::KERNEL_ARGUMENTS) else {
        return lacks("this update");
    };
    assert_eq!(this.run(), [1, 1, 1, 1, 0, 0, 0, 0]);
    let mix = this.mix.clone();
    this.update(|update| {
        update.kernel = Some(mix);
        update.args.push((0, number(5)));
    })
    .unwrap();
    assert_eq!(this.run(), [36, 36, 36, 36, 0, 0, 0, 0]);
}

/// A kernel with one parameter more than `add` and in its place, and back.
fn kernels_of_other_parameters(setup: &Setup) {
    let needed = Can::KERNEL_HANDLE | Can::KERNEL_ARGUMENTS;
    if !setup.hal().capabilities().update.contains(needed) {
        return lacks("this update");
    }
    let bench = Bench::new(setup);
    let add = kernel(&bench, "add", |x, n| x.wrapping_add(n));
    let memory = |name: &'static str, access| Param {
        name: name.into(),
        kind: ParamKind::Buffer { access, element_size: 4, element_align: 4 },
    };
    let params = [value("a", 4), memory("x", AccessMode::Read), memory("y", AccessMode::ReadWrite)];
    let host = |_: &Range, args: &mut HostArgs<'_>| {
        let (a, x, y) = (args.value::<u32>()?, args.read::<u32>()?, args.write::<u32>()?);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = y.wrapping_add(a.wrapping_mul(*x)));
        Ok(())
    };
    let sources = KernelSources::new().host(host).c(SOURCE);
    let desc = KernelDesc::new("axpy", &params, &sources);
    let axpy = bench.device.create_kernel(&desc).unwrap();
    let (x, y) = (bench.memory(&[0; 16]), bench.memory(&[0; 16]));
    let mut buffer = bench.buffer(CommandBufferDesc::new().updatable(true));
    let args = vec![number(2), KernelArg::Memory(x.clone())];
    let (alternatives, range) = (vec![axpy.clone()], Range::linear(4));
    let launch = KernelLaunch::new(add.clone(), args, range).alternatives(alternatives);
    let handle = buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap().handle.unwrap();
    buffer.finalize().unwrap();
    bench.run_buffer(&buffer);
    let mut update = CommandUpdate::new(handle).kernel(Some(axpy));
    assert!(buffer.update(&[update.clone()]).is_err(), "the third argument has no value");
    update.args = vec![(2, KernelArg::Memory(y.clone())), (0, number(10))].into();
    buffer.update(&[update]).unwrap();
    bench.run_buffer(&buffer);
    bench.run_buffer(&buffer);
    assert_eq!((numbers(&x), numbers(&y)), (vec![2; 4], vec![40; 4]));
    let args = [(0, number(1))];
    buffer.update(&[CommandUpdate::new(handle).kernel(Some(add)).args(args)]).unwrap();
    bench.run_buffer(&buffer);
    assert_eq!((numbers(&x), numbers(&y)), (vec![3; 4], vec![40; 4]));
}

fn what_was_enqueued_keeps_its_values(setup: &Setup) {
    let Some(mut this) = Updatable::new(setup, Can::KERNEL_HANDLE | Can::KERNEL_ARGUMENTS) else {
        return lacks("this update");
    };
    let mix = this.mix.clone();
    this.update(|update| update.kernel = Some(mix)).unwrap();
    let events: Vec<_> = (0..40).map(|_| this.bench.event()).collect();
    let mut expected = 0u32;
    for (event, n) in events.iter().zip(1..) {
        this.update(|update| update.args.push((0, number(n)))).unwrap();
        enqueue(&this.buffer, &this.bench.queue, event).unwrap();
        expected = expected.wrapping_mul(31).wrapping_add(n);
    }
    events.iter().for_each(complete);
    assert_eq!(numbers(&this.x)[..5], [expected, expected, expected, expected, 0]);
}

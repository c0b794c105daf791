//! Numbers of 16 bits: in buffers, as values, and their conversions in the portable dialect, against the
//! crate `half`.
#![expect(unsafe_code, reason = "declares device code")]

use std::fmt::Debug;

use bytemuck::Pod;
use wakegraph::kernel::KernelCall;
use wakegraph::memory::{bf16, f16};
use wakegraph::{Buffer, Graph, Local, Range, kernel};

use crate::kernels::SOURCE;
use crate::random::Random;
use crate::suite::{Need, Setup, tests};

tests!("graph/half":
    &[Need::Results] => [all_f16_become_floats, all_bf16_become_floats, floats_round_to_f16, floats_round_to_bf16,
        copies_and_fills, values_and_slices, local_memory]);

kernel! {
    fn f16_to_float(x: &[f16], y: &mut [f32]) {
        each: |i, x, y| *y = x[i].to_f32(),
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { SOURCE },
    }
    fn float_to_f16(x: &[f32], y: &mut [f16]) {
        each: |i, x, y| *y = f16::from_f32(x[i]),
        // SAFETY: as above.
        c: unsafe { SOURCE },
    }
    fn bf16_to_float(x: &[bf16], y: &mut [f32]) {
        each: |i, x, y| *y = x[i].to_f32(),
        // SAFETY: as above.
        c: unsafe { SOURCE },
    }
    fn float_to_bf16(x: &[f32], y: &mut [bf16]) {
        each: |i, x, y| *y = bf16::from_f32(x[i]),
        // SAFETY: as above.
        c: unsafe { SOURCE },
    }
    /// y = a * x + y
    fn axpy_f16(a: f16, x: &[f16], y: &mut [f16]) {
        each: |i, a, x, y| *y = f16::from_f32(a.to_f32() * x[i].to_f32() + y.to_f32()),
        // SAFETY: as above.
        c: unsafe { SOURCE },
    }
    /// y = a * x + y, by way of local memory
    fn axpy_bf16(a: bf16, x: &[bf16], tile: Local<bf16>, y: &mut [bf16]) {
        range: |_, x, tile, y| x.len().min(y.len()).min(tile.len()),
        item: |i, a, x, _, y| y[i] = bf16::from_f32(a.to_f32() * x[i].to_f32() + y[i].to_f32()),
        // SAFETY: as above; all work-items reach the barrier, and a group is no larger than the range,
        // for which the local memory has room.
        c: unsafe { SOURCE },
    }
}

const PATTERNS: usize = 1 << 16;

/// The results of a kernel that makes one number of each of these.
fn converted<A: Pod, B: Pod>(
    setup: &Setup,
    from: &[A],
    kernel: impl Fn(&Buffer<A>, &Buffer<B>) -> KernelCall,
) -> Vec<B> {
    let device = setup.device();
    let (x, y) = (device.buffer_from(from).unwrap(), device.buffer::<B>(from.len()).unwrap());
    let mut graph = Graph::new(device);
    graph.launch(kernel(&x, &y), Range::linear(from.len()));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        let first = y.to_vec().await.unwrap();
        exec.submit().await.unwrap();
        let second = y.to_vec().await.unwrap();
        assert_eq!(bytemuck::cast_slice::<B, u8>(&first), bytemuck::cast_slice::<B, u8>(&second));
        first
    })
}

/// A NaN stays one, with any payload. All others have the same bits.
fn same(one: f32, other: f32) -> bool {
    one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
}

/// Compares what a kernel makes of each number with a model of it.
fn assert_converts<A: Pod + Debug, B: Pod>(
    setup: &Setup,
    all: &[A],
    kernel: impl Fn(&Buffer<A>, &Buffer<B>) -> KernelCall,
    model: impl Fn(A) -> B,
    to_float: impl Fn(B) -> f32,
) {
    for (&x, y) in all.iter().zip(converted(setup, all, kernel)) {
        let (found, expected) = (to_float(y), to_float(model(x)));
        assert!(same(found, expected), "{x:?} became {found:e}, not {expected:e}");
    }
}

fn all_f16() -> impl Iterator<Item = f16> {
    (0..=u16::MAX).map(f16::from_bits)
}

fn all_bf16() -> impl Iterator<Item = bf16> {
    (0..=u16::MAX).map(bf16::from_bits)
}

fn all_f16_become_floats(setup: &Setup) {
    let all: Vec<f16> = all_f16().collect();
    assert_converts(setup, &all, |x, y| f16_to_float(x, y), f16::to_f32, |y| y);
}

fn all_bf16_become_floats(setup: &Setup) {
    let all: Vec<bf16> = all_bf16().collect();
    assert_converts(setup, &all, |x, y| bf16_to_float(x, y), bf16::to_f32, |y| y);
}

/// All numbers, what is half-way to the next and beside that, and any bits.
fn floats(all: impl Iterator<Item = f32>) -> Vec<f32> {
    let mut random = Random::new(7);
    let any = (0..PATTERNS).map(|_| f32::from_bits(random.next() as u32)).collect::<Vec<_>>();
    let mut all: Vec<f32> = all.collect();
    for at in 1..all.len() {
        let half_way = ((f64::from(all[at - 1]) + f64::from(all[at])) / 2.0) as f32;
        all.extend([half_way, half_way.next_up(), half_way.next_down()]);
    }
    all.extend(any);
    all.extend([f32::MAX, f32::MIN, f32::MIN_POSITIVE, f32::from_bits(1), 65_519.0, 65_520.0, -65_520.0]);
    all
}

fn floats_round_to_f16(setup: &Setup) {
    let all = floats(all_f16().map(f16::to_f32));
    assert_converts(setup, &all, |x, y| float_to_f16(x, y), f16::from_f32, f16::to_f32);
}

fn floats_round_to_bf16(setup: &Setup) {
    let all = floats(all_bf16().map(bf16::to_f32));
    assert_converts(setup, &all, |x, y| float_to_bf16(x, y), bf16::from_f32, bf16::to_f32);
}

fn copies_and_fills(setup: &Setup) {
    let device = setup.device();
    let [one, two, three] = [1.0, 2.0, 3.0].map(f16::from_f32);
    let (x, y) = (device.buffer::<f16>(5).unwrap(), device.buffer_from(&[three; 5]).unwrap());
    let host = device.host_buffer::<f16>(5).unwrap();
    let mut graph = Graph::new(device);
    graph.fill_pattern(&x.slice(..4).unwrap(), &[one, two]);
    graph.copy(x.slice(1..4).unwrap(), y.slice(2..).unwrap());
    graph.copy(&y, &host);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(*host.read().await, [three, three, two, one, two]);
        }
    });
}

/// Submits twice, and compares the numbers after each run with those of a model, which makes a step.
fn assert_follows<H: Pod + Debug + PartialEq>(
    setup: &Setup,
    graph: &Graph,
    y: &Buffer<H>,
    mut model: Vec<H>,
    step: impl Fn(&mut [H]),
) {
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            step(&mut model);
            assert_eq!(y.to_vec().await.unwrap(), model);
        }
    });
}

fn values_and_slices(setup: &Setup) {
    let device = setup.device();
    let numbers = |first: i32| (first..first + 9).map(|n| f16::from_f32(n as f32 / 8.0)).collect::<Vec<_>>();
    let (x, y) = (device.buffer_from(&numbers(-4)).unwrap(), device.buffer_from(&numbers(3)).unwrap());
    let a = f16::from_f32(1.5);
    let mut graph = Graph::new(device);
    // Slices at odd places.
    graph.launch(axpy_f16(a, x.slice(1..8).unwrap(), y.slice(1..8).unwrap()), Range::linear(7));
    let x = numbers(-4);
    assert_follows(setup, &graph, &y, numbers(3), |model| {
        for (x, y) in x.iter().zip(model).skip(1).take(7) {
            *y = f16::from_f32(a.to_f32() * x.to_f32() + y.to_f32());
        }
    });
}

fn local_memory(setup: &Setup) {
    let device = setup.device();
    let numbers = |scale: f32| (0..8).map(|n| bf16::from_f32(n as f32 * scale)).collect::<Vec<_>>();
    let (x, y) = (device.buffer_from(&numbers(0.1)).unwrap(), device.buffer_from(&numbers(-3.3)).unwrap());
    let a = bf16::from_f32(7.7);
    let mut graph = Graph::new(device);
    graph.launch(axpy_bf16(a, &x, Local::new(8), &y), Range::linear(8).local([4]));
    let x = numbers(0.1);
    assert_follows(setup, &graph, &y, numbers(-3.3), |model| {
        for (x, y) in x.iter().zip(model) {
            *y = bf16::from_f32(a.to_f32() * x.to_f32() + y.to_f32());
        }
    });
}

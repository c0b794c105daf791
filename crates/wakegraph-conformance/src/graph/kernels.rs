//! Kernel nodes: index spaces, arguments, slices.
#![expect(unsafe_code, reason = "declares device code")]

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use wakegraph::hal::UpdateCapabilities;
use wakegraph::kernel::{KernelCall, RawKernel};
use wakegraph::profile::CodeOrigin;
use wakegraph::{Buffer, FinalizeOptions, Graph, Local, Range, kernel};

use crate::kernels::{SOURCE, add, add_last, axpy, indices, lengths, pack};
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/kernels": &[Need::Results] => [ranges_of_one_to_three_dimensions, offsets_and_work_groups,
    scalars_and_structs, slices, host_buffers_serve_as_memory, local_memory,
    local_memory_of_several_sizes, the_same_kernel_many_times,
    different_kernels, lengths_of_slices, lengths_follow_updates, helper_functions_take_slices,
    each_owns_its_element, groups_own_their_parts, strict_sources_round_products,
    other_sources_may_be_contracted],
    &[Need::Results, Need::Doubles] => [doubles]);

/// Kernels of their own: a device without doubles loads no program that has some.
const DOUBLES: &str = include_str!("../doubles.c");

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Params {
    scale: u64,
    shift: i32,
    pad: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DoubleParams {
    scale: f64,
    shift: i32,
    pad: u32,
}

kernel! {
    fn affine(params: Params, flag: u8, x: &[u64], y: &mut [u64]) {
        item: |i, params, flag, x, y| {
            let sum = (params.scale * x[i]).wrapping_add_signed(params.shift.into());
            y[i] = sum.wrapping_add(u64::from(flag));
        },
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { SOURCE },
    }
    fn affine_doubles(params: DoubleParams, flag: u8, x: &[f64], y: &mut [f64]) {
        item: |i, params, flag, x, y| {
            y[i] = params.scale * x[i] + f64::from(params.shift) + f64::from(flag);
        },
        // SAFETY: as above.
        c: unsafe { DOUBLES },
    }
    /// Writes for each work-item the sum over its work-group of their indices, which meet in local memory.
    fn share(numbers: Local<u32>, sums: &mut [u32]) {
        host: |range, numbers, sums| {
            for group in range.groups() {
                let sum = group.indices().take(numbers.len()).map(|i| i as u32).sum();
                sums[group.indices()].fill(sum);
            }
        },
        // SAFETY: a work-item writes the element with its index, which the shortest slice bounds.
        // Indices of local memory are compared with its length; a work-item writes one of its own
        // and reads the others' behind a barrier.
        c: unsafe { SOURCE },
    }
}

kernel! {
    /// Each pixel becomes its index, its old red and the weight of its column.
    fn tint(weights: &[u8], pixels: &mut [[u8; 4]], sums: &mut [u32]) {
        range: |_, _, sums| sums.len(),
        each: |[x, y], weights, pixel, sum| {
            *pixel = [x as u8, y as u8, pixel[0], weights[x]];
            *sum += x as u32;
        },
        // SAFETY: a work-item uses the elements at its place, of which the bound has as many as `sums`; the
        // others' lengths are compared.
        c: unsafe { SOURCE },
    }
    /// Transposes tiles, each in its place, and counts what each group has moved.
    fn flip_tiles(tile: Local<u32>, x: &[u32], y: &mut [u32], moved: &mut [u32]) {
        group: |group, tile, x, y, moved| {
            let ([width, height, _], [left, top, _]) = (group.global_size(), group.offset());
            let row = WIDTH;
            for [i, j] in group.items() {
                tile[(j - top) * width + (i - left)] = x[j * row + i];
            }
            for j in 0..height {
                for i in 0..width {
                    y[[i, j]] = tile[i * width + j];
                }
            }
            moved[0] = (width * height) as u32;
            moved[1] += 1;
        },
        // SAFETY: all indices are compared with the lengths; a work-item writes its own element of the tile,
        // and reads the others' behind a barrier that all reach; one of a group writes the group's share.
        c: unsafe { SOURCE },
    }
}

/// Columns of what `flip_tiles` gets.
const WIDTH: usize = 12;

fn each_owns_its_element(setup: &Setup) {
    let device = setup.device();
    let (weights, sums) =
        (device.buffer_from(&[7u8, 8, 9, 10, 11]).unwrap(), device.buffer::<u32>(20).unwrap());
    let pixels = device.buffer_from(&[[5u8, 6, 7, 8]; 20]).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(tint(&weights, &pixels, &sums), Range::new([5, 3]).starting_at([0, 1]));
    graph.launch(tint(&weights, &pixels, &sums), Range::new([3, 4]).starting_at([2, 0]));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        let (pixels, sums) = (pixels.to_vec().await.unwrap(), sums.to_vec().await.unwrap());
        for (place, (pixel, sum)) in pixels.into_iter().zip(sums).enumerate() {
            let (x, y) = (place % 5, place / 5);
            let launches = usize::from(y >= 1) + usize::from(x >= 2);
            let red = if launches == 2 { x as u8 } else { 5 };
            let expected = if launches == 0 { [5, 6, 7, 8] } else { [x as u8, y as u8, red, 7 + x as u8] };
            assert_eq!((pixel, sum as usize), (expected, launches * x), "{x}, {y}");
        }
    });
}

fn groups_own_their_parts(setup: &Setup) {
    let device = setup.device();
    let values: Vec<u32> = (0..WIDTH as u32 * 8).collect();
    let (x, y) = (device.buffer_from(&values).unwrap(), device.buffer::<u32>(values.len()).unwrap());
    let moved = device.buffer::<u32>(12).unwrap();
    let mut graph = Graph::new(device);
    let range = Range::new([WIDTH, 8]).local([4, 4]);
    graph.launch(flip_tiles(Local::new(16), &x, &y, &moved), range);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for run in 1..=2 {
            exec.submit().await.unwrap();
            let expected: Vec<u32> = (0..values.len())
                .map(|place| {
                    let (i, j) = (place % WIDTH, place / WIDTH);
                    let (left, top) = (i / 4 * 4, j / 4 * 4);
                    ((top + i % 4) * WIDTH + left + j % 4) as u32
                })
                .collect();
            assert_eq!(y.to_vec().await.unwrap(), expected);
            assert_eq!(moved.to_vec().await.unwrap(), [16, run].repeat(6));
        }
    });
}

fn check_indices(setup: &Setup, range: Range) {
    let device = setup.device();
    let ([width, height, depth], [x0, y0, z0]) = (range.global_size(), range.offset());
    let out = device.buffer::<u64>(range.count()).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(indices(&out), range);
    let exec = graph.finalize().unwrap();
    let mut expected = Vec::new();
    for z in 0..depth {
        for y in 0..height {
            expected.extend((0..width).map(|x| pack([x + x0, y + y0, z + z0])));
        }
    }
    setup.block_on(async {
        for _ in 0..2 {
            out.write(&vec![0; range.count()]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(out.to_vec().await.unwrap(), expected, "{range}");
        }
    });
}

fn ranges_of_one_to_three_dimensions(setup: &Setup) {
    for range in [Range::linear(1), Range::linear(100), Range::new([7, 3]), Range::new([2, 3, 4])] {
        check_indices(setup, range);
    }
}

fn offsets_and_work_groups(setup: &Setup) {
    for range in [
        Range::linear(10).starting_at([5]),
        Range::new([4, 6]).starting_at([1, 2]).local([2, 3]),
        Range::new([2, 2, 2]).starting_at([9, 8, 7]).local([2, 1, 2]),
    ] {
        check_indices(setup, range);
    }
}

fn scalars_and_structs(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer_from(&[1u64, 2, 3 << 40]).unwrap(), device.buffer::<u64>(3).unwrap());
    let mut graph = Graph::new(device);
    graph.launch(affine(Params { scale: 5, shift: -9, pad: 0 }, 7, &x, &y), Range::linear(3));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [3, 8, (15 << 40) - 2]);
        }
    });
}

fn doubles(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer_from(&[1.0f64, 2.0, 3.0]).unwrap(), device.buffer::<f64>(3).unwrap());
    let mut graph = Graph::new(device);
    let params = DoubleParams { scale: 0.5, shift: -2, pad: 0 };
    graph.launch(affine_doubles(params, 7, &x, &y), Range::linear(3));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [5.5, 6.0, 6.5]);
        }
    });
}

const STRICT: &str = "
    #pragma STDC FP_CONTRACT OFF
    KERNEL(apart, (float a, SLICE(const float, x), SLICE(float, y))) { y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)]; }
    KERNEL(fused, (float a, SLICE(const float, x), SLICE(float, y))) {
        y[GLOBAL_ID(0)] = fma(a, x[GLOBAL_ID(0)], y[GLOBAL_ID(0)]);
    }";
const CONTRACTED: &str = "
    KERNEL(either, (float a, SLICE(const float, x), SLICE(float, y))) { y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)]; }";

kernel! {
    fn apart(a: f32, x: &[f32], y: &mut [f32]) {
        each: |i, a, x, y| *y += a * x[i],
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { STRICT },
    }
    fn fused(a: f32, x: &[f32], y: &mut [f32]) {
        each: |i, a, x, y| *y = a.mul_add(x[i], *y),
        // SAFETY: as above.
        c: unsafe { STRICT },
    }
    fn either(a: f32, x: &[f32], y: &mut [f32]) {
        each: |i, a, x, y| *y += a * x[i],
        // SAFETY: as above.
        c: unsafe { CONTRACTED },
    }
}

/// The last bit of this one's square is lost where the product is rounded.
const ONE_AND_MORE: f32 = 1.0 + 1.0 / 4096.0;

/// The square, less what it rounds to.
fn remainder(setup: &Setup, kernel: fn(f32, &Buffer<f32>, &Buffer<f32>) -> KernelCall) -> f32 {
    let device = setup.device();
    let rounded = ONE_AND_MORE * ONE_AND_MORE;
    let x = device.buffer_from(&[ONE_AND_MORE; 8]).unwrap();
    let y = device.buffer_from(&[-rounded; 8]).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(kernel(ONE_AND_MORE, &x, &y), Range::linear(8));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        let found = y.to_vec().await.unwrap();
        assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
        found[0]
    })
}

fn strict_sources_round_products(setup: &Setup) {
    assert_eq!(remainder(setup, |a, x, y| apart(a, x, y)), 0.0);
    assert_eq!(remainder(setup, |a, x, y| fused(a, x, y)), (-24_f32).exp2());
}

fn other_sources_may_be_contracted(setup: &Setup) {
    let found = remainder(setup, |a, x, y| either(a, x, y));
    assert!([0.0, (-24_f32).exp2()].contains(&found), "{found}");
}

fn slices(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[1u32; 10]).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add(1, x.slice(2..4).unwrap()), Range::linear(2));
    graph.launch(add(10, x.slice(4..=5).unwrap().slice(1..).unwrap()), Range::linear(1));
    // Two parts of one buffer in one launch: x[6..8] += 3 * x[0..2].
    graph.launch(axpy(3, x.slice(..2).unwrap(), x.slice(6..8).unwrap()), Range::linear(2));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [1, 1, 2, 2, 1, 11, 4, 4, 1, 1]);
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [1, 1, 3, 3, 1, 21, 7, 7, 1, 1]);
    });
}

/// Adds its number to each element.
fn numbered(number: u32) -> Arc<RawKernel> {
    let name = format!("add_{number}");
    let source = format!("KERNEL({name}, (SLICE(u32, x))) {{ x[GLOBAL_ID(0)] += {number}; }}");
    // SAFETY: a work-item uses the element with its index, which the slice bounds.
    let kernel = unsafe { RawKernel::new(name).writes::<u32>("x").with_c(source) };
    kernel.host(move |range, args| {
        args.write::<u32>()?[range.indices()].iter_mut().for_each(|x| *x += number);
        Ok(())
    })
}

/// Kernels of one graph are compiled beside each other, here also by threads that finalize at once.
fn different_kernels(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[0u32, 1, 2, 3]).unwrap();
    let mut graph = Graph::new(device);
    let kernels = [1, 2, 3, 4, 5, 6].map(numbered);
    // Two of them before.
    wakegraph::kernel::compile_all([device], kernels[..2].iter().map(|kernel| kernel.call())).unwrap();
    for kernel in kernels {
        graph.launch(kernel.call().memory::<u32>(&x), Range::linear(4));
    }
    let (graph, x) = (&graph, &x);
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| graph.finalize().unwrap()));
        let [first, second] = threads.map(|thread| thread.join().unwrap());
        let kernels = first.explain().kernels;
        assert_eq!(kernels.len(), 6);
        for kernel in kernels {
            let is_given = kernel.origin == CodeOrigin::Given;
            assert_eq!(is_given, device.info().backend == "host", "{kernel}");
        }
        setup.block_on(async {
            first.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [21, 22, 23, 24]);
            second.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [42, 43, 44, 45]);
        });
    });
}

fn host_buffers_serve_as_memory(setup: &Setup) {
    let device = setup.device();
    let x = device.host_buffer_from(&[1u32, 2, 3]).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(3));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(*x.read().await, [3, 4, 5]);
    });
}

fn local_memory(setup: &Setup) {
    let device = setup.device();
    let sums = device.buffer::<u32>(8).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(share(Local::new(4), &sums), Range::linear(8).local([4]));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(sums.to_vec().await.unwrap(), [6, 6, 6, 6, 22, 22, 22, 22]);
    });
}

// Both sizes are more than CUDA's work-groups have without asking for it, where a device has so much.
fn local_memory_of_several_sizes(setup: &Setup) {
    let device = setup.device();
    let most = device.capabilities().local_memory.min(200 << 10) / size_of::<u32>();
    let [large, small] = [most, most * 3 / 5];
    let [x, y, z] = [(); 3].map(|()| device.buffer::<u32>(8).unwrap());
    let (range, sums) = (Range::linear(8).local([4]), [6, 6, 6, 6, 22, 22, 22, 22]);
    let mut graph = Graph::new(device);
    let first = graph.launch(share(Local::new(large), &x), range).id();
    graph.launch(share(Local::new(small), &y), range);
    let both = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(share(Local::new(small), &y), range);
    let one = graph.finalize().unwrap();
    let queues = [(); 2].map(|()| device.queue().unwrap());
    setup.block_on(async {
        for to in [&x, &z, &x] {
            both.submit().await.unwrap();
            one.submit().await.unwrap();
            both.update().launch(first, share(Local::new(large), to)).apply().await.unwrap();
            both.submit().await.unwrap();
            assert_eq!(to.to_vec().await.unwrap(), sums);
        }
        for _ in 0..100 {
            let large = queues[0].launch(share(Local::new(large), &x), range);
            let small = queues[1].launch(share(Local::new(small), &y), range);
            large.await.unwrap();
            small.await.unwrap();
        }
        assert_eq!((x.to_vec().await.unwrap(), y.to_vec().await.unwrap()), (sums.into(), sums.into()));
    });
}

fn the_same_kernel_many_times(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(8).unwrap();
    let mut graph = Graph::new(device);
    for n in 0..100 {
        graph.launch(add(n, &x), Range::linear(8));
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..=2 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [4950 * replay; 8]);
        }
    });
}

fn lengths_of_slices(setup: &Setup) {
    let device = setup.device();
    let (bytes, numbers) = (device.buffer::<u8>(300).unwrap(), device.host_buffer::<u64>(7).unwrap());
    let (whole, of_parts) = (device.buffer::<u64>(4).unwrap(), device.buffer::<u64>(100).unwrap());
    let mut graph = Graph::new(device);
    let scratch = graph.scratch::<u8>(33).unwrap();
    graph.fill(&scratch, 0);
    graph.launch(lengths(&bytes, 1, &numbers, Local::new(9), &whole), Range::linear(1).local([1]));
    let part = of_parts.slice(32..40).unwrap();
    let numbers = numbers.slice(4..).unwrap();
    graph.launch(lengths(&scratch, 0, numbers, Local::new(1), part), Range::linear(1).local([1]));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(whole.to_vec().await.unwrap(), [300, 7, 9, 5]);
            assert_eq!(of_parts.to_vec().await.unwrap()[32..40], [33, 3, 1, 8, 0, 0, 0, 0]);
        }
    });
}

fn lengths_follow_updates(setup: &Setup) {
    if !setup.device().capabilities().update.contains(UpdateCapabilities::KERNEL_ARGUMENTS) {
        return lacks("updates of arguments");
    }
    let device = setup.device();
    let bytes = [5, 1000, 64].map(|len| device.buffer::<u8>(len).unwrap());
    let numbers = device.buffer::<u64>(64).unwrap();
    let out = device.buffer::<u64>(4).unwrap();
    let call = |bytes, numbers, tile| lengths(bytes, 0, numbers, Local::new(tile), &out);
    let mut graph = Graph::new(device);
    let node = graph.launch(
        call(bytes[0].slice(..).unwrap(), numbers.slice(..2).unwrap(), 3),
        Range::linear(1).local([1]),
    );
    let node = node.id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(out.to_vec().await.unwrap(), [5, 2, 3, 4]);
        for (bytes, numbers_end, tile, expected) in [
            // A longer buffer, a shorter part of one, another length of the same one, other local memory.
            (bytes[1].slice(..).unwrap(), 2, 3, [1000, 2, 3, 4]),
            (bytes[1].slice(..32).unwrap(), 2, 3, [32, 2, 3, 4]),
            (bytes[2].slice(..).unwrap(), 64, 3, [64, 64, 3, 4]),
            (bytes[2].slice(..).unwrap(), 64, 50, [64, 64, 50, 4]),
        ] {
            let call = call(bytes, numbers.slice(..numbers_end).unwrap(), tile);
            exec.update().launch(node, call).apply().await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(out.to_vec().await.unwrap(), expected);
        }
    });
}

fn helper_functions_take_slices(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer_from(&[1u32, 2, 3]).unwrap(), device.buffer::<u32>(2).unwrap());
    let mut graph = Graph::new(device);
    graph.launch(add_last(&x, &y), Range::linear(2));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [3, 3]);
    });
}

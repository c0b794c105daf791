//! Bounds on ranges: every launch and every update is refused, or stays inside its slices. No
//! caller here is `unsafe`.
#![forbid(unsafe_code)]

use wakegraph::hal::UpdateCapabilities;
use wakegraph::kernel::{KernelCall, RangeBound, RawKernel};
use wakegraph::{Buffer, Error, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, Local, NodeId, Range};

use crate::kernels::{add, axpy, count_cells, count_pixels, indices, lengths, meet};
use crate::random::Random;
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/bounds":
    &[] => [ranges_of_another_form, launches_beyond_the_shortest_slice, launches_beyond_a_declared_bound, raw_kernels, updates_of_the_range_alone,
        updates_of_the_memory_alone, updates_to_an_alternative, updates_from_another_graph],
    &[Need::Results] => [random_ranges, random_updates]);

fn can_update(setup: &Setup) -> bool {
    let can = setup.device().capabilities().update == UpdateCapabilities::all();
    if !can {
        lacks("all updates");
    }
    can
}

fn words(setup: &Setup, len: usize) -> Buffer<u32> {
    setup.device().buffer_from(&vec![0; len]).unwrap()
}

fn finalize(graph: &Graph) -> ExecutableGraph {
    graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap()
}

fn single(setup: &Setup, call: impl Into<KernelCall>, range: Range) -> (Graph, NodeId) {
    let mut graph = Graph::new(setup.device());
    let node = graph.launch(call, range).id();
    (graph, node)
}

#[track_caller]
fn is_refused(error: &Error, kernel: &str, range: &str, bound: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    assert_eq!(
        error.message(),
        format!("kernel '{kernel}' cannot be launched over {range}: the bound on its range is {bound}")
    );
}

fn launches_beyond_the_shortest_slice(setup: &Setup) {
    let (x, y) = (words(setup, 3), words(setup, 5));
    for (range, name) in [
        (Range::linear(1 << 24), "range [16777216]"),
        (Range::linear(4), "range [4]"),
        (Range::linear(3).starting_at([1]), "range [3] from [1]"),
        (Range::new([1, 3]), "range [1, 3]"),
        (Range::linear(1).starting_at([usize::MAX]), "range [1] from [18446744073709551615]"),
    ] {
        let error = single(setup, axpy(2, &x, &y), range).0.finalize().unwrap_err();
        is_refused(&error, "axpy", name, "[3]");
        for word in ["shortest slice", "`range:` in `kernel!`", "bounds.rs"] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    for range in [Range::linear(3), Range::linear(2).starting_at([1]), Range::new([3, 1, 1])] {
        single(setup, axpy(2, &x, &y), range).0.finalize().unwrap();
    }
}

fn launches_beyond_a_declared_bound(setup: &Setup) {
    let x = words(setup, 24);
    let refused = |call: KernelCall, range| single(setup, call, range).0.finalize().unwrap_err();
    is_refused(&refused(count_pixels(5, &x), Range::new([5, 5])), "count_pixels", "range [5, 5]", "[5, 4]");
    is_refused(&refused(count_pixels(5, &x), Range::linear(6)), "count_pixels", "range [6]", "[5, 4]");
    // The scalar is the caller's.
    is_refused(&refused(count_pixels(0, &x), Range::linear(1)), "count_pixels", "range [1]", "[0, 24]");
    let bound = "24 in all dimensions multiplied";
    is_refused(&refused(count_cells(&x), Range::new([5, 5])), "count_cells", "range [5, 5]", bound);
    let error = refused(count_cells(&x), Range::new([4, 3, 2]).starting_at([0, 0, 1]));
    is_refused(&error, "count_cells", "range [4, 3, 2] from [0, 0, 1]", bound);
    single(setup, count_cells(&x), Range::new([4, 3, 2])).0.finalize().unwrap();
}

fn ranges_of_another_form(setup: &Setup) {
    let (x, out) = (words(setup, 24), setup.device().buffer::<u64>(4).unwrap());
    let (bytes, numbers) =
        (setup.device().buffer::<u8>(3).unwrap(), setup.device().buffer::<u64>(2).unwrap());
    let refused = |call: KernelCall, range, why: &str| {
        let error = single(setup, call, range).0.finalize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    let lengths = || lengths(&bytes, 0, &numbers, Local::new(4), &out);
    refused(count_pixels(6, &x), Range::linear(4), "an index of 2 dimensions");
    refused(lengths(), Range::linear(1), "'tile' is local memory of a work-group");
    refused(meet(&x), Range::linear(8), "a barrier for a work-group");
    single(setup, count_pixels(6, &x), Range::new([4, 1])).0.finalize().unwrap();
    single(setup, lengths(), Range::linear(1).local([1])).0.finalize().unwrap();
    let (graph, node) = single(setup, meet(&x), Range::linear(8).local([4]));
    let exec = finalize(&graph);
    if can_update(setup) {
        let update = exec.update().range(node, Range::linear(8));
        let error = setup.block_on(async { update.apply().await.unwrap_err() });
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    }
}

fn raw_kernels(setup: &Setup) {
    let x = words(setup, 3);
    let kernel = || RawKernel::new("raw").value::<u32>("factor").writes::<u32>("x");
    let by_default = kernel().host(|_, _| Ok(()));
    let declared = kernel().range_bound(|args| {
        let (factor, x) = (args.value::<u32>()?, args.slice()?);
        Ok(RangeBound::from([factor as usize * x.len()]))
    });
    let wrong = kernel().range_bound(|args| Ok(args.slice()?.len().into())).host(|_, _| Ok(()));
    let declared = declared.host(|_, _| Ok(()));
    let launch = |kernel: &std::sync::Arc<RawKernel>, range| {
        let graph = single(setup, kernel.call().value(2u32).memory::<u32>(&x), range).0;
        graph.errors().first().cloned()
    };
    is_refused(&launch(&by_default, Range::linear(4)).unwrap(), "raw", "range [4]", "[3]");
    is_refused(&launch(&declared, Range::linear(7)).unwrap(), "raw", "range [7]", "[6]");
    assert!(launch(&by_default, Range::linear(3)).is_none());
    assert!(launch(&declared, Range::linear(6)).is_none());
    let error = launch(&wrong, Range::linear(1)).unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("'factor', which is not memory"), "{error}");
}

fn updates_of_the_range_alone(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (words(setup, 3), words(setup, 3));
    let (graph, node) = single(setup, axpy(2, &x, &y), Range::linear(2));
    let exec = finalize(&graph);
    setup.block_on(async {
        for (range, name) in [(Range::linear(1 << 24), "range [16777216]"), (Range::linear(4), "range [4]")] {
            let error = exec.update().range(node, range).apply().await.unwrap_err();
            is_refused(&error, "axpy", name, "[3]");
            assert!(error.node().unwrap().contains("axpy"), "{error}");
        }
        exec.update().range(node, Range::linear(3)).apply().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn updates_of_the_memory_alone(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (words(setup, 8), words(setup, 8));
    let (graph, node) = single(setup, axpy(2, &x, &y), Range::linear(8));
    let exec = finalize(&graph);
    let shorter = || axpy(2, x.slice(..3).unwrap(), &y);
    setup.block_on(async {
        let error = exec.update().launch(node, shorter()).apply().await.unwrap_err();
        is_refused(&error, "axpy", "range [8]", "[3]");
        exec.update().launch(node, shorter()).range(node, Range::linear(3)).apply().await.unwrap();
        // Each update counts from the one before.
        let error = exec.update().range(node, Range::linear(8)).apply().await.unwrap_err();
        is_refused(&error, "axpy", "range [8]", "[3]");
        exec.update().launch(node, axpy(2, &x, &y)).range(node, Range::linear(8)).apply().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn updates_to_an_alternative(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = words(setup, 8);
    let mut graph = Graph::new(setup.device());
    let node = graph.launch(count_cells(&x), Range::new([4, 2]));
    let node = node.alternative(count_pixels(0, &x)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let error = exec.update().launch(node, count_pixels(3, &x)).apply().await.unwrap_err();
        is_refused(&error, "count_pixels", "range [4, 2]", "[3, 2]");
        exec.update().launch(node, count_pixels(4, &x)).apply().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn updates_from_another_graph(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, short) = (words(setup, 8), words(setup, 3));
    let exec = finalize(&single(setup, add(1, &x), Range::linear(8)).0);
    setup.block_on(async {
        for (call, range, bound) in
            [(add(1, &x), Range::linear(9), "[8]"), (add(1, &short), Range::linear(8), "[3]")]
        {
            let other = single(setup, call, range).0;
            let error = exec.update_from(&other).await.unwrap_err();
            is_refused(&error, "add", &range.to_string(), bound);
        }
        exec.update_from(&single(setup, add(1, &short), Range::linear(3)).0).await.unwrap();
        exec.submit().await.unwrap();
    });
}

/// Elements before and after each slice that no launch may change.
const MARGIN: usize = 64;
const MARK: u32 = 0xdead_beef;

/// A random range of 1 to 3 dimensions, sometimes in groups, sometimes from an offset.
fn random_range(random: &mut Random) -> Range {
    let size = [random.within(1..=9), random.within(1..=5), random.within(1..=3)];
    let local = size.map(|size| (1..=size).filter(|n| size % n == 0).nth(random.below(2)).unwrap_or(1));
    let grouped = random.chance(2);
    let offset = if random.chance(2) { [0; 3] } else { [(); 3].map(|()| random.below(4)) };
    let range = match random.within(1..=3) {
        1 => Range::linear(size[0]).starting_at([offset[0]]),
        2 => Range::new([size[0], size[1]]).starting_at([offset[0], offset[1]]),
        _ => Range::new(size).starting_at(offset),
    };
    match (grouped, range.dimensions()) {
        (false, _) => range,
        (true, 1) => range.local([local[0]]),
        (true, 2) => range.local([local[0], local[1]]),
        (true, _) => range.local(local),
    }
}

/// The kernels with their bounds: which ranges they allow over `len` elements, and what a work-item
/// adds 1 to.
#[derive(Clone, Copy, Debug)]
enum Counting {
    Shortest,
    Pixels(usize),
    Cells,
}

impl Counting {
    fn random(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Shortest,
            1 => Self::Pixels(random.within(1..=10)),
            _ => Self::Cells,
        }
    }

    fn call(self, x: &Buffer<u32>) -> KernelCall {
        match self {
            Self::Shortest => add(1, x),
            Self::Pixels(width) => count_pixels(width as u32, x),
            Self::Cells => count_cells(x),
        }
    }

    /// Where the work-items count, or `None` where one of them would do so beyond the slice.
    fn places(self, range: Range, len: usize) -> Option<Vec<usize>> {
        let (size, offset) = (range.global_size(), range.offset());
        let ends = [0, 1, 2].map(|d| size[d] + offset[d]);
        let is_allowed = match self {
            Self::Shortest => ends[0] <= len && ends[1] == 1 && ends[2] == 1,
            Self::Pixels(width) if range.dimensions() < 2 || width == 0 => false,
            Self::Pixels(width) => ends[0] <= width && ends[1] <= len / width && ends[2] == 1,
            Self::Cells => ends.iter().product::<usize>() <= len,
        };
        let mut places = Vec::new();
        for z in offset[2]..ends[2] {
            for y in offset[1]..ends[1] {
                for x in offset[0]..ends[0] {
                    places.push(match self {
                        Self::Shortest => x,
                        Self::Pixels(width) => y * width + x,
                        Self::Cells => (z * ends[1] + y) * ends[0] + x,
                    });
                }
            }
        }
        is_allowed.then_some(places)
    }
}

/// The contents of a buffer when each of these places inside its margins has been counted once.
fn counted(places: &[usize], len: usize) -> Vec<u32> {
    let mut all = vec![MARK; MARGIN + len + MARGIN];
    all[MARGIN..][..len].fill(0);
    places.iter().for_each(|place| all[MARGIN + place] += 1);
    all
}

fn random_ranges(setup: &Setup) {
    let (mut launched, mut refused) = (0, 0);
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let mut graph = Graph::new(setup.device());
        let (mut counts, mut outs) = (Vec::new(), Vec::new());
        for _ in 0..16 {
            let (counting, range) = (Counting::random(&mut random), random_range(&mut random));
            let len = random.within(1..=40);
            let what = format!("seed {seed}: {counting:?} over {range}, {len}");
            let buffer = setup.device().buffer_from(&counted(&[], len)).unwrap();
            let call = counting.call(&buffer.slice(MARGIN..MARGIN + len).unwrap());
            if let Some(places) = counting.places(range, len) {
                graph.launch(call, range);
                counts.push((buffer, counted(&places, len), what));
                launched += 1;
            } else {
                let error = single(setup, call, range).0.finalize().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidSize, "{what}: {error}");
                refused += 1;
            }
            // Any range is allowed where the device code compares with the length.
            let out = setup.device().buffer_from(&vec![7u64; MARGIN + len]).unwrap();
            graph.launch(indices(out.slice(..len).unwrap()), range);
            outs.push((out, range.count().min(len)));
        }
        let exec = graph.finalize().unwrap();
        setup.block_on(async {
            exec.submit().await.unwrap();
            for (buffer, expected, what) in counts {
                assert_eq!(buffer.to_vec().await.unwrap(), expected, "{what}");
            }
            for (out, written) in outs {
                assert!(out.to_vec().await.unwrap()[written..].iter().all(|&word| word == 7), "seed {seed}");
            }
        });
    }
    assert!(launched > 25 && refused > 25, "{launched} launched, {refused} refused");
}

fn random_updates(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let (mut taken, mut refused) = (0, 0);
        let dimensions = 1 + seed as usize % 3;
        let mut ranges = std::iter::repeat_with(|| random_range(&mut random));
        let ranges: Vec<_> =
            ranges.by_ref().filter(|range| range.dimensions() == dimensions).take(40).collect();
        let lens: Vec<_> = (0..40).map(|_| random.within(1..=12 * dimensions)).collect();
        let buffer = |len: usize| setup.device().buffer_from(&counted(&[], len)).unwrap();
        let slice = |buffer: &Buffer<u32>, len| buffer.slice(MARGIN..MARGIN + len).unwrap();
        let (mut counting, mut len) = (Counting::Cells, 40);
        let mut range = if dimensions == 1 { Range::linear(1) } else { Range::new([1, 1]) };
        if dimensions == 3 {
            range = Range::new([1, 1, 1]);
        }
        let mut current = buffer(len);
        let mut graph = Graph::new(setup.device());
        let node = graph.launch(counting.call(&slice(&current, len)), range);
        let node = node.alternative(add(0, &current)).alternative(count_pixels(1, &current)).id();
        let exec = finalize(&graph);
        setup.block_on(async {
            for (&new_range, &new_len) in ranges.iter().zip(&lens) {
                // Other memory, another kernel, another range, or some of these.
                let (new_memory, new_kernel) = (random.chance(2), random.chance(3));
                let (next_len, next_buffer) =
                    if new_memory { (new_len, buffer(new_len)) } else { (len, current.clone()) };
                let next_counting = if new_kernel { Counting::random(&mut random) } else { counting };
                let next_range = if random.chance(2) { new_range } else { range };
                let mut update = exec.update();
                if new_memory || new_kernel {
                    update = update.launch(node, next_counting.call(&slice(&next_buffer, next_len)));
                }
                if next_range != range {
                    update = update.range(node, next_range);
                }
                let outcome = update.apply().await;
                if next_counting.places(next_range, next_len).is_some() {
                    outcome.unwrap();
                    (counting, range, len, current) = (next_counting, next_range, next_len, next_buffer);
                    taken += 1;
                } else {
                    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidSize, "seed {seed}");
                    refused += 1;
                }
                current.write(&counted(&[], len)).await.unwrap();
                exec.submit().await.unwrap();
                let places = counting.places(range, len).unwrap();
                let found = current.to_vec().await.unwrap();
                assert_eq!(found, counted(&places, len), "seed {seed}: {counting:?} over {range}, {len}");
            }
        });
        assert!(taken > 3 && refused > 3, "seed {seed}: {taken} taken, {refused} refused");
    }
}

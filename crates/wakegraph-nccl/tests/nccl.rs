//! NCCL's collectives on GPUs: one, two and four. With fewer, or without NCCL, tests are ignored by name.
//!
//! `src/tests.rs` tests what needs no GPU, the order of the ranks above all. For one rank, NCCL makes
//! copies and launches none of its kernels.
#![expect(unsafe_code, reason = "declares device code, and sets a variable of the environment")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "prints what it has counted")]

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use half::{bf16, f16};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, Graph, Range, backend};
use wakegraph_nccl::{Communicator, Element, Reduction};

wakegraph::kernel! {
    /// x = x + by
    fn add(by: f32, x: &mut [f32]) {
        range: |_, x| x.len(),
        // SAFETY: a work-item uses the element with its index, which the range bounds.
        c: unsafe { "KERNEL(add, (float by, SLICE(float, x))) { x[GLOBAL_ID(0)] += by; }" },
    }
}

/// A test, with the device of each rank.
type Test = (&'static str, &'static [usize], fn(&[Device]));

const ONE: &[usize] = &[0];
const TWO: &[usize] = &[0, 1];
const FOUR: &[usize] = &[0, 1, 2, 3];
/// Two ranks on one GPU, which NCCL 2.30 allows as an experiment.
const SHARED: &[usize] = &[0, 0];

const TESTS: &[Test] = &[
    ("every_collective_and_type_on_one_device", ONE, every_collective_and_type),
    ("every_collective_and_type_on_two_devices", TWO, every_collective_and_type),
    ("every_collective_and_type_on_four_devices", FOUR, every_collective_and_type),
    ("every_collective_and_type_of_two_ranks_on_one_device", SHARED, every_collective_and_type),
    ("a_thousand_submissions_in_flight_on_one_device", ONE, a_thousand_submissions_in_flight),
    ("a_thousand_submissions_in_flight_on_two_devices", TWO, a_thousand_submissions_in_flight),
    ("a_thousand_submissions_in_flight_on_four_devices", FOUR, a_thousand_submissions_in_flight),
    ("a_thousand_submissions_in_flight_of_two_ranks_on_one_device", SHARED, a_thousand_submissions_in_flight),
    ("submissions_beside_calls_that_wait_for_devices_on_one_device", ONE, beside_calls_that_wait),
    ("submissions_beside_calls_that_wait_for_devices_on_two_devices", TWO, beside_calls_that_wait),
    ("submissions_beside_calls_that_wait_for_devices_on_four_devices", FOUR, beside_calls_that_wait),
    ("graphs_in_random_order_on_one_device", ONE, |devices| graphs_in_random_order(devices, 300)),
    ("graphs_in_random_order_on_two_devices", TWO, |devices| graphs_in_random_order(devices, 10_000)),
    ("graphs_in_random_order_on_four_devices", FOUR, |devices| graphs_in_random_order(devices, 10_000)),
    ("graphs_in_random_order_of_two_ranks_on_one_device", SHARED, |devices| {
        graphs_in_random_order(devices, 300)
    }),
    ("executables_keep_their_communicator", ONE, executables_keep_their_communicator),
    ("executables_keep_their_communicator_on_two_devices", TWO, executables_keep_their_communicator),
    (
        "executables_keep_their_communicator_of_two_ranks_on_one_device",
        SHARED,
        executables_keep_their_communicator,
    ),
    ("a_wrong_length_is_an_error_of_the_node", ONE, a_wrong_length_is_an_error_of_the_node),
    ("parts_of_one_buffer_are_used_in_place", ONE, parts_of_one_buffer_are_used_in_place),
    ("parts_of_one_buffer_are_used_in_place_on_two_devices", TWO, parts_of_one_buffer_are_used_in_place),
    (
        "parts_of_one_buffer_are_used_in_place_of_two_ranks_on_one_device",
        SHARED,
        parts_of_one_buffer_are_used_in_place,
    ),
];

fn main() -> ExitCode {
    let variables =
        [("NCCL_NVLS_ENABLE", "0"), ("NCCL_GRAPH_MIXING_SUPPORT", "0"), ("NCCL_MULTI_RANK_GPU_ENABLE", "1")];
    for (name, value) in variables {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread has been started.
            unsafe { std::env::set_var(name, value) };
        }
    }
    let there = backend::by_name("cuda").and_then(|cuda| cuda.device_count());
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default().contains("nccl");
    let trials = TESTS.iter().map(|&(name, ranks, test)| {
        let there = there.clone();
        Trial::ignorable_test(name, move || {
            let needed = ranks.iter().max().map_or(0, |last| last + 1);
            match there {
                Ok(count) if count < needed => {
                    return Ok(Completion::ignored_with(format!(
                        "needs {needed} devices, and there are {count}"
                    )));
                }
                Ok(_) => {}
                Err(error) if required => return Err(Failed::from(error)),
                Err(error) => return Ok(Completion::ignored_with(error)),
            }
            let open = |&index: &usize| Device::open(&format!("cuda:{index}")).unwrap();
            let devices: Vec<_> = ranks.iter().map(open).collect();
            match Communicator::new(&devices) {
                Err(error) if !required || ranks == SHARED => Ok(Completion::ignored_with(error)),
                Err(error) => Err(Failed::from(error)),
                Ok(_) => {
                    test(&devices);
                    Ok(Completion::Completed)
                }
            }
        })
    });
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn run(exec: &ExecutableGraph) {
    Runtime::new().unwrap().block_on(exec.submit()).unwrap();
}

fn read<T: Element>(buffer: &Buffer<T>) -> Vec<T> {
    Runtime::new().unwrap().block_on(buffer.to_vec()).unwrap()
}

/// Elements that represent small numbers exactly, and how the average of integers is rounded.
trait Sample: Element + PartialEq + Debug {
    fn of(number: f64) -> Self;
}

macro_rules! samples {
    ($($number:ty: |$value:ident| $of:expr;)+) => {$(
        impl Sample for $number {
            fn of($value: f64) -> Self {
                $of
            }
        }
    )+};
}

samples! {
    i8: |value| value as Self;
    u8: |value| value as Self;
    i32: |value| value as Self;
    u32: |value| value as Self;
    i64: |value| value as Self;
    u64: |value| value as Self;
    f16: |value| Self::from_f64(value);
    f32: |value| value as Self;
    f64: |value| value;
    bf16: |value| Self::from_f64(value);
}

fn every_collective_and_type(devices: &[Device]) {
    let nccl = Communicator::new(devices).unwrap();
    for len in [1, 7, 1000, 65_537] {
        every_collective::<i8>(&nccl, len);
        every_collective::<u8>(&nccl, len);
        every_collective::<i32>(&nccl, len);
        every_collective::<u32>(&nccl, len);
        every_collective::<i64>(&nccl, len);
        every_collective::<u64>(&nccl, len);
        every_collective::<f16>(&nccl, len);
        every_collective::<f32>(&nccl, len);
        every_collective::<f64>(&nccl, len);
        every_collective::<bf16>(&nccl, len);
    }
}

/// The number that a rank has at an index.
fn number(rank: usize, index: usize) -> f64 {
    ((rank + index) % 3 + 1) as f64
}

fn reduced(by: Reduction, ranks: usize, index: usize) -> f64 {
    let numbers = (0..ranks).map(|rank| number(rank, index));
    match by {
        Reduction::Sum => numbers.sum(),
        Reduction::Product => numbers.product(),
        Reduction::Max => numbers.fold(0.0, f64::max),
        Reduction::Min => numbers.fold(f64::MAX, f64::min),
        Reduction::Average => numbers.sum::<f64>() / ranks as f64,
        _ => unreachable!("no such reduction"),
    }
}

const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Product, Reduction::Max, Reduction::Min, Reduction::Average];

/// One graph of all collectives: `len` elements of each rank, or of each part.
fn every_collective<T: Sample>(nccl: &Communicator, len: usize) {
    let devices = nccl.devices();
    let ranks = devices.len();
    let filled = |len: usize| -> Vec<Buffer<T>> {
        let of = |rank| (0..len).map(|index| T::of(number(rank, index))).collect::<Vec<_>>();
        devices.iter().enumerate().map(|(rank, device)| device.buffer_from(&of(rank)).unwrap()).collect()
    };
    let empty =
        |len| -> Vec<Buffer<T>> { devices.iter().map(|device| device.buffer(len).unwrap()).collect() };
    let (parts, wholes) = (filled(len), filled(len * ranks));
    let mut graph = Graph::new(&devices[0]);
    // The contents that each output of each collective should have.
    let mut expected: Vec<(String, Buffer<T>, Vec<T>)> = Vec::new();
    let mut expect = |what: String, outputs: Vec<Buffer<T>>, at: &dyn Fn(usize, usize) -> f64| {
        for (rank, output) in outputs.into_iter().enumerate() {
            let values = (0..output.len()).map(|index| T::of(at(rank, index))).collect();
            expected.push((
                format!("{what} of {len} {} at {rank}", std::any::type_name::<T>()),
                output,
                values,
            ));
        }
    };
    for by in REDUCTIONS {
        let outputs = empty(len);
        nccl.all_reduce(&mut graph, by, &parts, &outputs);
        expect(format!("all-reduce {by:?}"), outputs, &|_, index| reduced(by, ranks, index));
        let outputs = empty(len);
        nccl.reduce_scatter(&mut graph, by, &wholes, &outputs);
        let at = |rank, index| reduced(by, ranks, rank * len + index);
        expect(format!("reduce-scatter {by:?}"), outputs, &at);
    }
    let outputs = empty(len * ranks);
    nccl.all_gather(&mut graph, &parts, &outputs);
    expect("all-gather".into(), outputs, &|_, index| number(index / len, index % len));
    for (root, part) in parts.iter().enumerate() {
        let outputs = empty(len);
        nccl.broadcast(&mut graph, root, part, &outputs);
        expect(format!("broadcast from {root}"), outputs, &|_, index| number(root, index));
    }
    run(&graph.finalize().unwrap());
    for (what, output, values) in expected {
        let found = read(&output);
        let wrong = (0..values.len()).find(|&index| found[index] != values[index]);
        assert!(
            wrong.is_none(),
            "{what}: {:?} at {wrong:?}",
            wrong.map(|index| (&found[index], &values[index]))
        );
    }
}

/// Communicators of the devices in both directions, each with the place of its ranks among the devices.
fn both_ways(devices: &[Device]) -> [(Communicator, Vec<usize>); 2] {
    let forth: Vec<_> = (0..devices.len()).collect();
    let back = forth.iter().rev().copied().collect();
    [forth, back].map(|order| {
        let ranks: Vec<_> = order.iter().map(|&place| devices[place].clone()).collect();
        (Communicator::new(&ranks).unwrap(), order)
    })
}

/// Each submission adds to the numbers of each rank, and makes them equal to their average.
fn a_thousand_submissions_in_flight(devices: &[Device]) {
    let communicators = both_ways(devices);
    let x: Vec<Buffer<f32>> =
        devices.iter().map(|device| device.buffer_from(&[0.0; 4099]).unwrap()).collect();
    let execs = communicators.map(|(nccl, order)| {
        let mut graph = Graph::new(&devices[0]);
        for (place, x) in x.iter().enumerate() {
            graph.launch(add((2 * place + 1) as f32, x), Range::linear(x.len()));
        }
        let x: Vec<_> = order.iter().map(|&place| &x[place]).collect();
        nccl.all_reduce(&mut graph, Reduction::Average, &x, &x);
        graph.finalize().unwrap()
    });
    let submissions: Vec<_> = (0..500).flat_map(|_| execs.iter().map(ExecutableGraph::submit)).collect();
    Runtime::new().unwrap().block_on(futures::future::try_join_all(submissions)).unwrap();
    // The mean of 1, 3, 5 .. is the number of ranks.
    for x in &x {
        assert_eq!(read(x), [1000.0 * devices.len() as f32; 4099]);
    }
}

/// Sets the flag when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// 1,000 submissions, while another thread makes and drops communicators and memory, and trims the devices:
/// NCCL and the driver wait for whole devices then, as they might in the middle of a launch.
fn beside_calls_that_wait(devices: &[Device]) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                let nccl = Communicator::new(devices).unwrap();
                let x: Vec<Buffer<f32>> =
                    devices.iter().map(|device| device.buffer(1 << 20).unwrap()).collect();
                let mut graph = Graph::new(&devices[0]);
                nccl.all_reduce(&mut graph, Reduction::Sum, &x, &x);
                run(&graph.finalize().unwrap());
                drop((graph, x, nccl));
                devices.iter().for_each(|device| device.trim().unwrap());
                rounds += 1;
            }
            rounds
        });
        let over = Over(&is_over);
        a_thousand_submissions_in_flight(devices);
        drop(over);
        println!("{} rounds of calls that wait", waits.join().unwrap());
    });
}

/// Graphs of a few collectives of two communicators, made in random order, of which several are in flight.
fn graphs_in_random_order(devices: &[Device], graphs: usize) {
    const LEN: usize = 129;
    let (count, communicators) = (devices.len(), both_ways(devices));
    let memory: Vec<Vec<Buffer<i32>>> =
        (0..3).map(|_| devices.iter().map(|device| device.buffer(LEN).unwrap()).collect()).collect();
    // The numbers that each rank's buffers should have.
    let mut model = vec![vec![0; count]; memory.len()];
    let mut state = 1_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % below
    };
    let runtime = Runtime::new().unwrap();
    for round in 0..graphs.div_ceil(20) {
        let mut submissions = Vec::new();
        for _ in 0..20 {
            let mut graph = Graph::new(&devices[random(count)]);
            for _ in 0..4 {
                let (from, to, (nccl, order)) = (random(3), random(3), &communicators[random(2)]);
                let pick = |of: usize| order.iter().map(|&place| &memory[of][place]).collect::<Vec<_>>();
                match random(3) {
                    0 => {
                        let (rank, value) = (random(count), random(100) as i32);
                        graph.fill(&memory[to][rank], value);
                        model[to][rank] = value;
                    }
                    1 => {
                        let root = random(count);
                        nccl.broadcast(&mut graph, root, pick(from)[root], &pick(to));
                        model[to] = vec![model[from][order[root]]; count];
                    }
                    _ => {
                        nccl.all_reduce(&mut graph, Reduction::Max, &pick(from), &pick(to));
                        model[to] = vec![*model[from].iter().max().unwrap(); count];
                    }
                }
            }
            submissions.push(graph.finalize().unwrap().submit());
        }
        runtime.block_on(futures::future::try_join_all(submissions)).unwrap();
        for (of, model) in memory.iter().zip(&model) {
            for (buffer, &value) in of.iter().zip(model) {
                assert_eq!(read(buffer), [value; LEN], "round {round}");
            }
        }
    }
}

fn executables_keep_their_communicator(devices: &[Device]) {
    for _ in 0..5 {
        let nccl = Communicator::new(devices).unwrap();
        let x: Vec<_> = devices.iter().map(|device| device.buffer_from(&[3.0f32; 10]).unwrap()).collect();
        let y: Vec<_> = devices.iter().map(|device| device.buffer(10).unwrap()).collect();
        let mut graph = Graph::new(&devices[0]);
        nccl.all_reduce(&mut graph, Reduction::Max, &x, &y);
        let exec = graph.finalize().unwrap();
        drop((graph, nccl));
        let submission = exec.submit();
        drop(exec);
        Runtime::new().unwrap().block_on(submission).unwrap();
        y.iter().for_each(|y| assert_eq!(read(y), [3.0; 10]));
    }
}

fn a_wrong_length_is_an_error_of_the_node(devices: &[Device]) {
    let nccl = Communicator::new(devices).unwrap();
    let (x, y) = (devices[0].buffer::<f32>(4).unwrap(), devices[0].buffer(5).unwrap());
    let mut graph = Graph::new(&devices[0]);
    nccl.all_reduce(&mut graph, Reduction::Sum, &[&x], &[&y]).name("gradients");
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let text = error.to_string();
    for expected in ["gradients", "output 0 of all-reduce (cuda:0) has 5 elements, and needs 4"] {
        assert!(text.contains(expected), "{text}");
    }
    // An overlap that is not in place.
    let (x, y) = (y.slice(..4).unwrap(), y.slice(1..).unwrap());
    let mut graph = Graph::new(&devices[0]);
    nccl.all_reduce(&mut graph, Reduction::Sum, &[&x], &[&y]);
    let text = graph.finalize().unwrap_err().to_string();
    assert!(text.contains("the output of rank 0 overlaps with an input"), "{text}");
}

fn parts_of_one_buffer_are_used_in_place(devices: &[Device]) {
    let count = devices.len();
    let nccl = Communicator::new(devices).unwrap();
    let start: Vec<i32> = (0..10 * count as i32).collect();
    let wholes: Vec<_> = devices.iter().map(|device| device.buffer_from(&start).unwrap()).collect();
    let part = |(rank, whole): (usize, &Buffer<i32>)| whole.slice(10 * rank..10 * (rank + 1)).unwrap();
    let parts: Vec<_> = wholes.iter().enumerate().map(part).collect();
    let mut graph = Graph::new(&devices[0]);
    nccl.reduce_scatter(&mut graph, Reduction::Sum, &wholes, &parts);
    nccl.all_gather(&mut graph, &parts, &wholes);
    run(&graph.finalize().unwrap());
    let expected: Vec<i32> = start.iter().map(|number| number * count as i32).collect();
    wholes.iter().for_each(|whole| assert_eq!(read(whole), expected));
}

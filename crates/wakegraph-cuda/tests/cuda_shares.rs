//! Devices with a share of a GPU's multiprocessors: a kernel asks on which one it runs. Without a device, or
//! with a driver that has no shares, the tests are ignored by name.
#![expect(unsafe_code, reason = "declares device code, and launches kernels of cudarc")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "prints what it has counted")]

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, sys};
use cudarc::nvrtc::Ptx;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::backend::cuda::capture_graph;
use wakegraph::dlpack::DlpackTensor;
use wakegraph::hal::NativeStream;
use wakegraph::interop::NativeAccess;
use wakegraph::{Buffer, Device, Error, ErrorKind, FinalizeOptions, Graph, Range, kernel};

kernel! {
    /// Counts the work-groups of each multiprocessor, and keeps the multiprocessor for so many cycles.
    fn count(cycles: u32, counts: &mut [u32]) {
        range: |_, counts| if counts.len() < MOST { 0 } else { usize::MAX },
        // SAFETY: there are fewer multiprocessors than elements, which work-items change atomically.
        ptx: unsafe { include_str!("multiprocessor.ptx") },
    }
}

kernel! {
    /// x = n * x + 1
    fn step(n: u32, x: &mut [u32]) {
        range: |_, x| x.len(),
        // SAFETY: a work-item uses the element with its index, which the range bounds.
        c: unsafe { "KERNEL(step, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] = n * x[GLOBAL_ID(0)] + 1; }" },
    }
}

/// More than any GPU has multiprocessors.
const MOST: usize = 1024;
/// Work-groups of a launch: enough to keep all multiprocessors busy for some rounds.
const GROUPS: usize = 8192;
const CYCLES: u32 = 20_000;
const UNITS: usize = 16;

const TESTS: &[(&str, fn())] = &[
    ("every_launch_keeps_to_the_share", every_launch_keeps_to_the_share),
    ("the_applications_own_streams_are_not_confined", the_applications_own_streams_are_not_confined),
    ("a_rest_is_divided_again_or_refuses", a_rest_is_divided_again_or_refuses),
    ("memory_is_the_devices", memory_is_the_devices),
    ("tensors_are_the_devices", tensors_are_the_devices),
    ("several_threads_use_a_share", several_threads_use_a_share),
    ("shares_come_and_go", shares_come_and_go),
    ("impossible_shares_are_refused", impossible_shares_are_refused),
];

fn main() -> ExitCode {
    let there = Device::open("cuda:0").and_then(|device| device.share(UNITS)).map(|_| ());
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default().contains("cuda");
    let trials = TESTS.iter().map(|&(name, test)| {
        let there = there.clone();
        Trial::ignorable_test(name, move || match there {
            Err(error) if required && !error.message().contains("cuDeviceGetDevResource") => {
                Err(Failed::from(format!("WAKEGRAPH_REQUIRE asks for this backend: {error}")))
            }
            Err(error) => Ok(Completion::ignored_with(error)),
            Ok(()) => {
                test();
                Ok(Completion::Completed)
            }
        })
    });
    // One at a time: each keeps the device busy.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn range() -> Range {
    Range::linear(GROUPS).local([1])
}

fn run(graph: &Graph) {
    block_on(graph.finalize().unwrap().submit()).unwrap();
}

/// The multiprocessors on which `launch` has its kernels run.
fn used(device: &Device, launch: impl FnOnce(&Buffer<u32>)) -> BTreeSet<usize> {
    let counts = device.buffer::<u32>(MOST).unwrap();
    launch(&counts);
    let counts = block_on(counts.to_vec()).unwrap();
    assert!(counts.iter().sum::<u32>() as usize >= GROUPS, "all work-groups have run");
    (0..MOST).filter(|&index| counts[index] > 0).collect()
}

/// The kernel as an application has it that knows nothing of shares, in the primary context.
fn foreign_kernel() -> (Arc<CudaContext>, CudaFunction) {
    let context = CudaContext::new(0).unwrap();
    let module = context.load_module(Ptx::from_src(include_str!("multiprocessor.ptx"))).unwrap();
    (context, module.load_function("count").unwrap())
}

/// A function that closures may take along.
#[derive(Clone, Copy)]
struct Foreign(sys::CUfunction);
// SAFETY: any thread may launch a function.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Enqueues the kernel on a stream.
    fn launch(self, stream: sys::CUstream, mut counts: u64) -> wakegraph::Result<()> {
        let mut cycles = CYCLES;
        let mut args = [(&raw mut cycles).cast(), (&raw mut counts).cast()];
        let (groups, args) = (GROUPS as u32, args.as_mut_ptr());
        // SAFETY: the arguments are the kernel's, the stream is alive, and the function is loaded.
        let code =
            unsafe { sys::cuLaunchKernel(self.0, groups, 1, 1, 1, 1, 1, 0, stream, args, ptr::null_mut()) };
        check(code)
    }
}

fn check(code: sys::CUresult) -> wakegraph::Result<()> {
    code.result().map_err(|error| Error::new(ErrorKind::Driver, "a call failed").caused_by(error))
}

/// A stream of the primary context, and an event, until the process ends.
#[derive(Clone, Copy)]
struct Branch {
    stream: sys::CUstream,
    event: sys::CUevent,
}
// SAFETY: any thread may use both.
unsafe impl Send for Branch {}
// SAFETY: as above.
unsafe impl Sync for Branch {}

impl Branch {
    fn new(context: &CudaContext) -> Self {
        context.bind_to_thread().unwrap();
        let mut branch = Self { stream: ptr::null_mut(), event: ptr::null_mut() };
        // SAFETY: the place is a pointer's; 1 is a stream that waits for no other.
        check(unsafe { sys::cuStreamCreate(&raw mut branch.stream, 1) }).unwrap();
        // SAFETY: the place is a pointer's; 2 is an event without times.
        check(unsafe { sys::cuEventCreate(&raw mut branch.event, 2) }).unwrap();
        branch
    }

    /// Has `second` wait for what is on `first`.
    fn order(self, first: sys::CUstream, second: sys::CUstream) -> wakegraph::Result<()> {
        // SAFETY: both are alive.
        check(unsafe { sys::cuEventRecord(self.event, first) })?;
        // SAFETY: as above.
        check(unsafe { sys::cuStreamWaitEvent(second, self.event, 0) })
    }

    /// A graph of what `enqueue` enqueues on the stream.
    fn capture(self, enqueue: impl FnOnce(sys::CUstream) -> wakegraph::Result<()>) -> TheirGraph {
        let (relaxed, mut graph) =
            (sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED, ptr::null_mut());
        // SAFETY: the stream is alive.
        check(unsafe { sys::cuStreamBeginCapture_v2(self.stream, relaxed) }).unwrap();
        enqueue(self.stream).unwrap();
        // SAFETY: as above; the place is a pointer's.
        check(unsafe { sys::cuStreamEndCapture(self.stream, &raw mut graph) }).unwrap();
        TheirGraph(graph)
    }
}

/// A graph of the application, until the process ends.
#[derive(Clone, Copy)]
struct TheirGraph(sys::CUgraph);
// SAFETY: one thread at a time uses it: the one that finalizes.
unsafe impl Send for TheirGraph {}
// SAFETY: as above.
unsafe impl Sync for TheirGraph {}

impl TheirGraph {
    fn add_to(self, lent: &NativeStream<'_>) -> wakegraph::Result<()> {
        // SAFETY: the graph is alive.
        unsafe { capture_graph(lent, self.0.cast()) }
    }
}

/// Each way to launch a kernel, with the multiprocessors that it used.
fn ways(device: &Device) -> Vec<(&'static str, BTreeSet<usize>)> {
    let (_context, function) = foreign_kernel();
    // The function lives until the end of this call, after all runs.
    let foreign = Foreign(function.cu_function());
    let mut ways = Vec::new();
    let mut way = |name, launch: &dyn Fn(&Buffer<u32>)| {
        let used = used(device, launch);
        println!("SHARE {}: {name}: {} multiprocessors", device.selector(), used.len());
        ways.push((name, used));
    };
    way("graph", &|counts| {
        let mut graph = Graph::new(device);
        graph.launch(count(CYCLES, counts), range());
        graph.launch(count(CYCLES, counts), range());
        run(&graph);
    });
    way("updated graph", &|counts| {
        let unused = device.buffer::<u32>(MOST).unwrap();
        let of = |counts| {
            let mut graph = Graph::new(device);
            graph.launch(count(CYCLES, counts), range());
            graph.launch(count(CYCLES, counts), range());
            graph
        };
        let exec = of(&unused).finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        block_on(async {
            exec.submit().await.unwrap();
            exec.update_from(&of(counts)).await.unwrap();
            exec.submit().await.unwrap();
        });
    });
    way("single command", &|counts| {
        let queue = device.queue().unwrap();
        block_on(async { queue.launch(count(CYCLES, counts), range()).await }).unwrap();
    });
    way("native command", &|counts| {
        let mut graph = Graph::new(device);
        let accesses = [NativeAccess::write(counts)];
        // SAFETY: the kernel changes what is declared, on the stream that is lent.
        unsafe {
            graph.native("theirs", accesses, move |lent, [counts]| {
                foreign.launch(lent.stream().cast(), counts.address() as u64)
            })
        };
        run(&graph);
    });
    way("stream task", &|counts| {
        let mut graph = Graph::new(device);
        let accesses = [NativeAccess::write(counts)];
        // SAFETY: as above.
        unsafe {
            graph.stream_task("theirs", accesses, move |lent, [counts]| {
                foreign.launch(lent.stream().cast(), counts.address().unwrap_or(0) as u64)
            })
        };
        run(&graph);
    });
    way("loop", &|counts| {
        let flag = device.buffer_from(&[1_u32]).unwrap();
        let mut body = Graph::new(device);
        body.launch(count(CYCLES, counts), range());
        body.fill(&flag, 0_u32);
        let mut graph = Graph::new(device);
        graph.while_nonzero(&flag, &body);
        run(&graph);
    });
    ways
}

fn every_launch_keeps_to_the_share() {
    let device = Device::open("cuda:0").unwrap();
    let (share, rest) = device.share(UNITS).unwrap();
    let units = |device: &Device| device.info().compute_units;
    assert!(units(&share) >= UNITS && units(&share) + units(&rest) <= units(&device));
    let [_, of_share, of_rest] = [&device, &share, &rest].map(ways);
    let ours: BTreeSet<_> = of_share.iter().flat_map(|(_, used)| used).collect();
    let others: BTreeSet<_> = of_rest.iter().flat_map(|(_, used)| used).collect();
    assert_eq!(ours.len(), units(&share), "{of_share:?}");
    assert_eq!(others.len(), units(&rest), "{of_rest:?}");
    assert!(ours.is_disjoint(&others), "{ours:?} and {others:?}");
}

/// The driver confines neither work on streams of the primary context, nor what was captured there.
fn the_applications_own_streams_are_not_confined() {
    let (share, _rest) = Device::open("cuda:0").unwrap().share(UNITS).unwrap();
    let (context, function) = foreign_kernel();
    let (foreign, branch) = (Foreign(function.cu_function()), Branch::new(&context));
    let on_a_branch = used(&share, |counts| {
        let mut graph = Graph::new(&share);
        let accesses = [NativeAccess::write(counts)];
        // SAFETY: the kernel changes what is declared, between the work on the stream that is lent.
        unsafe {
            graph.native("theirs", accesses, move |lent, [counts]| {
                branch.order(lent.stream().cast(), branch.stream)?;
                foreign.launch(branch.stream, counts.address() as u64)?;
                branch.order(branch.stream, lent.stream().cast())
            })
        };
        run(&graph);
    });
    let captured = used(&share, |counts| {
        let address = counts.address().unwrap() as u64;
        let theirs = branch.capture(|stream| foreign.launch(stream, address));
        let mut graph = Graph::new(&share);
        let accesses = [NativeAccess::write(counts)];
        // SAFETY: the kernel changes what is declared; the graph is never destroyed.
        unsafe { graph.native("theirs", accesses, move |lent, [_]| theirs.add_to(lent)) };
        run(&graph);
    });
    for (name, used) in [("a stream of its own", on_a_branch), ("a captured graph", captured)] {
        println!("SHARE {}: {name}: {} multiprocessors", share.selector(), used.len());
        assert!(used.len() > share.info().compute_units, "{name} is confined");
    }
}

fn a_rest_is_divided_again_or_refuses() {
    let device = Device::open("cuda:0").unwrap();
    let (first, rest) = device.share(UNITS).unwrap();
    let (second, third) = match rest.share(UNITS) {
        Ok(parts) => parts,
        // As driver 580 does.
        Err(error) => return assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}"),
    };
    let used = [&first, &second, &third].map(|device| {
        used(device, |counts| {
            let mut graph = Graph::new(device);
            graph.launch(count(CYCLES, counts), range());
            run(&graph);
        })
    });
    let units = [&first, &second, &third].map(|device| device.info().compute_units);
    assert_eq!(used.each_ref().map(BTreeSet::len), units);
    assert_eq!(used.iter().flatten().collect::<BTreeSet<_>>().len(), units.iter().sum());
}

const LEN: usize = 10_000;

/// Kernels of each device use memory of the others, and the devices wait for each other.
fn memory_is_the_devices() {
    let device = Device::open("cuda:0").unwrap();
    let (share, rest) = device.share(UNITS).unwrap();
    let x = device.buffer_from(&[1_u32; LEN]).unwrap();
    let [y, z] = [&share, &rest].map(|device| device.buffer::<u32>(LEN).unwrap());
    let mut graph = Graph::new(&device);
    let mut expected = 1_u32;
    for n in 0..20 {
        for on in [&share, &device, &rest] {
            graph.launch(step(n, &x), Range::linear(LEN)).on(on);
            expected = n.wrapping_mul(expected).wrapping_add(1);
        }
        graph.copy(&x, &y);
        graph.copy(&y, &z);
        graph.copy(&z, &x);
    }
    let exec = graph.finalize().unwrap();
    block_on(async {
        exec.submit().await.unwrap();
        for memory in [&x, &y, &z] {
            assert_eq!(memory.to_vec().await.unwrap(), [expected; LEN]);
        }
    });
}

/// Their tensors are those of the GPU.
fn tensors_are_the_devices() {
    let device = Device::open("cuda:0").unwrap();
    let (share, rest) = device.share(UNITS).unwrap();
    let x = device.buffer_from(&[1_u32; LEN]).unwrap();
    let (mut expected, mut latest) = (1_u32, x.clone());
    for (n, on) in [&share, &rest, &device].into_iter().enumerate() {
        let tensor: DlpackTensor = latest.to_dlpack(&[LEN]).unwrap();
        // SAFETY: the buffers of the same memory are used one after the other.
        latest = unsafe { on.import_dlpack(tensor) }.unwrap();
        let mut graph = Graph::new(on);
        graph.launch(step(n as u32, &latest), Range::linear(LEN));
        run(&graph);
        expected = (n as u32).wrapping_mul(expected).wrapping_add(1);
    }
    assert_eq!(block_on(x.to_vec()).unwrap(), [expected; LEN]);
}

/// Kernels are loaded, and graphs of all kinds of nodes are made and submitted, by several threads at once.
fn several_threads_use_a_share() {
    let (share, rest) = Device::open("cuda:0").unwrap().share(UNITS).unwrap();
    let work = |device: &Device, seed: u32| {
        let x = device.buffer_from(&[seed; LEN]).unwrap();
        let [y, flag] = [LEN, 1].map(|len| device.buffer::<u32>(len).unwrap());
        for n in 0..50 {
            let mut body = Graph::new(device);
            body.launch(step(n + 1, &x), Range::linear(LEN));
            body.fill(&flag, 0_u32);
            let mut graph = Graph::new(device);
            graph.launch(step(n, &x), Range::linear(LEN));
            graph.copy(&x, &y);
            graph.fill(&x, 0_u32);
            graph.copy(&y, &x);
            graph.fill(&flag, 1_u32);
            graph.while_nonzero(&flag, &body);
            run(&graph);
        }
        let expected = (0..50).fold(seed, |x: u32, n: u32| {
            n.wrapping_mul(x).wrapping_add(1).wrapping_mul(n + 1).wrapping_add(1)
        });
        assert_eq!(block_on(x.to_vec()).unwrap(), [expected; LEN]);
    };
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let device = if seed % 2 == 0 { &share } else { &rest };
            scope.spawn(move || work(device, seed));
        }
    });
}

/// Shares are dropped while their work is in flight; others get the multiprocessors, and no more memory.
fn shares_come_and_go() {
    let device = Device::open("cuda:0").unwrap();
    let (x, counts) = (device.buffer::<u32>(LEN).unwrap(), device.buffer::<u32>(MOST).unwrap());
    let come_and_go = || {
        let (share, rest) = device.share(UNITS).unwrap();
        let submissions: Vec<_> = [&share, &rest]
            .into_iter()
            .map(|part| {
                let mut graph = Graph::new(part);
                graph.launch(count(10 * CYCLES, &counts), range());
                graph.launch(step(1, &x), Range::linear(LEN));
                graph.finalize().unwrap().submit()
            })
            .collect();
        drop((share, rest));
        block_on(async {
            for submission in submissions {
                submission.await.unwrap();
            }
        });
    };
    let context = CudaContext::new(0).unwrap();
    let free_after_rounds = || {
        (0..25).for_each(|_| come_and_go());
        context.mem_get_info().unwrap().0
    };
    let [before, after] = [(); 2].map(|()| free_after_rounds());
    println!("SHARES: {before} bytes are free after 25 rounds, and {after} after 50");
    // The driver keeps 4 MiB for each green context: 200 MiB for 25 rounds.
    assert!(after + (64 << 20) > before);
    assert_eq!(block_on(x.to_vec()).unwrap(), [100; LEN]);
}

fn impossible_shares_are_refused() {
    let device = Device::open("cuda:0").unwrap();
    let units = device.info().compute_units;
    for none in [0, units, usize::MAX] {
        assert_eq!(device.share(none).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    // The driver rounds up, and nothing would be left.
    if let Err(error) = device.share(units - 1) {
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
        println!("SHARE of {} of {units}: {error}", units - 1);
    }
}

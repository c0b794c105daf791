//! What concerns all CUDA devices of a process, so that each test runs in a process of its own.
//!
//! A kernel that goes beyond its arguments ends everything on CUDA devices, and nothing else: every
//! pending submission fails, the process lives, and what the driver makes of the devices afterwards
//! is an error that says so.
//!
//! While any thread captures a stream, as PyTorch does, the driver refuses calls of all threads
//! that it holds to be unsafe, and invalidates the capture.
#![expect(unsafe_code, reason = "declares device code, breaks its promise on purpose, and calls the driver")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, ExitCode};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cudarc::driver::sys::{self, CUresult};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, Graph, Range, Submission, backend, kernel};

kernel! {
    /// Is busy for some milliseconds, then writes to an address without memory.
    fn stray(address: u64, x: &mut [u32]) {
        // SAFETY: not safe. The device that runs it is lost, which is what the test is about; no
        // memory is touched.
        c: unsafe { "KERNEL(stray, (u64 address, SLICE(u32, x))) {
                         for (u32 i = 0; i < 20000; i++) ATOMIC_ADD(&x[0], i);
                         *(GLOBAL u32 *)address = 1;
                     }" },
    }
    fn add(n: u32, x: &mut [u32]) {
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice's length.
        c: unsafe { "KERNEL(add, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += n; }" },
    }
}

/// A test, and how many devices it needs.
type Test = (&'static str, usize, fn());

const TESTS: &[Test] = &[
    ("a_fault_fails_everything_pending_and_nothing_else", 1, || run(everything_pending(open(0)))),
    ("a_fault_among_several_nodes_lists_them", 1, || run(several_nodes(open(0)))),
    ("submissions_and_captures_do_not_disturb_each_other", 1, || run(beside_captures(open(0)))),
    ("nothing_waits_for_ever_for_a_lost_device", 2, || run(dependents([open(0), open(1)]))),
    ("what_another_device_does_meanwhile_ends", 2, || run(independent([open(0), open(1)]))),
];

/// Which test this process is for.
const CHOICE: &str = "WAKEGRAPH_FAULT";

fn main() -> ExitCode {
    if let Ok(chosen) = std::env::var(CHOICE) {
        let (_, _, test) = TESTS.iter().find(|(name, ..)| *name == chosen).unwrap();
        test();
        return ExitCode::SUCCESS;
    }
    let there = backend::by_name("cuda").and_then(|cuda| cuda.device_count());
    let trials = TESTS.iter().map(|&(name, needed, _)| {
        let there = there.clone();
        Trial::ignorable_test(name, move || in_its_own_process(name, needed, there))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn in_its_own_process(
    name: &str,
    needed: usize,
    there: wakegraph::Result<usize>,
) -> Result<Completion, Failed> {
    match there {
        Err(error) if std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default().contains("cuda") => {
            return Err(format!("WAKEGRAPH_REQUIRE asks for this backend: {error}").into());
        }
        Err(error) => return Ok(Completion::ignored_with(error)),
        Ok(count) if count < needed => {
            return Ok(Completion::ignored_with(format!("needs {needed} devices, and there are {count}")));
        }
        Ok(_) => {}
    }
    let process = Command::new(std::env::current_exe()?).env(CHOICE, name).output()?;
    if process.status.success() {
        return Ok(Completion::Completed);
    }
    Err(format!("{}\n{}", process.status, String::from_utf8_lossy(&process.stderr)).into())
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap().block_on(test);
}

fn open(index: usize) -> Device {
    Device::open(&format!("cuda:{index}")).unwrap()
}

async fn works(device: &Device) -> wakegraph::Result<()> {
    let x = device.buffer_from(&[1u32, 2, 3])?;
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(3));
    graph.finalize()?.submit().await?;
    assert_eq!(x.to_vec().await?, [2, 3, 4]);
    Ok(())
}

async fn everything_pending(device: Device) {
    works(&device).await.unwrap();
    {
        let [x, y] = [(); 2].map(|()| device.buffer::<u32>(8).unwrap());
        let (faulty, other) = (faulty(&device, &y), adding(&device, &x));
        let first = faulty.submit();
        let behind = other.prepare().after(&first).submit();
        let queued = faulty.submit();
        is_lost(
            first,
            Some("kernel 'stray' (#0)"),
            "[kernel 'stray' (#0), partition 0, on cuda:0, added at crates/wakegraph-cuda/tests",
        )
        .await;
        is_lost(
            behind,
            Some("kernel 'stray' (#0)"),
            "[kernel 'stray' (#0), partition 0, on cuda:0, added at crates/wakegraph-cuda/tests",
        )
        .await;
        is_lost(queued, None, "queued behind another").await;
        assert_eq!(device.hal().status().unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(other.submit().await.unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(device.buffer::<u32>(8).unwrap_err().kind(), ErrorKind::DeviceLost);
    }
    drop(device);
    // The host goes on.
    let host = Device::open("host:0").unwrap();
    host.buffer_from(&[1u32]).unwrap();
    // A driver that lets the process have the device again gives one that works; those of today do not.
    match Device::open("cuda:0") {
        Ok(device) => works(&device).await.unwrap(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
            assert!(error.to_string().contains("new process"), "{error}");
        }
    }
}

/// A graph of the kernel that ends its device.
fn faulty(device: &Device, x: &Buffer<u32>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.launch(stray(8, x), Range::linear(1));
    graph.finalize().unwrap()
}

fn adding(device: &Device, x: &Buffer<u32>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.launch(add(1, x), Range::linear(x.len()));
    graph.finalize().unwrap()
}

/// The submission fails by the loss of the first device, with this node and these words.
#[track_caller]
fn is_lost<'a>(
    submission: Submission,
    node: Option<&'a str>,
    words: &'a str,
) -> impl Future<Output = ()> + use<'a> {
    let caller = std::panic::Location::caller();
    async move {
        let error = submission.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{caller}: {error}");
        assert_eq!(error.device(), Some("cuda:0"), "{caller}: {error}");
        assert_eq!(error.node(), node, "{caller}: {error}");
        assert!(error.to_string().contains(words), "{caller}: {error}");
    }
}

async fn several_nodes(device: Device) {
    let [x, y] = [(); 2].map(|()| device.buffer::<u32>(8).unwrap());
    let mut graph = Graph::new(&device);
    graph.launch(add(1, &x), Range::linear(8));
    graph.launch(stray(8, &y), Range::linear(1));
    let words = "in one of the nodes kernel 'add' (#0) and kernel 'stray' (#1) of partition 0";
    is_lost(graph.finalize().unwrap().submit(), None, words).await;
}

// cuda:0: stray -> cuda:1: add, in one graph and in two, and more behind that on cuda:1
async fn dependents([first, second]: [Device; 2]) {
    works(&second).await.unwrap();
    {
        let x = first.buffer::<u32>(8).unwrap();
        let [y, z] = [(); 2].map(|()| second.buffer::<u32>(8).unwrap());
        let mut graph = Graph::new(&first);
        let before = graph.launch(stray(8, &x), Range::linear(1)).id();
        graph.launch(add(1, &y), Range::linear(8)).after([before]);
        let both = graph.finalize().unwrap();
        let other = adding(&second, &z);

        let submission = both.submit();
        let explicit = other.prepare().after(&submission).submit();
        let behind = other.submit();
        let again = both.submit();
        is_lost(
            submission,
            Some("kernel 'stray' (#0)"),
            "partition 0, on cuda:0, added at crates/wakegraph-cuda/tests",
        )
        .await;
        is_lost(
            explicit,
            Some("kernel 'stray' (#0)"),
            "partition 0, on cuda:0, added at crates/wakegraph-cuda/tests",
        )
        .await;
        is_lost(again, None, "queued behind another").await;
        // Whether it can run is the driver's to say; it does not stay pending.
        if let Err(error) = behind.await {
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        }
        assert_eq!(first.hal().status().unwrap_err().kind(), ErrorKind::DeviceLost);
    }
    works_or_is_lost(&second).await;
}

// cuda:0: stray; cuda:1: add, in one graph without an edge
async fn independent([first, second]: [Device; 2]) {
    let [x, y] = [&first, &second].map(|device| device.buffer::<u32>(8).unwrap());
    let mut graph = Graph::new(&first);
    graph.launch(stray(8, &x), Range::linear(1));
    graph.launch(add(1, &y), Range::linear(8));
    let error = graph.finalize().unwrap().submit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.to_string().contains("kernel 'stray' (#0)"), "{error}");
    works_or_is_lost(&second).await;
    // What is no CUDA device has nothing to do with it.
    let host = Device::open("host:0").unwrap();
    assert_eq!(host.buffer_from(&[1u32]).unwrap().to_vec().await.unwrap(), [1]);
}

/// Captures streams in the default mode, again and again until it is stopped. Panics if a
/// capture is invalidated.
fn capture_until(stop: &AtomicBool, captures: &AtomicUsize) {
    fn check(call: &str, code: CUresult) {
        assert_eq!(code, CUresult::CUDA_SUCCESS, "{call}");
    }
    let (mut context, mut stream, mut address) = (ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: there is a device 0; the place is a pointer's.
    check("retain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    // SAFETY: the context has just been retained.
    check("set current", unsafe { sys::cuCtxSetCurrent(context) });
    // SAFETY: the place is a pointer's; 1 is a stream that waits for no other.
    check("create stream", unsafe { sys::cuStreamCreate(&raw mut stream, 1) });
    // SAFETY: the place is an address's.
    check("allocate", unsafe { sys::cuMemAlloc_v2(&raw mut address, 4) });
    while !stop.load(Ordering::Relaxed) {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream is this function's.
        check("begin", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
        captures.fetch_add(1, Ordering::Relaxed);
        for _ in 0..100 {
            // SAFETY: the word is this function's; the stream captures.
            check("captured", unsafe { sys::cuMemsetD32Async(address, 1, 1, stream) });
        }
        let mut graph = ptr::null_mut();
        // SAFETY: the stream captures; the place is a pointer's.
        check("end", unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) });
        // SAFETY: the graph is this function's.
        check("destroy", unsafe { sys::cuGraphDestroy(graph) });
    }
}

/// Awaits 10,000 submissions, and allocates, finalizes and frees now and then.
async fn beside_captures(device: Device) {
    const ROUNDS: usize = 10_000;
    works(&device).await.unwrap();
    let (stop, captures) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let capturing = {
        let (stop, captures) = (stop.clone(), captures.clone());
        std::thread::spawn(move || capture_until(&stop, &captures))
    };
    while captures.load(Ordering::Relaxed) == 0 && !capturing.is_finished() {
        std::thread::yield_now();
    }
    let x = device.buffer::<u32>(8).unwrap();
    let exec = adding(&device, &x);
    for round in 0..ROUNDS {
        exec.submit().await.unwrap();
        if round % 100 == 0 {
            device.host_buffer::<u32>(8).unwrap();
            works(&device).await.unwrap();
            device.trim().unwrap();
        }
    }
    assert!(!capturing.is_finished(), "a capture was invalidated");
    stop.store(true, Ordering::Relaxed);
    capturing.join().unwrap();
    assert!(captures.load(Ordering::Relaxed) > 100, "{captures:?}");
    assert_eq!(x.to_vec().await.unwrap(), [ROUNDS as u32; 8]);
}

/// Drivers of today end the contexts of all devices of the process.
async fn works_or_is_lost(device: &Device) {
    if let Err(error) = works(device).await {
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert_eq!(device.hal().status().unwrap_err().kind(), ErrorKind::DeviceLost);
    }
}

//! The times of nodes on a CUDA device, against two other clocks: that of the device, which kernels read
//! themselves, and NVIDIA's profiling library, CUPTI. And when things happen on the host's clock, against
//! what a thread sees that spins on a word of the host. Each test runs in a process of its own, as CUPTI
//! changes the whole process.
//!
//! CUPTI comes with toolkits and with the Python package `nvidia-cuda-cupti`; it is looked for in
//! `LD_LIBRARY_PATH`.
#![expect(unsafe_code, reason = "declares device code, calls the driver and CUPTI")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "prints what it has measured")]

mod cupti;

use std::ffi::c_void;
use std::process::{Command, ExitCode};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult};
use cupti::{Cupti, Kind};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::hal::{Priority, RangeBound};
use wakegraph::timeline::Timeline;
use wakegraph::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph, Range, backend, kernel};

kernel! {
    /// Runs for so many nanoseconds, writes its begin and end, and tells the word at an address of both.
    fn stamp(nanoseconds: u64, word: u64, times: &mut [u64]) {
        range: |_, _, times| times.len() / 2,
        // SAFETY: the bound is one work-item for two elements, and there is one launch of one work-item at a
        // time. The word is null or one of pinned memory, which is never freed.
        ptx: unsafe { include_str!("cupti/stamp.ptx") },
    }
}

kernel! {
    /// Every work-item runs for so many nanoseconds.
    fn spin(nanoseconds: u64) {
        range: |_| RangeBound::ANY,
        // SAFETY: it uses no memory.
        ptx: unsafe { include_str!("cupti/stamp.ptx") },
    }
}

/// A test, and whether it needs CUPTI.
type Test = (&'static str, bool, fn());

const TESTS: &[Test] = &[
    ("kernels_take_as_long_as_they_say", false, kernels_take_as_long_as_they_say),
    ("nodes_take_as_long_as_cupti_says", true, nodes_take_as_long_as_cupti_says),
    ("host_and_device_are_on_one_clock", false, host_and_device_are_on_one_clock),
    ("cupti_gets_nvtx_ranges", true, cupti_gets_nvtx_ranges),
    ("work_of_high_priority_overtakes", false, work_of_high_priority_overtakes),
];

/// The variable that has the driver load CUPTI.
const CUPTI_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Which test this process is for.
const CHOICE: &str = "WAKEGRAPH_TIMES";
/// The choice of a process that prints the times of nodes.
const PRINT: &str = "print_node_times";

fn main() -> ExitCode {
    if let Ok(chosen) = std::env::var(CHOICE) {
        if chosen == PRINT {
            print_node_times();
            return ExitCode::SUCCESS;
        }
        let (_, _, test) = TESTS.iter().find(|(name, ..)| *name == chosen).unwrap();
        test();
        return ExitCode::SUCCESS;
    }
    let there = backend::by_name("cuda").and_then(|cuda| cuda.device_count());
    let trials = TESTS.iter().map(|&(name, needs_cupti, _)| {
        let there = there.clone();
        Trial::ignorable_test(name, move || in_its_own_process(name, needs_cupti, there))
    });
    let mut arguments = Arguments::from_args();
    // They measure.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn in_its_own_process(
    name: &str,
    needs_cupti: bool,
    there: wakegraph::Result<usize>,
) -> Result<Completion, Failed> {
    match there {
        Err(error) if std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default().contains("cuda") => {
            return Err(format!("WAKEGRAPH_REQUIRE asks for this backend: {error}").into());
        }
        Err(error) => return Ok(Completion::ignored_with(error)),
        Ok(_) => {}
    }
    let mut process = Command::new(std::env::current_exe()?);
    process.env(CHOICE, name);
    if needs_cupti {
        match cupti::load() {
            Ok(cupti) => process.env(CUPTI_INJECTION, cupti.name),
            Err(error) => return Ok(Completion::ignored_with(error)),
        };
    }
    let output = process.output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(Completion::Completed);
    }
    Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn open() -> Device {
    Device::open("cuda:0").unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

const ROUNDS: usize = 20;
/// Short enough to be like real kernels, and 20 times as long as it takes to begin and end one.
const NANOSECONDS: [u64; 3] = [100_000, 400_000, 2_000_000];
const BYTES: usize = 256 << 20;

/// Three kernels, a copy and a fill, one after the other.
fn chain(device: &Device) -> (ExecutableGraph, [Buffer<u64>; 3]) {
    let times = [(); 3].map(|()| device.buffer::<u64>(2).unwrap());
    let [from, to] = [(); 2].map(|()| device.buffer::<u32>(BYTES / 4).unwrap());
    let mut graph = Graph::new(device);
    let mut last = None;
    for (nanoseconds, times) in NANOSECONDS.into_iter().zip(&times) {
        last = Some(graph.launch(stamp(nanoseconds, 0, times), Range::linear(1).local([1])).after(last).id());
    }
    last = Some(graph.copy(&from, &to).after(last).id());
    graph.fill(&to, 7).after(last);
    let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
    (exec, times)
}

/// How long the nodes of a submission took, in nanoseconds.
async fn node_times(exec: &ExecutableGraph) -> Vec<u64> {
    let mut submission = exec.submit();
    (&mut submission).await.unwrap();
    let profile = submission.profile().unwrap();
    profile.nodes.iter().map(|node| node.duration().as_nanos() as u64).collect()
}

fn median<T: PartialOrd + Copy>(values: &[T]) -> T {
    let mut values = values.to_vec();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

/// The medians of ours and theirs are within 5 % of each other.
fn compare(what: &str, ours: &[u64], theirs: &[u64]) {
    let ratios: Vec<f64> =
        ours.iter().zip(theirs).map(|(&ours, &theirs)| ours as f64 / theirs as f64).collect();
    let [ours, theirs] = [ours, theirs].map(|times| median(times) as f64 / 1e3);
    let ratio = median(&ratios);
    println!("BENCH node_times {what}: ours={ours:.1} us theirs={theirs:.1} us ratio={ratio:.4} limit=1.05");
    assert!((0.95..=1.05).contains(&ratio), "{what}: {ratio}");
}

fn kernels_take_as_long_as_they_say() {
    let device = open();
    let (exec, times) = chain(&device);
    block_on(async {
        node_times(&exec).await;
        let (mut ours, mut theirs) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
        for _ in 0..ROUNDS {
            let took = node_times(&exec).await;
            for (index, times) in times.iter().enumerate() {
                let [start, end] = times.to_vec().await.unwrap()[..] else { unreachable!("it has two") };
                theirs[index].push(end - start);
                ours[index].push(took[index]);
            }
        }
        for (index, nanoseconds) in NANOSECONDS.iter().enumerate() {
            let what = format!("kernel of {} us, its own clock", nanoseconds / 1000);
            compare(&what, &ours[index], &theirs[index]);
        }
    });
}

/// Prints a line for each submission: how long its nodes took, in nanoseconds.
fn print_node_times() {
    let device = open();
    let (exec, _times) = chain(&device);
    block_on(async {
        for _ in 0..ROUNDS {
            println!("{}", node_times(&exec).await.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        }
    });
}

/// How long the nodes of the submissions of a process without CUPTI took, by node. In a process with CUPTI,
/// what CUPTI has the device do before and after each kernel lies between our events, too: 7 us of a kernel
/// that takes 100 us, on an H200.
fn node_times_without_cupti() -> [Vec<u64>; 5] {
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output = process.env(CHOICE, PRINT).env_remove(CUPTI_INJECTION).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut ours: [Vec<u64>; 5] = Default::default();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let times = line.split(' ').map(|time| time.parse::<u64>().unwrap());
        ours.iter_mut().zip(times).for_each(|(of_node, time)| of_node.push(time));
    }
    assert!(ours.iter().all(|of_node| of_node.len() == ROUNDS), "{ours:?}");
    ours
}

fn nodes_take_as_long_as_cupti_says() {
    let ours = node_times_without_cupti();
    let cupti = cupti::load().unwrap();
    cupti.enable(&[Kind::Copy, Kind::Fill, Kind::Kernel]);
    let device = open();
    let (exec, _times) = chain(&device);
    block_on(async {
        for _ in 0..ROUNDS {
            exec.submit().await.unwrap();
        }
    });
    let mut records = cupti.records();
    records.sort_by_key(|record| record.start);
    let of_kind = |kind: Kind| {
        let own = records.iter().filter(move |record| record.kind == kind);
        // Of the kernels, those of the graph; of copies and fills, not what the driver does besides.
        let own = own.filter(|record| match kind {
            Kind::Kernel => record.name.contains("stamp"),
            _ => record.end - record.start > 10_000,
        });
        own.map(|record| record.end - record.start).collect::<Vec<_>>()
    };
    let kernels = of_kind(Kind::Kernel);
    assert_eq!(kernels.len(), 3 * ROUNDS, "{records:?}");
    for (index, nanoseconds) in NANOSECONDS.iter().enumerate() {
        let theirs: Vec<u64> = kernels.iter().copied().skip(index).step_by(3).collect();
        compare(&format!("kernel of {} us, CUPTI", nanoseconds / 1000), &ours[index], &theirs);
    }
    for (what, kind, ours) in [("copy", Kind::Copy, &ours[3]), ("fill", Kind::Fill, &ours[4])] {
        let theirs = of_kind(kind);
        if theirs.len() == ROUNDS {
            compare(&format!("{what} of {} MiB, CUPTI", BYTES >> 20), ours, &theirs);
        } else {
            // Which commands become kernels is the driver's to choose.
            println!("BENCH node_times {what}: CUPTI has {} of {ROUNDS}", theirs.len());
        }
    }
}

/// A word of the host's memory that the device can write to. Never freed.
fn pinned_word() -> &'static AtomicU32 {
    let check = |code| assert_eq!(code, CUresult::CUDA_SUCCESS);
    let (mut context, mut word) = (ptr::null_mut(), ptr::null_mut::<c_void>());
    // SAFETY: the pointer can be written to.
    check(unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    // SAFETY: the context was retained.
    check(unsafe { sys::cuCtxSetCurrent(context) });
    // SAFETY: the pointer can be written to.
    check(unsafe {
        sys::cuMemHostAlloc(&raw mut word, 4, sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP)
    });
    // SAFETY: it has room for the word, and is never freed.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    word.store(0, Ordering::SeqCst);
    word
}

/// By how much the times of a kernel's begin and end differ from what a spinning thread sees, in
/// microseconds.
fn differences(exec: &ExecutableGraph, word: &AtomicU32) -> ([f64; 2], Duration) {
    word.store(0, Ordering::SeqCst);
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spinning = scope.spawn(|| {
            ready.store(true, Ordering::SeqCst);
            [1, 2].map(|value| {
                while word.load(Ordering::Acquire) < value {
                    std::hint::spin_loop();
                }
                Instant::now()
            })
        });
        while !ready.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        let before = Instant::now();
        let recording = Timeline::record();
        let origin = before + before.elapsed() / 2;
        block_on(async { exec.submit().await.unwrap() });
        let seen = spinning.join().unwrap();
        let timeline = recording.finish();
        let node = timeline.runs[0].partitions[0].node_spans[0];
        let micros = |at: Duration, seen: Instant| {
            let at = origin + at;
            let early = seen.saturating_duration_since(at).as_secs_f64();
            1e6 * (at.saturating_duration_since(seen).as_secs_f64() - early)
        };
        ([micros(node.start, seen[0]), micros(node.end, seen[1])], timeline.clocks[0].error)
    })
}

fn host_and_device_are_on_one_clock() {
    let device = open();
    const LIMIT: f64 = 20.0;
    let word = pinned_word();
    let times = device.buffer::<u64>(2).unwrap();
    let mut graph = Graph::new(&device);
    graph.launch(
        stamp(500_000, word.as_ptr().expose_provenance() as u64, &times),
        Range::linear(1).local([1]),
    );
    let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
    for _ in 0..3 {
        differences(&exec, word);
    }
    // The clocks are compared anew from time to time, so the second half is at another age of the comparison.
    for (what, pause) in [("at once", Duration::ZERO), ("over 3 s", Duration::from_millis(150))] {
        let rounds: Vec<_> =
            (0..ROUNDS).map(|_| (std::thread::sleep(pause), differences(&exec, word)).1).collect();
        for (moment, index) in [("begin", 0), ("end", 1)] {
            let off: Vec<f64> = rounds.iter().map(|(off, _)| off[index]).collect();
            let least = off.iter().copied().fold(f64::INFINITY, f64::min);
            let most = off.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (off, error) =
                (median(&off), median(&rounds.iter().map(|(_, error)| *error).collect::<Vec<_>>()));
            println!(
                "BENCH clocks {moment} of a kernel, {what}: off={off:.1} us least={least:.1} most={most:.1} \
                 stated={error:?} limit={LIMIT}"
            );
            assert!(off.abs() <= LIMIT, "the {moment} is off by {off} us");
        }
    }
}

fn cupti_gets_nvtx_ranges() {
    let cupti = cupti::load().unwrap();
    cupti.enable(&[Kind::Range]);
    let device = open();
    let times = device.buffer::<u64>(2).unwrap();
    let mut graph = Graph::new(&device);
    graph.launch(stamp(1000, 0, &times), Range::linear(1).local([1]));
    let exec = graph.finalize().unwrap();
    block_on(async {
        for _ in 0..ROUNDS {
            exec.submit().await.unwrap();
        }
    });
    let records = cupti.records();
    let named = |part: &str| records.iter().filter(|record| record.name.contains(part)).count();
    let (submissions, enqueues) = (named("submission"), named("enqueue"));
    println!("BENCH nvtx: CUPTI has {submissions} submissions and {enqueues} enqueues of {ROUNDS}");
    assert_eq!((submissions, enqueues), (ROUNDS, ROUNDS), "{records:?}");
    assert!(
        records.iter().filter(|record| !record.name.is_empty()).all(|record| record.domain == "wakegraph")
    );
}

/// A long launch has many more work-groups than fit on the device. A short one that is submitted meanwhile
/// gets the room of the first that end, if its priority is higher.
fn work_of_high_priority_overtakes() {
    const GROUP: usize = 1024;
    // Forty times as many as any device runs at a time.
    const GROUPS: usize = 40 * 2 * 160;
    let device = open();
    let exec = |nanoseconds, groups, priority| {
        let mut graph = Graph::new(&device);
        graph.launch(spin(nanoseconds), Range::linear(groups * GROUP).local([GROUP]));
        graph.finalize_with(FinalizeOptions::new().profiling(true).priority(priority)).unwrap()
    };
    let long = exec(1_000_000, GROUPS, Priority::Normal);
    let [normal, high] = [Priority::Normal, Priority::High].map(|priority| exec(10_000, 1, priority));
    assert!(high.explain().to_string().contains("priority: high\n"), "{}", high.explain());
    let mut times = Vec::new();
    for short in [&normal, &high] {
        for _ in 0..3 {
            block_on(async {
                let recording = Timeline::record();
                let before = long.submit();
                // The device has begun it.
                tokio::time::sleep(Duration::from_millis(5)).await;
                short.submit().await.unwrap();
                before.await.unwrap();
                let timeline = recording.finish();
                let [long, short] = [0, 1].map(|run| timeline.runs[run].partitions[0].span.unwrap());
                times.push([long.end - long.start, short.end.saturating_sub(long.start)]);
            });
        }
    }
    let millis = |times: &[[Duration; 2]], index: usize| {
        1e3 * median(&times.iter().map(|times| times[index].as_secs_f64()).collect::<Vec<_>>())
    };
    let (long, ends) = (millis(&times, 0), [millis(&times[..3], 1), millis(&times[3..], 1)]);
    println!(
        "BENCH priority: beside {long:.1} ms of work, submitted after 5 ms: normal is over after {:.1} ms, high \
         after {:.1} ms",
        ends[0], ends[1]
    );
    assert!(ends[1] < 0.5 * long, "{times:?}");
}

/// What the tests use of it.
impl Cupti {
    /// The records of everything that is over.
    fn records(&self) -> Vec<cupti::Record> {
        self.flush();
        std::mem::take(&mut *cupti::RECORDS.lock().unwrap())
    }
}

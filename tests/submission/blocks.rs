//! Kernels of the host device that run in blocks: they end early, share the device's workers, and compute the
//! same on any number of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, advance};
use wakegraph::backend::host::{self, CpuLevel, HostOptions};
use wakegraph::kernel::KernelCall;
use wakegraph::{Device, ErrorKind, ExecutableGraph, Graph, Local, Range, kernel};

use crate::common::in_both_runtimes;
use crate::deadline::paused;
use crate::support::{PANIC, silence_expected_panics};

/// A device with so many workers.
fn workers(threads: usize) -> Device {
    Device::from_hal(host::open(HostOptions::new().threads(threads)).unwrap())
}

fn one(device: &Device, call: KernelCall, range: Range) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.launch(call, range);
    graph.finalize().unwrap()
}

/// A kernel that has begun when `begun` counts, and whose work-items take a while until it may `end`.
macro_rules! endless {
    ($name:ident, $begun:ident) => {
        static $begun: AtomicUsize = AtomicUsize::new(0);
        kernel! {
            fn $name(x: &mut [u8]) {
                each: |_, x| {
                    $begun.fetch_add(1, Ordering::Relaxed);
                    *x = 1;
                    std::thread::sleep(Duration::from_millis(1));
                },
            }
        }
    };
}

/// More work-items than any test runs.
const MANY: usize = if cfg!(miri) { 1 << 12 } else { 1 << 24 };

async fn until_begun(begun: &AtomicUsize) {
    while begun.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
}

endless!(cancelled, CANCELLED);

#[test]
fn a_cancelled_kernel_ends_at_a_block() {
    in_both_runtimes(|| async {
        for threads in [1, 2, 5] {
            CANCELLED.store(0, Ordering::Relaxed);
            let device = workers(threads);
            let exec = one(&device, cancelled(device.buffer(MANY).unwrap()), Range::linear(MANY));
            let submission = exec.submit();
            until_begun(&CANCELLED).await;
            submission.cancel();
            let error = submission.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            assert!(CANCELLED.load(Ordering::Relaxed) < MANY);
        }
    });
}

endless!(watched, WATCHED);

#[test]
fn progress_tells_how_much_of_a_kernel_has_begun() {
    in_both_runtimes(|| async {
        let device = workers(2);
        let exec = one(&device, watched(device.buffer(MANY).unwrap()), Range::linear(MANY));
        for _ in 0..2 {
            WATCHED.store(0, Ordering::Relaxed);
            let submission = exec.submit();
            until_begun(&WATCHED).await;
            let text = loop {
                let progress = submission.progress().unwrap();
                if progress.partitions[0].percent_of_kernel.is_some() {
                    break progress.to_string();
                }
                tokio::task::yield_now().await;
            };
            assert!(text.contains("is running, 0 % of a kernel"), "{text}");
            submission.cancel();
            submission.await.unwrap_err();
        }
    });
}

endless!(dropped, DROPPED);

#[test]
fn a_kernel_ends_when_its_submission_is_dropped() {
    in_both_runtimes(|| async {
        DROPPED.store(0, Ordering::Relaxed);
        let device = workers(2);
        let buffer = device.buffer::<u8>(MANY).unwrap();
        let exec = one(&device, dropped(&buffer), Range::linear(MANY));
        let submission = exec.submit().cancel_on_drop();
        until_begun(&DROPPED).await;
        drop(submission);
        // The guard waits for the run.
        let _ = buffer.to_vec().await;
        assert!(DROPPED.load(Ordering::Relaxed) < MANY);
    });
}

endless!(late, LATE);

#[test]
fn a_deadline_ends_a_kernel() {
    paused().block_on(async {
        let device = workers(2);
        let buffer = device.buffer::<u8>(MANY).unwrap();
        let mut body = Graph::new(&device);
        body.launch(late(&buffer), Range::linear(MANY));
        let mut around = Graph::new(&device);
        around.if_nonzero(device.buffer_from(&[1]).unwrap(), &body);
        for exec in [body.finalize().unwrap(), around.finalize().unwrap()] {
            LATE.store(0, Ordering::Relaxed);
            let submission = exec.prepare().deadline(Instant::now() + Duration::from_secs(1)).submit();
            until_begun(&LATE).await;
            advance(Duration::from_secs(2)).await;
            let error = submission.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
            assert!(
                error.to_string().contains("the deadline passed while the device was at work"),
                "{error}"
            );
            // The guard waits for the end of the run.
            let _ = buffer.to_vec().await;
            assert!(LATE.load(Ordering::Relaxed) < MANY);
        }
    });
}

kernel! {
    fn fails_at(at: u32, x: &mut [u32]) {
        each: |i, at, x| {
            assert!(i != at as usize, "{PANIC}");
            *x += 1;
        },
    }
}

#[test]
fn a_panic_ends_the_other_blocks() {
    silence_expected_panics();
    in_both_runtimes(|| async {
        let device = workers(3);
        let buffer = device.buffer::<u32>(if cfg!(miri) { 1 << 6 } else { 1 << 20 }).unwrap();
        let last = buffer.len() as u32 - 1;
        for at in [0, 1, last / 3, last] {
            let exec = one(&device, fails_at(at, &buffer), Range::linear(buffer.len()));
            let error = exec.submit().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::KernelPanicked);
            assert!(error.to_string().contains("kernel 'fails_at' panicked"), "{error}");
        }
        let exec = one(&device, fails_at(u32::MAX, &buffer), Range::linear(buffer.len()));
        exec.submit().await.unwrap();
    });
}

static OTHER_RAN: AtomicBool = AtomicBool::new(false);
static HELPED: AtomicUsize = AtomicUsize::new(0);

kernel! {
    /// The first work-item keeps its worker until another kernel has run. There is no end to the others.
    fn waits_for_other(x: &mut [u8]) {
        each: |i, x| {
            *x = 1;
            match i {
                0 => while !OTHER_RAN.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                },
                _ => {
                    HELPED.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        },
    }
    fn other(x: &mut [u8]) {
        each: |_, x| {
            *x = 2;
            OTHER_RAN.store(true, Ordering::Relaxed);
        },
    }
}

#[test]
fn other_commands_get_workers_between_blocks() {
    in_both_runtimes(|| async {
        OTHER_RAN.store(false, Ordering::Relaxed);
        HELPED.store(0, Ordering::Relaxed);
        // The first work-item takes one worker away, and the owner of the launch stays with it. If these are
        // not the same, the third one is free between its blocks.
        let device = workers(3);
        let long = one(&device, waits_for_other(device.buffer(MANY).unwrap()), Range::linear(MANY));
        let short = one(&device, other(device.buffer(1).unwrap()), Range::linear(1));
        let submission = long.submit();
        until_begun(&HELPED).await;
        short.submit().await.unwrap();
        submission.cancel();
        submission.await.unwrap_err();
    });
}

kernel! {
    fn mix(seed: u32, x: &[f32], y: &mut [f32], count: &mut [u32]) {
        each: |i, seed, x, y, count| {
            let mut value = x[i] + seed as f32;
            for step in 0..8 {
                value = value * 1.000_1 + x[(i + step) % x.len()] / 3.0;
            }
            *y = value;
            *count += 1;
        },
    }
    /// Each group's sum, by halves in local memory, and each item's place in its group.
    fn sum(tile: Local<f32>, x: &[f32], sums: &mut [f32], places: &mut [u32]) {
        group: |group, tile, x, sums, places| {
            let first = group.offset()[0];
            for i in group.indices() {
                tile[i - first] = x[i];
                places[i - first] = (i - first) as u32;
            }
            let mut half = tile.len() / 2;
            while half > 0 {
                for i in 0..half {
                    tile[i] += tile[i + half];
                }
                half /= 2;
            }
            sums[0] = tile[0];
        },
    }
}

/// What the kernels compute on a device, as bits.
async fn bits(device: &Device) -> [Vec<u32>; 4] {
    const LEN: usize = if cfg!(miri) { 1 << 8 } else { 3 << 14 };
    let x: Vec<f32> = (0..LEN).map(|i| (i as f32).sin()).collect();
    let (x, y) = (device.buffer_from(&x).unwrap(), device.buffer::<f32>(LEN).unwrap());
    let (count, places) = (device.buffer::<u32>(LEN).unwrap(), device.buffer::<u32>(LEN).unwrap());
    let sums = device.buffer::<f32>(LEN / 64).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(mix(3, &x, &y, &count), Range::linear(LEN));
    graph.launch(sum(Local::new(64), &x, &sums, &places), Range::linear(LEN).local([64]));
    let exec = graph.finalize().unwrap();
    // A first run measures how long the kernels take; later ones divide them by that.
    for _ in 0..3 {
        exec.submit().await.unwrap();
    }
    let as_bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    [
        as_bits(y.to_vec().await.unwrap()),
        as_bits(sums.to_vec().await.unwrap()),
        count.to_vec().await.unwrap(),
        places.to_vec().await.unwrap(),
    ]
}

#[test]
fn all_versions_and_numbers_of_workers_compute_the_same_bits() {
    in_both_runtimes(|| async {
        let expected =
            bits(&Device::from_hal(host::open(HostOptions::new().threads(1).level(None)).unwrap())).await;
        assert!(expected[2].iter().all(|&count| count == 3));
        for level in [None, Some(CpuLevel::X86_64V3), Some(CpuLevel::X86_64V4)] {
            for threads in [1, 2, 7] {
                let options = HostOptions::new().threads(threads).level(level);
                let device = Device::from_hal(host::open(options).unwrap());
                assert!(bits(&device).await == expected, "{level:?} with {threads} workers");
            }
        }
    });
}

kernel! {
    fn maybe_fails(at: u32, rounds: u32, x: &mut [u32]) {
        each: |i, at, rounds, x| {
            assert!(i != at as usize, "{PANIC}");
            for round in 0..rounds {
                *x = x.wrapping_mul(31).wrapping_add(round);
            }
        },
    }
}

#[test]
fn a_storm_of_panics_and_cancels_leaves_the_workers_alive() {
    silence_expected_panics();
    let wanted = std::env::var("WAKEGRAPH_STORM_SUBMISSIONS").ok().and_then(|wanted| wanted.parse().ok());
    let rounds = wanted.unwrap_or(if cfg!(miri) { 20 } else { 500 });
    in_both_runtimes(|| async {
        let device = workers(4);
        let buffer = device.buffer::<u32>(256).unwrap();
        let execs: Vec<_> = (0..8u32)
            .map(|n| {
                let at = if n % 2 == 0 { 40 * n } else { u32::MAX };
                one(&device, maybe_fails(at, 50 * n, &buffer), Range::linear(256))
            })
            .collect();
        let mut random = 1u32;
        for round in 0..rounds {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let submission = execs[(random >> 16) as usize % execs.len()].submit();
            match random >> 28 {
                0..4 => submission.cancel(),
                4..6 => continue,
                _ => {}
            }
            if let Err(error) = submission.await {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::Cancelled | ErrorKind::KernelPanicked), "{round}: {error}");
            }
        }
        execs[1].submit().await.unwrap();
    });
}

#[test]
fn explain_tells_of_kernels_that_use_all_workers() {
    let device = workers(2);
    let exec = one(&device, fails_at(9, device.buffer(4).unwrap()), Range::linear(4));
    let text = exec.explain().to_string();
    assert!(text.contains("one after the other; large kernels use all workers"), "{text}");
}

#[test]
fn what_is_written_has_an_element_for_each_work_item() {
    let device = workers(1);
    let (x, y) = (device.buffer::<u32>(12).unwrap(), device.buffer::<u32>(16).unwrap());
    kernel! {
        fn two(x: &mut [u32], y: &mut [u32]) { each: |_, x, y| { *x = 1; *y = 2 } }
        fn table(table: &[u32], y: &mut [u32]) {
            range: |_, y| [y.len()],
            each: |i, table, y| *y = table[i % table.len()],
        }
        fn shares(y: &mut [u32]) { group: |_, y| y[0] = 1 }
    }
    let message = |call, range| {
        let mut graph = Graph::new(&device);
        graph.launch(call, range);
        graph.finalize().map(drop).map_err(|error| error.to_string())
    };
    let error = message(two(&x, &y), Range::linear(12)).unwrap_err();
    assert!(
        error.contains("'y' has a length of 16, and each work-item of `each:` owns one of 12"),
        "{error}"
    );
    let part = y.slice(4..).unwrap();
    message(two(&x, &part), Range::linear(12)).unwrap();
    message(two(&x, &part), Range::linear(4).starting_at([8])).unwrap();
    message(table(&x, &y), Range::linear(16)).unwrap();
    let error = message(shares(&y), Range::linear(15).local([3])).unwrap_err();
    assert!(error.contains("'y' has a length of 16, which 5 work-groups cannot share"), "{error}");
    message(shares(&y), Range::linear(12).local([3])).unwrap();
}

//! Memory that submissions cost.

use wakegraph::Device;

use crate::raw::Raw;
use crate::support::{self, Report, counting};
use crate::{chain, chain_on, memory_of};

const WINDOWS: usize = 20;
const EXECUTABLES: usize = 1000;
const CACHED: usize = 500;
/// Device bytes that a cache of so many executables of one kernel may take.
const MOST_OF_CACHE: f64 = 10e6;
const SUBMISSIONS: usize = 1_000_000;
/// What tables may still grow by.
const FLAT: f64 = 65_536.0;

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::current_thread();
    let exec = chain(device, 1);
    let submit = async |count: usize| {
        for _ in 0..count {
            exec.submit().await.expect("a run");
        }
    };
    if report.wants("allocations") {
        let window = report.reduced(20_000) / WINDOWS + 1;
        let windows: Vec<f64> = runtime.block_on(async {
            submit(WINDOWS * window).await;
            let mut windows = Vec::with_capacity(WINDOWS);
            for _ in 0..WINDOWS {
                counting::start();
                submit(window).await;
                windows.push(counting::stop().allocations as f64 / window as f64);
            }
            windows
        });
        let median = support::median(&windows);
        report.figure("allocations", median, 0.0, "allocations", median > 0.0);
    }
    if report.wants("executable") {
        let memory = memory_of(device);
        let mut execs = Vec::with_capacity(EXECUTABLES);
        let device_before = raw.memory_in_use();
        counting::start();
        runtime.block_on(async {
            for _ in 0..EXECUTABLES {
                let exec = chain_on(device, 1, &memory);
                exec.submit().await.expect("a run");
                execs.push(exec);
            }
        });
        let host = counting::stop().bytes as f64 / EXECUTABLES as f64;
        let device = (raw.memory_in_use() - device_before) / EXECUTABLES as f64;
        report.figure("executable_host", host, 0.0, "bytes", false);
        report.figure("executable_device", device, 0.0, "bytes", false);
    }
    if report.wants("cache_500_device") {
        let memory = memory_of(device);
        // The first run of a process has the driver allocate what all of them use.
        runtime.block_on(submit(1));
        let before = raw.memory_in_use();
        let mut execs: Vec<_> = (0..CACHED).map(|_| chain_on(device, 1, &memory)).collect();
        runtime.block_on(async {
            for exec in &mut execs {
                exec.submit().await.expect("a run");
            }
        });
        let bytes = raw.memory_in_use() - before;
        let before = raw.memory_in_use();
        let by_hand = raw.on_one_stream(CACHED);
        let base = raw.memory_in_use() - before;
        drop((execs, by_hand));
        report.figure("cache_500_device", bytes, base, "bytes", bytes > MOST_OF_CACHE);
    }
    if report.wants("million") {
        let count = report.reduced(SUBMISSIONS);
        runtime.block_on(async {
            submit(count / 100).await;
            let device_before = raw.memory_in_use();
            counting::start();
            submit(count).await;
            let host = counting::stop().bytes as f64;
            let device_after = raw.memory_in_use() - device_before;
            report.figure("million_host", host, 0.0, "bytes", host > FLAT);
            report.figure("million_device", device_after, 0.0, "bytes", device_after > FLAT);
        });
    }
}

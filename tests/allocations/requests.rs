//! Requests that are given up leave neither memory nor threads behind.

use std::sync::atomic::Ordering;

use wakegraph::Device;
use wakegraph::backend::host::{self, HostOptions};

use crate::LIVE_BYTES;
use crate::deadline_storm::{REQUESTS, pool, storm};

const WAVES: usize = 20;

/// The waves until all queues, timers and lists have had their largest size.
const WARM_UP: usize = 4;

/// Bytes that are allocated, and threads.
fn usage() -> (usize, usize) {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    (LIVE_BYTES.load(Ordering::Relaxed), threads)
}

pub(crate) fn a_storm_of_deadlines_leaves_memory_and_threads_as_they_were() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let usages = runtime.block_on(async {
        let device = Device::from_hal(host::open(HostOptions::new().threads(2)).unwrap());
        let pool = pool(&device);
        pool.warm_up().await.unwrap();
        let mut usages = Vec::new();
        for wave in 0..WAVES {
            let size = REQUESTS / WAVES;
            storm(&pool, wave * size..(wave + 1) * size).await;
            usages.push(usage());
        }
        usages
    });
    println!("{usages:?}");
    let (before, after) = usages.split_at(WARM_UP);
    let most = |usages: &[(usize, usize)]| {
        let (bytes, threads): (Vec<_>, Vec<_>) = usages.iter().copied().unzip();
        (bytes.into_iter().max().unwrap(), threads.into_iter().max().unwrap())
    };
    let ((bytes, threads), (bytes_after, threads_after)) = (most(before), most(after));
    // The one that warns of long waits comes and goes.
    assert!(threads_after <= threads + 1, "{usages:?}");
    assert!(bytes_after < bytes + 4 * REQUESTS, "{usages:?}");
}

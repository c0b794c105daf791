//! Requests with random deadlines, a third of them hopeless, on two slots of a host device.

use std::ops::Range as Numbers;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use wakegraph::service::ExecutablePool;
use wakegraph::{Device, ErrorKind, Graph, HostBuffer, Range};

/// All requests.
pub(crate) const REQUESTS: usize = if cfg!(miri) { 30 } else { 10_000 };

static RUNS: [AtomicU32; REQUESTS] = [const { AtomicU32::new(0) }; REQUESTS];

wakegraph::kernel! {
    /// Counts the run of a request.
    fn count(request: &mut [u32]) {
        item: |_, request| _ = RUNS[request[0] as usize].fetch_add(1, Ordering::SeqCst)
    }
}

pub(crate) fn pool(device: &Device) -> ExecutablePool<HostBuffer<u32>> {
    ExecutablePool::builder().device(device, 2).queue(REQUESTS).build(|slot| {
        let device = slot.device()?;
        let request: HostBuffer<u32> = device.host_buffer(1)?;
        let mut graph = Graph::new(&device);
        graph.launch(count(&request), Range::linear(1));
        Ok((graph.finalize()?, request))
    })
}

/// Sends the requests with these numbers, waits until all have ended, and checks that no kernel ran for one
/// that had been given up before it started.
pub(crate) async fn storm(pool: &ExecutablePool<HostBuffer<u32>>, numbers: Numbers<usize>) {
    let mut random = numbers.start as u64 + 1;
    let requests = numbers.clone().map(|number| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let now = Instant::now();
        let at = match number % 3 {
            0 => now,
            1 => now + Duration::from_micros((random >> 33) % 30_000),
            _ => now + Duration::from_secs(3600),
        };
        let pool = pool.clone();
        tokio::spawn(async move {
            let slot = pool.prepare().deadline(at).acquire().await?;
            slot.write().await[0] = number as u32;
            slot.submit().await
        })
    });
    let requests: Vec<_> = requests.collect();
    let mut errors = Vec::new();
    for (number, request) in numbers.clone().zip(requests) {
        match request.await.unwrap() {
            Ok(()) => assert_eq!(RUNS[number].load(Ordering::SeqCst), 1),
            Err(error) => errors.push((number, error)),
        }
    }
    while pool.status().idle < pool.status().made {
        tokio::task::yield_now().await;
    }
    assert!(errors.len() >= numbers.len() / 3);
    for (number, error) in errors {
        // A kernel that was running at the deadline has run to its end, which may be there before the error.
        let has_begun = ["is running", "all partitions have ended"];
        let has_begun = has_begun.iter().any(|progress| error.to_string().contains(progress));
        let runs = RUNS[number].load(Ordering::SeqCst);
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        assert!(runs == 0 || has_begun && number % 3 == 1, "{number} ran {runs} times: {error}");
        assert!(number % 3 < 2, "its deadline is far: {error}");
    }
    assert_eq!((pool.status().waiting, pool.status().slots), (0, 2));
}

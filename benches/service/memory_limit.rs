//! A mix of large and small executables under a pool's limit of device memory, while more slots than
//! fit are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakegraph::service::ExecutablePool;
use wakegraph::{Device, Graph, Result};

use crate::{Check, PAUSE};

const LIMIT: u64 = 1 << 30;
const LARGE: usize = 192 << 20;
const SMALL: usize = 8 << 20;

pub(crate) async fn rows(check: &mut Check, device: &Device, time: Duration) -> Result<()> {
    device.trim()?;
    let before = memory_in_use();
    let pool = {
        let device = device.clone();
        ExecutablePool::builder().slots(32).memory_limit(LIMIT).build(move |slot| {
            let mut graph = Graph::new(&device);
            graph.fill(&device.buffer::<u8>(if slot.index() % 3 == 0 { LARGE } else { SMALL })?, 1);
            Ok((graph.finalize()?, ()))
        })
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = (0..64).map(|_| {
        let (pool, is_over) = (pool.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut runs = 0;
            while !is_over.load(Ordering::Relaxed) {
                pool.acquire().await.unwrap().submit().await.unwrap();
                runs += 1;
            }
            runs
        })
    });
    let clients: Vec<_> = clients.collect();
    let (mut counted, mut measured) = (0, 0);
    for _ in 0..time.as_millis() / PAUSE.as_millis() {
        tokio::time::sleep(PAUSE).await;
        counted = counted.max(pool.status().device_memory);
        measured = measured.max(memory_in_use().saturating_sub(before));
    }
    is_over.store(true, Ordering::Relaxed);
    let mut runs = 0;
    for client in clients {
        runs += client.await.unwrap();
    }
    let status = pool.status();
    println!(
        "BENCH memory_limit slots_made={} runs={runs} counted_mib={} by_the_driver_mib={} limit_mib={}",
        status.made,
        counted >> 20,
        measured >> 20,
        LIMIT >> 20
    );
    check.ratio("memory_limit_counted", counted as f64 / LIMIT as f64, false, 1.0);
    // The driver's pool grows in blocks of 32 MiB.
    check.ratio("memory_limit_by_the_driver", measured as f64 / LIMIT as f64, false, 1.05);
    Ok(())
}

/// Bytes of the first CUDA device that all processes use; 0 elsewhere.
fn memory_in_use() -> u64 {
    let Ok(context) = cudarc::driver::CudaContext::new(0) else { return 0 };
    context.mem_get_info().map_or(0, |(free, total)| (total - free) as u64)
}

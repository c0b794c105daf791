//! Timeouts and cancellation: stop a submission whose result is no longer needed.
//!
//! `cargo run --example cancel [-- host:0]`

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use wakegraph::{Device, ErrorKind, Graph, Result, read};

#[tokio::main]
async fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let x = device.buffer::<u32>(4)?;
    let out = device.host_buffer::<u32>(4)?;
    // The upstream service: it answers once per permit.
    let upstream = Arc::new(Semaphore::new(0));
    let service = upstream.clone();

    // fill with 1 -> host task -> fill with 2 -> copy
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    graph
        .host_task((), async move |()| service.acquire().await.expect("it stays open").forget())
        .after_leaves();
    graph.fill(&x, 2).after_leaves();
    graph.copy(&x, &out);
    graph.host_task((read(&out),), async |(out,)| println!("the graph is done: {:?}", &*out));
    let exec = graph.finalize()?;

    // With `cancel_on_drop`, the submission cancels its work when the timeout drops it.
    let result = timeout(Duration::from_millis(50), exec.submit().cancel_on_drop()).await;
    assert!(result.is_err(), "the service has not answered");
    println!("timed out");

    // A submission that is not dropped resolves to `Cancelled`.
    let submission = exec.submit();
    submission.cancel();
    // It comes after the first run, which has ended: the guard had its host task dropped at its await.
    let error = submission.await.expect_err("the submission was cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    println!("{error}");

    // The cancelled runs stopped before their second fill; the executable is as good as new.
    assert_eq!(x.to_vec().await?, [1; 4]);
    upstream.add_permits(1);
    exec.submit().await?;
    assert_eq!(x.to_vec().await?, [2; 4]);
    Ok(())
}

//! Wait lists: start a submission after other submissions, after events, and after any future.
//!
//! `cargo run --example wait_lists [-- host:0]`

use std::time::Duration;

use tokio::sync::oneshot;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, HostBuffer, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let (input, x) = (device.host_buffer::<u32>(4)?, device.buffer::<u32>(4)?);
    let (left, right) = (device.host_buffer::<u32>(4)?, device.host_buffer::<u32>(4)?);
    let upload = upload(&device, &input, &x)?;
    let downloads = [download(&device, &x, &left)?, download(&device, &x, &right)?];

    // A future of any kind: here a request that is answered later. If it resolves to an error, the
    // submission fails with it and does not start.
    let (answer, request) = oneshot::channel::<()>();
    let uploaded = upload.prepare().after_future(request).submit();

    // An event is a handle to the same run: many can wait for it.
    let event = uploaded.event();
    let first = downloads[0].prepare().after(&uploaded).submit();
    let second = downloads[1].prepare().after_event(&event).submit();
    let other_task = tokio::spawn(async move { event.wait().await });

    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!first.is_finished(), "nothing has started yet");
    answer.send(()).expect("the submission waits for the answer");

    // Devices do the rest of the waiting: the host is not involved between upload and download.
    tokio::try_join!(uploaded, first, second)?;
    other_task.await.expect("the task does not panic")?;
    println!("{:?} {:?}", &*left.read().await, &*right.read().await);
    Ok(())
}

fn upload(device: &Device, from: &HostBuffer<u32>, to: &Buffer<u32>) -> Result<ExecutableGraph> {
    from.try_write()?.copy_from_slice(&[1, 2, 3, 4]);
    let mut graph = Graph::new(device);
    graph.copy(from, to);
    graph.finalize()
}

fn download(device: &Device, from: &Buffer<u32>, to: &HostBuffer<u32>) -> Result<ExecutableGraph> {
    let mut graph = Graph::new(device);
    graph.copy(from, to);
    graph.finalize()
}

//! Our pool: a slot for each request that runs.

use std::sync::Arc;

use axum::body::Bytes;
use wakegraph::service::ExecutablePool;
use wakegraph::{Device, Result};

use crate::http::Stub;
use crate::ours::{Memory, status};
use crate::shape::{Answer, Shape, answer};

/// Slots: one for each core, as `blocking` has permits. Those of a graph with a call wait for the stub most
/// of the time, so there are more of them.
fn slots(shape: Shape) -> usize {
    if shape.calls { 256 } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

pub(crate) async fn start(device: &Device, shape: Shape, stub: &Arc<Stub>) -> Result<ExecutablePool<Memory>> {
    let (device, stub) = (device.clone(), stub.clone());
    let pool = ExecutablePool::new(slots(shape), move |_| {
        let memory = Memory::new(&device, shape.words)?;
        let executable = match shape.calls {
            true => memory.calling(shape, &stub)?,
            false => memory.executable(shape, shape.words)?,
        };
        Ok((executable, memory))
    });
    pool.warm_up().await?;
    Ok(pool)
}

pub(crate) async fn call(pool: &ExecutablePool<Memory>, body: Bytes) -> Answer {
    let slot = pool.acquire().await.map_err(status)?;
    bytemuck::cast_slice_mut(&mut slot.input.write().await).copy_from_slice(&body);
    slot.submit().await.map_err(status)?;
    answer(&body, bytemuck::cast_slice(&slot.output.read().await))
}

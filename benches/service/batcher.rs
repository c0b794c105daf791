//! Our batcher as it comes, over a pool of two slots. A slot has executables for powers of two of requests,
//! so that a batch copies and computes little more than it holds.

use axum::body::Bytes;
use wakegraph::service::{Batcher, ExecutablePool, PoolGuard};
use wakegraph::{Device, ExecutableGraph, Result};

use crate::ours::Memory;
use crate::shape::{Answer, ITEMS, Shape, answer};

pub(crate) struct Slot {
    memory: Memory,
    /// Executables for 1, 2, 4 requests and so on.
    smaller: Vec<ExecutableGraph>,
}

pub(crate) async fn start(device: &Device, shape: Shape) -> Result<Batcher<Bytes, Answer>> {
    let device = device.clone();
    let pool = ExecutablePool::new(2, move |_| {
        let memory = Memory::new(&device, ITEMS * shape.words)?;
        let sizes =
            std::iter::successors(Some(1), |items| Some(2 * items)).take_while(|items| *items < ITEMS);
        let smaller = sizes.map(|items| memory.executable(shape, items * shape.words));
        let smaller = smaller.collect::<Result<_>>()?;
        Ok((memory.executable(shape, ITEMS * shape.words)?, Slot { memory, smaller }))
    });
    pool.warm_up().await?;
    Ok(pool.batcher().build(run))
}

async fn run(slot: PoolGuard<Slot>, bodies: Vec<Bytes>) -> Result<Vec<Answer>> {
    let each = bodies[0].len();
    let mut input = slot.memory.input.write().await;
    let chunks = bytemuck::cast_slice_mut(&mut input).chunks_exact_mut(each);
    chunks.zip(&bodies).for_each(|(to, body)| to.copy_from_slice(body));
    drop(input);
    match slot.smaller.get(bodies.len().next_power_of_two().ilog2() as usize) {
        Some(smaller) => smaller.submit().await?,
        None => slot.submit().await?,
    }
    let output = slot.memory.output.read().await;
    let results = bytemuck::cast_slice(&output).chunks_exact(each);
    Ok(bodies.iter().zip(results).map(|(body, result)| answer(body, result)).collect())
}

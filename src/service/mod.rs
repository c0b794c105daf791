//! Tools that a service needs around executables: slots, queues with a bound, batches.
//!
//! A service that runs a graph for each request needs more than `submit`: inputs and outputs of its
//! own for each request in flight, a bound on the work in flight and on the requests that wait, an
//! answer at once when there are too many, and an executable made again when one has failed.
//!
//! | to | use |
//! |---|---|
//! | run one graph per request | [`ExecutablePool`] |
//! | run many requests in one graph | [`Batcher`] |
//! | keep executables of many shapes | [`ExecutableCache`] |
//! | run each item of a stream | [`SubmitEach`] |
//! | put tower's layers around either | `ExecutablePool::service`, `Batcher`, with the feature `tower` |
//!
//! The whole of a service, but for its routes:
//!
//! ```
//! use wakegraph::service::ExecutablePool;
//! use wakegraph::{Graph, HostBuffer, Range, Result};
//!
//! wakegraph::kernel! {
//!     fn brighten(by: f32, x: &mut [f32]) { item: |i, by, x| x[i] = (x[i] + by).min(1.0) }
//! }
//!
//! const PIXELS: usize = 4;
//!
//! struct Photo { input: HostBuffer<f32>, output: HostBuffer<f32> }
//!
//! fn pool() -> ExecutablePool<Photo> {
//!     ExecutablePool::new(2, |slot| {
//!         let device = slot.device()?; // the best one, as the pool was given none
//!         let photo = Photo { input: device.host_buffer(PIXELS)?, output: device.host_buffer(PIXELS)? };
//!         let x = device.buffer::<f32>(PIXELS)?;
//!         let mut graph = Graph::new(&device);
//!         graph.copy(&photo.input, &x);
//!         graph.launch(brighten(0.5, &x), Range::linear(PIXELS));
//!         graph.copy(&x, &photo.output);
//!         Ok((graph.finalize()?, photo))
//!     })
//! }
//!
//! async fn handle(pool: &ExecutablePool<Photo>, pixels: &[f32]) -> Result<Vec<f32>> {
//!     let slot = pool.acquire().await?; // waits for its turn; an error at once if the queue is full
//!     slot.input.write().await.copy_from_slice(pixels);
//!     slot.submit().await?;
//!     Ok(slot.output.read().await.to_vec())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<()> {
//!     let pool = pool();
//!     assert_eq!(handle(&pool, &[0.0, 0.1, 0.2, 0.9]).await?, [0.5, 0.6, 0.7, 1.0]);
//!     Ok(())
//! }
//! ```

mod batch_run;
mod batcher;
mod cache;
mod callers;
mod deadline;
mod device_memory;
mod drain;
mod fair_queue;
mod item_queue;
mod permit;
mod pool;
mod pool_guard;
mod slot_table;
mod submit_each;
#[cfg(feature = "tower")]
mod tower_service;

pub use batcher::{Batcher, BatcherBuilder, CallBuilder};
pub use cache::{CachedExecutable, ExecutableCache};
pub use callers::Callers;
pub use permit::Slot;
pub use pool::{AcquireBuilder, ExecutablePool, PoolBuilder, PoolStatus};
pub use pool_guard::PoolGuard;
pub use submit_each::SubmitEach;
#[cfg(feature = "tower")]
pub use tower_service::PoolService;
pub use wakegraph_hal::Priority;

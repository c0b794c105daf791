//! An operator over Arrow record batches: filter, projection and sum on any device, as a stream.
//!
//! An engine on tokio that polls its operators as streams must not wait for a GPU in a poll. This operator
//! has two batches in flight, and each poll returns at once. Batches come and go without a copy on the host.
//!
//! | file | what it holds |
//! |---|---|
//! | `operator.rs` | the stream: read this first |
//! | `arrow_memory.rs` | Arrow's memory in graphs, and results as memory of Arrow |
//! | `kernels.rs`, `kernels.c` | filter, projection and sum, for the CPU and for GPUs |
//! | `reference.rs` | the same with Arrow's kernels |
//! | `main.rs`, `measure.rs` | both side by side: results, rates, times of polls, memory |

mod arrow_memory;
mod kernels;
mod operator;
pub mod reference;

pub use operator::{Selected, select};

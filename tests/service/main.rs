//! Pools, batches and caches of executables: who gets a slot when, and what happens to slots.
//!
//! No test reads a clock: the fake device completes work when the test says so, and the order of
//! what happens shows the rest.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batcher;
mod cache;
mod closures;
mod common;
#[path = "../common/deadline_storm.rs"]
mod deadline_storm;
mod deadlines;
mod ending;
mod pool;
mod pool_faults;
mod pool_memory;
mod sick_devices;
mod streams;
#[path = "../../crates/wakegraph-conformance/src/support/mod.rs"]
mod support;
#[cfg(feature = "tower")]
mod tower_layers;

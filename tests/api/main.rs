//! The public interface without submissions: kernels as users declare them, queries, missing capabilities.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod capabilities;
mod kernel_hygiene;
mod queries;
#[path = "../../crates/wakegraph-conformance/src/support/mod.rs"]
mod support;
mod typed_api;

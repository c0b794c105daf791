//! Random programs from bytes, as `crates/wakegraph-conformance/tests/programs.rs` runs them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wakegraph_conformance::programs::run_bytes(bytes));

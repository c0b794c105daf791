//! A Level Zero driver for tests: it computes on an OpenCL device for CPUs, and is stricter than any driver.
//!
//! The loader finds it through `ZE_ENABLE_ALT_DRIVERS`. It has the plain functions as well, so that a program
//! can load it instead of the loader. What it does that no driver does:
//!
//! - Commands that neither barriers nor events nor in-order flags order run in random order, on several
//!   threads, and some of them late. The seed is printed.
//! - A misuse that drivers take without a word ends the process, with the name of the call (`misuse.rs`).
//! - It plays several drivers, old and new ones (`presets.rs`), makes calls fail, and loses devices
//!   (`faults.rs`).
//!
//! Memory is plain memory full of garbage, at addresses that are never used twice.
//!
//! | variable | |
//! |---|---|
//! | `WAKEGRAPH_LZ_DEVICES` | which drivers it plays, in which order; by default all |
//! | `WAKEGRAPH_LZ_SEED` | the seed of what is random |
//! | `WAKEGRAPH_LZ_DELAY` | the longest delay of a command in microseconds, 50 by default |
//! | `WAKEGRAPH_LZ_FAIL` | calls that fail: `zeEventCreate:3:0x70000003` is the third of this name; separated by commas |
//! | `WAKEGRAPH_LZ_DEVICE_ID` | the device's PCI id, as a number in hexadecimal |
#![expect(unsafe_code, reason = "a C interface")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod commands;
mod devices;
mod engine;
mod events;
mod faults;
mod kernels;
mod lists;
mod memory;
mod misuse;
mod mutable;
mod objects;
mod opencl;
mod pointers;
mod presets;
mod queues;
mod spirv;
mod state;
mod tables;
#[path = "../../src/sys/types.rs"]
mod types;

/// What a call gives: the code of its failure.
type Outcome<T = ()> = Result<T, types::ze_result_t>;

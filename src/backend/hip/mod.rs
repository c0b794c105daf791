//! The HIP backend: AMD's GPUs through the HIP runtime of ROCm 5.5 or newer, loaded at run time.
//!
//! It has the shape of the CUDA backend, and its files have the same names. `docs/backends/hip.md`
//! says what differs, call by call.
//!
//! Imports `types` and `hal` only.
#![allow(non_upper_case_globals, reason = "the vendor's names")]
#![allow(dead_code, reason = "not all of it is used yet")]

mod context;
mod error;
mod handle;
mod stream;
mod sys;

//! Pieces that every driver's backend needs and no driver provides.
//!
//! | module | what it does |
//! |---|---|
//! | [`signals`] | signals of enqueues, events that have them, the spread of failures |
//! | [`command_list`] | a command-buffer of operations, for drivers that take one call for each: lowering, recording, updates |
//! | [`streams`] | the common part of drivers with streams and events |
//! | [`graphs`] | the common part of drivers with graphs of explicit nodes |
//! | [`kernel_cache`] | compiled kernels on disk, for processes that start again |
//! | [`launch`] | the geometry and the arguments of launches, and the declarations of kernels |
//! | [`sources`] | the parameters that a kernel's source must have, and programs that are compiled once |
//! | [`spirv`] | checks the frame of SPIR-V modules, and reads the parameters of their kernels |
//! | [`memory`] | memory of a driver, and zeroed memory of the host; copies and fills in the pieces, boxes and rows that drivers take |
//! | [`library`] | a vendor's library: loading it, its open devices, its objects, its signal handlers |
//! | [`errors`] | the errors of calls that a backend itself refuses; the health of a device: why it is lost |
//!
//! Everything here knows the contract and plain values only, never the fake device or validation.

pub mod command_list;
pub mod errors;
pub mod graphs;
pub mod kernel_cache;
pub mod launch;
pub mod library;
pub mod memory;
pub mod signals;
pub mod sources;
pub mod spirv;
pub mod streams;

//! Pieces that every driver's backend needs and no driver provides.
//!
//! | module | what it does |
//! |---|---|
//! | [`signals`] | signals of enqueues, events that have them, the spread of failures |
//! | [`lowering`] | lowers commands to operations, for drivers that take one call for each |
//! | [`recorded_commands`] | a command-buffer of such operations, from its creation to its updates |
//! | [`streams`] | the common part of drivers with streams and events |
//! | [`graphs`] | the common part of drivers with graphs of explicit nodes |
//! | [`launch`] | the geometry and the arguments of launches, and the declarations of kernels |
//! | [`copies`] | copies and fills in the pieces, boxes and rows that drivers take |
//! | [`sources`] | the parameters that a kernel's source must have, and programs that are compiled once |
//! | [`spirv`] | checks the frame of SPIR-V modules, and reads the parameters of their kernels |
//! | [`memory`] | memory of a driver, and zeroed memory of the host |
//! | [`library`] | a vendor's library: loading it, its open devices, its objects, its signal handlers |
//! | [`health`] | names a device in errors, and remembers why it is lost |
//! | [`refusal`] | the errors of calls that a backend itself refuses |
//!
//! Everything here knows the contract and plain values only, never the fake device or validation.

pub mod copies;
pub mod graphs;
pub mod health;
pub mod launch;
pub mod library;
pub mod lowering;
pub mod memory;
pub mod recorded_commands;
pub mod refusal;
pub mod signals;
pub mod sources;
pub mod spirv;
pub mod streams;

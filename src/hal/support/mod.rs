//! What backends share: pieces that every driver's backend needs and no driver provides.
//!
//! | module | what it does |
//! |---|---|
//! | [`dependency`] | spreads the failure of one enqueue to those that depend on it |
//! | [`signals`] | the last signal of an event, and the signals of a wait list |
//! | [`signal_event`] | events that have the signal of the last enqueue which named them |
//! | [`command_times`] | joins the times of a command's operations |
//! | [`polling`] | blocks on an event that can only be polled |
//! | [`transfer`] | cuts rectangular copies and fills into pieces that a driver takes |
//! | [`copy_box`], [`fill_row`] | copies and fills as drivers of GPUs take them |
//! | [`once_each`] | dependencies without duplicates |
//! | [`replaced`] | compares the objects of an updated command with those of the old one |
//! | [`lowering`] | lowers commands to operations, for drivers that take one call for each |
//! | [`command_list`] | the lowered commands of a command-buffer, with their order |
//! | [`recorded_commands`] | what a command-buffer of such commands is, from its creation to its updates |
//! | [`list_update`] | changes the commands of such a command-buffer: all that an update names, or none |
//! | [`launch_geometry`] | chooses the number and the size of a launch's work-groups |
//! | [`launch_arguments`] | packs a launch's arguments for drivers that want a pointer to each |
//! | [`retired`] | keeps what an update has replaced until the device no longer uses it |
//! | [`program_cache`] | compiles each source once |
//! | [`kernel_declaration`] | the arguments of a launch in the order of the source |
//! | [`source_params`] | compares a kernel's parameters with those in its source |
//! | [`spirv`] | checks the frame of SPIR-V modules, and reads the parameters of their kernels |
//! | [`object`] | objects of a driver, destroyed when dropped |
//! | [`streams`] | what drivers with streams and events have in common |
//! | [`graphs`] | what drivers with graphs of explicit nodes have in common |
//! | [`driver_memory`] | memory of a driver, which the host may access at its address |
//! | [`heap_block`] | zeroed memory of the host |
//! | [`open_devices`] | gives the same device object to everyone who opens an index |
//! | [`device_context`] | what the objects of a device know of it |
//! | [`health`] | names a device in errors, and remembers why it is lost |
//! | `library` | loads a vendor's library |
//! | [`signal_handlers`] | keeps the process's signal handlers while a driver is loaded or compiles |
//! | [`refusal`] | the errors of calls that a backend itself refuses |
//!
//! Imports `types` and the contract in `hal`.
#![allow(dead_code, reason = "which parts are used depends on the backends that are built")]

pub(crate) mod command_list;
pub(crate) mod command_times;
pub(crate) mod copy_box;
pub(crate) mod dependency;
pub(crate) mod device_context;
pub(crate) mod driver_memory;
pub(crate) mod fill_row;
#[cfg(any(feature = "cuda", feature = "hip"))]
pub(crate) mod graphs;
pub(crate) mod health;
pub(crate) mod heap_block;
pub(crate) mod kernel_declaration;
pub(crate) mod launch_arguments;
pub(crate) mod launch_geometry;
#[cfg(any(feature = "cuda", feature = "hip", feature = "level-zero", feature = "opencl"))]
pub(crate) mod library;
pub(crate) mod list_update;
pub(crate) mod lowering;
pub(crate) mod object;
pub(crate) mod once_each;
pub(crate) mod open_devices;
pub(crate) mod polling;
pub(crate) mod program_cache;
pub(crate) mod recorded_commands;
pub(crate) mod refusal;
pub(crate) mod replaced;
pub(crate) mod retired;
pub(crate) mod signal_event;
pub(crate) mod signal_handlers;
pub(crate) mod signals;
pub(crate) mod source_params;
pub(crate) mod spirv;
#[cfg(any(feature = "cuda", feature = "hip"))]
pub(crate) mod streams;
pub(crate) mod transfer;

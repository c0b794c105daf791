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
//! Everything here knows the contract and plain values only, never the fake device or validation.

pub mod command_list;
pub mod command_times;
pub mod copy_box;
pub mod dependency;
pub mod device_context;
pub mod driver_memory;
pub mod fill_row;
pub mod graphs;
pub mod health;
pub mod heap_block;
pub mod kernel_declaration;
pub mod launch_arguments;
pub mod launch_geometry;
pub mod library;
pub mod list_update;
pub mod lowering;
pub mod object;
pub mod once_each;
pub mod open_devices;
pub mod polling;
pub mod program_cache;
pub mod recorded_commands;
pub mod refusal;
pub mod replaced;
pub mod retired;
pub mod signal_event;
pub mod signal_handlers;
pub mod signals;
pub mod source_params;
pub mod spirv;
pub mod streams;
pub mod transfer;

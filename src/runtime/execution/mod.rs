//! Executables, their runs, and the futures of those.
//!
//! A file imports only from its own row and from rows above it, and no files import each other in a circle,
//! but for those of `run`, which share [`Run`](run::Run):
//!
//! | files | hold |
//! |---|---|
//! | `accesses`, `labels`, `progress`, `profile`, `deadline`, `run_data` | plain data, and clocks |
//! | `host_task` | closures of the host, and the lease that ends with their views |
//! | `template` | what is the same for all runs of an executable: its partitions |
//! | `run` | one submission while it executes, and what it comes after (`run/order.rs`) |
//! | `host_guard` | guards of host buffers, and the accesses that host tasks declare |
//! | `submission_queue` | short runs that the reactor launches in batches |
//! | `executable` | what handles and runs of an executable share, and its state |
//! | `conflicts` | the registers of memory: what a new run or guard comes after |
//! | `host_access`, `run_wait`, `in_flight`, `long_waits`, `submission` | how users wait, and for what |
//! | `submit`, `executable_graph`, `explain`, `host_control`, `timeline` | what users call |

pub(crate) mod accesses;
pub(crate) mod conflicts;
pub(crate) mod deadline;
pub(crate) mod executable;
pub(crate) mod executable_graph;
pub(crate) mod explain;
pub(crate) mod host_access;
pub(crate) mod host_control;
pub(crate) mod host_guard;
pub(crate) mod host_task;
pub(crate) mod in_flight;
pub(crate) mod labels;
pub(crate) mod long_waits;
pub(crate) mod profile;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod run_data;
pub(crate) mod run_wait;
pub(crate) mod submission;
pub(crate) mod submission_queue;
pub(crate) mod submit;
pub(crate) mod template;
#[cfg(test)]
mod tests;
pub mod timeline;

//! Executables, their runs, and the futures of those.

pub(crate) mod catch_panics;
pub(crate) mod conflicts;
pub(crate) mod deadline;
pub(crate) mod device_clock;
pub(crate) mod event;
pub(crate) mod executable;
pub(crate) mod executable_graph;
pub(crate) mod explain;
pub(crate) mod fence;
pub(crate) mod host_access;
pub(crate) mod host_control;
pub(crate) mod host_guard;
mod host_io;
pub(crate) mod host_task;
pub(crate) mod in_flight;
pub(crate) mod labels;
pub(crate) mod partitions;
pub(crate) mod polls;
pub(crate) mod profile;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod run_wait;
pub(crate) mod spin_time;
pub(crate) mod stream_tasks;
pub(crate) mod submission;
pub(crate) mod submission_queue;
pub(crate) mod submit;
pub(crate) mod template;
#[cfg(test)]
mod tests;
pub mod timeline;
pub(crate) mod updatable_cell;
pub(crate) mod watchdog;

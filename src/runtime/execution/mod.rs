//! Executables, their runs, and the futures of those.

pub(crate) mod abandoned_start;
pub(crate) mod batching;
pub(crate) mod catch_panics;
pub(crate) mod conflicts;
pub(crate) mod event;
pub(crate) mod executable;
pub(crate) mod fence;
pub(crate) mod host_scheduler;
pub(crate) mod host_task;
pub(crate) mod labels;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod submission;
pub(crate) mod submit;
pub(crate) mod updatable_cell;

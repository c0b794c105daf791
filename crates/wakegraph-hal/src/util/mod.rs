//! Small helpers that the runtime and the backends share. They know `tracing` and the standard library only.

pub mod adaptive_spin;
pub mod console;
pub mod deferred_drop;
pub mod on_demand;
pub mod panics;

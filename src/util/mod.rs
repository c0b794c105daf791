//! Layer 0: small helpers without a place of their own in the design. They know `types` and the
//! standard library, and nothing else of the crate.

pub(crate) mod adaptive_spin;
pub(crate) mod attachment;
pub(crate) mod console;
pub(crate) mod deferred_drop;
pub(crate) mod fork;
pub(crate) mod metrics;
pub(crate) mod nvtx;
pub(crate) mod on_demand;
pub(crate) mod panics;
pub(crate) mod parallel_copy;

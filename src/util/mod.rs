//! Layer 0: small helpers without a place of their own in the design. They know `types` and the
//! standard library, and nothing else of the crate.

pub(crate) mod attachment;
pub(crate) mod event_log;
pub(crate) mod fork;
pub(crate) mod metrics;
pub(crate) mod nvtx;
pub(crate) mod parallel_copy;
pub(crate) mod preparation_step;

pub(crate) use wakegraph_hal::util::{AdaptiveSpin, OnDemand, TryOnce, console, deferred_drop, panics};

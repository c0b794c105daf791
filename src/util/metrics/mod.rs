//! What the `metrics` facade hears of. The page `docs/metrics.md` lists every metric; a test
//! compares the two.
//!
//! Handles to metrics are made once for each device and pool, so counting allocates nothing.
//! Without the feature `metrics`, everything here is empty.

#[cfg_attr(feature = "metrics", path = "recorded.rs")]
#[cfg_attr(not(feature = "metrics"), path = "unrecorded.rs")]
mod recording;

pub(crate) use recording::{DeviceMetrics, PartitionMetrics, QueueMetrics, RunMetrics, Tally};

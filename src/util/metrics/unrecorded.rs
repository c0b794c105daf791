//! Without the feature `metrics`: nothing.

use crate::types::ErrorKind;

#[derive(Clone)]
pub(crate) struct DeviceMetrics;

impl DeviceMetrics {
    pub(crate) fn new(_selector: &str) -> Self {
        Self
    }

    pub(crate) fn without_device() -> Self {
        Self
    }

    pub(crate) fn run(&self) -> RunMetrics {
        RunMetrics {}
    }

    pub(crate) fn refused(&self, _why: ErrorKind) {}

    pub(crate) fn host_task(&self) -> Option<HostTaskTimer> {
        None
    }

    pub(crate) fn allocated(&self, _is_on_host: bool, _bytes: usize) -> Tally {
        Tally
    }
}

#[derive(Default)]
pub(crate) struct RunMetrics {}

impl RunMetrics {
    pub(crate) fn ended(&self, _failure: Option<ErrorKind>) {}

    pub(crate) fn woken(&self) {}
}

pub(crate) struct HostTaskTimer;

impl Drop for HostTaskTimer {
    fn drop(&mut self) {}
}

pub(crate) struct PartitionMetrics;

impl PartitionMetrics {
    pub(crate) fn new(_device: Option<&DeviceMetrics>) -> Self {
        Self
    }

    pub(crate) fn reset(&mut self) {}

    pub(crate) fn started(&self) {}

    pub(crate) fn given_back(&self) {}

    pub(crate) fn ended(&self) {}
}

pub(crate) struct QueueMetrics;

impl QueueMetrics {
    pub(crate) fn new(_of: &'static str, _pool: &str) -> Self {
        Self
    }

    pub(crate) fn waiting(&self) -> Tally {
        Tally
    }

    pub(crate) fn refused(&self) {}
}

pub(crate) struct Tally;

impl Tally {
    pub(crate) fn none() -> Self {
        Self
    }
}

//! Handles to nothing, without the feature `metrics`.

pub(super) use Silent as Counter;
pub(super) use Silent as Gauge;
pub(super) use Silent as Histogram;

/// A handle to nothing.
#[derive(Clone)]
pub(super) struct Silent;

impl Silent {
    pub(super) fn noop() -> Self {
        Self
    }

    pub(super) fn increment<T>(&self, _by: T) {}

    pub(super) fn decrement<T>(&self, _by: T) {}

    pub(super) fn record<T>(&self, _value: T) {}
}

pub(super) fn describe() {}

pub(super) fn counter(_name: &'static str, _of: &[(&'static str, &str)]) -> Counter {
    Silent
}

pub(super) fn gauge(_name: &'static str, _of: &[(&'static str, &str)]) -> Gauge {
    Silent
}

pub(super) fn histogram(_name: &'static str, _of: &[(&'static str, &str)]) -> Histogram {
    Silent
}

pub(super) fn has_listener(_gauges: &[&Gauge], _histograms: &[&Histogram]) -> bool {
    false
}

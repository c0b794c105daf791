//! Handles of the `metrics` facade.

use std::cell::Cell;

pub(super) use metrics::{Counter, Gauge, Histogram};
use metrics::{
    IntoF64, Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::{
    BATCH_ITEMS, BUSY, GIVEN_UP, HOST_TASK, KERNELS, MEMORY, PREPARATION, REFUSED, RUN, RUNS, RUNS_FAILED,
    RUNS_IN_FLIGHT, SLOTS, WAIT, WAITING, WAKE,
};

pub(super) fn describe() {
    describe_counter!(RUNS, Unit::Count, "Runs submitted");
    describe_counter!(RUNS_FAILED, Unit::Count, "Runs that ended with an error, by its kind");
    describe_gauge!(RUNS_IN_FLIGHT, Unit::Count, "Runs submitted and not over");
    describe_histogram!(RUN, Unit::Seconds, "Time from the submission of a run until it has ended");
    describe_histogram!(HOST_TASK, Unit::Seconds, "Time from the call of a host task until it has ended");
    describe_histogram!(
        WAKE,
        Unit::Seconds,
        "Time from the end of a run until a task that was waiting for it goes on"
    );
    describe_counter!(BUSY, Unit::Nanoseconds, "Time with a partition on the device");
    describe_gauge!(MEMORY, Unit::Bytes, "Bytes allocated by buffers and graphs");
    describe_histogram!(PREPARATION, Unit::Seconds, "Time of a step that comes before a first run");
    describe_counter!(KERNELS, Unit::Count, "Kernels loaded, by where their code comes from");
    describe_gauge!(WAITING, Unit::Count, "Requests that wait in a queue");
    describe_histogram!(
        WAIT,
        Unit::Seconds,
        "Time from the arrival of a request until it got what it waited for"
    );
    describe_counter!(REFUSED, Unit::Count, "Requests refused because a queue was full");
    describe_counter!(GIVEN_UP, Unit::Count, "Requests that left a queue without an answer");
    describe_gauge!(SLOTS, Unit::Count, "Slots of a pool in use");
    describe_histogram!(BATCH_ITEMS, Unit::Count, "Items of a batch");
}

pub(super) fn counter(name: &'static str, of: &[(&'static str, &str)]) -> Counter {
    counter!(name, labels(of))
}

pub(super) fn gauge(name: &'static str, of: &[(&'static str, &str)]) -> Gauge {
    gauge!(name, labels(of))
}

pub(super) fn histogram(name: &'static str, of: &[(&'static str, &str)]) -> Histogram {
    histogram!(name, labels(of))
}

fn labels(of: &[(&'static str, &str)]) -> Vec<Label> {
    of.iter().map(|&(name, value)| Label::new(name, value.to_owned())).collect()
}

/// Whether a recorder listens. Handles convert what they are given only if one does; none of
/// what this gives them changes a metric.
pub(super) fn has_listener(gauges: &[&Gauge], histograms: &[&Histogram]) -> bool {
    let heard = Cell::new(false);
    gauges.iter().for_each(|gauge| gauge.increment(Nothing { heard: &heard }));
    histograms.iter().for_each(|histogram| histogram.record_many(Nothing { heard: &heard }, 0));
    heard.get()
}

/// A value of 0 that notes when a recorder asks for it.
struct Nothing<'a> {
    heard: &'a Cell<bool>,
}

impl IntoF64 for Nothing<'_> {
    fn into_f64(self) -> f64 {
        self.heard.set(true);
        0.0
    }
}

//! The backend contract, through its validation, [`ValidatedDevice`](wakegraph::hal::ValidatedDevice).

mod batches;
mod bench;
mod bodies;
mod copies;
mod errors;
mod failures;
mod fills;
mod info;
mod kernels;
mod launches;
mod lifetime;
mod low_latency;
mod low_latency_update_from;
mod low_latency_updates;
mod memory;
mod notify;
mod operands;
mod order;
mod out_of_order;
mod profiling;
mod random_bodies;
mod records;
mod rectangles;
mod results_of_updates;
mod stamps;
mod switches;
mod update_from;
mod updates;
mod waiting;

use crate::suite::Test;

pub(crate) fn tests() -> impl Iterator<Item = Test> {
    [
        batches::TESTS,
        bodies::TESTS,
        copies::TESTS,
        errors::TESTS,
        failures::TESTS,
        fills::TESTS,
        info::TESTS,
        kernels::TESTS,
        lifetime::TESTS,
        low_latency::TESTS,
        low_latency_update_from::TESTS,
        low_latency_updates::TESTS,
        memory::TESTS,
        notify::TESTS,
        operands::TESTS,
        order::TESTS,
        out_of_order::TESTS,
        profiling::TESTS,
        random_bodies::TESTS,
        rectangles::TESTS,
        results_of_updates::TESTS,
        switches::TESTS,
        update_from::TESTS,
        updates::TESTS,
        waiting::TESTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

//! The backend contract, through [`hal::checked`](wakegraph::hal::checked).

mod bench;
mod bodies;
mod copies;
mod errors;
mod failures;
mod fills;
mod info;
mod kernels;
mod lifetime;
mod memory;
mod notify;
mod operands;
mod order;
mod profiling;
mod random_bodies;
mod rectangles;
mod results_of_updates;
mod updates;
mod waiting;

use crate::registry::Test;

pub(crate) fn tests() -> impl Iterator<Item = Test> {
    [
        bodies::TESTS,
        copies::TESTS,
        errors::TESTS,
        failures::TESTS,
        fills::TESTS,
        info::TESTS,
        kernels::TESTS,
        lifetime::TESTS,
        memory::TESTS,
        notify::TESTS,
        operands::TESTS,
        order::TESTS,
        profiling::TESTS,
        random_bodies::TESTS,
        rectangles::TESTS,
        results_of_updates::TESTS,
        updates::TESTS,
        waiting::TESTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

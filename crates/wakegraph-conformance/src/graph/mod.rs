//! The public API: graphs, executables, submissions.

mod body_updates;
mod bounds;
mod command_groups;
mod control;
mod control_nodes;
mod copies;
mod dlpack;
mod edges;
mod empty;
mod failures;
mod fills;
mod half;
mod host_control;
mod host_memory;
mod host_tasks;
mod idle;
mod implicit;
mod kernels;
mod lifetime;
mod many_in_flight;
mod memory;
mod multi_device;
mod native;
mod nested_updates;
mod parameters;
mod profile;
mod queues;
mod random_programs;
mod recording;
mod rectangles;
mod refusals;
mod scratch;
mod shares;
mod stream_tasks;
mod sub_graphs;
mod updates;

use crate::suite::Test;

pub(crate) fn tests() -> impl Iterator<Item = Test> {
    [
        body_updates::TESTS,
        bounds::TESTS,
        command_groups::TESTS,
        control::TESTS,
        control_nodes::TESTS,
        copies::TESTS,
        dlpack::TESTS,
        many_in_flight::TESTS,
        edges::TESTS,
        empty::TESTS,
        failures::TESTS,
        fills::TESTS,
        half::TESTS,
        host_control::TESTS,
        host_memory::TESTS,
        host_tasks::TESTS,
        idle::TESTS,
        implicit::TESTS,
        kernels::TESTS,
        lifetime::TESTS,
        memory::TESTS,
        multi_device::TESTS,
        nested_updates::TESTS,
        parameters::TESTS,
        profile::TESTS,
        queues::TESTS,
        random_programs::TESTS,
        recording::TESTS,
        rectangles::TESTS,
        refusals::TESTS,
        scratch::TESTS,
        shares::TESTS,
        sub_graphs::TESTS,
        updates::TESTS,
    ]
    .into_iter()
    .flatten()
    .copied()
    .chain(native::tests())
    .chain(stream_tasks::tests())
}

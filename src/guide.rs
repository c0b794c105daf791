//! The examples of the guide, compiled and run by `cargo test --doc`.

/// Makes a page's examples tests of a module of its own.
macro_rules! pages {
    ($($module:ident: $page:literal)*) => {
        $(#[doc = include_str!(concat!("../docs/", $page))] mod $module {})*
    };
}

pages! {
    graphs: "guide/graphs.md"
    dependencies: "guide/dependencies.md"
    recording: "guide/recording.md"
    updating: "guide/updating.md"
    control_flow: "guide/control-flow.md"
    memory: "guide/memory.md"
    host_tasks: "guide/host-tasks.md"
    several_devices: "guide/several-devices.md"
    errors: "guide/errors.md"
    cancellation: "guide/cancellation.md"
}

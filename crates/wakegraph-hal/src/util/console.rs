//! Spans and events by which [tokio-console] knows resources, operations on them, and tasks.
//!
//! It recognises them by name, target and fields alone, as tokio emits them for its own resources; there is
//! no stable interface of tokio's for this. Nothing here depends on `tokio_unstable`. Without a
//! listener, a span or event costs a comparison of levels.
//!
//! The console attributes an event to the resource, operation and task whose spans are entered. So
//! each event is emitted inside the spans of its resource and operation, and only tasks call
//! [`AsyncOperation::poll`]. The console reads one attribute from each event.
//!
//! [tokio-console]: https://docs.rs/console-subscriber

use std::panic::Location;

use tracing::{Level, Span, event_enabled, trace, trace_span};

/// The console's own filter passes events whose targets, and spans whose names, begin with `runtime`. No
/// macro asks whether a span with a name is enabled, so the functions here ask about events.
const RESOURCE: &str = "runtime::resource";
const RESOURCE_STATE: &str = "runtime::resource::state_update";
const OPERATION_STATE: &str = "runtime::resource::async_op::state_update";
/// The kind of all resources, by which the console can filter.
const KIND: &str = "wakegraph";
const POLL: &str = "runtime::resource::poll_op";
#[cfg(not(all(tokio_unstable, feature = "tokio-console")))]
const TASK: &str = "runtime::task";

/// A device, a queue or an executable, from when it is made until it is dropped. Clones stand for the same.
#[derive(Clone, Debug)]
pub struct Resource(Span);

impl Resource {
    /// A device.
    pub fn device(selector: &str, name: &str) -> Self {
        let resource = Self::new("Device", None);
        resource.0.in_scope(|| {
            trace!(target: RESOURCE_STATE, selector);
            trace!(target: RESOURCE_STATE, name);
        });
        resource
    }

    /// A queue of a device.
    pub fn queue(device: &Self, selector: &str, order: &str) -> Self {
        let resource = Self::new("Queue", Some(device));
        resource.0.in_scope(|| {
            trace!(target: RESOURCE_STATE, device = selector);
            trace!(target: RESOURCE_STATE, order);
        });
        resource
    }

    /// An executable graph, with its name and the place where it was finalized, as far as there are such.
    pub fn executable(name: Option<&str>, partitions: usize, location: Option<&Location<'_>>) -> Self {
        let resource = Self(trace_span!(
            target: RESOURCE,
            "runtime.resource",
            concrete_type = "ExecutableGraph",
            kind = KIND,
            loc.file = location.map(Location::file),
            loc.line = location.map(Location::line),
            loc.col = location.map(Location::column),
        ));
        resource.0.in_scope(|| {
            trace!(target: RESOURCE_STATE, partitions);
            name.into_iter().for_each(|name| trace!(target: RESOURCE_STATE, name));
        });
        resource
    }

    /// Stands for none: its operations are not shown.
    pub fn none() -> Self {
        Self(Span::none())
    }

    fn new(concrete_type: &str, parent: Option<&Self>) -> Self {
        let span = || trace_span!(target: RESOURCE, "runtime.resource", concrete_type, kind = KIND);
        Self(parent.map_or_else(span, |parent| parent.0.in_scope(span)))
    }
}

/// Whether a subscriber listens to operations.
pub fn has_listener() -> bool {
    event_enabled!(target: OPERATION_STATE, Level::TRACE, state)
}

/// Something that tasks wait for, until it is dropped.
#[derive(Debug)]
pub struct AsyncOperation {
    resource: Resource,
    span: Span,
    poll: Span,
}

impl AsyncOperation {
    /// An operation on a resource, which the function `source` started.
    pub fn new(resource: &Resource, source: &str) -> Self {
        resource.0.in_scope(|| {
            let span = trace_span!(target: RESOURCE, "runtime.resource.async_op", source);
            let poll = span.in_scope(|| trace_span!(target: RESOURCE, "runtime.resource.async_op.poll"));
            Self { resource: resource.clone(), span, poll }
        })
    }

    /// Describes the operation.
    pub fn describe(&self, partition: usize, device: &str, nodes: &str) {
        self.inside(|| {
            trace!(target: OPERATION_STATE, partition);
            trace!(target: OPERATION_STATE, device);
            trace!(target: OPERATION_STATE, nodes);
        });
    }

    /// Sets how far the operation is, and which partitions it waits for.
    pub fn set_state(&self, state: &str, waits_for: &str) {
        self.inside(|| {
            trace!(target: OPERATION_STATE, state);
            trace!(target: OPERATION_STATE, waits_for);
        });
    }

    /// A task that waits for the operation polls.
    pub fn poll(&self, is_ready: bool) {
        self.inside(|| {
            self.poll.in_scope(|| trace!(target: POLL, op_name = "poll", is_ready));
        });
    }

    fn inside(&self, emit: impl FnOnce()) {
        self.resource.0.in_scope(|| self.span.in_scope(emit));
    }
}

/// The span of a task, which is entered while the task is polled. Where tokio names its tasks itself, it has
/// no use.
#[cfg(not(all(tokio_unstable, feature = "tokio-console")))]
pub fn task(name: impl FnOnce() -> String, location: &Location<'_>) -> Span {
    if !event_enabled!(target: TASK, Level::TRACE, kind) {
        return Span::none();
    }
    trace_span!(
        target: TASK,
        parent: None,
        "runtime.spawn",
        kind = "task",
        task.name = name(),
        loc.file = location.file(),
        loc.line = location.line(),
        loc.col = location.column(),
    )
}

//! Conditionals and loops: as commands of a device, or as tasks of the host.

use std::borrow::Cow;
use std::sync::Arc;

use wakegraph_hal::{self as hal, Error, ErrorKind, MemoryKind, Result};

use crate::graph::Content;
use crate::plan::{PartitionPolicy, Plan, PlanOptions};
use crate::runtime::builder::Graph;
use crate::runtime::builder::command::{Body, Control};
use crate::runtime::execution::executable::ExecutableHandle;
use crate::runtime::execution::host_control::{ControlKind, HostControl};
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::finalize::{self, FinalizeOptions, Source, kernels};
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::host_buffer::HostBuffer;

/// The task that drives it from the host. Each body becomes an executable.
pub(crate) fn host_task(control: &Control, label: String, options: &FinalizeOptions) -> Result<HostTask> {
    if options.updatable {
        kernels::load_alternatives(control)?;
    }
    let control = Arc::new(host_control(control, label, options)?);
    let described = control.clone();
    let run_data = control.run_data()?;
    Ok(HostTask::internal(
        run_data,
        move |lease| control.clone().run(lease.clone()),
        move || described.plan_text(),
    ))
}

fn host_control(control: &Control, label: String, options: &FinalizeOptions) -> Result<HostControl> {
    // The node's times are the task's.
    let options = options.clone().profiling(false).updatable(false);
    // What keeps the whole run apart from others does not know the memory of its bodies.
    let finalize = |graph: &Graph| {
        Ok::<_, Error>(ExecutableHandle::new(finalize::build(graph, &options, None, None)?.0))
    };
    let flag = &control.condition;
    let (read, word) = match flag.kind() {
        MemoryKind::Host => (None, flag.clone()),
        MemoryKind::Device => {
            let device = flag.allocation.device();
            let word = HostBuffer::<u32>::allocate(device, 1)?;
            let mut read = Graph::new(device);
            read.copy(Buffer::<u32>::from_view(flag.clone()), &word).name("read the flag");
            (Some(read), word.view().clone())
        }
    };
    let kind = control.kind;
    let finalize_body = |body: &Body| match &read {
        // The copy comes after whatever writes the flag.
        Some(read) if kind == ControlKind::While => {
            let mut both = body.snapshot()?;
            both.sub_graph(read);
            finalize(&both)
        }
        _ => finalize(body),
    };
    let bodies = control.bodies.iter().map(finalize_body).collect::<Result<_>>()?;
    let read = read.as_ref().map(finalize).transpose()?;
    Ok(HostControl { label: label.into(), read, word, kind, bodies })
}

/// The command for `device`.
///
/// # Errors
/// As for the commands of a graph; the node of the body is named.
pub(crate) fn to_hal(control: &Control, device: &Device) -> Result<hal::Command> {
    if control.needs_host(device.id(), &|_| device.node_kinds()) {
        let why = "the device decides here by itself, and what it would run needs the host";
        return Err(Error::new(ErrorKind::InvalidArgument, why).help("finalize the graph again"));
    }
    let condition = control.condition.to_hal()?;
    let bodies = control.bodies.iter().map(|body| record(body, device).map(Arc::new));
    let bodies = bodies.collect::<Result<Vec<_>>>()?;
    Ok(match (control.kind, &bodies[..]) {
        (ControlKind::If, [then, otherwise @ ..]) => {
            hal::Command::If { condition, then: then.clone(), otherwise: otherwise.first().cloned() }
        }
        (ControlKind::While, [body]) => hal::Command::While { condition, body: body.clone() },
        _ => hal::Command::Switch { index: condition, bodies },
    })
}

/// Plans the body like a graph, as one partition, and records its commands.
fn record(body: &Body, device: &Device) -> Result<hal::Body> {
    let graph = body.inner();
    let options = PlanOptions { partition: PartitionPolicy::Fewest, ..PlanOptions::default() };
    let plan = Plan::new(graph, |_| device.node_kinds(), &options)?;
    let source = Source::new(graph, &plan);
    let mut body = hal::Body::new();
    let mut after: Vec<u32> = Vec::new();
    match plan.partitions() {
        [] => return Ok(body),
        [_] => {}
        _ => {
            return Err(Error::new(
                ErrorKind::Bug,
                "the body of a conditional, switch or loop has several partitions",
            ));
        }
    }
    let in_order = plan.partitions()[0].in_order;
    for (position, &node) in plan.nodes(0).iter().enumerate() {
        let (graph, index) = source.place(&plan, node);
        after.clear();
        match (in_order, position.checked_sub(1)) {
            (true, before) => after.extend(before.map(|before| before as u32)),
            (false, _) => after.extend_from_slice(plan.waits(0, position)),
        }
        let command = match graph.content_at(index) {
            Content::Command(command) => finalize::to_hal(device, command, false)
                .and_then(|recorded| finalize::unless_disabled(command, recorded, device))
                .map(Cow::into_owned),
            Content::Empty | Content::SubGraph(_) => Ok(hal::Command::Empty),
        };
        command
            .and_then(|command| body.push(command, &after))
            .map_err(|error| error.in_node(graph.label_at(index)).at(graph.location_at(index)))?;
    }
    Ok(body)
}

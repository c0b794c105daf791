//! Conditionals and loops as commands: their bodies are planned and recorded here.

use std::borrow::Cow;
use std::sync::Arc;

use crate::graph::Content;
use crate::hal;
use crate::plan::{PartitionPolicy, Plan, PlanOptions};
use crate::runtime::builder::control_flow::{Body, Control, ControlKind};
use crate::runtime::finalize::{self, Source};
use crate::runtime::resource::device::Device;
use crate::types::{Error, ErrorKind, Result};

/// The command for `device`.
///
/// # Errors
/// As for the commands of a graph; the node of the body is named.
pub(super) fn to_hal(control: &Control, device: &Device) -> Result<hal::Command> {
    let condition = control.condition.to_hal()?;
    let record = |body: &Body| record(body, device).map(Arc::new);
    Ok(match &control.kind {
        ControlKind::If { then, otherwise } => hal::Command::If {
            condition,
            then: record(then)?,
            otherwise: otherwise.as_ref().map(record).transpose()?,
        },
        ControlKind::While(body) => hal::Command::While { condition, body: record(body)? },
    })
}

/// Plans the body like a graph, as one partition, and records its commands.
fn record(graph: &Body, device: &Device) -> Result<hal::Body> {
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
                "the body of a conditional or loop has several partitions",
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
            Content::Command(command) => finalize::to_hal(device, command, false).map(Cow::into_owned),
            Content::Empty | Content::SubGraph(_) => Ok(hal::Command::Empty),
        };
        command
            .and_then(|command| body.push(command, &after))
            .map_err(|error| error.in_node(graph.label_at(index)).at(graph.location_at(index)))?;
    }
    Ok(body)
}

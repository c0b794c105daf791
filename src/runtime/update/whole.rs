//! An executable from another graph of the same topology.

use std::sync::Arc;

use super::Change;
use super::carry_out::Accesses;
use super::state::{Current, Updatable};
use crate::graph::{self, Content};
use crate::hal::{self, CommandHandle, CommandUpdate};
use crate::runtime::command::Command;
use crate::runtime::executable::{Shared, Work};
use crate::runtime::finalize::{self, Source};
use crate::runtime::graph::Graph;
use crate::runtime::host_task::HostTask;
use crate::runtime::scratch::Places;
use crate::runtime::uses::Uses;
use crate::types::{Error, ErrorKind, Result};

/// The other graph, as it was when the update was made.
pub(crate) struct Whole(graph::Graph<Command>);

/// Takes a snapshot of the graph.
pub(crate) fn whole(graph: &Graph) -> Result<Change> {
    match graph.errors().first() {
        Some(error) => Err(error.clone()),
        None if graph.has_scratch() => {
            let why = "an executable cannot be updated from a graph with scratch buffers";
            Err(Error::new(ErrorKind::InvalidArgument, why).help("finalize the graph instead"))
        }
        None => Ok(Change::Whole(Box::new(Whole(graph.inner().clone())))),
    }
}

/// The other graph's commands, recorded.
pub(super) struct Recorded {
    graph: graph::Graph<Command>,
    buffers: Vec<(usize, Box<dyn hal::CommandBuffer>)>,
    tasks: Vec<(usize, Arc<HostTask>)>,
    uses: Uses,
}

/// What has been replaced.
pub(super) struct Replaced {
    _graph: graph::Graph<Command>,
    _uses: Uses,
}

/// Compares the graphs and records the other one. It has the same topology, so the plan is the same.
pub(super) fn record(
    shared: &Shared,
    updatable: &Updatable,
    current: &Current,
    Whole(other): &Whole,
) -> Result<Recorded> {
    compare(&current.graph, other)?;
    let plan = &shared.outline.plan;
    let (mut uses, source) = (Uses::default(), Source::new(other, plan));
    let (mut buffers, mut tasks) = (Vec::new(), Vec::new());
    for (index, partition) in shared.partitions.iter().enumerate() {
        match &partition.work {
            Work::Device { device, .. } => {
                let buffer = finalize::record(
                    &source,
                    plan,
                    index,
                    device,
                    updatable.options,
                    &Places::default(),
                    &mut uses,
                );
                buffers.push((index, buffer.map_err(|error| shared.outline.locate(index, error))?));
            }
            Work::HostTask(_) => {
                tasks.push((index, finalize::host_task(&source, plan, index, &mut uses)?));
            }
        }
    }
    Ok(Recorded { graph: other.clone(), buffers, tasks, uses })
}

impl Recorded {
    /// The accesses that come and those that go.
    pub(super) fn accesses(&self, current: &Current) -> (Accesses, Accesses) {
        (self.uses.accesses(), current.uses.accesses())
    }

    /// Updates all partitions, or none of them. The caller keeps everybody from enqueueing.
    pub(super) fn apply(&self, shared: &Shared, updatable: &Updatable, current: &Current) -> Result<()> {
        for (done, (partition, buffer)) in self.buffers.iter().enumerate() {
            if let Err(error) = update(shared, *partition, &**buffer) {
                for (partition, _) in &self.buffers[..done] {
                    if let Err(error) = restore(shared, updatable, current, *partition) {
                        updatable.set_broken(error);
                    }
                }
                return Err(error);
            }
        }
        for (partition, task) in &self.tasks {
            if let Work::HostTask(place) = &shared.partitions[*partition].work {
                // The old one is kept by the graph that it is replaced with.
                place.change(|place| place.clone_from(task));
            }
        }
        Ok(())
    }

    /// Remembers the new graph. Gives back what has been replaced.
    pub(super) fn commit(self, current: &mut Current) -> Replaced {
        current.accesses.clear();
        current.disabled.clear();
        Replaced {
            _graph: std::mem::replace(&mut current.graph, self.graph),
            _uses: std::mem::replace(&mut current.uses, self.uses),
        }
    }
}

/// Makes a partition what it was.
fn restore(shared: &Shared, updatable: &Updatable, current: &Current, partition: usize) -> Result<()> {
    let Work::Device { device, .. } = &shared.partitions[partition].work else { return Ok(()) };
    let (plan, mut uses) = (&shared.outline.plan, Uses::default());
    let source = Source::new(&current.graph, plan);
    let (options, scratch) = (updatable.options, &shared.scratch);
    let mut buffer = finalize::record(&source, plan, partition, device, options, scratch, &mut uses)?;
    let id = buffer.info().id;
    let places = current.disabled.iter().filter_map(|&node| updatable.places[node as usize]);
    let here = places.filter(|place| place.partition as usize == partition);
    let switches = here.map(|place| CommandUpdate {
        enabled: Some(false),
        ..CommandUpdate::new(CommandHandle { buffer: id, index: place.position })
    });
    let switches: Vec<_> = switches.collect();
    if !switches.is_empty() {
        buffer.finalize()?;
        buffer.update(&switches)?;
    }
    update(shared, partition, &*buffer)
}

fn update(shared: &Shared, partition: usize, other: &dyn hal::CommandBuffer) -> Result<()> {
    let Work::Device { command_buffer, .. } = &shared.partitions[partition].work else { return Ok(()) };
    let updated = command_buffer.change(|buffer| buffer.update_from(other));
    updated.unwrap_or(Ok(())).map_err(|error| shared.outline.locate(partition, error))
}

/// Whether two graphs have the same topology, nodes and kernels, sub-graphs included.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument), with every difference by its nodes' names, up to some.
fn compare(ours: &graph::Graph<Command>, theirs: &graph::Graph<Command>) -> Result<()> {
    const NAMED: usize = 8;
    let mut differences = Vec::new();
    let mut pending = vec![(ours, theirs, String::new())];
    while let Some((ours, theirs, path)) = pending.pop() {
        for index in 0..ours.len().min(theirs.len()) {
            let (here, there) = (&ours.content_at(index), &theirs.content_at(index));
            if let (Content::SubGraph(here), Content::SubGraph(there)) = (here, there)
                && !Arc::ptr_eq(here, there)
            {
                pending.push((&**here, &**there, format!("{path}{} / ", ours.label_at(index))));
            }
            if let Some(difference) = node_difference(ours, theirs, index) {
                differences.push(format!("{path}{}: {difference}", ours.label_at(index)));
            }
        }
        let longer = if ours.len() > theirs.len() { (ours, "here") } else { (theirs, "there") };
        for index in ours.len().min(theirs.len())..longer.0.len() {
            differences.push(format!("{path}{}: {} only", longer.0.label_at(index), longer.1));
        }
        if ours.len() == theirs.len() {
            differences.extend(edge_difference(ours, theirs).map(|difference| format!("{path}{difference}")));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let more = differences.len().saturating_sub(NAMED);
    differences.truncate(NAMED);
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    let why = format!("the graphs differ: {}", differences.join("; "));
    Err(Error::new(ErrorKind::InvalidArgument, why)
        .help("build it with the same nodes and edges in the same order, or finalize it instead"))
}

fn node_difference(
    ours: &graph::Graph<Command>,
    theirs: &graph::Graph<Command>,
    index: usize,
) -> Option<String> {
    let (here, there) = (ours.kinds()[index], theirs.kinds()[index]);
    if here != there {
        return Some(format!("{there} there"));
    }
    if ours.devices()[index] != theirs.devices()[index] {
        return Some("on another device there".into());
    }
    match (ours.content_at(index), theirs.content_at(index)) {
        (
            Content::Command(Command::Kernel { call: own, alternatives, .. }),
            Content::Command(Command::Kernel { call, .. }),
        ) => {
            let known = own.kernel.is(&call.kernel) || alternatives.iter().any(|one| one.is(&call.kernel));
            (!known)
                .then(|| format!("kernel '{}' there, which is no registered alternative", call.kernel.name()))
        }
        _ => None,
    }
}

/// The first edge that is another one.
fn edge_difference(ours: &graph::Graph<Command>, theirs: &graph::Graph<Command>) -> Option<String> {
    let edge = |(from, to): (u32, u32)| {
        format!("{} -> {}", ours.label_at(from as usize), ours.label_at(to as usize))
    };
    let (mut here, mut there) = (ours.edges(), theirs.edges());
    for number in 0.. {
        match (here.next(), there.next()) {
            (None, None) => break,
            (one, other) if one == other => {}
            (Some(one), Some(other)) => {
                return Some(format!("edge {number} is {} here, {} there", edge(one), edge(other)));
            }
            (Some(one), None) => return Some(format!("the edge {} is here only", edge(one))),
            (None, Some(other)) => return Some(format!("the edge {} is there only", edge(other))),
        }
    }
    None
}

//! An executable from another graph of the same topology.

use std::collections::HashSet;
use std::sync::Arc;

use wakegraph_hal::{self as hal, CommandHandle, CommandKind, CommandUpdate, Error, ErrorKind, Result};

use crate::graph::{self, Content};
use crate::plan::{GraphInstance, Origin, Plan};
use crate::runtime::builder::Graph;
use crate::runtime::builder::command::Command;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::template::{PartitionWork, Stoppable};
use crate::runtime::finalize::node_index::{IndexBefore, NodeIndex};
use crate::runtime::finalize::updatable::{Accesses, CurrentGraph, Updatable, instance_graphs};
use crate::runtime::finalize::uses::Uses;
use crate::runtime::finalize::{self, Source};
use crate::runtime::resource::scratch::Places;
use crate::sync::Ordering;

/// Another graph, recorded for the partitions of the executable. Recording loads kernels and calls
/// the closures of native commands, so it comes before any lock is taken.
pub(crate) struct Recorded {
    graphs: Vec<graph::Graph<Command>>,
    buffers: Vec<(usize, hal::ValidatedCommandBuffer)>,
    tasks: Vec<(usize, Arc<HostTask>)>,
    stream_tasks: Vec<(usize, Arc<hal::Command>)>,
    uses: Uses,
    scratch: Arc<Places>,
    stoppable: Stoppable,
}

/// Parts of the executable that the replaced graph alone used.
pub(super) struct ReplacedGraph {
    _tasks: Vec<(usize, Arc<HostTask>)>,
    _stream_tasks: Vec<(usize, Arc<hal::Command>)>,
    _graphs: Vec<graph::Graph<Command>>,
    _uses: Uses,
    _scratch: Arc<Places>,
}

/// Records another graph, as it is now. It must have the same topology, so its plan is the same.
pub(super) fn record(executable: &ExecutableInner, graph: &Graph) -> Result<Recorded> {
    let updatable = Updatable::of(executable)?;
    if let Some(error) = graph.errors().first() {
        return Err(error.clone());
    }
    let plan = &executable.labels.plan;
    let has_scratch = graph.has_scratch();
    let graphs = instance_graphs(graph.present()?.into_owned(), plan.instances());
    // No update changes the topology, so any state of the executable will do.
    let now = {
        let current = updatable.lock();
        compare(plan, &current.graphs, &graphs, topology_differences)?;
        current.scratch.clone()
    };
    let source = Source::of_instances(&graphs);
    // Runs follow each other, so they may use the same memory, whatever lies where in it.
    let scratch = match has_scratch {
        true => Places::allocate(plan, source.views(plan), &now)?,
        false => now.emptied(),
    };
    let mut uses = Uses::of_shared(&scratch);
    let (mut buffers, mut tasks, mut stream_tasks) = (Vec::new(), Vec::new(), Vec::new());
    for (index, partition) in executable.partitions.iter().enumerate() {
        match (&partition.work, partition.device()) {
            (PartitionWork::CommandBuffer(_), Some(device)) => {
                let options = &updatable.options;
                let buffer = finalize::record(&source, plan, index, device, options, &scratch, &mut uses)
                    .and_then(|recording| recording.into_source(device));
                buffers.push((index, buffer.map_err(|error| executable.labels.locate(index, error))?));
            }
            (PartitionWork::StreamTask(_), Some(device)) => {
                stream_tasks.push((index, finalize::stream_task(&source, plan, index, device, &mut uses)?));
            }
            (PartitionWork::HostTask(_), _) => {
                let task = finalize::host_task(&source, plan, index, &updatable.options, &mut uses)?;
                let checked = executable.check_run_data(&task);
                checked.map_err(|error| executable.labels.locate(index, error))?;
                tasks.push((index, task));
            }
            // Not of an executable.
            (_, _) => {}
        }
    }
    let device_of = |partition: usize| executable.partitions[partition].device();
    let stoppable = finalize::stoppable(&source, plan, device_of);
    Ok(Recorded { graphs, buffers, tasks, stream_tasks, uses, scratch: Arc::new(scratch), stoppable })
}

impl Recorded {
    /// Checks that the graph launches kernels which the executable has registered by now.
    pub(super) fn check(&self, executable: &ExecutableInner, current: &CurrentGraph) -> Result<()> {
        compare(&executable.labels.plan, &current.graphs, &self.graphs, kernel_differences)
    }

    pub(super) fn uses(&self) -> &Uses {
        &self.uses
    }

    /// The accesses that come and those that go.
    pub(super) fn accesses(&self, current: &CurrentGraph) -> (Accesses, Accesses) {
        (self.uses.accesses(), current.uses.accesses())
    }

    /// Updates all partitions. The caller holds the executable's state, so that nothing is enqueued
    /// meanwhile.
    ///
    /// # Errors
    /// That of the first partition that refuses, with how many partitions have been updated before
    /// it. Those the caller has to restore.
    pub(super) fn apply(&mut self, executable: &ExecutableInner) -> Result<(), (Error, usize)> {
        executable.stoppable.fetch_max(self.stoppable as u8, Ordering::Relaxed);
        for (done, (partition, buffer)) in self.buffers.iter().enumerate() {
            update(executable, *partition, buffer).map_err(|error| (error, done))?;
        }
        for (partition, task) in &mut self.tasks {
            if let Some(place) = executable.partitions[*partition].host_task() {
                // The old one may own the bodies of a loop: it is dropped without locks.
                place.change(|place| std::mem::swap(place, task));
            }
        }
        for (partition, new) in &mut self.stream_tasks {
            if let Some(task) = executable.partitions[*partition].stream_task() {
                task.change(|task| std::mem::swap(task, new));
            }
        }
        Ok(())
    }

    /// Remembers the new graph. Gives back what has been replaced.
    pub(super) fn commit(
        &mut self,
        executable: &ExecutableInner,
        current: &mut CurrentGraph,
    ) -> ReplacedGraph {
        let (plan, mut graphs) = (&executable.labels.plan, std::mem::take(&mut self.graphs));
        let before = IndexBefore { index: &current.index, graphs: &current.graphs };
        let index = NodeIndex::new(plan, &mut graphs, Some(before));
        current.disabled.clear();
        current.planned = index.planned_uses(plan, &graphs);
        ReplacedGraph {
            _tasks: std::mem::take(&mut self.tasks),
            _stream_tasks: std::mem::take(&mut self.stream_tasks),
            _graphs: current.replace_graphs(index, graphs),
            _uses: std::mem::replace(&mut current.uses, std::mem::take(&mut self.uses)),
            _scratch: std::mem::replace(&mut current.scratch, self.scratch.clone()),
        }
    }

    /// Takes back what a failed [`apply`](Self::apply) has done to the first `done` partitions.
    /// This records the executable's own graph again, which calls the closures of native commands:
    /// the caller holds no lock, but a place in the order, so that no other update is applied and
    /// nothing is enqueued meanwhile.
    pub(super) fn restore(&self, executable: &ExecutableInner, updatable: &Updatable, done: usize) {
        let own = {
            let current = updatable.lock();
            Own {
                graphs: current.graphs.clone(),
                disabled: current.disabled.clone(),
                index: current.index.clone(),
                scratch: current.scratch.clone(),
            }
        };
        for (partition, _) in &self.buffers[..done] {
            if let Err(error) = own.restore(executable, updatable, *partition) {
                executable.set_broken(error);
            }
        }
    }
}

/// The executable's own commands.
struct Own {
    graphs: Vec<graph::Graph<Command>>,
    disabled: HashSet<Origin>,
    index: Arc<NodeIndex>,
    scratch: Arc<Places>,
}

impl Own {
    /// Makes a partition run these commands.
    fn restore(&self, executable: &ExecutableInner, updatable: &Updatable, partition: usize) -> Result<()> {
        let Some(device) = executable.partitions[partition].device() else { return Ok(()) };
        let (plan, mut uses) = (&executable.labels.plan, Uses::default());
        let source = Source::of_instances(&self.graphs);
        let (options, scratch) = (&updatable.options, &self.scratch);
        let recording = finalize::record(&source, plan, partition, device, options, scratch, &mut uses)?;
        if self.disabled.is_empty() {
            return update(executable, partition, &recording.into_source(device)?);
        }
        let mut buffer = recording.finalize(device)?;
        let id = buffer.info().id;
        let places = self.disabled.iter().filter_map(|&node| self.index.place(node));
        let here = places.filter(|place| place.partition as usize == partition);
        let switches = here.map(|place| CommandUpdate {
            enabled: Some(false),
            ..CommandUpdate::new(CommandHandle { buffer: id, index: place.position })
        });
        buffer.update(&switches.collect::<Vec<_>>())?;
        update(executable, partition, &buffer)
    }
}

fn update(executable: &ExecutableInner, partition: usize, other: &hal::ValidatedCommandBuffer) -> Result<()> {
    let buffer = executable.partitions[partition].command_buffer();
    let updated = buffer.and_then(|buffer| buffer.change(|buffer| buffer.update_from(other)));
    updated.unwrap_or(Ok(())).map_err(|error| executable.labels.locate(partition, error))
}

/// Function that lists the differences between two graphs, without those inside their sub-graphs.
type Differences = fn(&graph::Graph<Command>, &graph::Graph<Command>) -> Vec<String>;

/// Compares the graphs of all instances, those of sub-graphs that both have in the same places.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument), with every difference by its nodes' names, up to some.
fn compare(
    plan: &Plan,
    ours: &[graph::Graph<Command>],
    theirs: &[graph::Graph<Command>],
    find_differences: Differences,
) -> Result<()> {
    const NAMED: usize = 8;
    let (mut differences, mut more) = (Vec::new(), 0);
    // Whether each instance is in both graphs, so that the two can be compared.
    let mut in_both: Vec<bool> = Vec::with_capacity(ours.len());
    for (number, (here, there)) in ours.iter().zip(theirs).enumerate().take(plan.instances().len()) {
        let GraphInstance { parent, node } = plan.instances()[number];
        let is_in_both = parent.map(|parent| parent as usize).is_none_or(|parent| {
            in_both[parent] && theirs[parent].kinds().get(node as usize) == Some(&CommandKind::SubGraph)
        });
        in_both.push(is_in_both);
        if !is_in_both {
            continue;
        }
        let found = find_differences(here, there);
        let named = found.len().min(NAMED - differences.len());
        if named > 0 {
            let path = path(plan, ours, number);
            differences.extend(found[..named].iter().map(|difference| format!("{path}{difference}")));
        }
        more += found.len() - named;
    }
    if differences.is_empty() {
        return Ok(());
    }
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    let why = format!("the graphs differ: {}", differences.join("; "));
    Err(Error::new(ErrorKind::InvalidArgument, why)
        .help("build it with the same nodes and edges in the same order, or finalize it instead"))
}

/// The nodes around an instance, as a message names them before a node of it.
fn path(plan: &Plan, graphs: &[graph::Graph<Command>], instance: usize) -> String {
    let mut labels = Vec::new();
    let mut at = instance;
    while let GraphInstance { parent: Some(parent), node } = plan.instances()[at] {
        #[cfg(test)]
        tests::NAMED.set(tests::NAMED.get() + 1);
        at = parent as usize;
        labels.push(graphs[at].label_at(node as usize));
    }
    labels.iter().rev().map(|label| format!("{label} / ")).collect()
}

/// Nodes of another kind or device, nodes that only one graph has, and the first edge that is another one.
fn topology_differences(ours: &graph::Graph<Command>, theirs: &graph::Graph<Command>) -> Vec<String> {
    let mut differences = Vec::new();
    for index in 0..ours.len().min(theirs.len()) {
        let (here, there) = (ours.kinds()[index], theirs.kinds()[index]);
        if here != there {
            differences.push(format!("{}: {there} there", ours.label_at(index)));
        } else if ours.devices()[index] != theirs.devices()[index] {
            differences.push(format!("{}: on another device there", ours.label_at(index)));
        }
    }
    let longer = if ours.len() > theirs.len() { (ours, "here") } else { (theirs, "there") };
    for index in ours.len().min(theirs.len())..longer.0.len() {
        differences.push(format!("{}: {} only", longer.0.label_at(index), longer.1));
    }
    if ours.len() == theirs.len() {
        differences.extend(edge_difference(ours, theirs));
    }
    differences
}

/// Kernels that are not registered for their nodes.
fn kernel_differences(ours: &graph::Graph<Command>, theirs: &graph::Graph<Command>) -> Vec<String> {
    let mut differences = Vec::new();
    for index in 0..ours.len() {
        if let (
            Content::Command(Command::Kernel { call: own, alternatives, .. }),
            Content::Command(Command::Kernel { call, .. }),
        ) = (ours.content_at(index), theirs.content_at(index))
            && !own.kernel.is(&call.kernel)
            && !alternatives.iter().any(|one| one.is(&call.kernel))
        {
            let (label, kernel) = (ours.label_at(index), call.kernel.name());
            differences.push(format!("{label}: kernel '{kernel}' there, which is no registered alternative"));
        }
    }
    differences
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::runtime::{Device, FinalizeOptions, Graph};

    thread_local! {
        /// Number of nodes that this thread has named on paths to others.
        pub(super) static NAMED: Cell<usize> = const { Cell::new(0) };
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// Sub-graphs within each other, with a fill of `value` or an empty node inside the innermost.
    fn nested(device: &Device, depth: usize, fill: Option<u32>) -> Graph {
        let mut graph = Graph::new(device);
        match fill {
            Some(value) => drop(graph.fill(&device.buffer::<u32>(1).unwrap(), value)),
            None => drop(graph.empty()),
        }
        for _ in 0..depth {
            let mut outer = Graph::new(device);
            outer.sub_graph(&graph).name("sub");
            graph = outer;
        }
        graph
    }

    #[test]
    fn paths_of_nested_graphs_are_named_in_errors_only() {
        const DEPTH: usize = 100;
        let device = Device::open("host:949").unwrap();
        let graph = nested(&device, DEPTH, Some(1));
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let before = NAMED.get();
        block_on(exec.update_from(&nested(&device, DEPTH, Some(2)))).unwrap();
        assert_eq!(NAMED.get(), before);
        let error = block_on(exec.update_from(&nested(&device, DEPTH, None))).unwrap_err().to_string();
        assert_eq!(error.matches("sub-graph 'sub' (#0) / ").count(), DEPTH, "{error}");
        assert!(error.contains("/ buffer fill #0: empty"), "{error}");
        assert_eq!(NAMED.get() - before, DEPTH);
    }
}

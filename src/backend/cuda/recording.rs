//! The commands of a command-buffer, recorded as a graph in the order that they name.

use std::sync::Arc;

use smallvec::SmallVec;

use super::control_flow::{ControlFlowOrder, has_loop};
use super::device_inner::CudaDeviceInner;
use super::graph::GraphNode;
use super::graph_exec::CudaGraphExec;
use super::loop_stop::LoopStop;
use super::low_latency::{CountingKernel, MOST_COMMANDS, stays_on_device};
use super::lower::{self, AddOptions, EndNodes};
use super::node_place::NodePlace;
use super::parts::PartOrder;
use crate::hal::support::graphs::{GraphRecording, RecordedCommand};
use crate::hal::support::once_each::once_each;
use crate::hal::{Command, CommandBufferDesc};
use crate::types::Result;

pub(super) type CudaRecording = GraphRecording<CudaDeviceInner>;

/// What a recording knows about the order of its nodes.
#[derive(Default, Debug)]
pub(super) struct NodeOrder {
    control_flow: ControlFlowOrder,
    /// How many commands do not [stay on the device](stays_on_device). Not counted without the
    /// low-latency hint.
    outside: usize,
    /// Whether the graph has a [`CountingKernel`].
    pub(super) counts: bool,
    /// Stops the loops of a run, if there are some.
    pub(super) loops: Option<Arc<LoopStop>>,
    /// Where the graph is parted.
    parts: PartOrder,
}

impl CudaRecording {
    /// Appends a command behind these earlier ones. On an error the recording is as it was. The
    /// caller has bound the context.
    pub(super) fn append(&mut self, command: &Command, mut after: SmallVec<[u32; 2]>) -> Result<()> {
        let index = self.commands.len() as u32;
        if self.desc.in_order {
            after.extend(index.checked_sub(1));
        }
        after.extend(self.order.control_flow.predecessors(command));
        self.append_after(command, after, true)
    }

    /// As [`append`](Self::append), behind exactly these, and without an early start of, or behind,
    /// what is disabled: what the driver makes of that is not documented.
    pub(super) fn append_after(
        &mut self,
        command: &Command,
        after: SmallVec<[u32; 2]>,
        enabled: bool,
    ) -> Result<()> {
        let CommandBufferDesc { updatable, profiling, .. } = self.desc;
        if self.order.loops.is_none() && has_loop(command) {
            self.order.loops = Some(Arc::new(LoopStop::create(&self.device.counters)?));
        }
        let last = self.graph.get_mut().last_part();
        let ended = self.order.parts.ended(&self.device, &self.commands, last, command, &after);
        let options = AddOptions {
            can_be_disabled: updatable,
            record: self.placeholder.as_ref(),
            may_overlap: enabled && !profiling,
            overlapping: self.overlapping(&after),
            loops: self.order.loops.as_deref(),
        };
        let graph = self.graph.get_mut();
        if ended.is_some() {
            graph.begin_part()?;
        }
        let part = graph.last_part();
        let mut follows = ends_of(after.iter().map(|&earlier| &self.commands[earlier as usize]));
        // What is in earlier parts is over before.
        follows.retain(|node| node.part == part);
        let added = lower::add(&self.device, graph, command, follows, options);
        if added.is_err() && ended.is_some() {
            graph.give_up_part();
        }
        let (nodes, starts_early) = added?;
        let index = self.commands.len();
        self.order.control_flow.append(index as u32, command);
        self.order.parts.added(&self.commands, &after, part, ended);
        for &earlier in &after {
            let place = &mut self.commands[earlier as usize].place;
            place.is_followed = true;
            place.leads_early |= starts_early;
        }
        let (is_followed, is_outside, leads_early) = (false, false, false);
        let place = NodePlace { after, part, is_followed, is_outside, starts_early, leads_early };
        self.push(command, nodes, place);
        self.count_outside(index);
        Ok(())
    }

    /// The same commands as a graph of one part.
    fn whole(&self) -> Result<Self> {
        let mut whole = Self::new(&self.device, self.desc)?;
        whole.order.parts.is_whole = true;
        for RecordedCommand { command, enabled, place, .. } in &self.commands {
            whole.append_after(command, place.after.clone(), *enabled)?;
            if let Some(copy) = whole.commands.last_mut() {
                copy.enabled = *enabled;
            }
        }
        Ok(whole)
    }

    /// The node of the only command among these, if it lets a kernel behind it be started early.
    fn overlapping(&self, after: &[u32]) -> Option<GraphNode> {
        let (first, others) = after.split_first()?;
        let only = others.iter().all(|other| other == first).then(|| &self.commands[*first as usize])?;
        only.nodes
            .kernel
            .as_ref()
            .filter(|(_, launch)| only.enabled && launch.overlaps)
            .map(|(node, _)| *node)
    }

    /// Counts the command with this index among those that do not stay on the device, if it is one.
    pub(super) fn count_outside(&mut self, index: usize) {
        let recorded = &mut self.commands[index];
        let is_outside = self.desc.low_latency && !stays_on_device(&self.device, &recorded.command);
        self.order.outside += usize::from(is_outside);
        self.order.outside -= usize::from(std::mem::replace(&mut recorded.place.is_outside, is_outside));
    }

    /// Whether a counter may say that a run is over.
    pub(super) fn stays_on_device(&self) -> bool {
        self.order.outside == 0
    }

    /// Instantiates the new graph for launches: without disabled commands, and in the low-latency
    /// form if that was asked for and can be made. The caller has bound the context.
    pub(super) fn instantiate(&mut self) -> Result<(CudaGraphExec, Option<CountingKernel>)> {
        let CommandBufferDesc { low_latency, profiling, .. } = self.desc;
        if self.order.parts.is_slower {
            *self = self.whole()?;
        }
        if low_latency && !profiling && self.stays_on_device() && self.commands.len() <= MOST_COMMANDS {
            match self.instantiate_counting() {
                Ok((exec, counting)) => return Ok((exec, Some(counting))),
                Err(error) => {
                    tracing::debug!(target: "wakegraph::cuda", %error, "a graph gets no completion counter")
                }
            }
            if self.order.counts {
                *self = self.record_again(self.desc)?;
            }
        }
        Ok((self.instantiate_graph()?, None))
    }

    fn instantiate_counting(&mut self) -> Result<(CudaGraphExec, CountingKernel)> {
        let leaves = ends_of(self.commands.iter().filter(|recorded| !recorded.place.is_followed));
        let counting = CountingKernel::add(&self.device, self.graph.get_mut(), &leaves)?;
        self.order.counts = true;
        Ok((self.instantiate_graph()?, counting))
    }
}

/// The end nodes of these commands. The same for the same commands, whatever addresses the nodes
/// have: the driver compares graphs in the order in which they were built.
fn ends_of<'a>(commands: impl Iterator<Item = &'a RecordedCommand<CudaDeviceInner>>) -> EndNodes {
    once_each(commands.flat_map(|recorded| recorded.nodes.ends.iter().copied()).collect())
}

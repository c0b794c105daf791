//! The commands of a command-buffer, recorded as a graph in the order that they name.

use smallvec::SmallVec;

use super::control_flow::ControlFlowOrder;
use super::device_inner::CudaDeviceInner;
use super::graph::GraphNode;
use super::graph_exec::CudaGraphExec;
use super::low_latency::{CountingKernel, MOST_COMMANDS, stays_on_device};
use super::lower::{self, AddOptions, EndNodes};
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
}

/// The place of a command in that order.
#[derive(Debug)]
pub(super) struct NodePlace {
    /// The commands that it follows.
    pub(super) after: SmallVec<[u32; 2]>,
    /// Whether another command follows it.
    is_followed: bool,
    /// Whether it is one of [`NodeOrder::outside`].
    is_outside: bool,
    /// Whether it may be started before the end of the command before it, for which it then has to
    /// wait.
    pub(super) starts_early: bool,
    /// Whether a command behind it starts early.
    pub(super) leads_early: bool,
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
        let options = AddOptions {
            can_be_disabled: updatable,
            record: self.placeholder.as_ref(),
            may_overlap: enabled && !profiling,
            overlapping: self.overlapping(&after),
        };
        let follows = ends_of(after.iter().map(|&earlier| &self.commands[earlier as usize]));
        let (nodes, starts_early) =
            lower::add(&self.device, self.graph.get_mut(), command, follows, options)?;
        let index = self.commands.len();
        self.order.control_flow.append(index as u32, command);
        for &earlier in &after {
            let place = &mut self.commands[earlier as usize].place;
            place.is_followed = true;
            place.leads_early |= starts_early;
        }
        let (is_followed, is_outside, leads_early) = (false, false, false);
        self.push(command, nodes, NodePlace { after, is_followed, is_outside, starts_early, leads_early });
        self.count_outside(index);
        Ok(())
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

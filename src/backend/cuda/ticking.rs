//! The prompt form of a command-buffer that can be updated: a tick behind all commands of its one instance.
//!
//! A second instance beside it, as `prompt` keeps for what stays as it is, would have to be
//! updated, too. So here every launch ticks, whether its enqueue asked for that or not, until
//! nobody asks any more.
//!
//! The instance is one of a copy of the graph then, in which the nodes have other names.

use std::sync::Arc;

use smallvec::SmallVec;

use super::command_buffer::CudaCommandBuffer;
use super::graph::{Exec, Graph};
use super::instance::Instance;
use super::nodes::Ends;
use super::prompt::MOST_COMMANDS;
use super::stream::Stream;
use super::tick::Tick;
use crate::types::Result;

impl CudaCommandBuffer {
    /// Gives the instance a tick or takes it away before an enqueue, as enqueues ask for it. Gives
    /// whether a tick, if there is one, may tell of the end of this one. The caller has bound the
    /// context.
    pub(super) fn prepare_tick(&self, instance: &mut Instance, asked: bool, stream: &Stream) -> bool {
        let asked = asked && self.may_tick();
        if let Some(ticks) = instance.next_form(asked)
            && let Err(error) = self.change_form(instance, ticks, stream)
        {
            // Nothing has changed but when an end is seen.
            tracing::debug!(target: "wakegraph::cuda", %error, ticks, "the prompt form stays as it was");
            instance.form_refused();
        }
        asked
    }

    /// Whether all that is written stays on the device, as it has to in prompt forms, and the graph
    /// can be instantiated once more.
    fn may_tick(&self) -> bool {
        let few = self.commands.len() <= MOST_COMMANDS as usize;
        self.desc.updatable && !self.desc.profiling && few && self.outside == 0 && !self.is_behind
    }

    fn change_form(&self, instance: &mut Instance, ticks: bool, stream: &Stream) -> Result<()> {
        let tick = ticks.then(|| Tick::take(&self.shared).map(Arc::new)).transpose()?;
        let exec = self.instantiate(tick.as_ref(), stream)?;
        Ok(instance.replace(exec, tick, &self.shared.context)?)
    }

    /// The graph as it can be launched: with what updates have made of its kernels, without what is
    /// disabled, and with the tick behind all. The caller has bound the context.
    pub(super) fn instantiate(&self, tick: Option<&Arc<Tick>>, on: &Stream) -> Result<Exec> {
        self.shared.retry_with_room(|| self.try_instantiate(tick, on))
    }

    fn try_instantiate(&self, tick: Option<&Arc<Tick>>, on: &Stream) -> Result<Exec> {
        let mut graph = self.graph.lock();
        let mut exec = match tick {
            None => graph.instantiate()?,
            Some(tick) => self.instantiate_ticking(&graph, tick)?,
        };
        for recorded in &self.commands {
            if let (false, Some((node, launch))) = (self.as_recorded, &recorded.kernel) {
                exec.set_kernel(*node, launch)?;
            }
            if !recorded.enabled {
                recorded.nodes.iter().try_for_each(|node| exec.set_enabled(*node, false))?;
            }
        }
        // Else the first launch would have to.
        exec.upload(on)?;
        Ok(exec)
    }

    /// Of a copy with the tick: other command-buffers are updated from the graph itself, and the
    /// driver compares all nodes.
    fn instantiate_ticking(&self, graph: &Graph, tick: &Arc<Tick>) -> Result<Exec> {
        let leaves = self.leaves();
        let named = self.commands.iter().flat_map(|recorded| {
            let kernel = recorded.kernel.as_ref().map(|(node, _)| node);
            recorded.nodes.iter().chain(kernel)
        });
        let nodes: Vec<_> = leaves.iter().chain(named).copied().collect();
        let (mut copy, found) = graph.duplicate(&nodes)?;
        copy.place().add_kernel(&tick.launch()?, &found[..leaves.len()])?;
        Ok(copy.instantiate()?.of_copy(copy, nodes.into_iter().zip(found)))
    }

    /// The nodes that everything else comes before.
    fn leaves(&self) -> Ends {
        let mut is_leaf = vec![true; self.commands.len()];
        for &earlier in self.commands.iter().flat_map(|recorded| &recorded.after) {
            if let Some(is_leaf) = is_leaf.get_mut(earlier as usize) {
                *is_leaf = false;
            }
        }
        let leaves = (0..).zip(is_leaf).filter(|(_, leaf)| *leaf).map(|(index, _)| index);
        self.ends_of(&leaves.collect::<SmallVec<[u32; 4]>>())
    }
}

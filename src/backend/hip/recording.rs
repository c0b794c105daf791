//! The commands of a command-buffer, recorded as a graph.

use std::sync::Arc;

use parking_lot::Mutex;

use super::device_inner::HipDeviceInner;
use super::graph::HipGraph;
use super::graph_exec::HipGraphExec;
use super::lower::{self, HipCommandNodes, PathEnd};
use super::stream::HipRawEvent;
use crate::hal::{Command, CommandBufferDesc, CommandChange};
use crate::types::Result;

/// Commands, and a graph of explicit nodes, one after the other, that does what they say.
#[derive(Debug)]
pub(super) struct HipRecording {
    pub(super) device: Arc<HipDeviceInner>,
    pub(super) desc: CommandBufferDesc,
    /// Also locked by whatever updates another command-buffer from this one: the driver takes one
    /// call at a time, even from readers.
    pub(super) graph: Mutex<HipGraph>,
    end: PathEnd,
    pub(super) commands: Vec<HipRecordedCommand>,
    /// With profiling: what the record nodes record until an enqueue gives them its own events.
    placeholder: Option<HipRawEvent>,
    /// Whether the graph does what the commands say. Updates change the instance and not the graph.
    pub(super) is_current: bool,
}

/// One command in a graph.
#[derive(Debug)]
pub(super) struct HipRecordedCommand {
    /// Keeps the operands alive.
    pub(super) command: Command,
    /// Its nodes, and its launch as updates have changed it.
    pub(super) nodes: HipCommandNodes,
    pub(super) enabled: bool,
}

impl HipRecording {
    pub(super) fn new(device: &Arc<HipDeviceInner>, desc: CommandBufferDesc) -> Result<Self> {
        let context = &device.context;
        Ok(Self {
            device: Arc::clone(device),
            desc,
            placeholder: desc.profiling.then(|| HipRawEvent::create(context, true)).transpose()?,
            graph: Mutex::new(HipGraph::create(context)?),
            end: None,
            commands: Vec::new(),
            is_current: true,
        })
    }

    /// Appends a command behind all earlier ones. On an error the recording is as it was. The caller
    /// has bound the context.
    pub(super) fn append(&mut self, command: &Command) -> Result<()> {
        let (graph, record) = (self.graph.get_mut(), self.placeholder.as_ref());
        let nodes = lower::add(&self.device, graph, &mut self.end, command, record)?;
        self.commands.push(HipRecordedCommand { command: command.clone(), nodes, enabled: true });
        Ok(())
    }

    /// The same commands, enabled or disabled as they are, in a graph of their own. The caller has
    /// bound the context.
    pub(super) fn record_again(&self, desc: CommandBufferDesc) -> Result<Self> {
        self.record_changed(desc, &[])
    }

    /// The same with these changes.
    pub(super) fn record_changed(&self, desc: CommandBufferDesc, changes: &[CommandChange]) -> Result<Self> {
        let mut again = Self::new(&self.device, desc)?;
        for (index, recorded) in self.commands.iter().enumerate() {
            let change = changes.iter().find(|change| change.index == index);
            let command = change.and_then(|change| change.command.as_ref()).unwrap_or(&recorded.command);
            again.append(command)?;
            if let Some(copy) = again.commands.last_mut() {
                copy.enabled = change.and_then(|change| change.enabled).unwrap_or(recorded.enabled);
            }
        }
        Ok(again)
    }

    /// Instantiates the new graph for launches, without disabled commands. The caller has bound the
    /// context.
    pub(super) fn instantiate(&mut self) -> Result<HipGraphExec> {
        let (graph, commands) = (self.graph.get_mut(), &self.commands);
        self.device.pool.retry_with_room(|| -> Result<_> {
            let mut exec = HipGraphExec::instantiate(graph)?;
            for recorded in commands.iter().filter(|recorded| !recorded.enabled) {
                recorded.nodes.work.iter().try_for_each(|node| exec.set_enabled(*node, false))?;
            }
            // Otherwise the first launch would have to do it.
            exec.upload(&self.device.pool.stream)?;
            Ok(exec)
        })
    }
}

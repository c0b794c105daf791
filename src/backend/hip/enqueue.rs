//! How queues launch commands and command-buffers.

use std::sync::Arc;

use parking_lot::Mutex;

use super::command_buffer::HipCommandBuffer;
use super::device_inner::HipDeviceInner;
use super::graph::HipGraph;
use super::graph_exec::HipGraphExec;
use super::lower::{self, HipCommandNodes};
use super::stream::HipStream;
use crate::hal::support::refusal::foreign;
use crate::hal::support::streams::{DriverContext as _, Kept, LaunchDevice, StreamQueue};
use crate::hal::{Command, CommandBuffer, Signal, WaitList};
use crate::types::Result;

/// A command outside command-buffers: a graph that is launched once.
#[derive(Debug)]
struct HipSingleCommand {
    exec: Mutex<HipGraphExec>,
    _graph: HipGraph,
    _command: Arc<Command>,
    _nodes: HipCommandNodes,
}

impl HipSingleCommand {
    /// The caller has bound the context.
    fn new(device: &Arc<HipDeviceInner>, command: &Arc<Command>) -> Result<Self> {
        let mut graph = HipGraph::create(&device.context)?;
        let nodes = lower::add(device, &mut graph, &mut None, command, None)?;
        let exec = device.pool.retry_with_room(|| HipGraphExec::instantiate(&mut graph))?;
        Ok(Self { exec: Mutex::new(exec), _graph: graph, _command: Arc::clone(command), _nodes: nodes })
    }
}

impl LaunchDevice for HipDeviceInner {
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let context = &queue.device.context;
        let command = Arc::new(context.run(|| HipSingleCommand::new(&queue.device, command))?);
        let kept: Kept = Arc::clone(&command) as Kept;
        queue.submit(None, Some(kept), wait, signal, |stream, _| {
            command.exec.lock().launch(stream)?;
            Ok(None)
        })
    }

    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        stream: &Arc<HipStream>,
    ) -> Result<()> {
        let buffer = buffer.as_any().downcast_ref::<HipCommandBuffer>();
        buffer.ok_or_else(|| foreign("command-buffer"))?.launch_in_batch(device, stream)
    }
}

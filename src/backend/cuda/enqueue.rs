//! How queues launch commands and command-buffers.

use std::sync::Arc;

use parking_lot::Mutex;

use super::command_buffer::CudaCommandBuffer;
use super::device_inner::CudaDeviceInner;
use super::graph::CudaGraph;
use super::graph_exec::CudaGraphExec;
use super::lower::{self, AddOptions, CommandNodes, EndNodes};
use super::stream::CudaStream;
use super::stream_command::StreamCommand;
use crate::hal::support::refusal::foreign;
use crate::hal::support::streams::{DriverContext as _, Kept, LaunchDevice, StreamQueue};
use crate::hal::{Command, CommandBuffer, Signal, WaitList};
use crate::types::Result;

/// A command outside command-buffers that takes more than one call: a graph that is launched once.
#[derive(Debug)]
struct SingleCommand {
    exec: Mutex<CudaGraphExec>,
    _graph: CudaGraph,
    _command: Arc<Command>,
    _nodes: CommandNodes,
}

impl SingleCommand {
    /// The caller has bound the context.
    fn new(device: &Arc<CudaDeviceInner>, command: &Arc<Command>) -> Result<Self> {
        let mut graph = CudaGraph::create(&device.context)?;
        let nodes = lower::add(device, &mut graph, command, EndNodes::new(), AddOptions::default())?;
        let exec = device.pool.retry_with_room(|| CudaGraphExec::instantiate(&mut graph))?;
        Ok(Self { exec: Mutex::new(exec), _graph: graph, _command: Arc::clone(command), _nodes: nodes })
    }
}

impl LaunchDevice for CudaDeviceInner {
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let context = &queue.device.context;
        if let Some(call) = context.run(|| StreamCommand::of(&queue.device, command))? {
            let kept: Kept = Arc::clone(command) as Kept;
            return queue.submit(None, Some(kept), wait, signal, |stream, _| {
                call.start(stream)?;
                Ok(None)
            });
        }
        let command = Arc::new(context.run(|| SingleCommand::new(&queue.device, command))?);
        let kept: Kept = Arc::clone(&command) as Kept;
        queue.submit(None, Some(kept), wait, signal, |stream, _| {
            command.exec.lock().launch(stream)?;
            Ok(None)
        })
    }

    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        stream: &Arc<CudaStream>,
    ) -> Result<()> {
        let buffer = buffer.as_any().downcast_ref::<CudaCommandBuffer>();
        buffer.ok_or_else(|| foreign("command-buffer"))?.launch_in_batch(device, stream)
    }
}

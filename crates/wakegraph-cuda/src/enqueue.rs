//! How queues launch commands and command-buffers.

use std::sync::Arc;

use wakegraph_hal::support::graphs::enqueue_as_graph;
use wakegraph_hal::support::refusal::foreign;
use wakegraph_hal::support::streams::{DriverContext as _, Kept, LaunchDevice, Started, StreamQueue};
use wakegraph_hal::{Command, CommandBuffer, Error, Result, Signal, WaitList};

use super::command_buffer::CudaCommandBuffer;
use super::device_inner::CudaDeviceInner;
use super::lower::{self, AddOptions, EndNodes};
use super::stream::CudaStream;
use super::stream_command::StreamCommand;

impl LaunchDevice for CudaDeviceInner {
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let call = queue.device.context.run(|| StreamCommand::of(&queue.device, command))?;
        if let Some(call) = call {
            let kept: Kept = Arc::clone(command) as Kept;
            return queue.submit(None, Some(kept), wait, signal, |stream, _| {
                call.start(stream)?;
                Ok(Started::default())
            });
        }
        enqueue_as_graph(queue, command, wait, signal, |graph| {
            lower::add(&queue.device, graph, command, EndNodes::new(), AddOptions::default())
                .map(|(nodes, _)| nodes)
        })
    }

    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        stream: &Arc<CudaStream>,
    ) -> Result<Option<Error>> {
        let buffer = buffer.as_any().downcast_ref::<CudaCommandBuffer>();
        buffer.ok_or_else(|| foreign("command-buffer"))?.launch_in_batch(device, stream)
    }
}

//! How queues launch commands and command-buffers.

use std::sync::Arc;

use wakegraph_hal::support::graphs::enqueue_as_graph;
use wakegraph_hal::support::refusal::foreign;
use wakegraph_hal::support::streams::{LaunchDevice, StreamQueue};
use wakegraph_hal::{Command, CommandBuffer, Error, Result, Signal, WaitList};

use super::command_buffer::HipCommandBuffer;
use super::device_inner::HipDeviceInner;
use super::lower;
use super::stream::HipStream;

impl LaunchDevice for HipDeviceInner {
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        enqueue_as_graph(queue, command, wait, signal, |graph| {
            lower::add(&queue.device, graph, &mut None, command, None)
        })
    }

    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        stream: &Arc<HipStream>,
    ) -> Result<Option<Error>> {
        let buffer = buffer.as_any().downcast_ref::<HipCommandBuffer>();
        buffer.ok_or_else(|| foreign("command-buffer"))?.launch_in_batch(device, stream)
    }
}

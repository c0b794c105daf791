//! The contract's queue: single commands, command-buffers in batches, and waiting.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::command_buffer::HipCommandBuffer;
use super::device_inner::HipDeviceInner;
use super::graph::HipGraph;
use super::graph_exec::HipGraphExec;
use super::lower::{self, HipCommandNodes};
use super::queue::HipQueue;
use super::signal::{HipEventRecords, HipKept};
use super::stream::HipStream;
use crate::hal::support::refusal::foreign;
use crate::hal::{Command, CommandBuffer, Enqueued, Queue, QueueDesc, Signal, WaitList};
use crate::types::{DeviceId, Result};

impl Queue for HipQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device.info.id
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        // Its event says all.
        if matches!(**command, Command::Empty) {
            return self.submit(None, None, wait, signal, |_, _| Ok(()));
        }
        if let Command::StreamTask(task) = &**command {
            return self.run_stream_task(task, wait, signal);
        }
        let command = self.device.context.run(|| HipSingleCommand::new(&self.device, command))?;
        let command = Arc::new(command);
        let kept: HipKept = Arc::clone(&command) as HipKept;
        self.submit(None, Some(kept), wait, signal, |stream, _| Ok(command.exec.lock().launch(stream)?))
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        let start = |stream: &Arc<HipStream>, _: &Arc<HipEventRecords>| {
            for &buffer in buffers {
                let buffer = buffer.as_any().downcast_ref::<HipCommandBuffer>();
                let launched = buffer
                    .ok_or_else(|| foreign("command-buffer"))
                    .and_then(|buffer| buffer.launch_in_batch(&self.device, stream));
                if let Err(error) = launched {
                    failure = Some(self.device.context.error(error.clone()));
                    // With something on the stream, the event still tells of its end.
                    return if count == 0 { Err(error) } else { Ok(()) };
                }
                count += 1;
            }
            Ok(())
        };
        let outcome = self.submit(None, None, WaitList::NONE, signal, start);
        Enqueued { count, failure: failure.or(outcome.err()) }
    }

    fn flush(&self) -> Result<()> {
        self.device.context.health.status()
    }

    fn finish(&self) -> Result<()> {
        self.device.context.health.status()?;
        self.stream.synchronize().map_err(|failure| self.device.context.error(failure))
    }
}

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

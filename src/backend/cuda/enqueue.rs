//! The contract's queue: single commands, command-buffers in batches, and waiting.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::command_buffer::CudaCommandBuffer;
use super::device_inner::CudaDeviceInner;
use super::graph::CudaGraph;
use super::graph_exec::CudaGraphExec;
use super::lower::{self, AddOptions, CommandNodes, EndNodes};
use super::queue::CudaQueue;
use super::signal::{EventRecords, Kept};
use super::stream::CudaStream;
use super::stream_command::StreamCommand;
use crate::hal::support::refusal::foreign;
use crate::hal::{Command, CommandBuffer, Enqueued, Queue, QueueDesc, Signal, WaitList};
use crate::types::{DeviceId, Result};

impl Queue for CudaQueue {
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
            return self.submit(None, None, wait, signal, |_, _| Ok(None));
        }
        if let Command::StreamTask(task) = &**command {
            return self.run_stream_task(task, wait, signal);
        }
        if let Some(call) = self.device.context.run(|| StreamCommand::of(&self.device, command))? {
            let kept: Kept = Arc::clone(command) as Kept;
            return self.submit(None, Some(kept), wait, signal, |stream, _| {
                call.start(stream)?;
                Ok(None)
            });
        }
        let command = self.device.context.run(|| SingleCommand::new(&self.device, command))?;
        let command = Arc::new(command);
        let kept: Kept = Arc::clone(&command) as Kept;
        self.submit(None, Some(kept), wait, signal, |stream, _| {
            command.exec.lock().launch(stream)?;
            Ok(None)
        })
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        let start = |stream: &Arc<CudaStream>, _: &Arc<EventRecords>| {
            for &buffer in buffers {
                let buffer = buffer.as_any().downcast_ref::<CudaCommandBuffer>();
                let launched = buffer
                    .ok_or_else(|| foreign("command-buffer"))
                    .and_then(|buffer| buffer.launch_in_batch(&self.device, stream));
                if let Err(error) = launched {
                    failure = Some(self.device.context.error(error.clone()));
                    // With something on the stream, the event still tells of its end.
                    return if count == 0 { Err(error) } else { Ok(None) };
                }
                count += 1;
            }
            Ok(None)
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

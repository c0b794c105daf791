//! Command-buffers: a graph that is instantiated at finalize and launched at enqueue.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::graph::{GraphDevice, GraphRecording, LaunchableGraph};
use super::update;
use crate::support::refusal;
use crate::support::streams::{DriverContext as _, DriverStream, StreamQueue};
use crate::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandUpdate, Error, Queue, Result, Signal, SyncPoint, WaitList,
};

/// Commands as a graph.
#[derive(Debug)]
pub struct GraphCommandBuffer<D: GraphDevice> {
    id: CommandBufferId,
    device: Arc<D>,
    desc: CommandBufferDesc,
    recording: GraphRecording<D>,
    /// There from finalize on.
    instance: Option<Mutex<LaunchableGraph<D>>>,
}

impl<D: GraphDevice> GraphCommandBuffer<D> {
    /// Creates an empty command-buffer.
    pub fn create(device: &Arc<D>, desc: CommandBufferDesc) -> Result<Self> {
        D::prepare(device, &desc);
        let recording = GraphRecording::new(device, desc)?;
        let (id, device) = (CommandBufferId::unique(), Arc::clone(device));
        Ok(Self { id, device, desc, recording, instance: None })
    }

    /// Launches a command-buffer of this device as part of a batch, behind which an event is recorded. Gives
    /// the failure of a part that could not be launched behind others.
    pub fn launch_in_batch(
        device: &Arc<D>,
        buffer: &dyn CommandBuffer,
        stream: &Arc<DriverStream<D::Context>>,
    ) -> Result<Option<Error>> {
        let buffer = buffer.as_any().downcast_ref::<Self>();
        let buffer = buffer.filter(|buffer| Arc::ptr_eq(device, &buffer.device));
        let buffer = buffer.ok_or_else(|| refusal::foreign("command-buffer"))?;
        if buffer.desc.profiling {
            let why = "command-buffers with profiling are not enqueued in batches";
            return Err(refusal::invalid_operation(why));
        }
        Ok(D::launch(&mut buffer.instance()?.lock(), &buffer.recording, stream, false)?.failure)
    }

    fn instance(&self) -> Result<&Mutex<LaunchableGraph<D>>> {
        self.instance.as_ref().ok_or_else(refusal::enqueue_before_finalize)
    }

    /// The recording and its instance, for an update.
    fn parts(&mut self) -> Result<(&mut GraphRecording<D>, &mut LaunchableGraph<D>)> {
        if !self.desc.updatable {
            // The order of its nodes may rest on what its commands are.
            return Err(refusal::not_updatable());
        }
        let instance = self.instance.as_mut().ok_or_else(refusal::update_before_finalize)?;
        Ok((&mut self.recording, instance.get_mut()))
    }
}

impl<D: GraphDevice> CommandBuffer for GraphCommandBuffer<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let state = match self.instance {
            None => CommandBufferState::Recording,
            Some(_) => CommandBufferState::Executable,
        };
        CommandBufferInfo {
            id: self.id,
            device: self.device.id(),
            desc: self.desc,
            state,
            commands: self.recording.commands.len(),
            lowering: D::LOWERING,
            reason: D::reason(&self.recording),
        }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        if self.instance.is_some() {
            return Err(refusal::append_after_finalize());
        }
        let context = self.device.context();
        let next = refusal::next_command(self.id, self.recording.commands.len(), after);
        let (index, after) = next.map_err(|error| context.error(error))?;
        context.run(|| D::append(&mut self.recording, command, after))?;
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.recording.commands.get(index).map(|recorded| &recorded.command)
    }

    fn finalize(&mut self) -> Result<()> {
        if self.instance.is_some() {
            return Err(refusal::finalized_twice());
        }
        let instantiated = self.device.context().run(|| D::instantiate(&mut self.recording))?;
        self.instance = Some(Mutex::new(LaunchableGraph::new(instantiated)));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let instance = self.instance()?;
        let queue = StreamQueue::of(queue, &self.device)?;
        let commands = &self.recording.commands;
        let timed = self.desc.profiling.then_some(commands.len());
        queue.submit(timed, None, wait, signal, |stream, records| {
            let mut instance = instance.lock();
            if self.desc.profiling {
                let events = records.commands.lock();
                let nodes = commands
                    .iter()
                    .zip(&*events)
                    .filter_map(|(recorded, events)| Some(recorded.nodes.records?.into_iter().zip(events)));
                instance.record(Arc::clone(records) as _, nodes.flatten())?;
            }
            D::launch(&mut instance, &self.recording, stream, true)
        })
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let device = Arc::clone(&self.device);
        let (recording, instance) = self.parts()?;
        device.context().run(|| update::update(recording, instance, updates))
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let device = Arc::clone(&self.device);
        let (recording, instance) = self.parts()?;
        let other = other.as_any().downcast_ref::<Self>();
        let other = other.filter(|other| Arc::ptr_eq(&other.device, &device));
        let other = other.ok_or_else(|| refusal::foreign("command-buffer"))?;
        device.context().run(|| update::update_from(recording, instance, &other.recording))
    }
}

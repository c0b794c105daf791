//! Command-buffers: a graph that is instantiated at finalize and launched at enqueue.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::device_inner::HipDeviceInner;
use super::graph_instance::HipGraphInstance;
use super::recording::HipRecording;
use super::stream::HipStream;
use super::update;
use super::updates_in_flight::keep_their_values;
use crate::hal::support::refusal;
use crate::hal::support::streams::{DriverContext as _, StreamQueue};
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandUpdate, Queue, Signal, SyncPoint, WaitList,
};
use crate::types::Result;

/// Commands as a graph.
#[derive(Debug)]
pub(super) struct HipCommandBuffer {
    id: CommandBufferId,
    device: Arc<HipDeviceInner>,
    desc: CommandBufferDesc,
    recording: HipRecording,
    /// There from finalize on.
    instance: Option<Mutex<HipGraphInstance>>,
}

impl HipCommandBuffer {
    pub(super) fn create(device: &Arc<HipDeviceInner>, desc: CommandBufferDesc) -> Result<Self> {
        let recording = HipRecording::new(device, desc)?;
        if desc.updatable {
            // Now, as an update is no time for a compilation.
            keep_their_values(device);
        }
        let (id, device) = (CommandBufferId::unique(), Arc::clone(device));
        Ok(Self { id, device, desc, recording, instance: None })
    }

    /// Launches it as part of a batch, behind which an event is recorded.
    pub(super) fn launch_in_batch(
        &self,
        device: &Arc<HipDeviceInner>,
        stream: &Arc<HipStream>,
    ) -> Result<()> {
        if !Arc::ptr_eq(device, &self.device) {
            return Err(refusal::foreign("command-buffer"));
        }
        if self.desc.profiling {
            let why = "command-buffers with profiling are not enqueued in batches";
            return Err(refusal::invalid_operation(why));
        }
        self.instance()?.lock().launch(stream)
    }

    fn instance(&self) -> Result<&Mutex<HipGraphInstance>> {
        self.instance.as_ref().ok_or_else(refusal::enqueue_before_finalize)
    }

    /// The recording and its instance, for an update.
    fn parts(&mut self) -> Result<(&mut HipRecording, &mut HipGraphInstance)> {
        let instance = self.instance.as_mut().ok_or_else(refusal::update_before_finalize)?;
        Ok((&mut self.recording, instance.get_mut()))
    }
}

impl CommandBuffer for HipCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let state = match self.instance {
            None => CommandBufferState::Recording,
            Some(_) => CommandBufferState::Executable,
        };
        let reason = match () {
            () if !self.desc.updatable => {
                "its nodes follow each other in one path: the driver loses edges of other graphs"
            }
            () if keep_their_values(&self.device) => {
                "its nodes are one path, as the driver loses other edges; updates change it in place, as \
                 a launch in flight kept its values when this was tried"
            }
            () => {
                "its nodes are one path, as the driver loses other edges; updates make a second instance \
                 while a launch is in flight, which might see them"
            }
        };
        CommandBufferInfo {
            id: self.id,
            device: self.device.info.id,
            desc: self.desc,
            state,
            commands: self.recording.commands.len(),
            lowering: "HIP graph",
            reason,
        }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        if self.instance.is_some() {
            return Err(refusal::append_after_finalize());
        }
        let context = &self.device.context;
        let next = refusal::next_command(self.id, self.recording.commands.len(), after);
        let (index, _) = next.map_err(|error| context.error(error))?;
        context.run(|| self.recording.append(command))?;
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn finalize(&mut self) -> Result<()> {
        if self.instance.is_some() {
            return Err(refusal::finalized_twice());
        }
        let device = &self.device;
        let exec = device.context.run(|| self.recording.instantiate())?;
        self.instance = Some(Mutex::new(HipGraphInstance::new(exec)));
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
            instance.launch(stream).map(|()| None)
        })
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let context = Arc::clone(&self.device.context);
        let (recording, instance) = self.parts()?;
        context.run(|| update::update(recording, instance, updates))
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let device = Arc::clone(&self.device);
        let (recording, instance) = self.parts()?;
        let other = other.as_any().downcast_ref::<Self>();
        let other = other.filter(|other| Arc::ptr_eq(&other.device, &device));
        let other = other.ok_or_else(|| refusal::foreign("command-buffer"))?;
        device.context.run(|| update::update_from(recording, instance, &other.recording))
    }
}

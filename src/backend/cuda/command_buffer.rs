//! Command-buffers: a graph that is instantiated at finalize and launched at enqueue.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::device_inner::CudaDeviceInner;
use super::graph_instance::CudaGraphInstance;
use super::recording::CudaRecording;
use super::stream::CudaStream;
use super::update;
use crate::hal::support::refusal;
use crate::hal::support::streams::{DriverContext as _, StreamQueue};
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandUpdate, Queue, Signal, SyncPoint, WaitList,
};
use crate::types::Result;

/// Commands as a graph.
#[derive(Debug)]
pub(super) struct CudaCommandBuffer {
    id: CommandBufferId,
    device: Arc<CudaDeviceInner>,
    desc: CommandBufferDesc,
    recording: CudaRecording,
    /// There from finalize on.
    instance: Option<Mutex<CudaGraphInstance>>,
}

impl CudaCommandBuffer {
    pub(super) fn create(device: &Arc<CudaDeviceInner>, desc: CommandBufferDesc) -> Result<Self> {
        let recording = CudaRecording::new(device, desc)?;
        let (id, device) = (CommandBufferId::unique(), Arc::clone(device));
        Ok(Self { id, device, desc, recording, instance: None })
    }

    /// Launches it as part of a batch, behind which an event is recorded.
    pub(super) fn launch_in_batch(
        &self,
        device: &Arc<CudaDeviceInner>,
        stream: &Arc<CudaStream>,
    ) -> Result<()> {
        if !Arc::ptr_eq(device, &self.device) {
            return Err(refusal::foreign("command-buffer"));
        }
        if self.desc.profiling {
            let why = "command-buffers with profiling are not enqueued in batches";
            return Err(refusal::invalid_operation(why));
        }
        self.instance()?.lock().launch(stream, false).map(drop)
    }

    fn instance(&self) -> Result<&Mutex<CudaGraphInstance>> {
        self.instance.as_ref().ok_or_else(refusal::enqueue_before_finalize)
    }

    /// The recording and its instance, for an update.
    fn parts(&mut self) -> Result<(&mut CudaRecording, &mut CudaGraphInstance)> {
        let instance = self.instance.as_mut().ok_or_else(refusal::update_before_finalize)?;
        Ok((&mut self.recording, instance.get_mut()))
    }
}

impl CommandBuffer for CudaCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let state = match self.instance {
            None => CommandBufferState::Recording,
            Some(_) => CommandBufferState::Executable,
        };
        let CommandBufferDesc { low_latency, profiling, .. } = self.desc;
        let reason = match () {
            () if self.recording.counts => "its last node counts the runs in pinned memory, for low latency",
            () if profiling => "a driver event around each node times it, so no counter tells of its end",
            () if !low_latency => {
                "a driver event tells of its end, as the wake policy is efficient or another \
                                   device partition waits for it"
            }
            () => "a driver event tells of its end, as it is long or writes memory outside the device",
        };
        CommandBufferInfo {
            id: self.id,
            device: self.device.info.id,
            desc: self.desc,
            state,
            commands: self.recording.commands.len(),
            lowering: "CUDA graph",
            reason,
        }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        if self.instance.is_some() {
            return Err(refusal::append_after_finalize());
        }
        let context = &self.device.context;
        let next = refusal::next_command(self.id, self.recording.commands.len(), after);
        let (index, after) = next.map_err(|error| context.error(error))?;
        context.run(|| self.recording.append(command, after))?;
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn finalize(&mut self) -> Result<()> {
        if self.instance.is_some() {
            return Err(refusal::finalized_twice());
        }
        let device = &self.device;
        let (exec, counting) = device.context.run(|| self.recording.instantiate())?;
        self.instance = Some(Mutex::new(CudaGraphInstance::new(exec, counting)));
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
            Ok(instance.launch(stream, true)?.filter(|_| self.recording.writes_only_device()))
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

//! Command-buffers: a graph that is instantiated at finalize and launched at enqueue.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::completion_counter::CountedRun;
use super::device_inner::CudaDeviceInner;
use super::graph_instance::CudaGraphInstance;
use super::queue::CudaQueue;
use super::recording::GraphRecording;
use super::stream::CudaStream;
use super::update;
use crate::hal::support::refusal;
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
    recording: GraphRecording,
    /// There from finalize on.
    instance: Option<Mutex<CudaGraphInstance>>,
}

impl CudaCommandBuffer {
    pub(super) fn create(device: &Arc<CudaDeviceInner>, desc: CommandBufferDesc) -> Result<Self> {
        let recording = GraphRecording::new(device, desc)?;
        let (id, device) = (CommandBufferId::unique(), Arc::clone(device));
        Ok(Self { id, device, desc, recording, instance: None })
    }

    /// Launches the graph. Returns the counted run, if the low-latency form is `asked` for and there.
    /// The caller has bound the context.
    fn launch(
        &self,
        instance: &mut CudaGraphInstance,
        stream: &Arc<CudaStream>,
        asked: bool,
    ) -> Result<Option<CountedRun>> {
        let asked = asked && self.recording.may_count();
        if let Some(counts) = instance.needed_change(asked)
            && let Err(error) = self.change_form(instance, counts, stream)
        {
            // It is a hint: the graph is launched in the form that it has.
            tracing::debug!(target: "wakegraph::cuda", %error, counts, "a graph keeps its form");
            instance.change_failed();
        }
        match instance.launch(stream) {
            Err(error) if instance.counts() && !instance.is_broken() => {
                tracing::debug!(target: "wakegraph::cuda", %error, "a counting launch is repeated without");
                self.change_form(instance, false, stream)?;
                instance.launch(stream)
            }
            launched => Ok(launched?.filter(|_| asked)),
        }
    }

    fn change_form(&self, instance: &mut CudaGraphInstance, counts: bool, stream: &CudaStream) -> Result<()> {
        let counter = counts.then(|| self.device.counters.take().map(Arc::new)).transpose()?;
        let exec = self.recording.instantiate(counter.as_deref(), stream)?;
        Ok(instance.replace(exec, counter)?)
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
        self.launch(&mut self.instance()?.lock(), stream, false).map(drop)
    }

    fn instance(&self) -> Result<&Mutex<CudaGraphInstance>> {
        self.instance.as_ref().ok_or_else(refusal::enqueue_before_finalize)
    }

    /// The recording and its instance, for an update.
    fn parts(&mut self) -> Result<(&mut GraphRecording, &mut CudaGraphInstance)> {
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
        CommandBufferInfo {
            id: self.id,
            device: self.device.info.id,
            desc: self.desc,
            state,
            commands: self.recording.commands.len(),
            lowering: "CUDA graph",
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
        let exec = device.context.run(|| self.recording.instantiate(None, device.pool.stream()))?;
        self.instance = Some(Mutex::new(CudaGraphInstance::new(exec)));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let instance = self.instance()?;
        let queue = CudaQueue::of(queue, &self.device)?;
        let commands = &self.recording.commands;
        let timed = self.desc.profiling.then_some(commands.len());
        let asked = signal.prompt;
        queue.submit(timed, None, wait, signal, |stream, starting| {
            let mut instance = instance.lock();
            if self.desc.profiling {
                starting.with_command_events(|events| {
                    let records = commands.iter().zip(events).filter_map(|(recorded, events)| {
                        Some(recorded.nodes.records?.into_iter().zip(events))
                    });
                    instance.record(Arc::clone(starting.signal()) as _, records.flatten())
                })?;
            }
            self.launch(&mut instance, stream, asked)
        })
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let device = Arc::clone(&self.device);
        let (recording, instance) = self.parts()?;
        device.context.run(|| update::update(&device, recording, instance, updates))
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let device = Arc::clone(&self.device);
        let (recording, instance) = self.parts()?;
        let other = other.as_any().downcast_ref::<Self>();
        let other = other.filter(|other| Arc::ptr_eq(&other.device, &device));
        let other = other.ok_or_else(|| refusal::foreign("command-buffer"))?;
        device.context.run(|| update::update_from(&device, recording, instance, &other.recording))
    }
}

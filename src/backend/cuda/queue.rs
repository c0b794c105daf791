//! Queues: one stream each.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::command_buffer::CudaCommandBuffer;
use super::completion_counter::CountedRun;
use super::device_inner::CudaDeviceInner;
use super::event::{CudaEvent, CudaSignal, Kept, StartingUse, UseEnd};
use super::graph::CudaGraph;
use super::graph_exec::CudaGraphExec;
use super::lower::{self, AddOptions, CommandNodes, EndNodes};
use super::stream::CudaStream;
use crate::hal::support::refusal::{foreign, foreign_wait};
use crate::hal::{Command, CommandBuffer, Enqueued, Event, Queue, QueueDesc, Signal, WaitList};
use crate::types::{DeviceId, Error, Result};

/// A queue. When it is dropped, its stream goes on with the work in flight.
#[derive(Debug)]
pub(super) struct CudaQueue {
    device: Arc<CudaDeviceInner>,
    desc: QueueDesc,
    id: u64,
    stream: Arc<CudaStream>,
}

impl CudaQueue {
    pub(super) fn create(device: &Arc<CudaDeviceInner>, desc: QueueDesc) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let stream = Arc::new(CudaStream::create(&device.context)?);
        Ok(Self { device: Arc::clone(device), desc, id: NEXT.fetch_add(1, Ordering::Relaxed), stream })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &Arc<CudaDeviceInner>) -> Result<&'a Self> {
        let queue = queue.as_any().downcast_ref::<Self>();
        queue.filter(|queue| Arc::ptr_eq(&queue.device, device)).ok_or_else(|| foreign("queue"))
    }

    /// Enqueues what `start` puts on the stream. With `timed_commands`, each of so many commands
    /// gets times.
    pub(super) fn submit(
        &self,
        timed_commands: Option<usize>,
        kept: Option<Kept>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
        start: impl FnOnce(&Arc<CudaStream>, &StartingUse<'_>) -> Result<Option<CountedRun>>,
    ) -> Result<()> {
        let context = &self.device.context;
        let event = signal.event.as_any().downcast_ref::<CudaEvent>();
        let event = event.filter(|event| Arc::ptr_eq(event.signal().device(), &self.device));
        let signal = event.ok_or_else(|| foreign("event"))?.signal();
        context.status()?;
        let _bound = context.bind().map_err(|failure| context.error(failure))?;
        let mut starting = CudaSignal::begin(signal)?;
        match self.wait_for(wait, &mut starting) {
            Ok(None) => {}
            Ok(Some(error)) => {
                starting.fail(error);
                return Ok(());
            }
            Err(error) => {
                starting.abandon();
                return Err(context.error(error));
            }
        }
        let timed = timed_commands.is_some() || self.desc.profiling;
        let begin = || {
            if timed && let Some(first) = signal.start() {
                starting.prepare_times(timed_commands.unwrap_or(0), self.device.clock.base()?)?;
                first.record(&self.stream)?;
            }
            start(&self.stream, &starting)
        };
        let end = match begin() {
            Ok(Some(run)) => UseEnd::Counted { run, next_query: None },
            // The work is on the stream: a failure from here on fails the event.
            Ok(None) => match self.stream.record(signal.end()) {
                Ok(sequence) => UseEnd::Recorded(sequence),
                Err(failure) => UseEnd::Broken(context.error(failure)),
            },
            Err(error) => {
                starting.abandon();
                return Err(context.error(error));
            }
        };
        starting.enqueued((self.id, &self.stream), timed, kept, end);
        Ok(())
    }

    /// Makes later work on the stream wait for the events. Returns the failure of a dependency that
    /// has failed.
    fn wait_for(&self, wait: WaitList<'_>, starting: &mut StartingUse<'_>) -> Result<Option<Error>> {
        fn signal_of(event: &dyn Event) -> Result<&Arc<CudaSignal>> {
            event.as_any().downcast_ref().map(CudaEvent::signal).ok_or_else(foreign_wait)
        }
        for &event in wait.order {
            signal_of(event)?.order_before(self.id, &self.stream)?;
        }
        for &event in wait.dependencies {
            let signal = signal_of(event)?;
            // Before the wait is enqueued, so that both mean the same use.
            starting.depend_on(signal);
            if let Some(error) = signal.order_before(self.id, &self.stream)? {
                return Ok(Some(error));
            }
        }
        Ok(None)
    }
}

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

    unsafe fn enqueue(&self, command: &Command, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
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
        let start = |stream: &Arc<CudaStream>, _: &StartingUse<'_>| {
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
        self.device.context.status()
    }

    fn finish(&self) -> Result<()> {
        self.device.context.status()?;
        self.stream.synchronize().map_err(|failure| self.device.context.error(failure))
    }
}

/// A command outside command-buffers: a graph that is launched once.
#[derive(Debug)]
struct SingleCommand {
    exec: Mutex<CudaGraphExec>,
    _graph: CudaGraph,
    _command: Command,
    _nodes: CommandNodes,
}

impl SingleCommand {
    /// The caller has bound the context.
    fn new(device: &Arc<CudaDeviceInner>, command: &Command) -> Result<Self> {
        let mut graph = CudaGraph::create(&device.context)?;
        let nodes = lower::add(device, &mut graph, command, EndNodes::new(), AddOptions::default())?;
        let exec = device.pool.retry_with_room(|| CudaGraphExec::instantiate(&mut graph))?;
        Ok(Self { exec: Mutex::new(exec), _graph: graph, _command: command.clone(), _nodes: nodes })
    }
}

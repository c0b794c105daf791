//! Queues: one stream each.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::command_buffer::{CudaCommandBuffer, OneShot};
use super::device::Shared;
use super::error::foreign;
use super::event::CudaEvent;
use super::signal::{End, Kept, Signal as Signalled, Starting};
use super::stream::Stream;
use super::tick::Tick;
use crate::hal::{Command, CommandBuffer, Enqueued, Event, Queue, QueueDesc, Signal, WaitList};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// What counts up behind what was enqueued, and to what.
pub(super) type Ticked = (Arc<Tick>, u64);

/// A queue. Its stream goes on with what is in flight when it is dropped.
#[derive(Debug)]
pub(super) struct CudaQueue {
    shared: Arc<Shared>,
    desc: QueueDesc,
    id: u64,
    stream: Arc<Stream>,
}

impl CudaQueue {
    pub(super) fn create(shared: &Arc<Shared>, desc: QueueDesc) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let stream = Arc::new(Stream::create(&shared.context)?);
        Ok(Self { shared: Arc::clone(shared), desc, id: NEXT.fetch_add(1, Ordering::Relaxed), stream })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Enqueues what `start` puts on the stream; `timed_commands` if each of so many commands gets times.
    pub(super) fn submit(
        &self,
        timed_commands: Option<usize>,
        kept: Option<Kept>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
        start: impl FnOnce(&Arc<Stream>, &Starting<'_>) -> Result<Option<Ticked>>,
    ) -> Result<()> {
        let context = &self.shared.context;
        let event = signal.event.as_any().downcast_ref::<CudaEvent>();
        let event = event.filter(|event| Arc::ptr_eq(&event.signal().shared, &self.shared));
        let event = event.ok_or_else(|| foreign("event"))?.signal();
        context.status()?;
        let _bound = context.bind().map_err(|failure| context.error(failure))?;
        let mut starting = Signalled::begin(event)?;
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
            if timed && let Some(first) = &event.start {
                let commands = timed_commands.unwrap_or(0);
                starting.prepare_times(commands, self.shared.clock.base()?)?;
                first.record(&self.stream)?;
            }
            start(&self.stream, &starting)
        };
        // From here on something is on the device: what fails now fails the event.
        let end = match begin() {
            Ok(Some((tick, run))) => End::Ticked(tick, run),
            Ok(None) => match self.stream.record(event.end()) {
                Ok(place) => End::Recorded(place),
                Err(failure) => End::Broken(context.error(failure)),
            },
            Err(error) => {
                starting.abandon();
                return Err(context.error(error));
            }
        };
        starting.enqueued((self.id, &self.stream), timed, kept, end);
        Ok(())
    }

    /// Puts the wait list before what comes next on the stream. Gives the failure of a dependency
    /// that has failed.
    fn wait_for(&self, wait: WaitList<'_>, starting: &mut Starting<'_>) -> Result<Option<Error>> {
        fn signal_of(event: &dyn Event) -> Result<&Arc<Signalled>> {
            event.as_any().downcast_ref().map(CudaEvent::signal).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidWaitList,
                    "the queue cannot wait for an event of this other device",
                )
                .help("wait on the host first; `Device::can_wait_for` tells when that is needed")
            })
        }
        for &event in wait.order {
            signal_of(event)?.order_before(self.id, &self.stream)?;
        }
        for &event in wait.dependencies {
            let signal = signal_of(event)?;
            // Before the wait is enqueued, so that it is this use whose outcome counts.
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
        self.shared.info.id
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Command, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let command = Arc::new(OneShot::new(&self.shared, command)?);
        let kept: Kept = Arc::clone(&command) as Kept;
        self.submit(None, Some(kept), wait, signal, |stream, _| command.launch(stream).map(|()| None))
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        let start = |stream: &Arc<Stream>, _: &Starting<'_>| {
            for &buffer in buffers {
                let buffer = buffer.as_any().downcast_ref::<CudaCommandBuffer>();
                let launched = buffer
                    .ok_or_else(|| foreign("command-buffer"))
                    .and_then(|buffer| buffer.launch_in_batch(&self.shared, stream));
                if let Err(error) = launched {
                    failure = Some(self.shared.context.error(error.clone()));
                    // With something on the stream, there is an end to tell of.
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
        self.shared.context.status()
    }

    fn finish(&self) -> Result<()> {
        self.shared.context.status()?;
        self.stream.synchronize().map_err(|failure| self.shared.context.error(failure))
    }
}

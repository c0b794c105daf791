//! Stream tasks: the user's own calls, on the stream of a queue.
#![expect(unsafe_code, reason = "calls closures, which the caller vouches for")]

use super::capture::CaptureContext;
use super::clock::SignalTimes;
use super::context::DriverContext as _;
use super::device::StreamDevice;
use super::event::StreamEvent;
use super::queue::{AwaitedSignals, StreamQueue, WaitedSignals};
use super::signal::{SignalEnd, StreamSignal};
use crate::{Error, ErrorKind, NativeCommand, Result, Signal, WaitList};

impl<D: StreamDevice<Context: CaptureContext>> StreamQueue<D> {
    /// Has the stream wait, calls the closure, and records the event. No lock is held during the call.
    pub fn run_stream_task(
        &self,
        task: &NativeCommand,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let (device, stream, context) = (&self.device, &self.stream, self.device.context());
        let event = StreamEvent::of(&**signal.event, device)?;
        context.health().status()?;
        event.check_not_pending()?;
        let awaited = AwaitedSignals::of(wait)?;
        context.run(|| {
            let WaitedSignals { needs, mut failure } = self.wait_for(awaited)?;
            let records = event.records();
            let mut times = None;
            if failure.is_none() {
                if (self.desc.profiling || signal.timed)
                    && let Some(first) = &records.start
                {
                    times = Some(SignalTimes::begin(device.clock().base()?, 0));
                    first.record(stream)?;
                }
                failure = self.call(task).err();
            }
            event.signal_by(|records| {
                let end = match stream.record(&records.end) {
                    Ok(sequence) => SignalEnd::Recorded(sequence),
                    Err(failure) => SignalEnd::Broken(context.error(failure)),
                };
                Ok(StreamSignal::new(device, records, stream, end, times, needs, None).failing(failure))
            })
        })
    }

    /// Calls the closure, with the context bound. What the closure leaves behind on the thread and on the
    /// stream is put in order.
    fn call(&self, task: &NativeCommand) -> Result<()> {
        let context = self.device.context();
        // SAFETY: the stream lives as long as the queue.
        let lent = unsafe { self.stream.lent() };
        // SAFETY: the stream waits for the wait list, in the current context; the event is recorded behind
        // what is on it then.
        let called = unsafe { task.call_live(&lent) };
        // A library may have made another context current.
        let current = context.make_current().map_err(|failure| context.error(failure));
        let captured = self.stream.end_open_capture().map_err(|failure| context.error(failure));
        called?;
        current?;
        if captured? {
            let why =
                format!("the closure of stream task '{}' left a capture of its stream open", task.name());
            return Err(Error::new(ErrorKind::InvalidOperation, why)
                .help("end the capture, or use a native command, which is captured"));
        }
        Ok(())
    }
}

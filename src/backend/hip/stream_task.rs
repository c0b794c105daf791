//! Stream tasks: the user's own calls, on the stream of a queue.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::event::HipEvent;
use super::graph::HipGraph;
use super::profiling::HipSignalTimes;
use super::queue::{HipAwaitedSignals, HipQueue, HipWaitedSignals};
use super::signal::{HipSignal, HipSignalEnd};
use super::sys::{HipFailure, call, hipStreamCaptureStatusNone};
use crate::hal::{NativeCommand, NativeStream, Signal, WaitList};
use crate::types::{Error, ErrorKind, Result};

impl HipQueue {
    /// Has the stream wait, calls the closure, and records the event. No lock is held during the call.
    pub(super) fn run_stream_task(
        &self,
        task: &NativeCommand,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let (device, stream) = (&self.device, &self.stream);
        let context = &device.context;
        let event = HipEvent::of(&**signal.event, device)?;
        context.health.status()?;
        event.check_not_pending()?;
        let awaited = HipAwaitedSignals::of(wait)?;
        context.run(|| {
            let HipWaitedSignals { needs, failed, mut failing } = self.wait_for(awaited)?;
            let records = event.records();
            let mut times = None;
            if failed.is_none() && failing.is_none() {
                if (self.desc.profiling || signal.timed)
                    && let Some(first) = &records.start
                {
                    times = Some(HipSignalTimes::begin(device.clock.base()?, 0));
                    first.record(stream)?;
                }
                failing = self.call(task).err();
            }
            event.signal_by(|records| {
                let end = match (&failed, stream.record(&records.end)) {
                    (Some(_), _) => HipSignalEnd::Recorded(0),
                    (None, Ok(sequence)) => HipSignalEnd::Recorded(sequence),
                    (None, Err(failure)) => HipSignalEnd::Broken(context.error(failure)),
                };
                let signal = HipSignal::new(device, records, stream, end, times, needs, None);
                Ok(match failed {
                    Some(error) => signal.failed(error),
                    None => signal.failing(failing),
                })
            })
        })
    }

    /// Calls the closure, with the device current. What the closure leaves behind on the thread and on the
    /// stream is put in order.
    fn call(&self, task: &NativeCommand) -> Result<()> {
        let context = &self.device.context;
        // SAFETY: the stream lives as long as the queue.
        let lent = unsafe { NativeStream::new("hip", self.stream.raw().cast(), ptr::null_mut()) };
        // SAFETY: the stream waits for the wait list, on the current device; the event is recorded behind
        // what is on it then.
        let called = unsafe { task.call_live(&lent) };
        // A library may have made another device current.
        let current = context.make_current().map_err(|failure| context.error(failure));
        let captured = self.end_capture().map_err(|failure| context.error(failure));
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

    /// Ends the capture of the stream, if there is one: an event that is recorded there would never complete.
    fn end_capture(&self) -> Result<bool, HipFailure> {
        let driver = self.device.context.driver;
        let mut status = hipStreamCaptureStatusNone;
        // SAFETY: the stream is alive; the pointer is valid for a status.
        unsafe { call!(driver, hipStreamIsCapturing(self.stream.raw(), &raw mut status)) }?;
        if status == hipStreamCaptureStatusNone {
            return Ok(false);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the stream is alive, and captures; the pointer is valid for a pointer. An error says that
        // the capture was invalid, and has ended it.
        let _ = unsafe { call!(driver, hipStreamEndCapture(self.stream.raw(), &raw mut raw)) };
        drop(HipGraph::adopt(&self.device.context, raw));
        Ok(true)
    }
}

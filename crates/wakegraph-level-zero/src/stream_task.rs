//! Stream tasks: the user's own calls, on a list that is handed over when the closure has returned.
#![expect(unsafe_code, reason = "lends a list of the driver's")]

use wakegraph_hal::{NativeCommand, NativeStream, Result, Signal, WaitList};

use super::enqueue_work::SignalAlone;
use super::queue::LevelZeroQueue;
use super::recording::ListRecording;
use super::signal::LevelZeroEvent;
use super::single_run::SingleRun;

impl LevelZeroQueue {
    /// Calls the closure with a list of its own, because the driver takes one call at a time for a
    /// list. No lock is held during the call. Where the closure fails, nothing of the list runs.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue).
    pub(super) unsafe fn run_stream_task(
        &self,
        task: &NativeCommand,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<()> {
        let context = self.context();
        context.health()?;
        let event = LevelZeroEvent::of(signal.event, context)?;
        event.signal.check_not_pending()?;
        if self.failed_dependency(wait)?.is_some() {
            // SAFETY: passed on to the caller.
            return unsafe { self.submit(SignalAlone(None), wait, signal) };
        }
        let mut failure = None;
        let recording = ListRecording::around(context, |list| {
            let (raw, of) = (list.raw().cast(), context.raw().cast());
            // SAFETY: the list and the context live as long as the call.
            let lent = unsafe { NativeStream::new("level_zero", raw, of) };
            // SAFETY: what is on the list when this returns runs behind the wait list and before the signal.
            failure = unsafe { task.call_live(&lent) }.err();
        });
        let recording = recording.map_err(|failure| context.error(failure))?;
        if failure.is_some() {
            // SAFETY: passed on to the caller.
            return unsafe { self.submit(SignalAlone(failure), wait, signal) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.submit(SingleRun::new(recording), wait, signal) }
    }
}

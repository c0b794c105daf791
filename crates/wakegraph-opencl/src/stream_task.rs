//! Stream tasks: the user's own calls, on the driver's queue.
#![expect(unsafe_code, reason = "lends a queue of the driver's")]

use std::sync::Arc;

use wakegraph_hal::{NativeCommand, NativeStream, Result, Signal, WaitList};

use super::queue::{OpenclQueue, OpenclWaitList};
use super::signal::{EnqueueTimes, OpenclEvent, OpenclSignal, StartedWork, TimesWanted};

impl OpenclQueue {
    /// Has the driver's queue wait, calls the closure, and ends with a marker. No lock is held
    /// during the call.
    pub(super) fn run_stream_task(
        &self,
        task: &NativeCommand,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<Arc<OpenclSignal>> {
        let context = &self.context;
        let event = OpenclEvent::of(signal.event, context)?;
        event.signal.check_not_pending()?;
        let mut waits = self.wait_list(wait)?;
        let begun = self.begin(signal.timed, &mut waits);
        let (queue, start) = begun.map_err(|failure| context.error(failure))?;
        let failure = match waits.failure.take() {
            Some(inherited) => Some(inherited),
            None => {
                // SAFETY: the queue and the context live as long as this queue.
                let lent = unsafe { NativeStream::new("opencl", queue.raw(), context.raw.raw()) };
                // SAFETY: the queue is in order and waits for the wait list; the marker is behind what is on
                // it then.
                unsafe { task.call_live(&lent) }.err()
            }
        };
        let wanted = if start.is_some() { TimesWanted::Whole } else { TimesWanted::None };
        let mut times = EnqueueTimes::new(wanted, 1);
        start.into_iter().for_each(|start| times.add(0, start));
        times.last = Some(0);
        // Meanwhile others, the closure among them, may have enqueued on the other queue of the driver. The
        // marker comes after that, and what is enqueued there from now on comes after the marker.
        let (mut on_profiled, mut others) = (self.on_profiled.lock(), OpenclWaitList::default());
        let selected = self.select(signal.timed, *on_profiled, &mut others);
        let (_, is_profiled) = selected.map_err(|failure| context.error(failure))?;
        event.signal.signal_by(|| {
            let marker = queue.marker(&others.events).map_err(|failure| context.error(failure))?;
            *on_profiled = is_profiled;
            queue.flush_enqueued();
            let work = StartedWork { event: marker, end: None, foreign: waits.foreign, failure, times };
            Ok(OpenclSignal::new(context, &queue, work, waits.dependencies))
        })
    }
}

//! Events and streams of other libraries that use the same driver.
//!
//! The driver counts no references, so an event's last record is taken over by an event of this backend at
//! once. The application may record or destroy its own afterwards.
#![expect(unsafe_code, reason = "calls the driver with handles that the caller vouches for")]

use std::sync::Arc;

use super::capture::CaptureContext;
use super::context::{ContextFailure, DriverContext};
use super::device::StreamDevice;
use super::event::StreamEvent;
use super::queue::signals;
use super::signal::{EventRecords, SignalEnd, SignalNeeds, StreamSignal};
use super::stream::{EventHandle, StreamContext, StreamHandle};
use crate::{Error, ErrorKind, Event, Result};

/// An event that is complete once the last record of another library's is.
///
/// # Safety
/// The handle is that of a live event.
pub(super) unsafe fn import_event<D: StreamDevice>(
    device: &Arc<D>,
    handle: EventHandle<D::Context>,
) -> Result<StreamEvent<D>> {
    let context = device.context();
    let _bound = context.bind()?;
    // An event that is recorded in a capture fails here, before a wait draws a stream of ours into it.
    // SAFETY: the caller vouches for the event.
    unsafe { context.query_event(handle) }.map_err(|failure| unknown::<D::Context>("event", failure))?;
    let records = Arc::new(EventRecords::create(context, false)?);
    // SAFETY: as above.
    let following = unsafe { device.import_streams().follow(handle, &records.end) };
    let (stream, sequence) = following.map_err(|failure| unknown::<D::Context>("event", failure))?;
    let (end, needs) = (SignalEnd::Recorded(sequence), SignalNeeds::<D>::default());
    let signal = StreamSignal::new(device, &records, &stream, end, None, needs, None);
    Ok(StreamEvent::signalled(device, &records, signal))
}

/// Makes what is enqueued on another library's stream from now on come after events of this backend, however
/// they end.
///
/// # Safety
/// The handle is that of a live stream, or one of the driver's own for default streams, such as null.
pub(super) unsafe fn order_stream_after<D: StreamDevice<Context: CaptureContext>>(
    device: &D,
    stream: StreamHandle<D::Context>,
    events: &[&dyn Event],
) -> Result<()> {
    let (context, signals) = (device.context(), signals::<D>(events)?);
    // Null stands for the default stream of this context.
    let _bound = context.bind()?;
    // SAFETY: the caller vouches for the stream.
    let captures = unsafe { context.is_capturing(stream) };
    if captures.map_err(|failure| unknown::<D::Context>("stream", failure))? {
        return Err(captured_stream());
    }
    for signal in &signals {
        signal.order_by(false, |event| {
            // SAFETY: the event is alive; the caller vouches for the stream.
            let waits = unsafe { context.wait(stream, event.raw()) };
            waits.map_err(|failure| unknown::<D::Context>("stream", failure))
        })?;
    }
    Ok(())
}

/// A wait for an event from outside a capture would make the capture invalid.
fn captured_stream() -> Error {
    Error::new(ErrorKind::InvalidOperation, "the stream is being captured as a graph")
        .help("let the stream that launches the graph wait instead, before the launch and outside a capture")
}

/// The error of a call that was given a handle of another library.
fn unknown<C: StreamContext>(what: &str, failure: ContextFailure<C>) -> Error {
    if !C::BAD_HANDLE.contains(&failure.code) {
        return failure.into();
    }
    let why = format!("the handle is not that of a live {what} of this driver");
    Error::new(ErrorKind::InvalidArgument, why).caused_by(Error::from(failure))
}

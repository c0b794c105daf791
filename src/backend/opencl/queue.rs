//! Queues, and the one way in which anything is enqueued on them.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::ptr;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::device::Shared;
use super::event::OpenclEvent;
use super::notify;
use super::record::Recording;
use super::replay::{List, Started, Timing};
use super::signal::{self, Signal, Waited};
use super::sys::{self, CommandQueue, Core, Event, Failure, Owned, call, create};
use crate::hal::{Command, Event as _, EventStatus, Notification, Queue, QueueDesc, QueueOrder, WaitList};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// A queue of the driver's.
#[derive(Debug)]
pub(super) struct DriverQueue {
    queue: Owned<CommandQueue>,
    core: &'static Core,
    order: QueueOrder,
    profiling: bool,
}

impl DriverQueue {
    pub(super) fn create(shared: &Shared, order: QueueOrder, profiling: bool) -> Result<Self, Failure> {
        let core = shared.core;
        // An in-order queue keeps every promise of one out of order, as what is waited for was
        // enqueued before.
        let order = if shared.features.out_of_order_queues { order } else { QueueOrder::InOrder };
        let mut bits = 0;
        if order == QueueOrder::OutOfOrder {
            bits |= sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        }
        if profiling {
            bits |= sys::CL_QUEUE_PROFILING_ENABLE;
        }
        let (context, device) = (shared.context.raw(), shared.id.raw());
        let queue = if shared.features.queue_properties {
            let list = [sys::CL_QUEUE_PROPERTIES as sys::cl_queue_properties, bits, 0];
            let list = if bits == 0 { ptr::null() } else { list.as_ptr() };
            // SAFETY: the device is one of the context's, the list ends in 0.
            unsafe { create!(core, clCreateCommandQueueWithProperties(context, device, list)) }
        } else {
            // SAFETY: the device is one of the context's.
            unsafe { create!(core, clCreateCommandQueue(context, device, bits)) }
        }?;
        // SAFETY: the queue has just been created, for us.
        Ok(Self { queue: unsafe { Owned::new(core, queue) }, core, order, profiling })
    }

    pub(super) fn raw(&self) -> sys::cl_command_queue {
        self.queue.raw()
    }

    pub(super) fn order(&self) -> QueueOrder {
        self.order
    }

    pub(super) fn profiling(&self) -> bool {
        self.profiling
    }

    pub(super) fn flush(&self) -> Result<(), Failure> {
        // SAFETY: the queue is alive.
        unsafe { call!(self.core, clFlush(self.raw())) }
    }

    pub(super) fn finish(&self) -> Result<(), Failure> {
        // SAFETY: the queue is alive.
        unsafe { call!(self.core, clFinish(self.raw())) }
    }

    /// The event of a marker behind `wait`; without any, behind everything enqueued so far. Where
    /// the driver refuses even a marker, this blocks until both are over, and there is no event.
    pub(super) fn marker(
        &self,
        core: &'static Core,
        wait: &[sys::cl_event],
    ) -> Result<Option<Owned<Event>>, Failure> {
        let mut event = ptr::null_mut();
        let (waits, list) = super::op::list(wait);
        // SAFETY: the queue and the events are alive.
        let enqueued =
            unsafe { call!(core, clEnqueueMarkerWithWaitList(self.raw(), waits, list, &raw mut event)) };
        match enqueued {
            Ok(()) => signal::adopt(core, event).map(Some),
            Err(_) => {
                self.finish()?;
                if waits > 0 {
                    // SAFETY: the events are alive. An error says that one of them has failed, so it is over.
                    let _ = unsafe { call!(core, clWaitForEvents(waits, list)) };
                }
                Ok(None)
            }
        }
    }

    /// The event of a marker behind `wait` and behind everything enqueued so far.
    fn marker_behind_all(
        &self,
        core: &'static Core,
        wait: &[sys::cl_event],
    ) -> Result<Option<Owned<Event>>, Failure> {
        if !wait.is_empty() {
            // A marker with a wait list waits for nothing else on an out-of-order queue, so it takes two.
            self.marker(core, wait)?;
        }
        self.marker(core, &[])
    }
}

/// What is to be enqueued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) list: &'a List,
    /// The same, recorded.
    pub(super) recording: Option<&'a Recording>,
    /// Its commands' times are wanted.
    pub(super) timed: bool,
    /// What it must not overlap.
    pub(super) previous: Option<&'a Arc<Signal>>,
}

/// A queue.
#[derive(Debug)]
pub(super) struct OpenclQueue {
    shared: Arc<Shared>,
    desc: QueueDesc,
    main: Arc<DriverQueue>,
    /// For command-buffers with profiling, where the queue itself has none.
    profiled: OnceLock<Arc<DriverQueue>>,
    /// Whether the last enqueue went to `profiled`. Held while enqueueing: an enqueue is several calls.
    on_profiled: Mutex<bool>,
}

impl OpenclQueue {
    pub(super) fn create(shared: &Arc<Shared>, desc: QueueDesc) -> Result<Self, Failure> {
        let main = Arc::new(DriverQueue::create(shared, desc.order, desc.profiling)?);
        Ok(Self {
            shared: Arc::clone(shared),
            desc,
            main,
            profiled: OnceLock::new(),
            on_profiled: Mutex::new(false),
        })
    }

    /// The driver's queue for what has no times of its own.
    pub(super) fn driver(&self) -> &Arc<DriverQueue> {
        &self.main
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &Shared) -> Result<&'a Self> {
        let queue = queue.as_any().downcast_ref::<Self>();
        queue.filter(|queue| queue.shared.info.id == device.info.id).ok_or_else(|| super::foreign("queue"))
    }

    /// Whether everything enqueued from now on comes after `signal` by the queue's order.
    fn is_in_line(&self, signal: &Signal) -> bool {
        let mut queues = std::iter::once(&self.main).chain(self.profiled.get());
        self.desc.order == QueueOrder::InOrder && queues.any(|queue| signal.is_on(queue))
    }

    /// Enqueues `work`, and gives its signal.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](crate::hal::CommandBuffer::enqueue).
    pub(super) unsafe fn submit(
        &self,
        work: Work<'_>,
        wait: WaitList<'_>,
        event: &Arc<dyn crate::hal::Event>,
    ) -> Result<Arc<Signal>> {
        let event = event.as_any().downcast_ref::<OpenclEvent>();
        let event = event.filter(|event| event.device() == self.shared.info.id);
        let event = event.ok_or_else(|| super::foreign("event"))?;
        let mut waits = Waits::default();
        for dependency in wait.dependencies {
            waits.add(self, *dependency, true)?;
        }
        for order in wait.order {
            waits.add(self, *order, false)?;
        }
        let mut on_profiled = self.on_profiled.lock();
        let (queue, is_profiled) = self.select(work.timed, *on_profiled, &mut waits)?;
        if let Some(previous) = work.previous {
            let ordered = queue.order == QueueOrder::InOrder && previous.is_on(queue);
            if !ordered && matches!(previous.status(), EventStatus::Pending) {
                waits.events.extend(previous.event());
            }
        }
        let mut slot = event.slot();
        if slot.as_ref().is_some_and(|last| matches!(last.status(), EventStatus::Pending)) {
            return Err(super::invalid_operation("the event to signal is still pending")
                .help("wait for the event, or signal another one"));
        }
        // SAFETY: passed on to the caller.
        let started = unsafe { self.start(queue, &work, &waits) };
        let started = started.map_err(|failure| self.shared.error(failure))?;
        // Not before: where the driver has refused everything, the next enqueue still has to wait
        // for the other queue.
        *on_profiled = is_profiled;
        if let Err(failure) = queue.flush() {
            // What it started is in flight all the same.
            let error = self.shared.error(failure);
            tracing::warn!(target: "wakegraph::opencl", %error, "a queue was not flushed");
        }
        let new = Signal::new(&self.shared, queue, started, waits.pending);
        // The last use's signal is used again, if nobody refers to it any more.
        match slot.as_mut().and_then(Arc::get_mut) {
            Some(last) => *last = new,
            None => *slot = Some(Arc::new(new)),
        }
        match &*slot {
            Some(signal) => Ok(Arc::clone(signal)),
            None => Err(Error::new(ErrorKind::Bug, "an enqueue without a signal")),
        }
    }

    /// Has the device tell when it is over, where it does so. Not for callers that hold a lock.
    pub(super) fn notify(&self, signal: Arc<Signal>, notification: Option<Notification>) {
        if let Some(notification) = notification.filter(|_| self.shared.capabilities.notifies) {
            notify::when_over(self.shared.core, signal, notification);
        }
    }

    unsafe fn start(&self, queue: &DriverQueue, work: &Work<'_>, waits: &Waits) -> Result<Started, Failure> {
        let (shared, events) = (&*self.shared, &waits.events[..]);
        if let Some(failure) = &waits.failure {
            // Nothing runs, but in its turn.
            let event = match (self.desc.order, events) {
                (QueueOrder::OutOfOrder, []) => Some(signal::completed(shared)?),
                _ => queue.marker(shared.core, events)?,
            };
            return Ok(Started { event, failure: Some(failure.clone()), times: None });
        }
        let recording = work.recording.filter(|recording| {
            let free =
                recording.simultaneous() || work.previous.is_none_or(|previous| previous.status().is_final());
            free && !work.timed && recording.fits(queue)
        });
        if let Some(recording) = recording {
            // SAFETY: passed on to the caller.
            match unsafe { recording.enqueue(queue, events) } {
                Ok(event) => return Ok(Started { event: Some(event), failure: None, times: None }),
                // PoCL takes a recording for pending for a moment after its event is complete.
                Err(Failure { code: sys::CL_INVALID_OPERATION, .. }) => {}
                // Intel's runtime looks at a recording's commands one by one: those before the
                // refused one run.
                Err(failure) => {
                    let failure = Some(shared.error(failure));
                    let event = queue.marker_behind_all(shared.core, events)?;
                    return Ok(Started { event, failure, times: None });
                }
            }
        }
        let timing = match (work.timed, self.desc.profiling) {
            (true, _) => Timing::Commands,
            (false, true) => Timing::Whole,
            (false, false) => Timing::None,
        };
        // SAFETY: passed on to the caller.
        unsafe { work.list.enqueue(shared, queue, events, timing) }
    }

    /// The driver's queue for an enqueue with or without times, and whether it is the profiled one.
    /// Where the last enqueue went to the other queue, `waits` gets an event behind everything
    /// there.
    fn select<'a>(
        &'a self,
        timed: bool,
        on_profiled: bool,
        waits: &mut Waits,
    ) -> Result<(&'a Arc<DriverQueue>, bool)> {
        let timed = timed && !self.desc.profiling;
        if !timed && !on_profiled {
            return Ok((&self.main, false));
        }
        let profiled = match self.profiled.get() {
            Some(profiled) => profiled,
            None => {
                let created = DriverQueue::create(&self.shared, self.desc.order, true)
                    .map_err(|failure| self.shared.error(failure))?;
                self.profiled.get_or_init(|| Arc::new(created))
            }
        };
        let (now, before) = if timed { (profiled, &self.main) } else { (&self.main, profiled) };
        if timed != on_profiled && self.desc.order == QueueOrder::InOrder {
            let marker =
                before.marker(self.shared.core, &[]).map_err(|failure| self.shared.error(failure))?;
            before.flush().map_err(|failure| self.shared.error(failure))?;
            waits.events.extend(marker.as_ref().map(Owned::raw));
            waits.marker = marker;
        }
        Ok((now, timed))
    }
}

/// A wait list as the driver takes it.
#[derive(Default)]
struct Waits {
    events: SmallVec<[sys::cl_event; 8]>,
    /// Those whose failure would be ours.
    pending: Waited,
    /// A dependency has failed already.
    failure: Option<Error>,
    /// Keeps events alive during the call.
    order: Waited,
    marker: Option<Owned<Event>>,
}

impl Waits {
    fn add(&mut self, queue: &OpenclQueue, event: &dyn crate::hal::Event, needed: bool) -> Result<()> {
        let event = event.as_any().downcast_ref::<OpenclEvent>();
        let event = event.filter(|event| Arc::ptr_eq(&event.shared().context, &queue.shared.context));
        let event = event.ok_or_else(|| {
            Error::new(ErrorKind::InvalidWaitList, "the queue cannot wait for an event of this other device")
                .help("wait on the host first; `Device::can_wait_for` tells when that is needed")
        })?;
        let signal = event.signal().ok_or_else(|| {
            Error::new(ErrorKind::InvalidWaitList, "an event to wait for was never enqueued")
                .help("enqueue what signals it first")
        })?;
        // It may be pending only because of what comes before it in its queue.
        if let Some(error) = signal.known_failure().filter(|_| needed) {
            self.failure.get_or_insert_with(|| error.clone());
        }
        match signal.status() {
            EventStatus::Failed(error) if needed => {
                self.failure.get_or_insert(error);
            }
            // What is in the same line comes later anyway.
            EventStatus::Pending if !needed && queue.is_in_line(&signal) => {}
            EventStatus::Pending => {
                self.events.extend(signal.event());
                if needed { self.pending.push(signal) } else { self.order.push(signal) }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Queue for OpenclQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.shared.info.id
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(
        &self,
        command: &Command,
        wait: WaitList<'_>,
        signal: crate::hal::Signal<'_>,
    ) -> Result<()> {
        let mut list = List::default();
        list.push(&self.shared, command, &[]).map_err(|error| self.shared.error(error))?;
        let work = Work { list: &list, recording: None, timed: false, previous: None };
        // SAFETY: passed on to the caller. The driver keeps kernels and buffer objects of what is in flight.
        let enqueued = unsafe { self.submit(work, wait, signal.event) }?;
        enqueued.keep(list.into_staged());
        self.notify(enqueued, signal.notification);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut queues = std::iter::once(&self.main).chain(self.profiled.get());
        queues.try_for_each(|queue| queue.flush()).map_err(|failure| self.shared.error(failure))
    }

    fn finish(&self) -> Result<()> {
        let mut queues = std::iter::once(&self.main).chain(self.profiled.get());
        queues.try_for_each(|queue| queue.finish()).map_err(|failure| self.shared.error(failure))
    }
}

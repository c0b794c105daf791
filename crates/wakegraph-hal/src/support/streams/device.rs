//! The contract's device, with its launches and the devices that may use its memory; and its queues: the
//! one way in which anything is enqueued on a stream: single commands, command-buffers in
//! batches, stream tasks. Events and streams of other libraries that use the same driver.
//!
//! The driver counts no references, so an event's last record is taken over by an event of this backend at
//! once. The application may record or destroy its own afterwards.
#![expect(unsafe_code, reason = "the caller vouches for enqueues, closures, handles and the backend")]

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::memory::{MemoryDevice, StreamMemory};
use super::pool::{BorrowedStream, StreamBorrower, log_common};
use super::signal::{
    EventRecords, Kept, SignalEnd, SignalNeeds, Started, StreamDevice, StreamEvent, StreamSignal,
};
use super::stream::{
    CaptureContext, DriverStream, EventHandle, RawEvent, SignalTimes, StreamContext, StreamHandle,
    nanoseconds_at,
};
use super::{ContextFailure, DriverContext, call_user};
use crate::device::cannot_share;
use crate::support::errors::{foreign, foreign_wait, idle_wait};
use crate::support::launch::{LaunchArguments, LaunchGeometry, LaunchLimits};
use crate::support::signals::EnqueueSignal;
use crate::{
    Capabilities, ClockSample, Command, CommandBuffer, CommandBufferDesc, Device, DeviceId, DeviceInfo,
    Enqueued, Error, ErrorKind, Event, EventDesc, Kernel, KernelDesc, KernelLaunch, Memory, MemoryDesc,
    MemoryKind, NativeCommand, Queue, QueueDesc, QueueOrder, Result, Signal, UserMemory, WaitList,
};

/// The types and calls that the devices of a backend are made of.
///
/// # Safety
/// The backend meets the contract. Memory is the driver's, and is counted on the memory stream behind the
/// clear that was asked for. It lives as long as its object. Streams and wait lists order work. An event is
/// final when the driver says that its record is complete, or that its context has ended.
pub unsafe trait GpuBackend: LaunchDevice + MemoryDevice {
    /// A loaded kernel.
    type Kernel: Kernel;
    /// A command-buffer.
    type CommandBuffer: CommandBuffer;
    /// The API's name, for errors.
    const NAME: &'static str;

    /// Loads a kernel from its sources.
    fn load_kernel(&self, desc: &KernelDesc<'_>) -> Result<Self::Kernel>;

    /// Creates an empty command-buffer.
    fn create_command_buffer(device: &Arc<Self>, desc: CommandBufferDesc) -> Result<Self::CommandBuffer>;

    /// Checks that `len` bytes at `address` lie inside memory that the driver knows and that this device can
    /// use.
    fn check_address(&self, address: usize, len: usize) -> Result<()>;

    /// Lets `user` use this device's memory, if the hardware can.
    fn open_to(&self, user: &Self) -> Result<bool, ContextFailure<Self::Context>>;

    /// The error of splitting the device into so many, with the remedy.
    fn cannot_split(count: NonZeroUsize) -> Error;

    /// Divides the compute units, as [`Device::share`] says, whose default is this one's.
    fn share(&self, units: usize) -> Result<[Self; 2]>
    where
        Self: Sized,
    {
        let _ = units;
        Err(cannot_share(&self.parts().info))
    }
}

/// Work-groups and arguments of a launch, whose kernel is of this device: in the portable dialect, or in the
/// vendor's language. A dimension has at most `items` work-items, and the hardware issues `warp` of them
/// together.
pub fn prepare_launch<D: GpuBackend>(
    device: &D,
    launch: &KernelLaunch,
    is_portable: bool,
    (items, warp): (usize, usize),
) -> Result<(LaunchGeometry, LaunchArguments)> {
    let KernelLaunch { kernel, range, args, .. } = launch;
    if range.offset() != [0; 3] && !is_portable {
        let why = format!("kernel '{}': {range} starts at an offset", kernel.name());
        return Err(Error::new(ErrorKind::FeatureNotSupported, why).help(format!(
            "{} knows no offset: pass it as an argument, or write the kernel in the portable C dialect",
            D::NAME
        )));
    }
    let Capabilities { max_work_item_sizes: block, max_work_groups: grid, .. } = device.parts().capabilities;
    let limits = LaunchLimits { block, grid, items, warp };
    let geometry = LaunchGeometry::of(range, kernel.max_work_group_size(), &limits)?;
    let address_of = StreamMemory::<D>::address_of;
    let arguments = match is_portable {
        true => LaunchArguments::portable(kernel.params(), args, range, &geometry, address_of)?,
        false => LaunchArguments::as_declared(args, address_of)?,
    };
    Ok((geometry, arguments))
}

/// A device. Its objects hold its private core, so the device itself may be dropped before them.
#[derive(Debug)]
pub struct GpuDevice<D> {
    inner: Arc<D>,
}

impl<D> GpuDevice<D> {
    /// The contract's device over its core.
    pub fn new(inner: D) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The core that the device shares with its objects.
    pub fn inner(&self) -> &Arc<D> {
        &self.inner
    }
}

impl<D: GpuBackend> GpuDevice<D> {
    /// Creates an object, unless the device is lost. An error names the device.
    fn create<T, E: Into<Error>>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<T> {
        self.status()?;
        create().map_err(|error| self.inner.context().error(error))
    }
}

// SAFETY: the backend promises it.
unsafe impl<D: GpuBackend> Device for GpuDevice<D> {
    fn info(&self) -> &DeviceInfo {
        &self.inner.parts().info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.parts().capabilities
    }

    fn status(&self) -> Result<()> {
        self.inner.context().health().status()
    }

    fn may_still_run(&self) -> bool {
        self.inner.context().health().may_still_run()
    }

    /// The host's own clock: device times are converted to it.
    fn clock(&self) -> Result<ClockSample> {
        let host = Instant::now();
        let error = Duration::from_nanos(self.inner.parts().clock.error());
        Ok(ClockSample::new(nanoseconds_at(host), host).error(error))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(self.create(|| StreamMemory::allocate(&self.inner, desc))?))
    }

    fn register(&self, memory: UserMemory) -> Result<Arc<dyn Memory>> {
        self.status()?;
        self.inner.context().run(|| StreamMemory::of_user(&self.inner, memory))
    }

    /// Waits for the stream on which memory is freed.
    fn trim(&self) -> Result<()> {
        self.status()?;
        self.inner.context().run(|| self.inner.trim())
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(self.create(|| self.inner.load_kernel(desc))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.status()?;
        if desc.order == QueueOrder::OutOfOrder {
            let why = format!("{} has no out-of-order queues", D::NAME);
            return Err(self.inner.context().error(Error::new(ErrorKind::FeatureNotSupported, why)));
        }
        Ok(Arc::new(self.create(|| StreamQueue::create(&self.inner, *desc))?))
    }

    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(self.create(|| StreamEvent::create(&self.inner, desc.profiling))?))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(self.create(|| D::create_command_buffer(&self.inner, *desc))?))
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        self.create(|| self.inner.check_address(address, len))
    }

    unsafe fn import_event(&self, handle: *mut c_void) -> Result<Arc<dyn Event>> {
        // SAFETY: passed on to the caller.
        Ok(Arc::new(self.create(|| unsafe { import_event(&self.inner, handle.cast()) })?))
    }

    unsafe fn order_after(&self, queue: *mut c_void, events: &[&dyn Event]) -> Result<()> {
        // SAFETY: passed on to the caller.
        self.create(|| unsafe { order_stream_after(&*self.inner, queue.cast(), events) })
    }

    /// This device's memory, the host memory that the driver knows, and peers' memory. What is enqueued
    /// from now on comes behind the peer's allocations: each operand of a command is asked for.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.downcast_ref::<StreamMemory<D>>().is_some_and(|memory| {
            let owner = &memory.device;
            let order = |behind: &mut u64| {
                owner.memory_stream().order_before_peer(self.inner.memory_stream(), behind)
            };
            Arc::ptr_eq(owner, &self.inner)
                || memory.kind() == MemoryKind::Host
                || owner.parts().peers.is_open_to(self.inner.id(), || owner.open_to(&self.inner), order)
        })
    }

    fn bind_thread(&self, work: &mut dyn FnMut()) -> Result<()> {
        self.inner.context().run(|| {
            work();
            Ok::<_, Error>(())
        })
    }

    /// A stream can wait for events of all devices of the driver.
    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.downcast_ref::<Self>().is_some()
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        Err(self.inner.context().error(D::cannot_split(count)))
    }

    fn share(&self, units: usize) -> Result<[Arc<dyn Device>; 2]> {
        let parts = self.create(|| self.inner.share(units))?;
        Ok(parts.map(|part| Arc::new(Self::new(part)) as Arc<dyn Device>))
    }
}

/// A queue, which has a stream while something of it is in flight. When it is dropped, that goes on.
#[derive(Debug)]
pub struct StreamQueue<D: StreamDevice> {
    /// The device.
    pub device: Arc<D>,
    /// Descriptor that the queue was created with.
    pub desc: QueueDesc,
    streams: Arc<StreamBorrower<D::Context>>,
}

impl<D: StreamDevice> StreamQueue<D> {
    /// Creates a queue.
    pub fn create(device: &Arc<D>, desc: QueueDesc) -> Result<Self, ContextFailure<D::Context>> {
        let streams = Arc::new(StreamBorrower::new(&device.parts().streams, desc.priority)?);
        Ok(Self { device: Arc::clone(device), desc, streams })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub fn of<'a>(queue: &'a dyn Queue, device: &Arc<D>) -> Result<&'a Self> {
        let queue = queue.downcast_ref::<Self>();
        queue.filter(|queue| Arc::ptr_eq(&queue.device, device)).ok_or_else(|| foreign("queue"))
    }

    /// Enqueues what `start` puts on the stream. With `timed_commands`, each of so many commands
    /// gets times.
    pub fn submit(
        &self,
        timed_commands: Option<usize>,
        kept: Option<Kept>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
        start: impl FnOnce(&BorrowedStream<D::Context>, &Arc<EventRecords<D::Context>>) -> Result<Started<D>>,
    ) -> Result<()> {
        let (device, context) = (&self.device, self.device.context());
        let event = StreamEvent::of(&**signal.event, device)?;
        context.health().status()?;
        // Not later: the event may wait for its own last signal.
        let awaited = AwaitedSignals::of(wait)?;
        let enqueue = |borrowed: &BorrowedStream<D::Context>, records: &Arc<EventRecords<D::Context>>| {
            let stream = &borrowed.stream;
            let WaitedSignals { needs, failure } = wait_for(stream, awaited)?;
            device.memory_stream().order_before(stream)?;
            if let Some(commands) = timed_commands {
                // Also for an event without times: what is enqueued records them.
                records.reserve(context, commands)?;
            }
            let mut times = None;
            if (timed_commands.is_some() || self.desc.profiling || signal.timed)
                && let Some(first) = &records.start
            {
                let commands = timed_commands.unwrap_or(0);
                times = Some(SignalTimes::begin(device.parts().clock.base()?, commands));
                first.record(stream)?;
            }
            // What does not run keeps its place in the order.
            let started = if failure.is_some() { Started::default() } else { start(borrowed, records)? };
            let failure = failure.or(started.failure.map(|failure| context.error(failure)));
            let end = match started.counted {
                // Times need the record of the event.
                Some(run) if times.is_none() => SignalEnd::Counted(run),
                // The work is on the stream: a failure from here on fails the event.
                _ => match stream.record(&records.end) {
                    Ok(sequence) => SignalEnd::Recorded(sequence),
                    Err(failure) => SignalEnd::Broken(context.error(failure)),
                },
            };
            let signal = StreamSignal::new(device, records, stream, end, times, needs, kept);
            Ok(signal.failing(failure).with_loops(started.loops))
        };
        let mut unmade = None;
        let signal = |records: &_| self.borrowing(&mut unmade, |borrowed| enqueue(borrowed, records));
        let outcome = context.run(|| event.signal_by(signal));
        // Without the event's lock.
        log_common(unmade);
        outcome
    }

    /// Borrows a stream for what `enqueue` enqueues. `unmade` is as [`StreamBorrower::borrow`] says.
    fn borrowing(
        &self,
        unmade: &mut Option<ContextFailure<D::Context>>,
        enqueue: impl FnOnce(&BorrowedStream<D::Context>) -> Result<StreamSignal<D>>,
    ) -> Result<StreamSignal<D>> {
        let (borrowed, failure) = self.streams.borrow();
        *unmade = failure;
        match enqueue(&borrowed) {
            Ok(signal) => Ok(signal.in_turn(borrowed.turn)),
            Err(error) => {
                borrowed.abandon();
                Err(error)
            }
        }
    }
}

/// Has the stream wait. The caller has bound the context.
fn wait_for<D: StreamDevice>(
    stream: &Arc<DriverStream<D::Context>>,
    AwaitedSignals { order, dependencies }: AwaitedSignals<D>,
) -> Result<WaitedSignals<D>> {
    for signal in order {
        signal.order_before(stream)?;
    }
    let mut waited = WaitedSignals { needs: SignalNeeds::<D>::default(), failure: None };
    for signal in dependencies {
        let failed = signal.order_before(stream)?;
        if let Some(failure) = failed.as_ref().or(signal.known_failure()) {
            waited.failure.get_or_insert_with(|| failure.clone());
        }
        if failed.is_none() {
            waited.needs.push(signal);
        }
    }
    Ok(waited)
}

/// The last signals of the events of a wait list.
#[derive(Debug)]
pub(super) struct AwaitedSignals<D: StreamDevice> {
    order: Signals<D>,
    dependencies: Signals<D>,
}

type Signals<D> = SmallVec<[Arc<StreamSignal<D>>; 4]>;

impl<D: StreamDevice> AwaitedSignals<D> {
    pub(super) fn of(wait: WaitList<'_>) -> Result<Self> {
        Ok(Self { order: signals(wait.order)?, dependencies: signals(wait.dependencies)? })
    }
}

/// A wait list as the enqueue behind it sees it.
#[derive(Debug)]
pub(super) struct WaitedSignals<D: StreamDevice> {
    pub needs: SignalNeeds<D>,
    /// The failure that a dependency has, or will have when its work has ended: nothing runs, and this is the
    /// outcome once everything before it has ended.
    pub failure: Option<Error>,
}

/// The last signals of these events.
fn signals<D: StreamDevice>(events: &[&dyn Event]) -> Result<Signals<D>> {
    let last = |event: &&dyn Event| {
        let event = event.downcast_ref::<StreamEvent<D>>().ok_or_else(foreign_wait)?;
        event.last_signal().ok_or_else(idle_wait)
    };
    events.iter().map(last).collect()
}

/// A device whose queues launch commands.
pub trait LaunchDevice: StreamDevice<Context: CaptureContext> {
    /// Enqueues a command outside command-buffers.
    fn enqueue_single(
        queue: &StreamQueue<Self>,
        command: &Arc<Command>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()>;

    /// Launches a command-buffer of this device as part of a batch, behind which an event is recorded. Gives
    /// the failure of a part that could not be launched behind others. The caller has bound the context.
    fn launch_in_batch(
        device: &Arc<Self>,
        buffer: &dyn CommandBuffer,
        stream: &BorrowedStream<Self::Context>,
    ) -> Result<Option<Error>>;
}

impl<D: LaunchDevice> Queue for StreamQueue<D> {
    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        // Its event says all.
        if matches!(**command, Command::Empty) {
            return self.submit(None, None, wait, signal, |_, _| Ok(Started::default()));
        }
        if let Command::StreamTask(task) = &**command {
            return self.run_stream_task(task, wait, signal);
        }
        D::enqueue_single(self, command, wait, signal)
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], signal: Signal<'_>) -> Enqueued {
        let (mut count, mut failure) = (0, None);
        let outcome = self.submit(None, None, WaitList::NONE, signal, |stream, _| {
            let mut started = Started::default();
            for &buffer in buffers {
                match D::launch_in_batch(&self.device, buffer, stream) {
                    // One event tells of all of them, so all fail with what was launched by half.
                    Ok(by_half) => started.failure = started.failure.or(by_half),
                    Err(error) => {
                        failure = Some(self.device.context().error(error.clone()));
                        // With something on the stream, the event still tells of its end.
                        return if count == 0 { Err(error) } else { Ok(started) };
                    }
                }
                count += 1;
            }
            Ok(started)
        });
        Enqueued { count, failure: failure.or(outcome.err()) }
    }

    fn flush(&self) -> Result<()> {
        self.device.context().health().status()
    }

    fn finish(&self) -> Result<()> {
        let context = self.device.context();
        context.health().status()?;
        let in_flight = self.streams.stream();
        in_flight.map_or(Ok(()), |stream| stream.synchronize()).map_err(|failure| context.error(failure))
    }
}

impl<D: StreamDevice<Context: CaptureContext>> StreamQueue<D> {
    /// Has the stream wait, calls the closure, and records the event. No lock is held during the call.
    pub fn run_stream_task(
        &self,
        task: &NativeCommand,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let (device, context) = (&self.device, self.device.context());
        let event = StreamEvent::of(&**signal.event, device)?;
        context.health().status()?;
        event.check_not_pending()?;
        let awaited = AwaitedSignals::of(wait)?;
        let is_timed = self.desc.profiling || signal.timed;
        context.run(|| {
            let borrowed = self.streams.borrow_alone()?;
            let stream = &borrowed.stream;
            let begin = || {
                let WaitedSignals { needs, failure } = wait_for(stream, awaited)?;
                device.memory_stream().order_before(stream)?;
                let first = event.records().start.as_ref().filter(|_| is_timed && failure.is_none());
                let begin_times = |first: &RawEvent<D::Context>| -> Result<_> {
                    let times = SignalTimes::begin(device.parts().clock.base()?, 0);
                    first.record(stream)?;
                    Ok(times)
                };
                Ok((needs, failure, first.map(begin_times).transpose()?))
            };
            let (needs, failure, times) = match begin() {
                Ok(begun) => begun,
                Err(error) => {
                    borrowed.abandon();
                    return Err(error);
                }
            };
            let failure = failure.or_else(|| self.call(task, stream).err());
            event.signal_by(|records| {
                let end = match stream.record(&records.end) {
                    Ok(sequence) => SignalEnd::Recorded(sequence),
                    Err(failure) => SignalEnd::Broken(context.error(failure)),
                };
                let signal = StreamSignal::new(device, records, stream, end, times, needs, None);
                Ok(signal.failing(failure).in_turn(borrowed.turn))
            })
        })
    }

    /// Calls the closure, with the context bound. What the closure leaves behind on the thread and on the
    /// stream is put in order.
    fn call(&self, task: &NativeCommand, stream: &DriverStream<D::Context>) -> Result<()> {
        let context = self.device.context();
        // SAFETY: the stream lives until the end of this function, and so does the value.
        let lent = unsafe { stream.lent() };
        // SAFETY: the stream waits for the wait list, in the current context; the event is recorded behind
        // what is on it then.
        let called = call_user(|| unsafe { task.call_live(&lent) });
        // A library may have made another context current.
        let current = context.make_current().map_err(|failure| context.error(failure));
        let captured = stream.end_open_capture().map_err(|failure| context.error(failure));
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

/// An event that is complete once the last record of another library's is.
///
/// # Safety
/// The handle is that of a live event.
unsafe fn import_event<D: StreamDevice>(
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
    let following = unsafe { device.parts().import_streams.follow(handle, &records.end) };
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
unsafe fn order_stream_after<D: StreamDevice<Context: CaptureContext>>(
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

//! Events: each tells of the completion of one enqueue on a queue.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::{DeviceId, Error, Result};

/// The status of an event.
#[derive(Clone, Debug)]
pub enum EventStatus {
    /// No enqueue has signalled the event yet.
    Idle,
    /// The work that signals the event is enqueued and not complete.
    Pending,
    /// The work is complete and its writes are visible.
    Complete,
    /// The work will never complete, because one of its commands or of its dependencies failed.
    Failed(Error),
}

impl EventStatus {
    /// Whether it will not change until the event is signalled again.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Complete | Self::Failed(_))
    }
}

/// Options for creating an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventDesc {
    /// Whether the event keeps times: needed where a queue or command-buffer created with profiling
    /// signals it, and for a [timed](Signal::timed) signal.
    pub profiling: bool,
}

impl EventDesc {
    /// An event without times.
    pub const fn new() -> Self {
        Self { profiling: false }
    }
}

setters! { const EventDesc { profiling: bool } }

/// Completion of one enqueued thing. Reusable: each enqueue that names it in its [`Signal`] makes
/// it pending again.
///
/// A wait for an event means the signal that was enqueued last before the wait. An event may be
/// signalled again as soon as it is final, even if waits for its last signal are still queued.
pub trait Event: Any + Debug + Send + Sync {
    /// The device it belongs to.
    fn device(&self) -> DeviceId;

    /// The real status at this moment; never blocks. Asking implies a
    /// [`flush`](crate::Queue::flush) of the queue, as do [`wait`](Self::wait) and being in a wait
    /// list.
    fn status(&self) -> EventStatus;

    /// Whether nothing that signals it has been enqueued. Where [`status`](Self::status) has to ask
    /// the driver, this need not.
    fn is_idle(&self) -> bool {
        matches!(self.status(), EventStatus::Idle)
    }

    /// Blocks until the status is final, or `timeout` has passed; an idle event returns at once.
    /// Not for async tasks.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus;

    /// Asks the work that signals it to stop: a [`While`](crate::Command::While) that is reached, or that
    /// runs, begins no further iteration, a kernel that [can be stopped](crate::Kernel::can_be_stopped) no
    /// further part, and the event fails with [`Cancelled`](crate::ErrorKind::Cancelled). Commands behind it
    /// may still run. Does not block, and does nothing to other work, to
    /// [batches](crate::Queue::enqueue_batch), and to later work that signals the event.
    fn stop(&self) {}

    /// Percentage of the running kernel that has run, where the device knows.
    fn percent(&self) -> Option<u8> {
        None
    }

    /// The times of what it last signalled.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) when it is not complete, or neither
    /// the queue nor the command-buffer was created with profiling and the signal was not timed;
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) when it took too long for the clock of
    /// the device.
    fn profile(&self) -> Result<EventProfile>;
}

downcast!(Event);

/// Times of one enqueued thing, in nanoseconds of the device's [clock](crate::Device::clock).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventProfile {
    /// Time of the enqueue.
    pub submitted: u64,
    /// Start of the first command.
    pub start: u64,
    /// End of the last command.
    pub end: u64,
    /// Each command of a command-buffer created with profiling, in the order of the appends;
    /// otherwise empty.
    pub commands: Vec<CommandTimes>,
}

impl EventProfile {
    /// Times of an enqueue, without those of single commands.
    pub fn new(submitted: u64, start: u64, end: u64) -> Self {
        Self { submitted, start, end, commands: Vec::new() }
    }
}

setters! { EventProfile { commands: Vec<CommandTimes> } }

/// Times of one command of a command-buffer, in nanoseconds of the device's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommandTimes {
    /// Start of the command.
    pub start: u64,
    /// End of the command.
    pub end: u64,
}

impl CommandTimes {
    /// The times of a command.
    pub fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }
}

/// A listener for events that become final.
///
/// Called on a thread of the device's, the driver's or the caller's, possibly before the enqueue
/// has returned. It must be short, must not block, and must not run user code: set a flag, wake a
/// task. The event's status is final by then.
pub trait Notify: Send + Sync {
    /// Called when the event that was enqueued with this `token` is final.
    fn notify(&self, token: u64);
}

/// A listener to notify, with the token that it gets.
#[derive(Clone)]
pub struct Notification {
    /// The listener. The device holds this reference until it has called it. Dropping it may
    /// release events.
    pub target: Arc<dyn Notify>,
    /// The token that the listener gets.
    pub token: u64,
}

impl Notification {
    /// Notifies `target` with `token`.
    pub fn new(target: Arc<dyn Notify>, token: u64) -> Self {
        Self { target, token }
    }
}

impl Debug for Notification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notification").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The events that an enqueue waits for.
///
/// A device for which the two are the same (CUDA's events do not carry failures) treats them alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitList<'a> {
    /// Events whose results are needed: if one fails, the enqueued commands do not run, and their
    /// event fails likewise.
    pub dependencies: &'a [&'a dyn Event],
    /// Events that only have to be final, complete or failed.
    pub order: &'a [&'a dyn Event],
}

impl<'a> WaitList<'a> {
    /// The empty list.
    pub const NONE: WaitList<'static> = WaitList { dependencies: &[], order: &[] };

    /// A list of events whose results are needed.
    pub fn dependencies(dependencies: &'a [&'a dyn Event]) -> Self {
        Self { dependencies, order: &[] }
    }

    /// A list of events that only have to be final.
    pub fn order(order: &'a [&'a dyn Event]) -> Self {
        Self { dependencies: &[], order }
    }

    /// Whether there are no events in it.
    pub fn is_empty(&self) -> bool {
        self.dependencies.is_empty() && self.order.is_empty()
    }

    /// All events of the list.
    pub fn events(&self) -> impl Iterator<Item = &'a dyn Event> {
        self.dependencies.iter().chain(self.order).copied()
    }
}

/// Way in which an enqueue reports its completion.
#[derive(Debug)]
pub struct Signal<'a> {
    /// Becomes pending now and final when everything is done. It must not be pending already.
    pub event: &'a Arc<dyn Event>,
    /// Called once when the event is final, on devices whose
    /// [`Capabilities::notifies`](crate::Capabilities::notifies) says so; ignored (dropped) by the
    /// others.
    pub notification: Option<Notification>,
    /// Whether the event is to keep the times of the enqueue as a whole, also where neither the queue nor the
    /// command-buffer was created with profiling. The event was.
    pub timed: bool,
}

impl<'a> Signal<'a> {
    /// Signals `event`, without a notification, and without times that the queue or command-buffer does not
    /// keep.
    pub fn new(event: &'a Arc<dyn Event>) -> Self {
        Self { event, notification: None, timed: false }
    }
}

setters! { Signal<'a> { timed: bool, notification: Option<Notification> } }

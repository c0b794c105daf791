//! What the backend's device gives its queues and events.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use super::clock::DeviceClock;
use super::stream::{ImportStreams, StreamContext};
use crate::{DeviceId, DeviceInfo, Error};

/// What all objects of a device share and keep alive.
pub trait StreamDevice: Debug + Send + Sync + Sized + 'static {
    /// The driver's context.
    type Context: StreamContext;
    /// What may tell of the end of a run in the place of an event.
    type Counted: CountedEnd;
    /// The loops of a run about which the device decides by itself.
    type Loops: StoppableLoops;

    /// Name, driver and size of the device.
    fn info(&self) -> &DeviceInfo;

    /// The device's id.
    fn id(&self) -> DeviceId {
        self.info().id
    }

    /// The driver's context of this device.
    fn context(&self) -> &Arc<Self::Context>;

    /// Converts the device's times to the host's.
    fn clock(&self) -> &DeviceClock<Self::Context>;

    /// Where events of other libraries are waited for.
    fn import_streams(&self) -> &ImportStreams<Self::Context>;
}

/// What a backend says about work that it has put on a stream.
#[derive(Debug)]
pub struct Started<D: StreamDevice> {
    /// Tells of the end of the work in the place of an event.
    pub counted: Option<D::Counted>,
    /// The loops in the work, if there are some.
    pub loops: Option<D::Loops>,
    /// Why the enqueue fails once what is on the stream is over: the rest could not be launched.
    pub failure: Option<Error>,
}

impl<D: StreamDevice> Default for Started<D> {
    fn default() -> Self {
        Self { counted: None, loops: None, failure: None }
    }
}

/// The loops of one run.
pub trait StoppableLoops: Debug + Send + Sync {
    /// Asks them to begin no further iteration.
    fn stop(&self);

    /// Whether one of them has ended because it was asked to. The run is over.
    fn have_been_stopped(&self) -> bool;
}

/// Of drivers whose devices decide about no loops.
impl StoppableLoops for Infallible {
    fn stop(&self) {
        match *self {}
    }

    fn have_been_stopped(&self) -> bool {
        match *self {}
    }
}

/// A run whose end the host sees without a call of the driver's.
pub trait CountedEnd: Debug + Send + Sync {
    /// Returns true once the counted work has ended.
    fn is_over(&self) -> bool;
}

/// Of drivers where only events tell.
impl CountedEnd for Infallible {
    fn is_over(&self) -> bool {
        match *self {}
    }
}

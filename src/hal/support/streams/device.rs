//! What the backend's device gives its queues and events.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use super::clock::DeviceClock;
use super::stream::{ImportStreams, StreamContext};
use crate::hal::DeviceInfo;
use crate::types::DeviceId;

/// What all objects of a device share and keep alive.
pub(crate) trait StreamDevice: Debug + Send + Sync + Sized + 'static {
    type Context: StreamContext;
    /// What may tell of the end of a run in the place of an event.
    type Counted: CountedEnd;

    fn info(&self) -> &DeviceInfo;

    fn id(&self) -> DeviceId {
        self.info().id
    }

    fn context(&self) -> &Arc<Self::Context>;

    fn clock(&self) -> &DeviceClock<Self::Context>;

    /// Where events of other libraries are waited for.
    fn import_streams(&self) -> &ImportStreams<Self::Context>;
}

/// A run whose end the host sees without a call of the driver's.
pub(crate) trait CountedEnd: Debug + Send + Sync {
    fn is_over(&self) -> bool;
}

/// Of drivers where only events tell.
impl CountedEnd for Infallible {
    fn is_over(&self) -> bool {
        match *self {}
    }
}

//! What the objects of a device know of it.

use std::fmt::Debug;

use crate::DeviceId;

/// The context of a device, which all objects of the device share and keep alive.
pub trait DeviceContext: Debug + Send + Sync + 'static {
    /// The device.
    fn id(&self) -> DeviceId;
}

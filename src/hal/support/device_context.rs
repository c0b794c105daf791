//! What the objects of a device know of it.

use std::fmt::Debug;

use crate::types::DeviceId;

/// The context of a device, which all objects of the device share and keep alive.
pub(crate) trait DeviceContext: Debug + Send + Sync + 'static {
    fn id(&self) -> DeviceId;
}

//! The reactor's thread beside polling: it submits runs that were left to it.

use std::sync::Arc;

use crate::runtime::completion::pending::Pending;

/// Submits runs on the reactor's thread and ends them.
pub(crate) trait Submitter: Send + Sync {
    /// Submits what waits and polls what is in flight. A run that takes long is given to `watch`, with the
    /// number of its queue. Whether there is more to do without a pause.
    fn turn(&self, watch: &mut dyn FnMut(u64, Arc<dyn Pending>)) -> bool;

    /// Whether there are runs for [`settle`](Self::settle).
    fn has_ended(&self) -> bool;

    /// Completes the runs that have ended on the device, before the thread sleeps.
    fn settle(&self);

    /// The thread is about to sleep. Whether it may.
    #[must_use]
    fn fall_asleep(&self) -> bool;

    /// The thread does not sleep any more.
    fn wake_up(&self);

    /// The device is gone and the thread ends: lets go of everything of the device.
    fn close(&self);
}

//! The health of devices: what is known of it, and telling those who watch.

use std::fmt::{self, Debug, Display};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use tokio::sync::watch;
use wakegraph_hal::Error;

use crate::runtime::completion::tasks::wake_or_defer;
use crate::util::deferred_drop::drop_later;

/// Whether a device can be relied on. See [`Device::health`](crate::Device::health).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Health {
    /// The device works, as far as is known.
    #[default]
    Healthy,
    /// The [watchdog](crate::SubmitBuilder::watchdog) of a submission has found that it hangs, and it is
    /// not ended yet. The error names the partition, and the node if the partition has only one.
    Stalled(Error),
    /// The device takes no new work, because of [`shutdown`](crate::Device::shutdown).
    ShutDown,
    /// The device is gone for good, with everything on it.
    Lost(Error),
}

impl Health {
    /// Whether work should be sent to the device.
    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy)
    }

    /// Whether the device is gone for good.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Returns the error that describes what is wrong, if there is one.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Self::Stalled(error) | Self::Lost(error) => Some(error),
            Self::Healthy | Self::ShutDown => None,
        }
    }
}

impl Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            // It says what it is.
            Self::Stalled(error) | Self::Lost(error) => Display::fmt(error, f),
            Self::ShutDown => f.write_str("shut down"),
        }
    }
}

/// Health of one device, as far as known. Changes may be made under locks: its watchers are woken
/// later, as the tasks that wait for a submission are.
pub(crate) struct HealthCell {
    sender: watch::Sender<Health>,
    state: Mutex<HealthState>,
    listeners: Mutex<Vec<Weak<dyn HealthListener>>>,
}

/// A part of the crate that acts when the health of a device has changed, without a task that awaits it.
pub(crate) trait HealthListener: Send + Sync {
    /// Called without locks.
    fn health_changed(&self);
}

#[derive(Default)]
struct HealthState {
    lost: Option<Error>,
    is_shut_down: bool,
    /// Submissions that hang, oldest first.
    stalls: Vec<(u64, Error)>,
    next_stall: u64,
}

impl HealthCell {
    pub(crate) fn new() -> Arc<Self> {
        let (sender, state) = (watch::Sender::default(), Mutex::default());
        Arc::new(Self { sender, state, listeners: Mutex::default() })
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Health> {
        self.sender.subscribe()
    }

    /// Tells a listener of changes as long as it lives.
    pub(crate) fn tell(&self, listener: Weak<dyn HealthListener>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    /// Why the device is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Error> {
        self.state.lock().lost.clone()
    }

    /// Whether a submission hangs.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.state.lock().stalls.is_empty()
    }

    /// The error of a submission that hangs.
    pub(crate) fn stalled(&self) -> Option<Error> {
        self.state.lock().stalls.first().map(|(_, error)| error.clone())
    }

    /// The device is lost. Whether that was not known before.
    pub(crate) fn set_lost(self: &Arc<Self>, error: Error) -> bool {
        let is_news = {
            let lost = &mut self.state.lock().lost;
            let is_news = lost.is_none();
            lost.get_or_insert(error);
            is_news
        };
        if is_news {
            self.publish();
        }
        is_news
    }

    /// The device takes no new work.
    pub(crate) fn set_shut_down(self: &Arc<Self>) {
        self.state.lock().is_shut_down = true;
        self.publish();
    }

    /// A submission hangs, until the value that this returns is dropped.
    pub(crate) fn stall(self: &Arc<Self>, error: Error) -> Stall {
        let id = {
            let mut state = self.state.lock();
            state.next_stall += 1;
            let id = state.next_stall;
            state.stalls.push((id, error));
            id
        };
        self.publish();
        Stall { health: self.clone(), id }
    }

    /// Tells those who watch, once no lock is held.
    fn publish(self: &Arc<Self>) {
        wake_or_defer(Waker::from(self.clone()));
    }

    fn current(&self) -> Health {
        let state = self.state.lock();
        match (&state.lost, state.stalls.first()) {
            (Some(error), _) => Health::Lost(error.clone()),
            (None, Some((_, error))) => Health::Stalled(error.clone()),
            (None, None) if state.is_shut_down => Health::ShutDown,
            (None, None) => Health::Healthy,
        }
    }
}

impl Wake for HealthCell {
    fn wake(self: Arc<Self>) {
        // Of two threads the later one sends what both have changed.
        self.sender.send_modify(|health| *health = self.current());
        let listeners: Vec<_> = self.listeners.lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| listener.health_changed());
        // One of these may be the last handle of a pool. This thread may be a driver's, which must not drop
        // the pool's slots.
        drop_later(listeners);
    }
}

/// A submission that hangs on a device.
pub(crate) struct Stall {
    health: Arc<HealthCell>,
    id: u64,
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.health.state.lock().stalls.retain(|(id, _)| *id != self.id);
        self.health.publish();
    }
}

impl Debug for HealthCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthCell").field(&self.current()).finish()
    }
}

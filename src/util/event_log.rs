//! Logs of events of the process: each log keeps the events between its start and its stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Events that a log keeps at most, which bounds the memory of one that is never stopped.
const MOST: usize = 10_000;

/// The logs of one kind of event that have started.
pub(crate) struct EventLogs<T> {
    on: Mutex<Vec<Arc<EventLog<T>>>>,
    /// Number of them. Where there is none, an event costs the read of this number.
    count: AtomicU32,
}

/// The events of one log.
#[derive(Debug)]
pub(crate) struct EventLog<T> {
    kept: Mutex<Vec<T>>,
    /// Number of events beyond those.
    omitted: AtomicU64,
}

impl<T: Clone> EventLogs<T> {
    pub(crate) const fn new() -> Self {
        Self { on: Mutex::new(Vec::new()), count: AtomicU32::new(0) }
    }

    /// Whether a log has started.
    pub(crate) fn is_recording(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Starts a log of the events from now on.
    pub(crate) fn start(&self) -> Arc<EventLog<T>> {
        let log = Arc::new(EventLog { kept: Mutex::new(Vec::new()), omitted: AtomicU64::new(0) });
        self.on.lock().push(log.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        log
    }

    /// Adds an event to the logs that have started.
    pub(crate) fn record(&self, event: &T) {
        for log in &*self.on.lock() {
            let mut kept = log.kept.lock();
            if kept.len() < MOST {
                kept.push(event.clone());
            } else {
                log.omitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Stops a log.
    pub(crate) fn stop(&self, log: &Arc<EventLog<T>>) {
        let mut on = self.on.lock();
        if let Some(at) = on.iter().position(|other| Arc::ptr_eq(other, log)) {
            on.swap_remove(at);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<T> EventLog<T> {
    /// Takes the events out, in the order in which they were recorded, with the number of those that did
    /// not fit.
    pub(crate) fn take(&self) -> (Vec<T>, u64) {
        (std::mem::take(&mut *self.kept.lock()), self.omitted.load(Ordering::Relaxed))
    }
}

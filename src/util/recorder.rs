//! Recordings of what the process does: each keeps what happens while it is on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Maximum of things kept, which bounds the memory of a recording that is left on.
const MOST: usize = 10_000;

/// The recordings of one kind of things that are on.
pub(crate) struct Recorders<T> {
    on: Mutex<Vec<Arc<Recorder<T>>>>,
    /// Number of them. What happens reads this, and no more where there is none.
    count: AtomicU32,
}

/// The things of one recording.
#[derive(Debug)]
pub(crate) struct Recorder<T> {
    kept: Mutex<Vec<T>>,
    /// Number of further ones.
    omitted: AtomicU64,
}

impl<T: Clone> Recorders<T> {
    pub(crate) const fn new() -> Self {
        Self { on: Mutex::new(Vec::new()), count: AtomicU32::new(0) }
    }

    /// Whether a recording is on.
    pub(crate) fn is_recording(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Records what happens from now on.
    pub(crate) fn start(&self) -> Arc<Recorder<T>> {
        let recorder = Arc::new(Recorder { kept: Mutex::new(Vec::new()), omitted: AtomicU64::new(0) });
        self.on.lock().push(recorder.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        recorder
    }

    /// Has the recordings that are on keep this.
    pub(crate) fn record(&self, happened: &T) {
        for recorder in &*self.on.lock() {
            let mut kept = recorder.kept.lock();
            if kept.len() < MOST {
                kept.push(happened.clone());
            } else {
                recorder.omitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends a recording.
    pub(crate) fn stop(&self, recorder: &Arc<Recorder<T>>) {
        let mut on = self.on.lock();
        if let Some(at) = on.iter().position(|other| Arc::ptr_eq(other, recorder)) {
            on.swap_remove(at);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<T> Recorder<T> {
    /// What was kept, in the order in which it happened, and how much more there was.
    pub(crate) fn take(&self) -> (Vec<T>, u64) {
        (std::mem::take(&mut *self.kept.lock()), self.omitted.load(Ordering::Relaxed))
    }
}

//! Recordings of runs: while one is on, every run that is submitted has a trace, and is kept until the
//! recording reads its times.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use crate::runtime::execution::run::{Run, RunTrace};
use crate::sync::{AtomicU64, Ordering};

/// The recordings that are on.
static RECORDERS: Mutex<Vec<Arc<RunRecorder>>> = Mutex::new(Vec::new());

/// How many those are: submissions read this, and no more where there is none.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// So many runs are kept, which bounds the memory of a recording that is left on.
const MOST_RUNS: usize = 10_000;

/// Whether a recording is on.
pub(super) fn is_recording() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// A run, and its trace, which has its times.
type RecordedRun = (Arc<Run>, Arc<RunTrace>);

/// The runs of one recording.
#[derive(Debug, Default)]
pub(crate) struct RunRecorder {
    runs: Mutex<Vec<RecordedRun>>,
    /// How many more there were.
    omitted: AtomicU64,
}

impl RunRecorder {
    /// Records the runs that are submitted from now on.
    pub(crate) fn start() -> Arc<Self> {
        let recorder = Arc::new(Self::default());
        RECORDERS.lock().push(recorder.clone());
        COUNT.fetch_add(1, Ordering::Relaxed);
        recorder
    }

    /// Records no more runs.
    pub(crate) fn stop(self: &Arc<Self>) {
        let mut all = RECORDERS.lock();
        if let Some(at) = all.iter().position(|other| Arc::ptr_eq(other, self)) {
            all.swap_remove(at);
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The runs, in the order of their submissions, and how many there were beyond those.
    pub(crate) fn take(&self) -> (Vec<RecordedRun>, u64) {
        (std::mem::take(&mut *self.runs.lock()), self.omitted.load(Ordering::Relaxed))
    }
}

impl Run {
    /// Has the recordings that are on keep the run, which is about to start. It is not reused meanwhile.
    pub(crate) fn record(self: &Arc<Self>) {
        if !self.is_traced() || !is_recording() {
            return;
        }
        let Some(trace) = self.trace() else { return };
        for recorder in &*RECORDERS.lock() {
            let mut runs = recorder.runs.lock();
            if runs.len() < MOST_RUNS {
                runs.push((self.clone(), trace.clone()));
            } else {
                recorder.omitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

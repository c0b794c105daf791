//! Stops the loops of a run about which the device decides.
//!
//! Each run of a graph with loops has a number, which a memset before the launch writes to a word on the
//! device. The kernel that decides about a loop ([`decide`](super::control_flow::decide)) compares it with a
//! word in pinned memory, where the host writes the number of the run whose loops are to end. So a word that
//! is written late never ends the loops of a later run. The runs of a graph come one after the other, and one
//! word serves all of them: it has the number of the earliest run that has been asked to stop and is not
//! known to be over.
//!
//! The kernel reads both words and the flag at the same time. The host's memory is about a microsecond away.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use wakegraph_hal::Result;
use wakegraph_hal::support::streams::StoppableLoops;

use super::completion_counter::{CompletionCounter, CounterPool};
use super::stream::CudaStream;
use super::sys::{CudaFailure, call};

/// Stops the loops of a graph's runs.
#[derive(Debug)]
pub(super) struct LoopStop {
    /// Its spare words are, on the host, the number of the run that is to stop, and of the last run that the
    /// device has stopped; on the device, the number of the run that is there.
    words: CompletionCounter,
    launched: AtomicU64,
    /// The runs that have been asked to stop and are not known to be over.
    asked: Mutex<BTreeSet<u64>>,
}

/// A run that can be stopped.
#[derive(Debug)]
pub(super) struct StoppableRun {
    stop: Arc<LoopStop>,
    run: u64,
    state: AtomicU8,
}

/// Nobody has asked the run to stop.
const RUNNING: u8 = 0;
/// Somebody has.
const ASKED: u8 = 1;
/// It is over.
const OVER: u8 = 2;

impl LoopStop {
    pub(super) fn create(pool: &Arc<CounterPool>) -> Result<Self> {
        let words = pool.take()?;
        words.spare_words().0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Ok(Self { words, launched: AtomicU64::new(0), asked: Mutex::default() })
    }

    /// What the deciding kernel takes: the addresses of the run's number on the device, and of the number of
    /// the run that is to stop. The device answers in the word behind the latter.
    pub(super) fn addresses(&self) -> [u64; 2] {
        let ([asked, _], run) = self.words.spare_words();
        [run, asked.as_ptr().expose_provenance() as u64]
    }

    /// Begins a run, whose launch comes next on the stream, where all earlier runs are over by then. The
    /// caller has bound the context.
    pub(super) fn begin_run(self: &Arc<Self>, stream: &CudaStream) -> Result<StoppableRun, CudaFailure> {
        let run = self.launched.fetch_add(1, Ordering::Relaxed);
        let (_, place) = self.words.spare_words();
        // SAFETY: the word stays as long as the device.
        unsafe { call!(stream.driver(), cuMemsetD32Async(place, number(run), 1, stream.raw())) }?;
        Ok(StoppableRun { stop: Arc::clone(self), run, state: AtomicU8::new(RUNNING) })
    }

    /// Tells the device which run is to stop.
    fn show(&self, asked: &BTreeSet<u64>) {
        let ([shown, _], _) = self.words.spare_words();
        shown.store(asked.first().map_or(0, |&run| number(run)), Ordering::Release);
    }
}

/// The number that the device has for a run, which is not 0.
fn number(run: u64) -> u32 {
    (run % u64::from(u32::MAX)) as u32 + 1
}

impl StoppableLoops for StoppableRun {
    fn stop(&self) {
        let mut asked = self.stop.asked.lock();
        if self.state.compare_exchange(RUNNING, ASKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            asked.insert(self.run);
            self.stop.show(&asked);
        }
    }

    fn have_been_stopped(&self) -> bool {
        if self.state.swap(OVER, Ordering::AcqRel) != ASKED {
            return false;
        }
        // Whoever has asked keeps the lock until the run is among those that have been asked.
        let mut asked = self.stop.asked.lock();
        let ([_, answer], _) = self.stop.words.spare_words();
        // A later run gives another answer only after it is shown.
        let is_stopped = answer.load(Ordering::Acquire) == number(self.run);
        asked.remove(&self.run);
        self.stop.show(&asked);
        is_stopped
    }
}

impl Drop for StoppableRun {
    /// The signal of a device that is given up may be dropped before the run is known to be over.
    fn drop(&mut self) {
        if *self.state.get_mut() == ASKED {
            self.have_been_stopped();
        }
    }
}

//! The end of partitions, and with the last of them of the run.

use super::{ENQUEUED, FAILED, Go, Inner, Run, SUCCEEDED};
use crate::hal::EventStatus;
use crate::runtime::drive::{Driver, Ready};
use crate::runtime::executable::Shared;
use crate::runtime::reaper::{self, Elsewhere};
use crate::sync::Ordering;
use crate::types::{Error, ErrorKind, Result};

impl Run {
    /// A partition does not start because of the others. Gives back what that makes ready.
    pub(crate) fn skip(&self, partition: usize, why: Go) -> Ready {
        match why {
            Go::Cancel => self.end(partition, Err(cancelled())),
            Go::Start | Go::Skip => self.end_with(partition, None, FAILED),
        }
    }

    /// Nothing of the run has started, and nothing will. The error is somebody else's: it keeps the place it names.
    pub(crate) fn abandon(&self, error: &Error) {
        self.set_failure(&mut self.inner.lock(), error.clone());
        if self.slots.is_empty() {
            return self.done.set();
        }
        for partition in 0..self.slots.len() {
            // What that makes ready ends here as well.
            let _ = self.end_with(partition, None, FAILED);
        }
    }

    /// A partition is final; starts what that makes ready.
    pub(crate) fn finish(&self, partition: usize, result: Result<()>) {
        let ready = self.end(partition, result);
        if let Some(driver) = self.driver_for(&ready) {
            driver.start(ready);
        }
    }

    pub(super) fn driver_for(&self, ready: &Ready) -> Option<Driver> {
        if ready.is_empty() { None } else { self.inner.lock().driver.clone() }
    }

    /// A partition is final. Only the first call for a partition counts: a device, the reactor and a task may all see it.
    /// Gives back the partitions that the caller has to start, as they waited for this one last.
    #[must_use]
    pub(crate) fn end(&self, partition: usize, result: Result<()>) -> Ready {
        match result {
            Ok(()) => self.end_with(partition, None, SUCCEEDED),
            Err(error) => self.end_with(partition, Some(error), FAILED),
        }
    }

    pub(super) fn end_with(&self, partition: usize, failure: Option<Error>, state: u8) -> Ready {
        let mut ready = Ready::new();
        let failed = failure.is_some();
        if let Some(error) = failure {
            // Before the state says so: whoever sees the partition failed finds the failure. The first one counts.
            let Some(shared) = self.inner.lock().owner.clone() else { return ready };
            self.record_failure(&shared, partition, error);
        }
        if self.slots[partition].state.swap(state, Ordering::AcqRel) > ENQUEUED {
            return ready;
        }
        if state == SUCCEEDED {
            self.measure(partition);
        }
        tracing::trace!(target: "wakegraph::partition", partition, succeeded = state == SUCCEEDED, "finished");
        // Each partition counts once, and this one has not been counted yet: at 1 all others are over, and none waits.
        let last = self.unfinished.load(Ordering::Acquire) == 1;
        if failed || !last {
            // Cloned: the others may still need it.
            let Some(shared) = self.inner.lock().owner.clone() else { return ready };
            for &successor in &shared.partitions[partition].wakes {
                if self.release(successor as usize) {
                    ready.push(successor);
                }
            }
        }
        if last || self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete();
        }
        ready
    }

    pub(super) fn record_failure(&self, shared: &Shared, partition: usize, error: Error) {
        // The failure of something it waited for is reported there, with the right place.
        let inherited = |&p: &u32| {
            self.event(p as usize).is_some_and(|event| matches!(event.status(), EventStatus::Failed(_)))
        };
        if shared.partitions[partition].device_predecessors.iter().any(inherited) {
            return;
        }
        let error = self.failed_dependency().unwrap_or_else(|| self.locate(shared, partition, error));
        let mut inner = self.inner.lock();
        match &inner.failure {
            // A cause says more than the cancellation that followed or preceded it.
            Some(earlier)
                if earlier.kind() != ErrorKind::Cancelled || error.kind() == ErrorKind::Cancelled => {}
            _ => self.set_failure(&mut inner, error),
        }
    }

    pub(super) fn set_failure(&self, inner: &mut Inner, error: Error) {
        inner.failure = Some(error);
        self.failed.store(true, Ordering::Release);
    }

    /// The failure of a run that this one depends on, with the place where it happened there.
    pub(super) fn failed_dependency(&self) -> Option<Error> {
        // An enqueue that fails gets here with the executable's state locked.
        let _elsewhere = Elsewhere::enter();
        let depends_on = self.inner.lock().depends_on.clone();
        depends_on.iter().find_map(|run| {
            // Its device may have told this run first.
            run.look();
            run.result().err()
        })
    }

    pub(super) fn complete(&self) {
        let (shared, driver, depends_on, comes_after, retired) = {
            let mut inner = self.inner.lock();
            let Some(shared) = inner.owner.take() else { return };
            // Once all runs of the batch have let it go it serves another.
            inner.batch_event = None;
            let earlier = (std::mem::take(&mut inner.depends_on), std::mem::take(&mut inner.comes_after));
            (shared, inner.driver.take(), earlier.0, earlier.1, std::mem::take(&mut inner.retired))
        };
        self.has_ended(&shared);
        if self.timed {
            self.learn(&shared);
        }
        if let Some(in_flight) = &self.in_flight {
            in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        // Over on their devices, whose notifications may lag: whoever sees this run finished finds them finished, too.
        depends_on.iter().for_each(|run| run.look());
        self.done.set();
        // These go last: they may be the only ones left, and then buffers and closures go with them.
        drop((shared, driver, depends_on, comes_after));
        if !retired.is_empty() {
            // Closures and memory, and who ends a run may hold a lock or be a device.
            reaper::drop_elsewhere(Box::new(retired));
        }
    }

    /// A run of nothing is done at once.
    pub(crate) fn complete_empty(&self) {
        self.done.set();
    }
}

pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the submission was cancelled before this partition started")
}

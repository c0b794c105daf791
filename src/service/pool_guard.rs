//! A slot that a request has to itself.

use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};

use crate::runtime::{ExecutableGraph, Submission, SubmitBuilder, Update};
use crate::service::deadline::Deadline;
use crate::service::permit::Permit;
use crate::service::slot_table::Made;

/// A slot of an [`ExecutablePool`](super::ExecutablePool) that its owner has to itself.
/// Dereferences to what the pool's closure made for the slot.
///
/// Dropping the guard gives the slot back. If one of its runs is still in flight, the slot goes
/// back when the run has ended; so dropping the guard early never puts more work on the device than
/// there are slots. Likewise, the slot waits for guards of buffers that the pool's closure has made
/// and that the executable uses: a response body that owns such a guard keeps the slot.
///
/// Use [`submit`](Self::submit)`().cancel_on_drop()` where a request that is given up should also stop
/// what has not started yet.
#[must_use = "the slot goes back to the pool when the guard is dropped"]
pub struct PoolGuard<T: Send + 'static> {
    /// Of a slot that has been made.
    permit: Permit<T>,
    deadline: Option<Deadline>,
}

impl<T: Send + 'static> PoolGuard<T> {
    pub(super) fn new(permit: Permit<T>) -> Self {
        Self { permit, deadline: None }
    }

    /// The slot for a request with this deadline.
    pub(super) fn with_deadline(mut self, deadline: Option<Deadline>) -> Self {
        self.deadline = deadline;
        self
    }

    fn made(&self) -> &Made<T> {
        self.permit.made().expect("a guard has its slot until it is dropped")
    }

    /// Submits the slot's executable; see [`ExecutableGraph::submit`]. If the slot was acquired with a
    /// [deadline](super::AcquireBuilder::deadline), it is the submission's as well.
    pub fn submit(&self) -> Submission {
        match self.deadline {
            None => self.keep(self.executable().submit()),
            Some(_) => self.submit_with(|submit| submit),
        }
    }

    /// Submits the slot's executable with a wait list, or whatever else
    /// [`ExecutableGraph::prepare`] offers. A deadline that is later than the slot's own changes nothing.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use wakegraph::Result;
    /// # use wakegraph::service::PoolGuard;
    /// # async fn example(slot: PoolGuard<()>) -> Result<()> {
    /// let in_time = Instant::now() + Duration::from_millis(50);
    /// slot.submit_with(|submit| submit.deadline(in_time)).await
    /// # }
    /// ```
    pub fn submit_with(
        &self,
        prepare: impl for<'a> FnOnce(SubmitBuilder<'a>) -> SubmitBuilder<'a>,
    ) -> Submission {
        let submit = prepare(self.executable().prepare());
        self.keep(match self.deadline {
            None => submit.submit(),
            Some(deadline) => {
                let before = deadline.waited();
                submit.answer_by(deadline.instant(), before).submit()
            }
        })
    }

    /// Prepares an update of the slot's executable, which has to be finalized as
    /// [updatable](crate::FinalizeOptions::updatable): for values that change per request. See
    /// [`ExecutableGraph::update`].
    pub fn update(&self) -> Update<'_> {
        self.executable().update()
    }

    /// The slot's executable, for its plan. The pool does not see what is submitted
    /// through it: the slot would go back while that is in flight.
    pub fn executable(&self) -> &ExecutableGraph {
        &self.made().executable
    }

    fn keep(&self, submission: Submission) -> Submission {
        let run = submission.event();
        // What was refused has changed nothing, unless the executable or its device is to blame.
        if !run.run().is_refused() || self.executable().inner.accepts_submissions().is_err() {
            self.made().runs.lock().add(run);
        }
        submission
    }
}

impl<T: Send + 'static> Deref for PoolGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.made().value
    }
}

impl<T: Send + 'static> DerefMut for PoolGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.permit.made_mut().expect("a guard has its slot until it is dropped").value
    }
}

impl<T: Send + 'static> Drop for PoolGuard<T> {
    /// The permit, dropped with the guard, gives the slot back. Where something still uses the slot, its
    /// end drops the permit as that of another guard.
    fn drop(&mut self) {
        if let Some(user) = self.permit.user() {
            let rest = Self { permit: self.permit.take(), deadline: None };
            drop(user.latch().drop_when_set(Box::new(rest)));
        }
    }
}

impl<T: Debug + Send + 'static> Debug for PoolGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolGuard").field(&**self).finish()
    }
}

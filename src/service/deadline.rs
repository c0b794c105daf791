//! Until when a request is worth its work: one time for its wait, its run and its answer.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::time::Instant;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::deadline;

/// The deadline of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Instant,
    /// Time at which the request began.
    since: Instant,
}

impl Deadline {
    /// The deadline of a request that begins now.
    pub(super) fn at(at: impl Into<Instant>) -> Self {
        Self { at: at.into(), since: Instant::now() }
    }

    pub(super) fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }

    pub(super) fn instant(&self) -> Instant {
        self.at
    }

    /// How long the request has waited so far.
    pub(super) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// The deadline of work that several requests share: that of the last one. None where one has none.
    pub(super) fn of_all(requests: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let mut requests = requests.into_iter();
        let first = requests.next()??;
        requests.try_fold(first, |last, next| next.map(|next| if next.at > last.at { next } else { last }))
    }
}

/// The error of a request that has not got further than `place` by its deadline.
pub(super) fn exceeded(place: impl Into<String>) -> Error {
    Error::new(ErrorKind::DeadlineExceeded, place)
}

/// Waits for `work` until `end` at most. `late` makes the error of work that is not ready by then, and of
/// work that would only begin then. Work that is ready at once needs no timer.
///
/// # Errors
/// That of `late`. [`Unavailable`](ErrorKind::Unavailable) on a runtime without its timer.
pub(super) async fn until<F: Future>(
    end: Option<Instant>,
    work: F,
    late: impl FnOnce() -> Error,
) -> Result<F::Output> {
    let Some(end) = end else { return Ok(work.await) };
    if Instant::now() >= end {
        return Err(late());
    }
    match select(pin!(work), pin!(deadline::passed(Some(end)))).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right((timer, _)) => timer.and_then(|()| Err(late())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_work_has_the_last_deadline_if_all_have_one() {
        let now = Instant::now();
        let [early, late] = [1, 2].map(|seconds| Some(Deadline::at(now + Duration::from_secs(seconds))));
        let of_all = |requests: &[Option<Deadline>]| {
            Deadline::of_all(requests.iter().copied()).map(|deadline| deadline.instant())
        };
        assert_eq!(of_all(&[early, late, early]), late.map(|late| late.instant()));
        assert_eq!(of_all(&[early]), early.map(|early| early.instant()));
        assert_eq!((of_all(&[late, None]), of_all(&[None, late]), of_all(&[])), (None, None, None));
    }
}

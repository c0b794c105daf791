//! Errors of backends: those of calls that a backend itself refuses, in the same words everywhere; and the
//! health of a device, which names the device in errors and remembers why it is lost.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::util::panics::catch;
use crate::{CommandBufferId, DeviceId, Error, ErrorKind, Result, SyncPoint};

/// Names a device in errors, and remembers the first one that says that it is lost.
#[derive(Debug)]
pub struct DeviceHealth {
    selector: String,
    lost: OnceLock<Error>,
    /// Whether the device was given up, although the driver does not say that it is lost.
    is_given_up: AtomicBool,
    opened: Instant,
}

/// The polls of one enqueue that have failed, one after the other.
#[derive(Debug, Default)]
pub struct FailedPolls {
    count: AtomicU32,
    /// Time at which the first of them failed, in nanoseconds since the device was opened.
    since: AtomicU64,
}

/// A device is given up when so many polls of an enqueue have failed one after the other, and for so long.
const MOST_FAILED: u32 = 100;
const LONGEST_FAILING: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 5 });

impl FailedPolls {
    /// A poll has succeeded.
    #[inline]
    pub fn reset(&self) {
        // These are figures for a decision, and order nothing.
        if self.count.load(Ordering::Relaxed) > 0 {
            self.count.store(0, Ordering::Relaxed);
        }
    }

    /// Another one has failed at this time. Whether there have been too many.
    fn add(&self, now: u64) -> bool {
        let earlier = self.count.fetch_add(1, Ordering::Relaxed);
        if earlier == 0 {
            self.since.store(now, Ordering::Relaxed);
        }
        let failing = Duration::from_nanos(now.saturating_sub(self.since.load(Ordering::Relaxed)));
        earlier.saturating_add(1) >= MOST_FAILED && failing >= LONGEST_FAILING
    }
}

impl DeviceHealth {
    /// A healthy device with this selector.
    pub fn new(selector: String) -> Self {
        let (lost, is_given_up) = (OnceLock::new(), AtomicBool::new(false));
        Self { selector, lost, is_given_up, opened: Instant::now() }
    }

    /// The device's selector, such as `cuda:0`.
    pub fn selector(&self) -> &str {
        &self.selector
    }

    /// Names the device in the error. Everything that fails because the device is lost fails for the
    /// first reason.
    pub fn error(&self, error: impl Into<Error>) -> Error {
        let error = error.into().on_device(&self.selector);
        if error.kind() != ErrorKind::DeviceLost {
            return error;
        }
        if self.lost.set(error.clone()).is_ok() {
            // What listens to the log must not keep what called this from its work.
            let _ = catch(|| tracing::error!(target: "wakegraph", %error, "a device is lost"));
        }
        self.lost.get().cloned().unwrap_or(error)
    }

    /// A poll of an enqueue has failed with this error. Gives why the device is lost, if it is: the driver
    /// says so, or has not said for long whether the enqueue has ended. Any other failure is one of the poll.
    /// It says nothing about the work, which may still run.
    #[cold]
    pub fn poll_failed(&self, polls: &FailedPolls, error: impl Into<Error>) -> Option<Error> {
        let error = error.into();
        if error.kind() == ErrorKind::DeviceLost {
            return Some(self.error(error));
        }
        let now = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if !polls.add(now) {
            return None;
        }
        // Before the loss can be seen.
        self.is_given_up.store(true, Ordering::Release);
        let why = format!("the driver does not say any more whether work has ended: {}", error.message());
        Some(self.error(Error::new(ErrorKind::DeviceLost, why).help("start the process again")))
    }

    /// Whether the device is lost, but its work may still run, because the driver has not said that it is
    /// over. What such work uses is kept for ever.
    pub fn may_still_run(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// The reason why the device is lost, if it is.
    pub fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    /// # Errors
    /// [`DeviceLost`](ErrorKind::DeviceLost) from the first such error on.
    pub fn status(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// The context of a device, which all objects of the device share and keep alive.
pub trait DeviceContext: Debug + Send + Sync + 'static {
    /// The device.
    fn id(&self) -> DeviceId;
}

/// An object that another device made is given to this one.
pub fn foreign(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the {what} belongs to another device"))
        .help(format!("create the {what} on the device that is to use it"))
}

/// A wait list names an event for which the queue cannot wait on the device.
pub fn foreign_wait() -> Error {
    Error::new(ErrorKind::InvalidWaitList, "the queue cannot wait for an event of this other device")
        .help("wait on the host first; `Device::can_wait_for` tells when that is needed")
}

/// A wait list names an event that no enqueue signals.
pub fn idle_wait() -> Error {
    Error::new(ErrorKind::InvalidWaitList, "an event in the wait list was never enqueued")
        .help("enqueue what signals it first")
}

/// An enqueue names an event that is still pending as its signal.
pub fn pending_signal() -> Error {
    invalid_operation("the event to signal is still pending")
        .help("wait for the event, or signal another one")
}

/// Memory of 0 bytes is allocated.
pub fn empty_allocation() -> Error {
    Error::new(ErrorKind::InvalidSize, "an allocation of 0 bytes")
}

/// Checks that `len` bytes at `offset` are a part of memory of `size` bytes.
///
/// # Errors
/// [`InvalidSize`](ErrorKind::InvalidSize) if they are not.
pub fn check_range(offset: usize, len: usize, size: usize) -> Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= size) {
        return Ok(());
    }
    let why = format!("{len} bytes at {offset} are not a range of {size} bytes");
    Err(Error::new(ErrorKind::InvalidSize, why))
}

/// A loop was asked to stop.
pub fn stopped_loop() -> Error {
    Error::new(ErrorKind::Cancelled, "the submission was cancelled before the next iteration")
}

/// A kernel was asked to stop.
pub fn stopped_kernel() -> Error {
    Error::new(ErrorKind::Cancelled, "the submission was cancelled while the kernel ran")
}

/// The object is in a state in which the call makes no sense.
pub fn invalid_operation(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// A command is appended to a command-buffer that is finalized.
pub fn append_after_finalize() -> Error {
    invalid_operation("commands cannot be appended after finalize")
}

/// A command-buffer is finalized again.
pub fn finalized_twice() -> Error {
    invalid_operation("the command-buffer is finalized already")
}

/// A command-buffer is enqueued that is not finalized.
pub fn enqueue_before_finalize() -> Error {
    invalid_operation("the command-buffer is not finalized")
}

/// A command-buffer is updated that is not finalized.
pub fn update_before_finalize() -> Error {
    invalid_operation("a command-buffer can be updated only after finalize")
}

/// A command-buffer is updated that was created as one which never changes.
pub fn not_updatable() -> Error {
    invalid_operation("the command-buffer is not updatable")
}

/// An update has failed half-way, and could not be undone because of `cause`.
#[cold]
pub fn half_updated(error: &Error, cause: &Error) -> Error {
    let why = format!("an update failed half-way and could not be undone ({cause}): {}", error.message());
    Error::new(ErrorKind::Driver, why)
}

/// An update names a command that does not exist, or not of the kind that it changes.
#[cold]
pub fn unknown_command(index: usize) -> Error {
    Error::new(ErrorKind::InvalidCommandHandle, format!("command {index} cannot be updated so"))
}

/// The times of an event are asked for that is not complete.
pub fn times_before_completion() -> Error {
    invalid_operation("an event has times only once it is complete")
}

/// The times of an event are asked for that keeps none.
pub fn no_times() -> Error {
    invalid_operation("neither the queue nor the command-buffer was created with profiling")
}

/// The index of the next command of a command-buffer, and the indices of those that it follows.
///
/// # Errors
/// [`InvalidSyncPoint`](ErrorKind::InvalidSyncPoint) for one that is not of an earlier command of
/// the same buffer; [`InvalidOperation`](ErrorKind::InvalidOperation) where no index is left.
pub fn next_command(
    buffer: CommandBufferId,
    commands: usize,
    after: &[SyncPoint],
) -> Result<(u32, SmallVec<[u32; 2]>)> {
    let index = u32::try_from(commands).map_err(|_| invalid_operation("the command-buffer is full"))?;
    let earlier = after.iter().map(|point| {
        let is_earlier = point.buffer == buffer && point.index < index;
        is_earlier.then_some(point.index).ok_or_else(|| {
            let why = "a sync-point is not of an earlier command of this command-buffer";
            Error::new(ErrorKind::InvalidSyncPoint, why)
        })
    });
    Ok((index, earlier.collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_given_up_after_many_failed_polls_in_a_row() {
        let health = DeviceHealth::new("cuda:3".into());
        let (polls, others) = (FailedPolls::default(), FailedPolls::default());
        let fail = |polls| health.poll_failed(polls, Error::new(ErrorKind::Driver, "unknown"));
        for _ in 0..10 {
            (1..MOST_FAILED).for_each(|_| assert!(fail(&polls).is_none() && fail(&others).is_none()));
            polls.reset();
            others.reset();
        }
        assert!(!health.may_still_run() && health.lost().is_none());
        (1..MOST_FAILED).for_each(|_| assert!(fail(&polls).is_none()));
        let lost = fail(&polls).unwrap();
        assert_eq!(lost.kind(), ErrorKind::DeviceLost);
        assert!(lost.message().contains("unknown") && health.may_still_run(), "{lost}");
        assert_eq!(health.status().unwrap_err().message(), lost.message());
    }

    #[test]
    fn failed_polls_are_too_many_only_after_a_time() {
        let (polls, longest) = (FailedPolls::default(), Duration::from_secs(5).as_nanos() as u64);
        (0..2 * u64::from(MOST_FAILED)).for_each(|now| _ = polls.add(now));
        assert!(polls.add(longest) && polls.since.load(Ordering::Relaxed) == 0);
        polls.reset();
        assert!(!polls.add(2 * longest) && polls.since.load(Ordering::Relaxed) == 2 * longest);
    }

    #[test]
    fn a_loss_of_which_the_driver_tells_ends_all_work() {
        let health = DeviceHealth::new("cuda:3".into());
        let lost = health.poll_failed(&FailedPolls::default(), Error::new(ErrorKind::DeviceLost, "gone"));
        assert_eq!(lost.unwrap().message(), "gone");
        assert!(!health.may_still_run());
    }

    #[test]
    fn the_first_loss_is_the_reason_of_all_later_ones() {
        let health = DeviceHealth::new("cuda:3".into());
        assert_eq!(health.error(Error::new(ErrorKind::Driver, "a")).kind(), ErrorKind::Driver);
        health.status().unwrap();
        let first = health.error(Error::new(ErrorKind::DeviceLost, "b"));
        assert!(first.to_string().contains("cuda:3"), "{first}");
        let second = health.error(Error::new(ErrorKind::DeviceLost, "c"));
        assert_eq!((second.message(), health.lost().unwrap().message()), ("b", "b"));
        assert_eq!(health.status().unwrap_err().message(), "b");
        assert_eq!(health.error(Error::new(ErrorKind::Driver, "d")).message(), "d");
    }
}

#[cfg(test)]
mod refusal_tests {
    use super::*;

    #[test]
    fn sync_points_are_of_earlier_commands_of_the_same_buffer() {
        let (buffer, other) = (CommandBufferId::unique(), CommandBufferId::unique());
        let point = |buffer, index| SyncPoint { buffer, index };
        let (index, after) = next_command(buffer, 2, &[point(buffer, 1), point(buffer, 0)]).unwrap();
        assert_eq!((index, &after[..]), (2, &[1, 0][..]));
        for wrong in [point(buffer, 2), point(other, 0)] {
            let error = next_command(buffer, 2, &[wrong]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSyncPoint);
        }
        let error = next_command(buffer, usize::MAX, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    }
}

//! The errors of calls that a backend itself refuses, in the same words on every backend.

use smallvec::SmallVec;

use crate::{CommandBufferId, Error, ErrorKind, Result, SyncPoint};

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

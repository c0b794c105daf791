//! The topology of an updatable command-buffer: its commands without their operands. A
//! command-buffer can be updated from another one of the same topology.

use smallvec::SmallVec;

use crate::{Command, CommandKind, Error, ErrorKind, Result, SyncPoint};

/// A command without its operands.
#[derive(Debug)]
pub(super) struct CommandShape {
    pub(super) kind: CommandKind,
    /// Indices of its sync-points.
    after: SmallVec<[u32; 2]>,
}

impl CommandShape {
    pub(super) fn new(command: &Command, after: &[SyncPoint]) -> Self {
        Self { kind: command.kind(), after: after.iter().map(|point| point.index).collect() }
    }
}

/// Checks that two command-buffers have the same topology.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument), with the first command that differs and how.
pub(super) fn check_same<'a>(
    ours: impl ExactSizeIterator<Item = &'a CommandShape>,
    theirs: impl ExactSizeIterator<Item = &'a CommandShape>,
) -> Result<()> {
    let lengths = (ours.len(), theirs.len());
    let differ = |(index, (ours, theirs)): (usize, (&CommandShape, &CommandShape))| {
        if ours.kind != theirs.kind {
            return Some(format!("command {index} is: {} here, {} there", ours.kind, theirs.kind));
        }
        let (ours, theirs) = (&ours.after, &theirs.after);
        (ours != theirs).then(|| {
            let (ours, theirs) = (shortened(ours), shortened(theirs));
            format!("command {index} comes after {ours} here and after {theirs} there")
        })
    };
    let why = ours.zip(theirs).enumerate().find_map(differ).or_else(|| {
        let (ours, theirs) = lengths;
        let index = ours.min(theirs);
        (ours != theirs)
            .then(|| format!("command {index} is in one of them only: {ours} here, {theirs} there"))
    });
    match why {
        None => Ok(()),
        Some(why) => {
            let why = format!("update from another buffer: {why}");
            Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("append the same kinds of commands with the same sync-points in the same order"))
        }
    }
}

/// Sync-points as a message shows them: a long list without its end.
fn shortened(points: &[u32]) -> String {
    const SHOWN: usize = 8;
    match points.len().checked_sub(SHOWN) {
        None | Some(0) => format!("{points:?}"),
        Some(more) => format!("{:?} and {more} more", &points[..SHOWN]),
    }
}

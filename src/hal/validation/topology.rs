//! The topology of an updatable command-buffer: its commands without their operands. A
//! command-buffer can be updated from another one of the same topology.

use std::fmt::Write as _;

use crate::hal::{Command, SyncPoint};
use crate::types::{CommandKind, Error, ErrorKind, Result};

/// Kinds and sync-points of all commands.
#[derive(Debug, Default)]
pub(super) struct Topology {
    kinds: Vec<CommandKind>,
    points: Vec<u32>,
    /// For each command, where its sync-points end in `points`; they start where those of the one
    /// before end.
    ends: Vec<usize>,
}

impl Topology {
    /// Remembers a command that was just appended.
    pub(super) fn record(&mut self, command: &Command, after: &[SyncPoint]) {
        self.kinds.push(command.kind());
        self.points.extend(after.iter().map(|point| point.index));
        self.ends.push(self.points.len());
    }

    pub(super) fn kind(&self, index: usize) -> Option<CommandKind> {
        self.kinds.get(index).copied()
    }

    /// Whether `other` is the same.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), with the first command that differs and
    /// how.
    pub(super) fn check_same(&self, other: &Self) -> Result<()> {
        let refused = |why: String| {
            let error = Error::new(ErrorKind::InvalidArgument, format!("update from another buffer: {why}"));
            Err(error.help("append the same kinds of commands with the same sync-points in the same order"))
        };
        for (index, (ours, theirs)) in self.kinds.iter().zip(&other.kinds).enumerate() {
            if ours != theirs {
                return refused(format!("command {index} is: {ours} here, {theirs} there"));
            }
            let (ours, theirs) = (self.points(index), other.points(index));
            if ours != theirs {
                let (ours, theirs) = (list(ours), list(theirs));
                return refused(format!("command {index} comes after {ours} here and after {theirs} there"));
            }
        }
        let (ours, theirs) = (self.kinds.len(), other.kinds.len());
        if ours != theirs {
            let index = ours.min(theirs);
            return refused(format!("command {index} is in one of them only: {ours} here, {theirs} there"));
        }
        Ok(())
    }

    fn points(&self, index: usize) -> &[u32] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.points[start..self.ends[index]]
    }
}

/// Sync-points as a message shows them: a long list without its end.
fn list(points: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut text = format!("{:?}", &points[..points.len().min(SHOWN)]);
    if points.len() > SHOWN {
        let _ = write!(text, " and {} more", points.len() - SHOWN);
    }
    text
}

//! How handing a run to the driver ends.

use super::sys::LevelZeroFailure;

/// What was handed to the driver.
#[derive(Debug)]
pub(super) enum Handover {
    Whole,
    /// The list of the copy engine was refused.
    WithoutCopies(LevelZeroFailure),
}

/// A run was refused.
#[derive(Debug)]
pub(super) struct HandoverFailure {
    pub(super) failure: LevelZeroFailure,
    /// Whether the driver may still use the events of the run.
    pub(super) is_partial: bool,
}

impl HandoverFailure {
    /// A failure before anything was handed over.
    pub(super) fn nothing(failure: LevelZeroFailure) -> Self {
        Self { failure, is_partial: false }
    }
}

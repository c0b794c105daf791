//! How eagerly completions are noticed, as users choose it.

/// The trade between the time until the end of a submission is seen and the CPU time spent on seeing it.
///
/// The submissions that a thread polls keep it for at most 25 us together; then other tasks have
/// their turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum WakePolicy {
    /// See it as early as possible; waiting may cost a core for short times.
    Latency,
    /// Short submissions are seen at once, long ones at little cost.
    #[default]
    Balanced,
    /// Never spin. A graph that is finalized under another policy may take a microsecond more on the
    /// device to be seen earlier; under this one it does not.
    Efficient,
}

impl WakePolicy {
    pub(crate) fn from_repr(repr: u8) -> Self {
        match repr {
            0 => Self::Latency,
            2 => Self::Efficient,
            _ => Self::Balanced,
        }
    }
}

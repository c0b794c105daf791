//! Options with which a device is opened.

use wakegraph_hal::Progress;

/// How closed lists reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lowering {
    /// The list is appended to an immediate list, with its wait list and its signal in the same
    /// call. Needs a driver with `ZE_experimental_immediate_command_list_append`; else as for
    /// `Execute`.
    Append,
    /// The list is executed on a queue between a prefix, which waits, and a suffix, which signals.
    Execute,
}

/// Options with which [`open`](super::open) opens a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelZeroOptions {
    pub(super) lowering: Option<Lowering>,
    pub(super) copy_engine: bool,
    pub(super) progress: Progress,
}

/// Forces a lowering on devices that are opened by their selector.
const LOWERING_VARIABLE: &str = "WAKEGRAPH_LEVEL_ZERO_LOWERING";

impl LevelZeroOptions {
    /// The defaults: lists are appended where the driver can do so, and copies use a copy engine
    /// where there is one.
    pub fn new() -> Self {
        Self { lowering: None, copy_engine: true, progress: Progress::Device }
    }

    /// Uses this lowering, where the driver has it.
    #[must_use]
    pub fn lowering(self, lowering: Lowering) -> Self {
        Self { lowering: Some(lowering), ..self }
    }

    /// Whether copies and fills of out-of-order command-buffers use a copy engine on devices that
    /// have one, which is the default.
    #[must_use]
    pub fn copy_engine(self, copy_engine: bool) -> Self {
        Self { copy_engine, ..self }
    }

    /// What drives the device's work, by default the device itself. A driver that computes on the host's
    /// cores, as simulators do, needs them while others wait:
    /// [`HostCores`](Progress::HostCores).
    #[must_use]
    pub fn progress(self, progress: Progress) -> Self {
        Self { progress, ..self }
    }

    /// As [`new`](Self::new), with the lowering that `WAKEGRAPH_LEVEL_ZERO_LOWERING` names:
    /// `append` or `execute`.
    pub(super) fn from_environment() -> Self {
        let variable = LOWERING_VARIABLE;
        let lowering = match std::env::var(variable).unwrap_or_default().as_str() {
            "" => None,
            "append" => Some(Lowering::Append),
            "execute" => Some(Lowering::Execute),
            other => {
                let why = "neither 'append' nor 'execute'";
                tracing::warn!(target: "wakegraph::level_zero", variable, other, why);
                None
            }
        };
        Self { lowering, ..Self::new() }
    }
}

impl Default for LevelZeroOptions {
    fn default() -> Self {
        Self::new()
    }
}

//! Options with which a device is opened.

/// The form of a command-buffer on the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lowering {
    /// Plain enqueues, one for each command.
    Replay,
    /// A `cl_khr_command_buffer`, where the device has it and can record every command; else as for `Replay`.
    CommandBuffer,
}

/// Options with which [`open`](super::open) opens a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenclOptions {
    pub(super) lowering: Option<Lowering>,
    pub(super) shared_memory: bool,
}

/// Forces a lowering on devices that are opened by their selector.
const LOWERING_VARIABLE: &str = "WAKEGRAPH_OPENCL_LOWERING";

impl OpenclOptions {
    /// The defaults: recordings on devices other than CPUs that have them, and shared virtual memory
    /// where the device has it.
    pub fn new() -> Self {
        Self { lowering: None, shared_memory: true }
    }

    /// Uses this lowering.
    #[must_use]
    pub fn lowering(self, lowering: Lowering) -> Self {
        Self { lowering: Some(lowering), ..self }
    }

    /// Whether memory is shared virtual memory on devices that have it fine-grained, which is the
    /// default. If not, memory is buffer objects, as on devices without it, and there are no raw
    /// pointers.
    #[must_use]
    pub fn shared_memory(self, shared_memory: bool) -> Self {
        Self { shared_memory, ..self }
    }

    /// As [`new`](Self::new), with the lowering that `WAKEGRAPH_OPENCL_LOWERING` names: `replay` or
    /// `command-buffer`.
    pub(super) fn from_environment() -> Self {
        let variable = LOWERING_VARIABLE;
        let lowering = match std::env::var(variable).unwrap_or_default().as_str() {
            "" => None,
            "replay" => Some(Lowering::Replay),
            "command-buffer" => Some(Lowering::CommandBuffer),
            other => {
                let why = "neither 'replay' nor 'command-buffer'";
                tracing::warn!(target: "wakegraph::opencl", variable, other, why);
                None
            }
        };
        Self { lowering, ..Self::new() }
    }
}

impl Default for OpenclOptions {
    fn default() -> Self {
        Self::new()
    }
}

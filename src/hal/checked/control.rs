//! Commands that hold commands, and native ones.

use super::command;
use super::memory::{self, Operand};
use crate::hal::{Body, Command, Device, MemoryView, NativeCommand};
use crate::types::{CommandKind, CommandKinds, Error, ErrorKind, Result};

/// Whether the device can put the command, and all that it holds, into a command-buffer.
pub(super) fn check_supported(command: &Command, supported: CommandKinds) -> Result<()> {
    let kind = command.kind();
    if !supported.contains(kind.as_set()) {
        return Err(unsupported(format!("the device cannot put this command into a command-buffer: {kind}")));
    }
    let held = command.bodies().fold(CommandKinds::empty(), |kinds, body| kinds | body.kinds());
    match CommandKind::all().find(|inner| (held - supported).contains(inner.as_set())) {
        None => Ok(()),
        Some(inner) => Err(unsupported(format!(
            "{kind}: the device cannot put a command of its body into a command-buffer: {inner}"
        ))),
    }
}

/// Checks every command of a body. Bodies lie [`Body::MAX_DEPTH`] deep at most, so this may take the stack.
pub(super) fn check_body(kind: CommandKind, body: &Body, device: &dyn Device) -> Result<()> {
    for (index, (inner, _)) in body.commands().enumerate() {
        command::check(inner, device).map_err(|error| {
            let why = format!("{kind}: command {index} of its body: {}", error.message());
            Error::new(error.kind(), why)
        })?;
    }
    Ok(())
}

/// The word that a conditional or a loop reads.
pub(super) fn check_condition(kind: CommandKind, view: &MemoryView, device: &dyn Device) -> Result<()> {
    const WORD: usize = size_of::<u32>();
    let condition = Operand { name: "condition", view };
    if view.len() != WORD {
        let why = format!("{kind}: {condition} is not a u32, which has {WORD} bytes");
        return Err(Error::new(ErrorKind::InvalidSize, why).help("pass a view of one u32"));
    }
    condition.check_access(&kind, device)?;
    if !memory::address(view).unwrap_or(view.offset()).is_multiple_of(WORD) {
        let why = format!("{kind}: {condition} does not start at a multiple of {WORD}");
        return Err(Error::new(ErrorKind::InvalidArgument, why).help("pass an element of a buffer of u32"));
    }
    Ok(())
}

/// What a native command says that it touches.
pub(super) fn check_native(native: &NativeCommand, device: &dyn Device) -> Result<()> {
    let kind = CommandKind::Native;
    native
        .memory()
        .iter()
        .try_for_each(|view| Operand { name: native.name(), view }.check_access(&kind, device))
}

#[cold]
fn unsupported(why: String) -> Error {
    Error::new(ErrorKind::FeatureNotSupported, why)
}

//! Child graphs, conditionals and loops, interpreted: the commands of a body run one after the
//! other, on the worker that has reached the command.
#![expect(unsafe_code, reason = "reads the words and runs the commands that commands name")]

use super::execute::{self, address};
use crate::hal::{Body, Command, MemoryView, NativeCommand};
use crate::types::{Error, ErrorKind, Result};

/// Whether the host can run everything in the command.
pub(super) fn check(command: &Command) -> Result<()> {
    if let Command::If { condition, .. } | Command::While { condition, .. } = command {
        address(condition)?;
    }
    command.bodies().try_for_each(|body| body.commands().try_for_each(|(command, _)| execute::check(command)))
}

/// The host has no stream to lend.
pub(super) fn unsupported(native: &NativeCommand) -> Error {
    let why = format!("the host has no stream for native command '{}'", native.name());
    Error::new(ErrorKind::FeatureNotSupported, why).help("write a kernel with a Rust closure instead")
}

/// Runs a command that holds bodies.
///
/// # Errors
/// The first of its commands': what comes after it does not run.
///
/// # Safety
/// As for [`execute::execute`].
pub(super) unsafe fn execute(command: &Command) -> Result<()> {
    match command {
        Command::Child(body) => {
            // SAFETY: passed on to the caller.
            unsafe { run(body) }
        }
        Command::If { condition, then, otherwise } => {
            // SAFETY: passed on to the caller.
            let holds = unsafe { is_set(condition) }?;
            match if holds { Some(then) } else { otherwise.as_ref() } {
                // SAFETY: passed on to the caller.
                Some(body) => unsafe { run(body) },
                None => Ok(()),
            }
        }
        Command::While { condition, body } => {
            // SAFETY: passed on to the caller.
            while unsafe { is_set(condition) }? {
                // SAFETY: passed on to the caller.
                unsafe { run(body) }?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// # Safety
/// As for [`execute`].
unsafe fn run(body: &Body) -> Result<()> {
    for (command, _) in body.commands() {
        // SAFETY: passed on to the caller. Every command comes after those that it names, and after
        // all others, too.
        unsafe { execute::execute(command) }?;
    }
    Ok(())
}

/// # Safety
/// As for [`execute`].
unsafe fn is_set(condition: &MemoryView) -> Result<bool> {
    let word = address(condition)?.cast::<u32>();
    // SAFETY: the view has 4 bytes, which nobody writes meanwhile.
    Ok(unsafe { word.read_unaligned() } != 0)
}

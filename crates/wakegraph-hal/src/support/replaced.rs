//! What the new value of an updated command still uses of the old one, which then need not be kept for
//! launches in flight.

use std::sync::Arc;

use crate::{Command, KernelArg, KernelLaunch, LaunchBefore};

/// Whether the new launch has all kernels and memory of the old one, so that nothing has to be kept
/// for launches in flight.
pub fn keeps_objects(old: &Command, new: &Command) -> bool {
    let (Command::Kernel(old), Command::Kernel(new)) = (old, new) else { return false };
    launch_keeps_objects(old, new)
}

/// The same of what an update has replaced in a launch.
pub fn keeps_replaced(before: &LaunchBefore, new: &KernelLaunch) -> bool {
    match before {
        LaunchBefore::Launch(old) => launch_keeps_objects(old, new),
        LaunchBefore::Argument(index, old) => new.args.get(*index).is_some_and(|new| keeps_memory(old, new)),
        LaunchBefore::Range(_) => true,
    }
}

fn launch_keeps_objects(old: &KernelLaunch, new: &KernelLaunch) -> bool {
    Arc::ptr_eq(&old.kernel, &new.kernel)
        && old.args.len() == new.args.len()
        && old.args.iter().zip(&new.args).all(|(old, new)| keeps_memory(old, new))
}

/// Whether the new argument has the memory of the old one, if that has any.
pub fn keeps_memory(old: &KernelArg, new: &KernelArg) -> bool {
    match (old, new) {
        (KernelArg::Memory(old), KernelArg::Memory(new)) => Arc::ptr_eq(old.memory(), new.memory()),
        (KernelArg::Memory(_), _) => false,
        _ => true,
    }
}
